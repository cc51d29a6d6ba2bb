//! Calls that PyO3 makes slower than need be.
#![allow(unsafe_code, reason = "calls PyObject_Vectorcall with keywords")]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// `callable(*args[..n], **zip(names, args[n..]))`, where `n` is what the names leave of `args`.
pub(crate) fn with_names<'py, const N: usize>(
    callable: &Bound<'py, PyAny>,
    args: [&Bound<'py, PyAny>; N],
    names: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = callable.py();
    let positional = N.saturating_sub(names.len());
    let pointers = args.map(Bound::as_ptr);
    // SAFETY: attached; `pointers` holds as many valid references as positional arguments and names say, and
    // they live longer than the call. No offset flag is given, so the slot before the first is not touched.
    unsafe {
        let result =
            ffi::PyObject_Vectorcall(callable.as_ptr(), pointers.as_ptr(), positional, names.as_ptr());
        Bound::from_owned_ptr_or_err(py, result)
    }
}
