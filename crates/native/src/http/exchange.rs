//! One ASGI request and its answer: the object behind `receive` and `send`.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::rc::Rc;

use headrace_server::http1::ResponseEncoder;
use headrace_server::{BodyRead, ExchangeId, Payload, SendError, WriteState};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyTuple};
use pyo3::{create_exception, intern};

use super::awaitable::{Waiting, What};
use super::conversation::{Conversation, Tried};
use super::host::{Host, wake};
use crate::ffi::Guarded;
use crate::ffi::unary::Unary;

mod extensions;

create_exception!(
    headrace,
    ClientDisconnected,
    PyOSError,
    "Raised by ``send`` when the client has gone (ASGI HTTP specification 2.4)."
);

/// How far the application is with its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No head yet.
    Start,
    /// A head, and nothing of the body: nothing of both has gone out.
    Head,
    /// Some of the body.
    Body,
    /// All of the body; fields behind it were announced (extension `http.response.trailers`).
    Trailers,
    Complete,
}

/// One request of an ASGI application.
#[pyclass(frozen, module = "headrace._native", name = "_Exchange")]
pub(crate) struct Exchange {
    state: Guarded<State>,
}

struct State {
    host: Rc<Host>,
    id: ExchangeId,
    stage: Cell<Stage>,
    /// Fields behind the body were announced.
    announced: Cell<bool>,
    /// Those that have come so far.
    trailers: RefCell<Vec<u8>>,
    /// Futures that are waited for: by `receive`, and by `send`.
    receivers: RefCell<Vec<Py<PyAny>>>,
    senders: RefCell<Vec<Py<PyAny>>>,
}

/// The bytes of an object of Python's, sent from where they are.
struct PythonBytes(Py<PyBytes>);

impl Payload for PythonBytes {
    fn bytes(&self) -> &[u8] {
        Python::attach(|py| self.0.as_bytes(py))
    }
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
        let exchange = bound_to.cast::<Exchange>()?;
        let message = message.ok_or_else(|| PyTypeError::new_err("send() takes a message"))?;
        let message = message.cast::<PyDict>()?;
        Exchange::send(&exchange, &message)
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
        let exchange = bound_to.cast::<Exchange>()?.to_owned();
        let py = exchange.py();
        Ok(Bound::new(py, Waiting::new(Conversation::Http(exchange.unbind()), What::Receive))?.into_any())
    }
}

impl Exchange {
    pub(crate) fn new(host: Rc<Host>, id: ExchangeId) -> Self {
        Self {
            state: Guarded::new(State {
                host,
                id,
                stage: Cell::new(Stage::Start),
                announced: Cell::new(false),
                trailers: RefCell::default(),
                receivers: RefCell::default(),
                senders: RefCell::default(),
            }),
        }
    }

    pub(crate) fn id(&self) -> ExchangeId {
        self.state.id
    }

    pub(crate) fn host(&self) -> Rc<Host> {
        Rc::clone(&self.state.host)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state.stage.get() == Stage::Complete
    }

    pub(crate) fn is_started(&self) -> bool {
        self.state.stage.get() != Stage::Start
    }

    // Sending

