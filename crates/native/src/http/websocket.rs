//! WebSockets as ASGI applications get them (ASGI WebSocket specification 2.4).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::rc::Rc;

use headrace_server::http1::{ResponseEncoder, is_field_value, is_token};
use headrace_server::{ExchangeId, WriteState};
use headrace_websocket::{CloseCode, Connection, DeflateOptions, Event, Handshake, Limits, Server};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::awaitable::{Waiting, What};
use super::conversation::{Conversation, Tried};
use super::exchange::{ClientDisconnected, encode_error, encode_headers};
use super::host::{Host, wake};
use crate::ffi::Guarded;
use crate::ffi::unary::Unary;

/// Messages that wait for the application, above which the client is held back.
const MAX_WAITING: usize = 64;

/// Close code of a connection that ended without a closing handshake (RFC 6455 section 7.1.5).
const ABNORMAL: u16 = 1006;

/// How far the conversation is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// `websocket.connect` was not received yet.
    New,
    /// The application has not said yet whether it accepts.
    Connecting,
    /// The application refuses, and has begun to say why (extension `websocket.http.response`).
    Refusing,
    Open,
    /// The application has closed, or refused.
    Closed,
    /// The client has closed, or gone.
    Gone,
}

/// What waits for `receive`.
enum Incoming {
    Text(Py<PyString>),
    Bytes(Py<PyBytes>),
    Disconnect {
        code: u16,
        reason: String,
    },
    /// The client broke the protocol behind messages that are in the queue: they are answered before it ends.
    Failed {
        code: u16,
        reason: &'static str,
    },
}

/// One WebSocket of an ASGI application.
#[pyclass(frozen, module = "headrace._native", name = "_WebSocket")]
pub(crate) struct WebSocket {
    state: Guarded<State>,
}

struct State {
    host: Rc<Host>,
    id: ExchangeId,
    stage: Cell<Stage>,
    handshake: RefCell<Option<Handshake>>,
    connection: RefCell<Option<Connection<Server>>>,
    incoming: RefCell<VecDeque<Incoming>>,
    receivers: RefCell<Vec<Py<PyAny>>>,
    senders: RefCell<Vec<Py<PyAny>>>,
    /// Something came from the client since the last [`WebSocket::ping`].
    heard: Cell<bool>,
    /// That one has asked for a sign of life.
    asked: Cell<bool>,
}

/// `await send(message)`.
pub(crate) struct Send;

impl Unary for Send {
    const NAME: &'static CStr = c"send";
    const TAKES_ARGUMENT: bool = true;

    fn call<'py>(
        bound_to: Borrowed<'_, 'py, PyAny>,
        message: Option<Borrowed<'_, 'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let message = message.ok_or_else(|| PyTypeError::new_err("send() takes a message"))?;
        WebSocket::send(&*bound_to.cast::<WebSocket>()?, &*message.cast::<PyDict>()?)
    }
}

/// `await receive()`.
pub(crate) struct Receive;

impl Unary for Receive {
    const NAME: &'static CStr = c"receive";
    const TAKES_ARGUMENT: bool = false;

    fn call<'py>(
        bound_to: Borrowed<'_, 'py, PyAny>,
        _: Option<Borrowed<'_, 'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let socket = bound_to.cast::<WebSocket>()?.to_owned();
        let py = socket.py();
        Ok(Bound::new(py, Waiting::new(Conversation::WebSocket(socket.unbind()), What::Receive))?.into_any())
    }
}

impl WebSocket {
    pub(crate) fn new(host: Rc<Host>, id: ExchangeId, handshake: Handshake) -> Self {
        Self {
            state: Guarded::new(State {
                host,
                id,
                stage: Cell::new(Stage::New),
                handshake: RefCell::new(Some(handshake)),
                connection: RefCell::default(),
                incoming: RefCell::default(),
                receivers: RefCell::default(),
                senders: RefCell::default(),
                heard: Cell::new(true),
                asked: Cell::new(false),
            }),
        }
    }

    pub(crate) fn host(&self) -> Rc<Host> {
        Rc::clone(&self.state.host)
    }

    pub(crate) fn id(&self) -> ExchangeId {
        self.state.id
    }

    // Receiving

