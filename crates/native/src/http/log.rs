//! The server's log: Python's `logging`, logger "headrace.error". Reached only where something went wrong.

use pyo3::prelude::*;
use pyo3::types::PyDict;

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("logging")?.call_method1("getLogger", ("headrace.error",))
}

/// Log an exception with its traceback.
pub(crate) fn exception(py: Python<'_>, message: &str, error: &PyErr) {
    let log = || -> PyResult<()> {
        let options = PyDict::new(py);
        options.set_item("exc_info", error.value(py))?;
        logger(py)?.call_method("error", (message,), Some(&options))?;
        Ok(())
    };
    if let Err(failure) = log() {
        // The log itself is broken; the interpreter's last resort still shows both.
        failure.write_unraisable(py, None);
        error.clone_ref(py).write_unraisable(py, None);
    }
}

/// Log a fault that has no exception.
pub(crate) fn error(py: Python<'_>, message: &str) {
    if let Err(failure) = logger(py).and_then(|logger| logger.call_method1("error", (message,))) {
        failure.write_unraisable(py, None);
    }
}
