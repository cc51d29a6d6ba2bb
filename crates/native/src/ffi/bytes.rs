//! `bytes` filled in place, and buffers of other objects.
#![allow(unsafe_code, reason = "writes into a fresh bytes object and into exported buffers")]

use std::mem::MaybeUninit;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

// PyO3 does not declare it (deprecated for callers outside, and the only way to shrink before PEP 782).
unsafe extern "C" {
    fn _PyBytes_Resize(object: *mut *mut ffi::PyObject, size: ffi::Py_ssize_t) -> std::ffi::c_int;
}

/// A `bytes` of at most `capacity`, filled by `fill`, which says how many it wrote (from the start).
///
/// Shrinking a large object costs memory-map calls: ask for what will come, not for what might.
pub(crate) fn filled<'py, E>(
    py: Python<'py>,
    capacity: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<usize, E>,
) -> PyResult<Result<Bound<'py, PyBytes>, E>> {
    // SAFETY: with a NULL source CPython allocates `capacity` bytes and leaves them uninitialised; nobody else
    // has seen the object yet, so writing into it is allowed. On success `count <= capacity` bytes were
    // initialised; resizing gives a new reference or NULL with an exception set, and takes the old one.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), capacity as ffi::Py_ssize_t);
        let mut owned = Bound::from_owned_ptr_or_err(py, object)?;
        let space = std::slice::from_raw_parts_mut(
            ffi::PyBytes_AS_STRING(object).cast::<MaybeUninit<u8>>().cast_mut(),
            capacity,
        );
        match fill(space) {
            Err(error) => return Ok(Err(error)),
            Ok(count) if count < capacity => {
                let mut raw = owned.into_ptr();
                _PyBytes_Resize(&raw mut raw, count as ffi::Py_ssize_t);
                owned = Bound::from_owned_ptr_or_err(py, raw)?;
            }
            Ok(_) => {}
        }
        Ok(Ok(owned.cast_into_unchecked()))
    }
}

/// Look at what a `bytearray` holds. `look` runs no Python code.
pub(crate) fn with_content<T>(array: &Bound<'_, PyByteArray>, look: impl FnOnce(&[u8]) -> T) -> T {
    // SAFETY: the lock is held, and `look` is native code of this crate that calls nothing of Python's, so
    // nobody resizes or writes the array meanwhile.
    unsafe { look(array.as_bytes()) }
}

/// Add to the end of a `bytearray`.
///
/// Fails with `BufferError` while somebody has its buffer exported, with `MemoryError` when memory runs out.
pub(crate) fn append(array: &Bound<'_, PyByteArray>, data: &[u8]) -> PyResult<()> {
    let length = array.len();
    array.resize(length + data.len())?;
    // SAFETY: the lock is held, no Python code runs, and the array has just been made that long.
    unsafe { array.as_bytes_mut()[length..].copy_from_slice(data) };
    Ok(())
}

/// Put `data` in the place of all that a `bytearray` holds. Its memory is used again.
///
/// Fails as [`append`].
pub(crate) fn overwrite(array: &Bound<'_, PyByteArray>, data: &[u8]) -> PyResult<()> {
    if array.len() != data.len() {
        array.resize(data.len())?;
    }
    // SAFETY: the lock is held, no Python code runs, and the array has just been made that long.
    unsafe { array.as_bytes_mut().copy_from_slice(data) };
    Ok(())
}

/// Take `count` bytes off the front of a `bytearray`.
///
/// Fails as [`append`].
pub(crate) fn delete_front(array: &Bound<'_, PyByteArray>, count: usize) -> PyResult<()> {
    if count >= array.len() {
        return array.resize(0);
    }
    // Deleting at the front moves a bytearray's start, not its bytes.
    // SAFETY: attached; the object is a bytearray.
    if unsafe { ffi::PySequence_DelSlice(array.as_ptr(), 0, count as ffi::Py_ssize_t) } != 0 {
        return Err(PyErr::fetch(array.py()));
    }
    Ok(())
}

/// A contiguous buffer that another object lends.
pub(crate) struct Lent {
    view: ffi::Py_buffer,
}

impl Lent {
    /// The writable buffer of `object`.
    ///
    /// Fails with `BufferError` or `TypeError` where it has none.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::with_flags(object, ffi::PyBUF_WRITABLE)
    }

    /// The readable buffer of `object`.
    ///
    /// Fails with `TypeError` where it has none, with `BufferError` where it is not contiguous.
    pub(crate) fn readable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::with_flags(object, ffi::PyBUF_SIMPLE)
    }

    fn with_flags(object: &Bound<'_, PyAny>, flags: std::ffi::c_int) -> PyResult<Self> {
        // SAFETY: a zeroed view is what PyObject_GetBuffer expects; it fills it or fails.
        let mut view: ffi::Py_buffer = unsafe { std::mem::zeroed() };
        // SAFETY: attached (`object` is bound), both pointers are valid.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut view, flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        if view.buf.is_null() && view.len > 0 {
            return Err(PyBufferError::new_err("the buffer has no memory"));
        }
        Ok(Self { view })
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.view.len as usize
    }

    /// Its memory, to write into.
    pub(crate) fn space(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.view.len == 0 {
            return &mut [];
        }
        // SAFETY: the exporter keeps `len` bytes at `buf` in place until the view is released. The lock is held
        // for as long as the slice is used (it does not outlive one system call), so no Python code looks on.
        unsafe { std::slice::from_raw_parts_mut(self.view.buf.cast::<MaybeUninit<u8>>(), self.len()) }
    }

    /// Its memory, to read from.
    pub(crate) fn content(&self) -> &[u8] {
        if self.view.len == 0 {
            return &[];
        }
        // SAFETY: as for `space`; readable memory of an exporter is initialised.
        unsafe { std::slice::from_raw_parts(self.view.buf.cast::<u8>(), self.len()) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the view was filled by PyObject_GetBuffer and is released once; whoever holds a `Lent` is
        // attached, since it lives only within one native call.
        unsafe { ffi::PyBuffer_Release(&raw mut self.view) }
    }
}