    pub(crate) fn try_receive<'py>(this: &Bound<'py, Self>) -> PyResult<Tried<'py>> {
        let py = this.py();
        let state = &this.get().state;
        if state.stage.get() == Stage::New {
            state.stage.set(Stage::Connecting);
            let message = PyDict::new(py);
            message.set_item(intern!(py, "type"), intern!(py, "websocket.connect"))?;
            return Ok(Ok(message.into_any()));
        }
        let next = state.incoming.borrow_mut().pop_front();
        let Some(next) = next else {
            if matches!(state.stage.get(), Stage::Gone | Stage::Closed) {
                return disconnect(py, ABNORMAL, "").map(Ok);
            }
            let future = state.host.event_loop.bind(py).call_method0(intern!(py, "create_future"))?;
            state.receivers.borrow_mut().push(future.clone().unbind());
            return Ok(Err(future));
        };
        if state.incoming.borrow().len() == MAX_WAITING - 1 {
            // The client was held back: there may be more in the connection's input.
            this.get().input_ready(py);
        }
        let message = PyDict::new(py);
        message.set_item(intern!(py, "type"), intern!(py, "websocket.receive"))?;
        match next {
            Incoming::Text(text) => message.set_item(intern!(py, "text"), text)?,
            Incoming::Bytes(bytes) => message.set_item(intern!(py, "bytes"), bytes)?,
            Incoming::Disconnect { code, reason } => return disconnect(py, code, &reason).map(Ok),
            Incoming::Failed { code, reason } => {
                state.fail(py);
                return disconnect(py, code, reason).map(Ok);
            }
        }
        Ok(Ok(message.into_any()))
    }

    /// Bytes have come: take what messages they make.
    pub(crate) fn input_ready(&self, py: Python<'_>) {
        let state = &self.state;
        let Some(mut connection) = state.connection.borrow_mut().take() else { return };
        state.heard.set(true);
        let waiting = state.incoming.borrow().len();
        let room = MAX_WAITING.saturating_sub(waiting);
        let mut arrived = Vec::new();
        state.host.tell_time();
        let outcome = state.host.server.converse(state.id, |input, out| {
            let mut rest = &mut input[..];
            while arrived.len() < room
                && let Some(event) = connection.receive_holding(&mut rest, out)
            {
                arrived.push(match event {
                    Event::Text(text) => Incoming::Text(PyString::new(py, &text).unbind()),
                    Event::Binary(bytes) => Incoming::Bytes(PyBytes::new(py, &bytes).unbind()),
                    Event::Ping(_) | Event::Pong(_) => continue,
                    Event::Close(close) => {
                        Incoming::Disconnect { code: close.code.get(), reason: close.reason.to_string() }
                    }
                    Event::Failed(fault) if waiting + arrived.len() > 0 => {
                        Incoming::Failed { code: fault.code().get(), reason: fault.reason() }
                    }
                    Event::Failed(fault) => {
                        connection.fail(out);
                        Incoming::Disconnect { code: fault.code().get(), reason: fault.reason().to_owned() }
                    }
                });
            }
            let left = rest.len();
            input.drain(..input.len() - left);
        });
        let closed = connection.is_closed();
        *state.connection.borrow_mut() = Some(connection);
        state.incoming.borrow_mut().extend(arrived);
        if closed || outcome.is_err() {
            state.stage.set(Stage::Gone);
            state.host.server.hang_up(state.id);
            wake(py, state.senders.take());
        }
        if !state.incoming.borrow().is_empty() || closed {
            wake(py, state.receivers.take());
        }
    }

    /// The client has gone without a word.
    pub(crate) fn disconnected(&self, py: Python<'_>) {
        let state = &self.state;
        if !matches!(state.stage.get(), Stage::Closed | Stage::Gone) {
            state.stage.set(Stage::Gone);
            state
                .incoming
                .borrow_mut()
                .push_back(Incoming::Disconnect { code: ABNORMAL, reason: String::new() });
        }
        state.host.server.hang_up(state.id);
        wake(py, state.receivers.take());
        wake(py, state.senders.take());
    }

    pub(crate) fn writable(&self, py: Python<'_>) {
        wake(py, self.state.senders.take());
    }

    // Sending

    fn send<'py>(this: &Bound<'py, Self>, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let state = &this.get().state;
        let kind: String = message
            .get_item(intern!(py, "type"))?
            .ok_or_else(|| PyRuntimeError::new_err("ASGI message has no 'type'"))?
            .extract()?;
        state.host.tell_time();
        let outcome = match (state.stage.get(), kind.as_str()) {
            (Stage::Connecting | Stage::New, "websocket.accept") => state.accept(message),
            (Stage::Connecting | Stage::New, "websocket.close") => {
                state.stage.set(Stage::Closed);
                state.host.server.fail(state.id, 403, "Forbidden");
                Ok(WriteState::Ready)
            }
            (Stage::Connecting | Stage::New, "websocket.http.response.start") => state.refuse(message),
            (Stage::Refusing, "websocket.http.response.body") => state.refuse_body(message),
            (Stage::Open, "websocket.send") => state.send_message(message),
            (Stage::Open, "websocket.close") => state.close(message),
            (Stage::Gone, _) => Err(ClientDisconnected::new_err("the client has disconnected")),
            (Stage::Closed, kind) => Err(PyRuntimeError::new_err(format!(
                "Unexpected ASGI message '{kind}' sent, after the WebSocket was closed."
            ))),
            (Stage::Open, kind) => Err(PyRuntimeError::new_err(format!(
                "Expected ASGI message 'websocket.send' or 'websocket.close', but got '{kind}'."
            ))),
            (_, kind) => Err(PyRuntimeError::new_err(format!(
                "Expected ASGI message 'websocket.accept', 'websocket.close' or 'websocket.http.response.start', \
                 but got '{kind}'."
            ))),
        };
        state.host.settle(py);
        match outcome? {
            WriteState::Ready => Ok(state.host.done(py)),
            WriteState::Full => {
                let conversation = Conversation::WebSocket(this.clone().unbind());
                Ok(Bound::new(py, Waiting::new(conversation, What::Send))?.into_any())
            }
        }
    }

    pub(crate) fn try_send<'py>(this: &Bound<'py, Self>) -> PyResult<Tried<'py>> {
        let py = this.py();
        let state = &this.get().state;
        if state.stage.get() != Stage::Open || !state.host.server.is_full(state.id) {
            return Ok(Ok(py.None().into_bound(py)));
        }
        let future = state.host.event_loop.bind(py).call_method0(intern!(py, "create_future"))?;
        state.senders.borrow_mut().push(future.clone().unbind());
        Ok(Err(future))
    }

    /// Ask for a sign of life where there was none since the last call; close where there was none since it was
    /// asked for. A client that is held back is not asked: its answer would not be read.
    pub(crate) fn ping(&self) {
        let state = &self.state;
        let held_back = state.incoming.borrow().len() >= MAX_WAITING;
        if state.stage.get() != Stage::Open || held_back || state.heard.replace(false) {
            return state.asked.set(false);
        }
        if state.asked.replace(true) {
            return state.host.server.close(state.id);
        }
        if let Some(connection) = state.connection.borrow_mut().as_mut() {
            // One that cannot be asked is closing already.
            let _ = state.host.server.converse(state.id, |_, out| connection.send_ping(b"", out));
        }
    }

    /// Whether the application still owes the client a word: an answer, or a close.
    pub(crate) fn is_unfinished(&self) -> bool {
        !matches!(self.state.stage.get(), Stage::Closed | Stage::Gone)
    }

    /// End the conversation from the server's side: the application failed (1011), has ended without closing
    /// (1000), or the server stops (1012).
    pub(crate) fn end(&self, py: Python<'_>, code: u16, status: u16, text: &'static str) {
        let state = &self.state;
        match state.stage.get() {
            Stage::Closed | Stage::Gone => {}
            Stage::Open => {
                state.send_close(code, "");
                state.incoming.borrow_mut().push_back(Incoming::Disconnect { code, reason: String::new() });
                wake(py, state.receivers.take());
                wake(py, state.senders.take());
            }
            _ => {
                state.stage.set(Stage::Closed);
                state.host.server.fail(state.id, status, text);
            }
        }
    }
}

