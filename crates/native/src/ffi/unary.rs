//! Built-in functions bound to an object, of no or one argument: no argument parsing, no tuple.
#![allow(unsafe_code, reason = "implements the C calling conventions METH_O and METH_NOARGS")]

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::attached::attached;

/// The body of such a function.
pub(crate) trait Unary {
    /// Its name in Python.
    const NAME: &'static CStr;
    /// Whether it takes an argument; if not, `argument` is `None`.
    const TAKES_ARGUMENT: bool;

    /// Called with the object that the function was bound to.
    fn call<'py>(
        bound_to: Borrowed<'_, 'py, PyAny>,
        argument: Option<Borrowed<'_, 'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

struct Definition<U>(std::marker::PhantomData<U>);

impl<U: Unary> Definition<U> {
    const METHOD: ffi::PyMethodDef = ffi::PyMethodDef {
        ml_name: U::NAME.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: trampoline::<U> },
        ml_flags: if U::TAKES_ARGUMENT { ffi::METH_O } else { ffi::METH_NOARGS },
        ml_doc: std::ptr::null(),
    };
}

/// A new function object, bound to `object`, which it keeps alive.
pub(crate) fn bind<'py, U: Unary>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let definition: &'static ffi::PyMethodDef = &Definition::<U>::METHOD;
    // SAFETY: attached (`object` is bound); the definition is a promoted constant, so it lives for ever, and
    // CPython only reads it; the result is a new reference or NULL with an exception set.
    unsafe {
        let function = ffi::PyCFunction_NewEx(
            std::ptr::from_ref(definition).cast_mut(),
            object.as_ptr(),
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(object.py(), function)
    }
}

/// What CPython calls: only an attached thread does, with `this` the object that the function was bound to.
unsafe extern "C" fn trampoline<U: Unary>(
    this: *mut ffi::PyObject,
    argument: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        attached(|py| {
            // SAFETY: `this` is what was given to `bind`; by the convention `argument` is a valid reference
            // for METH_O and NULL for METH_NOARGS. Both outlive the call.
            let (this, argument) =
                unsafe { (Borrowed::from_ptr(py, this), Borrowed::from_ptr_or_opt(py, argument)) };
            match U::call(this, argument) {
                Ok(value) => value.into_ptr(),
                Err(error) => {
                    error.restore(py);
                    std::ptr::null_mut()
                }
            }
        })
    }));
    outcome.unwrap_or_else(|_| {
        attached(|py| {
            PySystemError::new_err(format!("panic in headrace: {}", U::NAME.to_string_lossy())).restore(py);
        });
        std::ptr::null_mut()
    })
}
