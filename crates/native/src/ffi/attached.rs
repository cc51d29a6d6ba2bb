//! A token for functions that CPython calls.
#![allow(unsafe_code, reason = "vouches for a thread that CPython itself has called us on")]

use std::cell::Cell;

use pyo3::prelude::*;

thread_local! {
    /// A loop runs in this thread, below a function that PyO3 knows to be attached.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Run a loop: for the length of `body`, [`attached`] need not tell PyO3 what it knows.
pub(crate) fn while_running<R>(_: Python<'_>, body: impl FnOnce() -> R) -> R {
    /// Puts back what was, also when `body` panics.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            RUNNING.set(self.0);
        }
    }
    let _before = Before(RUNNING.replace(true));
    body()
}

/// Run `body` with a token, in a function that CPython has called: the thread is attached.
///
/// Where it can be done, PyO3 is told too, so that it drops references at once. While the interpreter finalises
/// it cannot be: `__del__` methods still call us then, and references dropped so late are left to the end.
pub(super) fn attached<R>(body: impl FnOnce(Python<'_>) -> R) -> R {
    if RUNNING.get() {
        // SAFETY: CPython calls functions of extension types on an attached thread alone, and PyO3 knows: the
        // token of `while_running` lives.
        return body(unsafe { Python::assume_attached() });
    }
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