    fn send<'py>(this: &Bound<'py, Self>, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let kind = message
            .get_item(intern!(py, "type"))?
            .ok_or_else(|| PyRuntimeError::new_err("ASGI message has no 'type'"))?;
        let state = &this.get().state;
        // Interned strings are the rule, so that identity is enough; equality settles the others.
        let is = |name: &Bound<'py, pyo3::types::PyString>| kind.is(name) || kind.eq(name).unwrap_or(false);
        match state.stage.get() {
            Stage::Start if is(intern!(py, "http.response.start")) => {
                Self::send_start(state, message)?;
                Ok(state.host.done(py))
            }
            Stage::Head | Stage::Body if is(intern!(py, "http.response.body")) => {
                Self::send_body(this, message)
            }
            _ => Self::send_extension(this, &kind, message),
        }
    }

    fn send_start(state: &State, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = message.py();
        let status: u16 = message
            .get_item(intern!(py, "status"))?
            .ok_or_else(|| PyRuntimeError::new_err("ASGI message 'http.response.start' has no 'status'"))?
            .extract()?;
        let mut head = state.host.scratch.take();
        head.clear();
        let outcome = (|| {
            let mut encoder = ResponseEncoder::begin(&mut head, status, b"").map_err(encode_error)?;
            if let Some(headers) = message.get_item(intern!(py, "headers"))? {
                encode_headers(&mut encoder, &mut head, &headers)?;
            }
            state.host.server.start_response(state.id, encoder, &head).map_err(send_error)
        })();
        state.host.scratch.replace(head);
        outcome?;
        if let Some(announced) = message.get_item(intern!(py, "trailers"))? {
            state.announced.set(announced.is_truthy()?);
        }
        state.stage.set(Stage::Head);
        Ok(())
    }

    fn send_body<'py>(this: &Bound<'py, Self>, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let state = &this.get().state;
        let more = match message.get_item(intern!(py, "more_body"))? {
            Some(more) => more.is_truthy()?,
            None => false,
        };
        let body = match message.get_item(intern!(py, "body"))? {
            None => PyBytes::new(py, b""),
            Some(body) => match body.cast_into::<PyBytes>() {
                Ok(body) => body,
                // A bytearray or memoryview may change before it is out: it is copied.
                Err(other) => {
                    let other = other.into_inner();
                    if other.is_instance_of::<pyo3::types::PyString>() || other.is_none() {
                        return Err(PyTypeError::new_err("the body of an ASGI message must be bytes"));
                    }
                    py.get_type::<PyBytes>().call1((other,))?.cast_into::<PyBytes>()?
                }
            },
        };
        let keep = || -> Box<dyn Payload> { Box::new(PythonBytes(body.clone().unbind())) };
        state.host.tell_time();
        let outcome = state.host.server.send_body(state.id, body.as_bytes(), state.goes_on(more), keep);
        Self::piece_sent(this, more, outcome)
    }

    /// A piece of body was handed to the server; `more` is what the application said of it.
    fn piece_sent<'py>(
        this: &Bound<'py, Self>,
        more: bool,
        outcome: Result<WriteState, SendError>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let state = &this.get().state;
        state.stage.set(match (more, state.announced.get()) {
            (true, _) => Stage::Body,
            (false, true) => Stage::Trailers,
            (false, false) => Stage::Complete,
        });
        Self::sent(this, !more || outcome.is_err(), outcome)
    }

    /// Something was handed to the server: what `await send()` is to await.
    fn sent<'py>(
        this: &Bound<'py, Self>,
        over: bool,
        outcome: Result<WriteState, SendError>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let state = &this.get().state;
        if over {
            state.wake_receivers(py);
        }
        state.host.settle(py);
        match outcome.map_err(send_error)? {
            WriteState::Ready => Ok(state.host.done(py)),
            WriteState::Full => {
                Ok(Bound::new(py, Waiting::new(Conversation::Http(this.clone().unbind()), What::Send))?
                    .into_any())
            }
        }
    }

    /// Whether more can be sent; if not, the future that tells when to try again.
    pub(crate) fn try_send<'py>(this: &Bound<'py, Self>) -> PyResult<Tried<'py>> {
        let py = this.py();
        let state = &this.get().state;
        if !state.host.server.is_open(state.id) {
            // The client has gone while we waited: the next send says so.
            return Ok(Ok(py.None().into_bound(py)));
        }
        if !state.host.server.is_full(state.id) {
            return Ok(Ok(py.None().into_bound(py)));
        }
        state.host.wait(this, &state.senders).map(Err)
    }

    // Receiving

    /// The next event, or the future that tells when to try again.
    pub(crate) fn try_receive<'py>(this: &Bound<'py, Self>) -> PyResult<Tried<'py>> {
        let py = this.py();
        let state = &this.get().state;
        if this.get().is_complete() {
            return disconnect(py).map(Ok);
        }
        let read = state.host.server.read_body(state.id, |bytes| PyBytes::new(py, bytes));
        state.host.settle(py);
        match read {
            BodyRead::Data { data, more } => {
                let message = PyDict::new(py);
                message.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
                message.set_item(intern!(py, "body"), data)?;
                message.set_item(intern!(py, "more_body"), PyBool::new(py, more))?;
                Ok(Ok(message.into_any()))
            }
            BodyRead::Disconnected => disconnect(py).map(Ok),
            BodyRead::Finished if !state.host.server.is_open(state.id) => disconnect(py).map(Ok),
            BodyRead::Finished | BodyRead::Pending => state.host.wait(this, &state.receivers).map(Err),
        }
    }

    // Waking

    pub(crate) fn wake_receivers(&self, py: Python<'_>) {
        self.state.wake_receivers(py);
    }

    pub(crate) fn wake_all(&self, py: Python<'_>) {
        self.state.wake_receivers(py);
        wake(py, self.state.senders.take());
    }

    /// Whether somebody waits for one of the exchange's futures.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.state.receivers.borrow().is_empty() || !self.state.senders.borrow().is_empty()
    }
}

