//! The server bound to Python: applications of ASGI and WSGI over `headrace_server`.

mod asgi;
mod awaitable;
mod conversation;
mod exchange;
mod host;
mod log;
mod names;
mod python;
mod tornado;
mod watch;
mod websocket;
mod wsgi;

use pyo3::prelude::*;

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ClientDisconnected", module.py().get_type::<exchange::ClientDisconnected>())?;
    module.add_class::<wsgi::FileWrapper>()?;
    module.add_class::<python::HttpServer>()
}
