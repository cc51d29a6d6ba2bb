//! What a task is about: a request and its answer, or a WebSocket.

use std::rc::Rc;

use pyo3::prelude::*;

use super::awaitable::What;
use super::exchange::Exchange;
use super::host::Host;
use super::websocket::WebSocket;

/// Outcome of a try: the value, or the future that tells when to try again.
pub(crate) type Tried<'py> = Result<Bound<'py, PyAny>, Bound<'py, PyAny>>;

/// Either of the two.
pub(crate) enum Conversation {
    Http(Py<Exchange>),
    WebSocket(Py<WebSocket>),
}

impl Conversation {
    pub(crate) fn host(&self, py: Python<'_>) -> Rc<Host> {
        match self {
            Self::Http(exchange) => exchange.bind(py).get().host(),
            Self::WebSocket(socket) => socket.bind(py).get().host(),
        }
    }

    /// Try to receive or to send.
    pub(crate) fn attempt<'py>(&self, py: Python<'py>, what: What) -> PyResult<Tried<'py>> {
        match (self, what) {
            (Self::Http(exchange), What::Receive) => Exchange::try_receive(exchange.bind(py)),
            (Self::Http(exchange), What::Send) => Exchange::try_send(exchange.bind(py)),
            (Self::WebSocket(socket), What::Receive) => WebSocket::try_receive(socket.bind(py)),
            (Self::WebSocket(socket), What::Send) => WebSocket::try_send(socket.bind(py)),
        }
    }
}
