//! Methods in CPython's fast calling convention, without argument parsing: for what runs once per callback.
#![allow(unsafe_code, reason = "implements the C calling convention METH_FASTCALL | METH_KEYWORDS")]

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::{PySystemError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::attached::attached;

/// The arguments of one call, borrowed from the caller's stack.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a, 'py> {
    py: Python<'py>,
    values: &'a [*mut ffi::PyObject],
    positional: usize,
    names: Option<Borrowed<'a, 'py, PyAny>>,
}

impl<'a, 'py> Args<'a, 'py> {
    /// How many positional arguments there are.
    pub(crate) fn len(&self) -> usize {
        self.positional
    }

    /// A positional argument.
    pub(crate) fn get(&self, index: usize) -> Option<Borrowed<'a, 'py, PyAny>> {
        (index < self.positional).then(|| self.value(index))
    }

    /// The positional arguments from `start` on, as the C API takes them.
    pub(crate) fn tail(&self, start: usize) -> &'a [*mut ffi::PyObject] {
        self.values.get(start..self.positional).unwrap_or(&[])
    }

    /// Whether there is a keyword argument.
    pub(crate) fn has_keywords(&self) -> bool {
        self.names.is_some()
    }

    /// The keyword arguments, names first.
    pub(crate) fn keywords(
        &self,
    ) -> impl Iterator<Item = (Borrowed<'a, 'py, PyAny>, Borrowed<'a, 'py, PyAny>)> + use<'a, 'py> {
        let this = *self;
        (this.positional..this.values.len()).filter_map(move |index| {
            let names = this.names?;
            // SAFETY: `names` is the tuple of keyword names, as long as there are values behind the
            // positional ones; it lives as long as the call.
            let name = unsafe {
                Borrowed::from_ptr(
                    this.py,
                    ffi::PyTuple_GET_ITEM(names.as_ptr(), (index - this.positional) as ffi::Py_ssize_t),
                )
            };
            Some((name, this.value(index)))
        })
    }

    /// The arguments of a function whose parameters are `names`, of which the first `required` must be there.
    pub(crate) fn bind<const N: usize>(
        &self,
        function: &str,
        names: [&str; N],
        required: usize,
    ) -> PyResult<[Option<Borrowed<'a, 'py, PyAny>>; N]> {
        if self.positional > N {
            return Err(PyTypeError::new_err(format!(
                "{function}() takes {} positional arguments but {} were given",
                N + 1,
                self.positional + 1
            )));
        }
        let mut bound: [Option<Borrowed<'a, 'py, PyAny>>; N] = std::array::from_fn(|i| self.get(i));
        for (name, value) in self.keywords() {
            let name = name.to_string();
            let Some(index) = names.iter().position(|n| *n == name) else {
                return Err(PyTypeError::new_err(format!(
                    "{function}() got an unexpected keyword argument '{name}'"
                )));
            };
            if bound[index].replace(value).is_some() {
                return Err(PyTypeError::new_err(format!(
                    "{function}() got multiple values for argument '{name}'"
                )));
            }
        }
        if let Some(missing) = bound[..required].iter().position(Option::is_none) {
            return Err(PyTypeError::new_err(format!(
                "{function}() missing required argument: '{}'",
                names[missing]
            )));
        }
        Ok(bound)
    }

    fn value(&self, index: usize) -> Borrowed<'a, 'py, PyAny> {
        // SAFETY: the caller of the method keeps its arguments alive for the length of the call, which 'a is.
        unsafe { Borrowed::from_ptr(self.py, self.values[index]) }
    }
}

/// One such method.
pub(crate) trait FastMethod {
    /// Its name in Python.
    const NAME: &'static CStr;

    /// Its body. `slf` is an instance of the class that the method was installed on.
    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>>;
}

/// Make `M` a method of `class`. To be called once for each class: the definition lives as long as the process.
pub(crate) fn install<M: FastMethod>(class: &Bound<'_, PyType>) -> PyResult<()> {
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: M::NAME.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: trampoline::<M> },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: std::ptr::null(),
    }));
    // SAFETY: attached (`class` is bound); the definition is leaked, so it outlives the descriptor; the result
    // is a new reference or NULL with an exception set.
    let descriptor = unsafe {
        Bound::from_owned_ptr_or_err(class.py(), ffi::PyDescr_NewMethod(class.as_type_ptr(), definition))?
    };
    class.setattr(M::NAME.to_string_lossy().as_ref(), descriptor)
}

/// What CPython calls: only an attached thread does, with `slf` checked by the method descriptor.
unsafe extern "C" fn trampoline<M: FastMethod>(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // Attaching again is two thread-local accesses; it tells PyO3 that references may be dropped at once.
        attached(|py| {
            // SAFETY: by the convention `args` points to `positional` arguments and one more for each name in
            // the tuple `names`, which may be NULL; `args` itself may be NULL when there is none.
            let (slf, args) = unsafe {
                let keywords = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
                let count = (positional + keywords) as usize;
                let values = if count == 0 { &[][..] } else { std::slice::from_raw_parts(args, count) };
                (
                    Borrowed::from_ptr(py, slf),
                    Args {
                        py,
                        values,
                        positional: positional as usize,
                        names: Borrowed::from_ptr_or_opt(py, names),
                    },
                )
            };
            match M::call(slf, args) {
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
            PySystemError::new_err(format!("panic in headrace: {}", M::NAME.to_string_lossy())).restore(py);
        });
        std::ptr::null_mut()
    })
}
