//! Reading a `__slots__` attribute of a Python class by its offset: one load, no attribute lookup.
#![allow(unsafe_code, reason = "reads an object's memory at an offset that CPython tells")]

use std::sync::OnceLock;

use pyo3::PyTypeCheck;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The class that objects of one kind nearly always have: most casts then are one comparison, where that of an
/// instance of a subclass walks its bases.
pub(crate) struct SeenClass(OnceLock<Py<PyType>>);

impl SeenClass {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// `object` as a `T`, or the `TypeError` that says what it is. One value serves one `T`.
    pub(crate) fn cast<'a, 'py, T: PyTypeCheck>(
        &self,
        object: Borrowed<'a, 'py, PyAny>,
    ) -> PyResult<Borrowed<'a, 'py, T>> {
        let seen = self.0.get().map_or(std::ptr::null_mut(), |class| class.as_ptr());
        if object.get_type_ptr().cast::<ffi::PyObject>() == seen {
            // SAFETY: an object of this very class was found to be a `T` below, and the class, which is kept,
            // has the same bases for all its instances.
            return Ok(unsafe { object.cast_unchecked() });
        }
        let found = object.cast::<T>()?;
        let _ = self.0.set(object.get_type().unbind());
        Ok(found)
    }
}

/// Where a class keeps one of its slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotOffset {
    /// Address of the class, which the owner of this value keeps alive.
    class: usize,
    offset: isize,
}

impl SlotOffset {
    /// The slot `name` of `class`, which must be defined by `__slots__` of that very class, and live as long
    /// as the process.
    pub(crate) fn find(class: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        let descriptor = class.as_any().getattr("__dict__")?.get_item(name)?;
        // SAFETY: PyMemberDescr_Type is a static type object of the interpreter.
        let is_member = unsafe { ffi::Py_TYPE(descriptor.as_ptr()) == &raw mut ffi::PyMemberDescr_Type };
        if !is_member {
            return Err(PyTypeError::new_err(format!("{name} is not a slot of {class}")));
        }
        // SAFETY: the type was checked above; `d_member` of a member descriptor is never NULL.
        let member = unsafe { *(*descriptor.as_ptr().cast::<ffi::PyMemberDescrObject>()).d_member };
        if member.type_code != ffi::Py_T_OBJECT_EX || member.offset <= 0 {
            return Err(PyTypeError::new_err(format!("{name} does not hold an object")));
        }
        Ok(Self { class: class.as_ptr() as usize, offset: member.offset })
    }

    /// What the slot of `object` holds, if it is an instance of the class and the slot is not empty.
    pub(crate) fn read<'a, 'py>(self, object: Borrowed<'a, 'py, PyAny>) -> Option<Borrowed<'a, 'py, PyAny>> {
        let class = self.class as *mut ffi::PyTypeObject;
        let exact = object.get_type_ptr();
        // SAFETY: `class` is alive for ever (see `find`), so it may be compared and passed. An instance of it
        // holds an object pointer or NULL at the offset; the object keeps it alive for as long as the slot is
        // not assigned to, and the slots read here are assigned once.
        unsafe {
            if exact != class && ffi::PyType_IsSubtype(exact, class) == 0 {
                return None;
            }
            let place = object.as_ptr().cast::<u8>().offset(self.offset).cast::<*mut ffi::PyObject>();
            Borrowed::from_ptr_or_opt(object.py(), *place)
        }
    }
}
