//! Calls that PyO3 makes slower than need be.
#![allow(unsafe_code, reason = "calls PyObject_Vectorcall with a keyword")]

use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// `callable(name=value)`. The tuple of names is made once: there is one such call in this crate.
pub(crate) fn with_keyword<'py>(
    callable: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    value: Borrowed<'_, 'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static NAMES: OnceLock<Py<PyTuple>> = OnceLock::new();
    let py = callable.py();
    let names = match NAMES.get() {
        Some(names) => names,
        None => {
            let made = PyTuple::new(py, [name])?.unbind();
            NAMES.get_or_init(|| made)
        }
    };
    let vector = [ptr::null_mut(), value.as_ptr()];
    // SAFETY: attached; one value for the one name, with the free place in front that the flag promises.
    unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyObject_Vectorcall(
                callable.as_ptr(),
                vector.as_ptr().add(1),
                ffi::PY_VECTORCALL_ARGUMENTS_OFFSET,
                names.as_ptr(),
            ),
        )
    }
}

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
