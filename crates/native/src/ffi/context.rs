//! `contextvars`: copying the current context, and running inside one.
#![allow(unsafe_code, reason = "calls PyContext_*, which PyO3 does not wrap")]

use pyo3::ffi;
use pyo3::prelude::*;

/// A copy of the current context (`contextvars.copy_context()`).
pub(crate) fn copy_current(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: attached; the result is a new reference or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContext_CopyCurrent()) }
}

/// Run `body` inside `context`.
///
/// Fails with `RuntimeError` when the context is entered already.
pub(crate) fn within<'py, T>(context: &Bound<'py, PyAny>, body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let py = context.py();
    // SAFETY: attached; PyContext_Enter checks the type of its argument.
    if unsafe { ffi::PyContext_Enter(context.as_ptr()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    let result = body();
    // SAFETY: attached, and no exception is set: `body` hands its own over as a value. The context was
    // entered above and every body leaves what it enters.
    if unsafe { ffi::PyContext_Exit(context.as_ptr()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    result
}