impl State {
    /// Whether something follows this piece of body on the wire: more of it, or trailers that the client heeds.
    fn goes_on(&self, more: bool) -> bool {
        more || self.announced.get() && self.host.server.accepts_trailers(self.id)
    }

    fn wake_receivers(&self, py: Python<'_>) {
        if !self.receivers.borrow().is_empty() {
            wake(py, self.receivers.take());
        }
    }
}

fn disconnect(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
    Ok(message.into_any())
}

/// Write the headers of a message: an iterable of pairs of bytes.
pub(crate) fn encode_headers(
    encoder: &mut ResponseEncoder,
    head: &mut Vec<u8>,
    headers: &Bound<'_, PyAny>,
) -> PyResult<()> {
    each_header(headers, |name, value| encoder.field(head, name, value).map_err(encode_error))
}

/// Go through an iterable of pairs of bytes.
fn each_header(
    headers: &Bound<'_, PyAny>,
    mut add: impl FnMut(&[u8], &[u8]) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(list) = headers.cast::<PyList>() {
        return list.iter().try_for_each(|pair| one_header(&pair, &mut add));
    }
    if let Ok(tuple) = headers.cast::<PyTuple>() {
        return tuple.iter_borrowed().try_for_each(|pair| one_header(&pair, &mut add));
    }
    headers.try_iter()?.try_for_each(|pair| one_header(&pair?, &mut add))
}

fn one_header(pair: &Bound<'_, PyAny>, add: &mut impl FnMut(&[u8], &[u8]) -> PyResult<()>) -> PyResult<()> {
    const PAIRS: &str = "the headers of an ASGI message must be pairs of bytes";
    let mut add = |name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>| match (
        name.cast::<PyBytes>(),
        value.cast::<PyBytes>(),
    ) {
        (Ok(name), Ok(value)) => add(name.as_bytes(), value.as_bytes()),
        _ => Err(PyTypeError::new_err(PAIRS)),
    };
    if let Ok(tuple) = pair.cast::<PyTuple>()
        && tuple.len() == 2
    {
        let (name, value) = (tuple.get_borrowed_item(0)?, tuple.get_borrowed_item(1)?);
        return add(&name, &value);
    }
    let items: Vec<Bound<'_, PyAny>> = pair.try_iter()?.collect::<PyResult<_>>()?;
    match items.as_slice() {
        [name, value] => add(name, value),
        _ => Err(PyTypeError::new_err(PAIRS)),
    }
}

pub(crate) fn encode_error(error: headrace_server::http1::EncodeError) -> PyErr {
    PyRuntimeError::new_err(format!("ASGI message 'http.response.start': {error}"))
}

fn send_error(error: SendError) -> PyErr {
    match error {
        SendError::Gone => ClientDisconnected::new_err("the client has disconnected"),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}
