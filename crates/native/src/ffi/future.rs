//! `asyncio.Future`: made, readied for its task and completed without attribute lookups.
//!
//! `asyncio.Future(loop=…)` as a call builds a dictionary and a tuple each time, and setting
//! `_asyncio_future_blocking` walks the type's attributes: together they cost more than the future itself.
#![allow(unsafe_code, reason = "calls the type's own slots and one attribute's setter")]

use std::ffi::c_void;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::Guarded;

/// How `_asyncio_future_blocking` is set.
enum Blocking {
    /// The C class has a setter for it.
    Setter(ffi::setter, *mut c_void),
    /// The class in Python keeps it as any attribute.
    Attribute,
}

struct Class {
    future: Py<PyType>,
    set_result: Py<PyAny>,
    invalid_state: Py<PyType>,
    nothing: Py<PyTuple>,
    blocking: Blocking,
}

static CLASS: PyOnceLock<Guarded<Class>> = PyOnceLock::new();

fn class(py: Python<'_>) -> PyResult<&'static Class> {
    let class = CLASS.get_or_try_init(py, || {
        let asyncio = py.import("asyncio")?;
        let future = asyncio.getattr("Future")?.cast_into::<PyType>()?;
        let descriptor = future.getattr("__dict__")?.get_item("_asyncio_future_blocking")?;
        // SAFETY: the type of the descriptor is checked before it is looked at as one; a getset's definition
        // is never NULL and lives as long as its type, which is kept.
        let blocking = unsafe {
            if ffi::Py_TYPE(descriptor.as_ptr()) == &raw mut ffi::PyGetSetDescr_Type {
                let definition = (*descriptor.as_ptr().cast::<ffi::PyGetSetDescrObject>()).d_getset;
                (*definition)
                    .set
                    .map_or(Blocking::Attribute, |set| Blocking::Setter(set, (*definition).closure))
            } else {
                Blocking::Attribute
            }
        };
        Ok::<_, PyErr>(Guarded::new(Class {
            set_result: future.getattr("set_result")?.unbind(),
            future: future.unbind(),
            invalid_state: asyncio.getattr("InvalidStateError")?.cast_into::<PyType>()?.unbind(),
            nothing: PyTuple::empty(py).unbind(),
            blocking,
        }))
    })?;
    Ok(class)
}

/// A new future. `keywords` is `{"loop": its loop}`, and stays as it is.
pub(crate) fn new<'py>(keywords: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    let py = keywords.py();
    let class = class(py)?;
    let nothing = class.nothing.bind(py);
    // SAFETY: attached. This is what calling the type does: `tp_new`, then `tp_init` on what it gave, which has
    // the type asked for. Every type that can be instantiated has both slots (inherited from `object`).
    unsafe {
        let future = class.future.bind(py).as_type_ptr();
        let (Some(make), Some(init)) = ((*future).tp_new, (*future).tp_init) else {
            return class.future.bind(py).call((), Some(keywords));
        };
        let made = Bound::from_owned_ptr_or_err(py, make(future, nothing.as_ptr(), keywords.as_ptr()))?;
        if init(made.as_ptr(), nothing.as_ptr(), keywords.as_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(made)
    }
}

/// Say of a future of [`new`] that its task waits for it: what `await` does before it yields.
pub(crate) fn set_blocking(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    match class(py)?.blocking {
        // SAFETY: attached; the setter is that of the future's own class, `True` lives for ever.
        Blocking::Setter(set, closure) => unsafe {
            if set(future.as_ptr(), ffi::Py_True(), closure) != 0 {
                return Err(PyErr::fetch(py));
            }
            Ok(())
        },
        Blocking::Attribute => future.setattr(pyo3::intern!(py, "_asyncio_future_blocking"), true),
    }
}

/// Complete a future with `None`, unless it is done: cancelled, most likely.
pub(crate) fn complete(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    let class = class(py)?;
    if !future.get_type().is(&class.future) {
        if !future.call_method0(pyo3::intern!(py, "done"))?.is_truthy()? {
            future.call_method1(pyo3::intern!(py, "set_result"), (py.None(),))?;
        }
        return Ok(());
    }
    // SAFETY: attached; two arguments, the first of the class whose method it is.
    let outcome = unsafe {
        let arguments = [future.as_ptr(), ffi::Py_None()];
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyObject_Vectorcall(class.set_result.as_ptr(), arguments.as_ptr(), 2, std::ptr::null_mut()),
        )
    };
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if error.is_instance(py, class.invalid_state.bind(py)) => Ok(()),
        Err(error) => Err(error),
    }
}
