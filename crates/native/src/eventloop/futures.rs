//! Making and yielding asyncio's own futures.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::core::LoopCore;
use crate::ffi::fastcall::{Args, FastMethod};
use crate::ffi::future;

pub(super) use crate::ffi::future::complete;

/// A new future of this loop.
pub(super) fn new<'py>(event_loop: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = event_loop.py();
    let core = LoopCore::of(event_loop)?;
    let known = core.get().future_keywords.borrow().as_ref().map(|keywords| keywords.bind(py).clone());
    let keywords = match known {
        Some(keywords) => keywords,
        None => {
            let keywords = PyDict::new(py);
            keywords.set_item(pyo3::intern!(py, "loop"), event_loop)?;
            core.get().future_keywords.replace(Some(keywords.clone().unbind()));
            keywords
        }
    };
    future::new(&keywords)
}

/// A new future that a coroutine is about to yield to its task.
pub(super) fn to_yield<'py>(event_loop: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let future = new(event_loop)?;
    future::set_blocking(&future)?;
    Ok(future)
}

/// `create_future()`.
pub(super) struct CreateFuture;

impl FastMethod for CreateFuture {
    const NAME: &'static std::ffi::CStr = c"create_future";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        args.bind("create_future", [], 0)?;
        new(slf)
    }
}
