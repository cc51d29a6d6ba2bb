//! The fence around CPython's raw C API: every `unsafe` of the event loop lives in this folder, each block
//! with the reason why it is sound, behind wrappers that are safe to call.
//!
//! Two rules hold here:
//! 1. Whatever takes a [`pyo3::Python`] token runs attached to the interpreter; nothing here keeps a borrowed
//!    pointer across a call that may run Python code.
//! 2. The interpreter lock serialises access to [`Guarded`] values: on builds without it the module asks for
//!    it (`gil_used = true`).

mod attached;
pub(crate) mod bytes;
pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod descriptor;
pub(crate) mod fastcall;
pub(crate) mod future;
mod guarded;
pub(crate) mod handle;
pub(crate) mod openssl;
pub(crate) mod operation;
pub(crate) mod property;
pub(crate) mod slot;
pub(crate) mod unary;
pub(crate) mod view;
pub(crate) mod wait;

pub(crate) use attached::while_running;
pub(crate) use guarded::Guarded;