impl State {
    fn gone() -> PyErr {
        ClientDisconnected::new_err("the client has disconnected")
    }

    fn accept(&self, message: &Bound<'_, PyDict>) -> PyResult<WriteState> {
        let py = message.py();
        let Some(handshake) = self.handshake.borrow_mut().take() else { return Err(Self::gone()) };
        let subprotocol: Option<String> = match message.get_item(intern!(py, "subprotocol"))? {
            Some(chosen) => chosen.extract()?,
            None => None,
        };
        if subprotocol.as_ref().is_some_and(|chosen| !is_token(chosen.as_bytes())) {
            return Err(PyValueError::new_err("websocket.accept: the subprotocol is not a token"));
        }
        let answer = handshake.accept(subprotocol.as_deref(), Some(&DeflateOptions::default()));
        let mut head = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
        let mut add = |name: &[u8], value: &[u8]| {
            head.extend_from_slice(name);
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        };
        for (name, value) in answer.fields() {
            add(name.as_bytes(), value.as_bytes());
        }
        if let Some(headers) = message.get_item(intern!(py, "headers"))? {
            for pair in headers.try_iter()? {
                let (name, value): (Vec<u8>, Vec<u8>) = pair?.extract()?;
                if !is_token(&name) || !is_field_value(&value) {
                    return Err(PyValueError::new_err("websocket.accept: a header must not go out as it is"));
                }
                add(&name, &value);
            }
        }
        head.extend_from_slice(b"\r\n");
        let most = self.host.server.message_limit();
        let limits = Limits { max_message: most, max_frame: most };
        *self.connection.borrow_mut() = Some(Connection::server(limits, answer.compression()));
        if self.host.server.upgrade(self.id, &head).is_err() {
            self.stage.set(Stage::Gone);
            return Err(Self::gone());
        }
        self.stage.set(Stage::Open);
        Ok(WriteState::Ready)
    }

