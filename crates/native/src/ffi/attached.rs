//! A token for functions that CPython calls.
#![allow(unsafe_code, reason = "vouches for a thread that CPython itself has called us on")]

use pyo3::prelude::*;

/// Run `body` with a token, in a function that CPython has called: the thread is attached.
///
/// Where it can be done, PyO3 is told too, so that it drops references at once. While the interpreter finalises
/// it cannot be: `__del__` methods still call us then, and references dropped so late are left to the end.
pub(super) fn attached<R>(body: impl FnOnce(Python<'_>) -> R) -> R {
    let mut body = Some(body);
    let outcome = Python::try_attach(|py| body.take().map(|body| body(py)));
    if let Some(Some(result)) = outcome {
        return result;
    }
    // SAFETY: CPython calls functions of extension types on an attached thread alone.
    let py = unsafe { Python::assume_attached() };
    let body = body.take().expect("try_attach has not run it, or there would be a result");
    body(py)
}
