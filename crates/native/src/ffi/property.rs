//! Attributes of a Python class that native code keeps: data descriptors made at run time.
#![allow(unsafe_code, reason = "implements CPython's getter and setter functions")]

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::{PyAttributeError, PySystemError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::attached::attached;

/// An attribute.
pub(crate) trait Property {
    /// Its name in Python.
    const NAME: &'static CStr;

    /// What reading it gives.
    fn get<'py>(slf: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>>;

    /// Assign to it.
    fn set(slf: Borrowed<'_, '_, PyAny>, value: Borrowed<'_, '_, PyAny>) -> PyResult<()>;
}

/// Put the attribute on `class`.
pub(crate) fn install<P: Property>(class: &Bound<'_, PyType>) -> PyResult<()> {
    let definition = Box::leak(Box::new(ffi::PyGetSetDef {
        name: P::NAME.as_ptr(),
        get: Some(getter::<P>),
        set: Some(setter::<P>),
        ..ffi::PyGetSetDef::default()
    }));
    // SAFETY: attached (`class` is bound); the definition is leaked, so it outlives the descriptor; the result
    // is a new reference or NULL with an exception set.
    let descriptor = unsafe {
        Bound::from_owned_ptr_or_err(class.py(), ffi::PyDescr_NewGetSet(class.as_type_ptr(), definition))?
    };
    class.setattr(P::NAME.to_string_lossy().as_ref(), descriptor)
}

/// The dictionary of an object's own attributes.
///
/// Fails with `AttributeError` for an object that has none.
pub(crate) fn own<'py>(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    // SAFETY: attached; the result is a new reference to a dictionary, or NULL with an exception set.
    unsafe {
        let dict = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        Ok(Bound::from_owned_ptr_or_err(object.py(), dict)?.cast_into_unchecked())
    }
}

unsafe extern "C" fn getter<P: Property>(slf: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        attached(|py| {
            // SAFETY: CPython calls this with a live object of the class.
            match P::get(unsafe { Borrowed::from_ptr(py, slf) }) {
                Ok(value) => value.into_ptr(),
                Err(error) => {
                    error.restore(py);
                    std::ptr::null_mut()
                }
            }
        })
    }));
    outcome.unwrap_or_else(|_| {
        panicked::<P>();
        std::ptr::null_mut()
    })
}

unsafe extern "C" fn setter<P: Property>(
    slf: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        attached(|py| {
            // SAFETY: CPython calls this with a live object of the class, and a value or, to delete, NULL.
            let (slf, value) = unsafe { (Borrowed::from_ptr(py, slf), Borrowed::from_ptr_or_opt(py, value)) };
            let outcome = match value {
                Some(value) => P::set(slf, value),
                None => Err(PyAttributeError::new_err(format!(
                    "attribute {:?} cannot be deleted",
                    P::NAME.to_string_lossy()
                ))),
            };
            match outcome {
                Ok(()) => 0,
                Err(error) => {
                    error.restore(py);
                    -1
                }
            }
        })
    }));
    outcome.unwrap_or_else(|_| {
        panicked::<P>();
        -1
    })
}

#[cold]
fn panicked<P: Property>() {
    attached(|py| {
        PySystemError::new_err(format!("panic in headrace: {}", P::NAME.to_string_lossy())).restore(py);
    });
}
