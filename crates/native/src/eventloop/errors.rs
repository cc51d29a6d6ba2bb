//! Errors on their way to Python.

use std::io;

use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PySystemExit};
use pyo3::prelude::*;

/// The `OSError` (or its subclass) that Python's own call would have raised.
pub(super) fn os_error(py: Python<'_>, error: &io::Error) -> PyErr {
    let Some(number) = error.raw_os_error() else {
        return PyOSError::new_err(error.to_string());
    };
    let text = py
        .import("os")
        .and_then(|os| os.call_method1("strerror", (number,)))
        .and_then(|text| text.extract::<String>())
        .unwrap_or_else(|_| error.to_string());
    PyOSError::new_err((number, text))
}

/// Whether an error ends the loop's run instead of going to the exception handler.
pub(super) fn ends_the_run(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PySystemExit>(py) || error.is_instance_of::<PyKeyboardInterrupt>(py)
}