    fn refuse(&self, message: &Bound<'_, PyDict>) -> PyResult<WriteState> {
        let py = message.py();
        let status: u16 = message
            .get_item(intern!(py, "status"))?
            .ok_or_else(|| PyRuntimeError::new_err("'websocket.http.response.start' has no 'status'"))?
            .extract()?;
        let mut head = Vec::new();
        let mut encoder = ResponseEncoder::begin(&mut head, status, b"").map_err(encode_error)?;
        if let Some(headers) = message.get_item(intern!(py, "headers"))? {
            encode_headers(&mut encoder, &mut head, &headers)?;
        }
        self.host.server.start_response(self.id, encoder, &head).map_err(|_| Self::gone())?;
        self.stage.set(Stage::Refusing);
        Ok(WriteState::Ready)
    }

    fn refuse_body(&self, message: &Bound<'_, PyDict>) -> PyResult<WriteState> {
        let py = message.py();
        let more =
            message.get_item(intern!(py, "more_body"))?.is_some_and(|more| more.is_truthy().unwrap_or(false));
        let body: Vec<u8> = match message.get_item(intern!(py, "body"))? {
            Some(body) => body.cast::<PyBytes>()?.as_bytes().to_vec(),
            None => Vec::new(),
        };
        if !more {
            self.stage.set(Stage::Closed);
        }
        let keep = || -> Box<dyn headrace_server::Payload> { Box::new(body.clone()) };
        self.host.server.send_body(self.id, &body, more, keep).map_err(|_| Self::gone())
    }

    fn send_message(&self, message: &Bound<'_, PyDict>) -> PyResult<WriteState> {
        let py = message.py();
        let part = |name| -> PyResult<Option<Bound<'_, PyAny>>> {
            Ok(message.get_item(name)?.filter(|part| !part.is_none()))
        };
        let mut connection = self.connection.borrow_mut();
        let connection = connection.as_mut().ok_or_else(Self::gone)?;
        let outcome = if let Some(bytes) = part(intern!(py, "bytes"))? {
            let bytes = match bytes.cast_into::<PyBytes>() {
                Ok(bytes) => bytes,
                Err(other) => {
                    py.get_type::<PyBytes>().call1((other.into_inner(),))?.cast_into::<PyBytes>()?
                }
            };
            self.host.server.converse(self.id, |_, out| connection.send_binary(bytes.as_bytes(), out))
        } else if let Some(text) = part(intern!(py, "text"))? {
            let text = text.cast_into::<PyString>()?;
            let text = text.to_str()?;
            self.host.server.converse(self.id, |_, out| connection.send_text(text, out))
        } else {
            return Err(PyRuntimeError::new_err(
                "ASGI message 'websocket.send' has neither 'text' nor 'bytes'",
            ));
        };
        match outcome {
            Ok((Ok(()), room)) => Ok(room),
            _ => Err(Self::gone()),
        }
    }

    fn close(&self, message: &Bound<'_, PyDict>) -> PyResult<WriteState> {
        let py = message.py();
        let code: u16 = match message.get_item(intern!(py, "code"))? {
            Some(code) if !code.is_none() => code.extract()?,
            _ => 1000,
        };
        let reason: Option<String> = match message.get_item(intern!(py, "reason"))? {
            Some(reason) => reason.extract()?,
            None => None,
        };
        if CloseCode::new(code).is_none() {
            return Err(PyValueError::new_err(format!("{code} is no close code that may be sent")));
        }
        self.send_close(code, reason.as_deref().unwrap_or_default());
        Ok(WriteState::Ready)
    }

    /// End a conversation whose client broke the protocol, now that what came before is answered.
    fn fail(&self, py: Python<'_>) {
        self.stage.set(Stage::Gone);
        if let Some(connection) = self.connection.borrow_mut().as_mut() {
            // A client that has gone meanwhile has no need of it.
            let _ = self.host.server.converse(self.id, |_, out| connection.fail(out));
        }
        self.host.server.hang_up(self.id);
        wake(py, self.senders.take());
    }

    /// Send a close frame, and end our half behind it.
    fn send_close(&self, code: u16, reason: &str) {
        self.stage.set(Stage::Closed);
        if let (Some(connection), Some(code)) = (self.connection.borrow_mut().as_mut(), CloseCode::new(code))
        {
            // A client that has gone meanwhile has no need of it.
            let _ = self.host.server.converse(self.id, |_, out| connection.send_close(code, reason, out));
        }
        self.host.server.hang_up(self.id);
    }
}

fn disconnect<'py>(py: Python<'py>, code: u16, reason: &str) -> PyResult<Bound<'py, PyAny>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "websocket.disconnect"))?;
    message.set_item(intern!(py, "code"), code)?;
    message.set_item(intern!(py, "reason"), reason)?;
    Ok(message.into_any())
}
