//! What `await send(...)` and `await receive()` await: native, and coroutines in asyncio's eyes, so that
//! `asyncio.create_task(receive())` works as it does with a server written in Python.

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;

use super::conversation::Conversation;
use crate::ffi::Guarded;
use std::cell::RefCell;

/// An awaitable that is done: `await` gives `None` without a stop.
#[pyclass(frozen, module = "headrace._native", name = "_Done")]
pub(crate) struct Done;

#[pymethods]
impl Done {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// None ends the iteration with the value None.
    fn __next__(&self) -> Option<Py<PyAny>> {
        None
    }

    fn send(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = value;
        Err(PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (error, value=None, traceback=None))]
    fn throw(
        &self,
        error: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Err(thrown(error, value, traceback))
    }

    fn close(&self) {}
}

/// An awaitable that tries, waits for a future, and tries again: `receive()`, or `send()` to a slow client.
#[pyclass(frozen, module = "headrace._native", name = "_Waiting")]
pub(crate) struct Waiting {
    conversation: Conversation,
    what: What,
    /// The iterator of the future that is being awaited.
    future: Guarded<RefCell<Option<Py<PyAny>>>>,
}

/// What is tried.
#[derive(Clone, Copy)]
pub(crate) enum What {
    /// The next event for the application.
    Receive,
    /// Room for more of the answer.
    Send,
}

impl Waiting {
    pub(crate) fn new(conversation: Conversation, what: What) -> Self {
        Self { conversation, what, future: Guarded::new(RefCell::new(None)) }
    }

    /// One step: yields what asyncio's task is to wait for, or stops with the value.
    fn step<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loop {
            let waiting = self.future.borrow().as_ref().map(|future| future.clone_ref(py));
            if let Some(iterator) = waiting {
                match iterator.bind(py).call_method0(pyo3::intern!(py, "__next__")) {
                    Ok(yielded) => return Ok(yielded),
                    Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                        *self.future.borrow_mut() = None;
                    }
                    Err(error) => {
                        *self.future.borrow_mut() = None;
                        return Err(error);
                    }
                }
            }
            let outcome = self.conversation.attempt(py, self.what)?;
            match outcome {
                Ok(value) => return Err(PyStopIteration::new_err((value.unbind(),))),
                Err(future) => {
                    let iterator = future.call_method0(pyo3::intern!(py, "__await__"))?;
                    *self.future.borrow_mut() = Some(iterator.unbind());
                }
            }
        }
    }
}

#[pymethods]
impl Waiting {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py)
    }

    fn send<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let _ = value;
        self.step(py)
    }

    #[pyo3(signature = (error, value=None, traceback=None))]
    fn throw(
        &self,
        error: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        *self.future.borrow_mut() = None;
        Err(thrown(error, value, traceback))
    }

    fn close(&self) {
        *self.future.borrow_mut() = None;
    }
}

/// The exception of `coroutine.throw(error)`, or of its older form `throw(type, value, traceback)`.
fn thrown(
    error: &Bound<'_, PyAny>,
    value: Option<&Bound<'_, PyAny>>,
    traceback: Option<&Bound<'_, PyAny>>,
) -> PyErr {
    let instance = match value {
        Some(value) if !value.is_none() => value.clone(),
        _ => error.clone(),
    };
    let instance = match instance.cast::<pyo3::types::PyType>() {
        Ok(class) => match class.call0() {
            Ok(instance) => instance,
            Err(error) => return error,
        },
        Err(_) => instance,
    };
    if let Some(traceback) = traceback.filter(|traceback| !traceback.is_none())
        && let Err(error) = instance.setattr("__traceback__", traceback)
    {
        return error;
    }
    PyErr::from_value(instance)
}
