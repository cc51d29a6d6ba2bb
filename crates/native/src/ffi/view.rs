//! Native memory lent to Python as a `memoryview` for the length of one call.
#![allow(unsafe_code, reason = "makes memoryviews of native memory, and takes them back")]

use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;

/// Call `body` with a read-only view of `data`.
///
/// Fails as `body` does, and with `BufferError` when somebody still holds an export of the view afterwards.
pub(crate) fn readable<'py, T>(
    py: Python<'py>,
    data: &[u8],
    body: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    lend(py, data.as_ptr().cast_mut(), data.len(), ffi::PyBUF_READ, body)
}

/// Call `body` with a view of `space`, to write into.
///
/// Fails as [`readable`].
pub(crate) fn writable<'py, T>(
    py: Python<'py>,
    space: &mut [MaybeUninit<u8>],
    body: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    lend(py, space.as_mut_ptr().cast(), space.len(), ffi::PyBUF_WRITE, body)
}

fn lend<'py, T>(
    py: Python<'py>,
    start: *mut u8,
    length: usize,
    flags: std::ffi::c_int,
    body: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    // SAFETY: attached; the memory is borrowed by the caller for longer than the view lives: the only reference
    // to the view is dropped here, or, should the callee have kept one, the view is released, so that
    // it refers to the memory no more. The result is a new reference or NULL with an exception set.
    let view = unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyMemoryView_FromMemory(start.cast(), length as ffi::Py_ssize_t, flags),
        )?
    };
    let result = body(&view);
    // SAFETY: attached; the view is alive.
    if unsafe { ffi::Py_REFCNT(view.as_ptr()) } > 1 {
        view.call_method0("release")?;
    }
    result
}
