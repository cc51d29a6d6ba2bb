//! Making, yielding and completing asyncio's own futures.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use super::core::LoopCore;
use crate::ffi::fastcall::{Args, FastMethod};

static FUTURE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// A new future of this loop.
pub(super) fn new<'py>(event_loop: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = event_loop.py();
    let class = FUTURE.import(py, "asyncio", "Future")?;
    crate::ffi::call::with_keyword(class.as_any(), pyo3::intern!(py, "loop"), event_loop)
}

/// A new future that a coroutine is about to yield to its task.
pub(super) fn to_yield<'py>(event_loop: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = event_loop.py();
    let future = new(event_loop)?;
    future.setattr(pyo3::intern!(py, "_asyncio_future_blocking"), true)?;
    Ok(future)
}

/// Complete a future with `None`, unless it is done.
pub(super) fn complete(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(pyo3::intern!(py, "done"))?.is_truthy()? {
        future.call_method1(pyo3::intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// `create_future()`.
pub(super) struct CreateFuture;

impl FastMethod for CreateFuture {
    const NAME: &'static std::ffi::CStr = c"create_future";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, _: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        LoopCore::of(slf)?;
        new(slf)
    }
}
