//! Requests as WSGI applications get them (PEP 3333), run in the thread that serves the connections.
//!
//! The application is called once the whole body is there, so that reading it never blocks; its answer's
//! iterable is stopped while the client is slow, and taken up again when it has caught up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::rc::Rc;

use headrace_server::http1::{BodyLength, RequestHead, ResponseEncoder, Version};
use headrace_server::{BodyRead, ConnectionInfo, ExchangeId, Payload, SendError, WriteState};
use pyo3::exceptions::{PyAssertionError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyString, PyTuple};

use super::asgi::{method, unescaped};
use super::host::Host;
use super::log;
use super::names::Names;
use crate::ffi;
use crate::ffi::Guarded;
use crate::ffi::unary::Unary;

/// Pieces of a list are sent as one body up to this size; above it, one by one.
const JOIN_UP_TO: usize = 1024 * 1024;

/// A WSGI application and what its environs are made of.
pub(crate) struct Wsgi {
    application: Py<PyAny>,
    set_running_loop: Py<PyAny>,
    bytes_io: Py<PyAny>,
    names: Names<PyString>,
    /// An environ for each listener, complete but for what differs from request to request.
    templates: RefCell<Vec<Py<PyDict>>>,
    /// `REMOTE_ADDR` of each connection, by slot.
    clients: RefCell<Vec<(u32, Py<PyString>)>>,
    /// Requests whose body is not complete.
    gathering: RefCell<HashMap<ExchangeId, Gathering>>,
    /// Answers whose client is slow.
    streams: RefCell<HashMap<ExchangeId, Stream>>,
}

struct Gathering {
    environ: Py<PyDict>,
    body: Vec<u8>,
}

/// An answer that is being iterated over.
struct Stream {
    start: Py<StartResponse>,
    result: Py<PyAny>,
    iterator: Py<PyIterator>,
}

/// Give a body that came in chunks its length, now that it is known: Django and others read no more of
/// `wsgi.input` than `CONTENT_LENGTH` says (PEP 3333), and waitress, which gathers bodies too, does the same.
fn unchunk(environ: &Bound<'_, PyDict>, length: usize) -> PyResult<()> {
    let py = environ.py();
    if !environ.contains(intern!(py, "CONTENT_LENGTH"))? {
        environ.set_item(intern!(py, "CONTENT_LENGTH"), length.to_string())?;
        environ.del_item(intern!(py, "HTTP_TRANSFER_ENCODING"))?;
    }
    Ok(())
}

struct PythonBytes(Py<PyBytes>);

impl Payload for PythonBytes {
    fn bytes(&self) -> &[u8] {
        Python::attach(|py| self.0.as_bytes(py))
    }
}

impl Wsgi {
    pub(crate) fn new(py: Python<'_>, application: Py<PyAny>) -> PyResult<Self> {
        Ok(Self {
            application,
            set_running_loop: py.import("asyncio")?.getattr("_set_running_loop")?.unbind(),
            bytes_io: py.import("io")?.getattr("BytesIO")?.unbind(),
            names: Names::wsgi(py),
            templates: RefCell::default(),
            clients: RefCell::default(),
            gathering: RefCell::default(),
            streams: RefCell::default(),
        })
    }

    pub(crate) fn add_template(&self, template: Py<PyDict>) {
        self.templates.borrow_mut().push(template);
    }

    pub(crate) fn request(
        &self,
        py: Python<'_>,
        host: &Rc<Host>,
        id: ExchangeId,
        head: &RequestHead<'_, '_>,
        from: &ConnectionInfo,
    ) {
        let environ = match self.environ(py, head, from) {
            Ok(environ) => environ,
            Err(error) => return Self::failed(py, host, id, &error),
        };
        if head.body == BodyLength::Empty {
            return self.run(py, host, id, &environ, b"");
        }
        self.gathering.borrow_mut().insert(id, Gathering { environ: environ.unbind(), body: Vec::new() });
        self.body_ready(py, host, id);
    }

    /// Take what has come of the body; run the application when it is complete.
    pub(crate) fn body_ready(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId) {
        loop {
            let Some(mut gathering) = self.gathering.borrow_mut().remove(&id) else { return };
            match host.server.read_body(id, |bytes| gathering.body.extend_from_slice(bytes)) {
                BodyRead::Data { more: true, .. } => {
                    self.gathering.borrow_mut().insert(id, gathering);
                }
                BodyRead::Pending => {
                    self.gathering.borrow_mut().insert(id, gathering);
                    return;
                }
                BodyRead::Data { more: false, .. } | BodyRead::Finished => {
                    let environ = gathering.environ.bind(py);
                    return match unchunk(environ, gathering.body.len()) {
                        Ok(()) => self.run(py, host, id, environ, &gathering.body),
                        Err(error) => Self::failed(py, host, id, &error),
                    };
                }
                BodyRead::Disconnected => {
                    host.server.fail(id, 400, "request body ended early");
                    return;
                }
            }
        }
    }

    pub(crate) fn writable(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId) {
        let stream = self.streams.borrow_mut().remove(&id);
        if let Some(stream) = stream {
            self.outside_loop(py, host, || self.stream(py, host, id, stream));
        }
    }

    pub(crate) fn disconnected(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId) {
        if self.gathering.borrow_mut().remove(&id).is_some() {
            // The application was not called and will not be: nobody else ends this exchange.
            host.server.fail(id, 400, "request body ended early");
        }
        let stream = self.streams.borrow_mut().remove(&id);
        if let Some(stream) = stream {
            close(stream.result.bind(py));
            host.server.fail(id, 500, "the answer was broken off");
        }
    }

    /// Run `body` as code outside any loop: Django's ORM, for one, refuses to work where a loop is running, and
    /// the application may want to run one of its own.
    fn outside_loop<T>(&self, py: Python<'_>, host: &Host, body: impl FnOnce() -> T) -> T {
        let set = |event_loop: Bound<'_, PyAny>| {
            if let Err(error) = self.set_running_loop.bind(py).call1((event_loop,)) {
                error.write_unraisable(py, None);
            }
        };
        set(py.None().into_bound(py));
        let result = body();
        set(host.event_loop.bind(py).clone());
        result
    }

    fn run(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId, environ: &Bound<'_, PyDict>, body: &[u8]) {
        self.outside_loop(py, host, || self.call(py, host, id, environ, body));
        host.settle(py);
    }

    fn call(
        &self,
        py: Python<'_>,
        host: &Rc<Host>,
        id: ExchangeId,
        environ: &Bound<'_, PyDict>,
        body: &[u8],
    ) {
        let outcome = (|| {
            let input = if body.is_empty() {
                self.bytes_io.bind(py).call0()?
            } else {
                self.bytes_io.bind(py).call1((PyBytes::new(py, body),))?
            };
            environ.set_item(intern!(py, "wsgi.input"), input)?;
            let start = Bound::new(py, StartResponse::new(Rc::clone(host), id))?;
            let result = self.application.bind(py).call1((environ, &start))?;
            Ok((start, result))
        })();
        match outcome {
            Ok((start, result)) => self.answer(py, host, id, &start, &result),
            Err(error) => Self::failed(py, host, id, &error),
        }
    }

    /// Send what the application returned.
    fn answer<'py>(
        &self,
        py: Python<'py>,
        host: &Rc<Host>,
        id: ExchangeId,
        start: &Bound<'py, StartResponse>,
        result: &Bound<'py, PyAny>,
    ) {
        if let Some(whole) = whole_body(result) {
            if let Err(error) = whole.and_then(|body| start.get().send(&body, false)) {
                Self::failed(py, host, id, &error);
            }
            // A list and a tuple have no close().
            return;
        }
        match result.try_iter() {
            Ok(iterator) => {
                let stream = Stream {
                    start: start.clone().unbind(),
                    result: result.clone().unbind(),
                    iterator: iterator.unbind(),
                };
                self.stream(py, host, id, stream);
            }
            Err(error) => {
                close(result);
                Self::failed(py, host, id, &error);
            }
        }
    }

    /// Send pieces until there are no more, or the client has enough for now.
    fn stream(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId, stream: Stream) {
        let start = stream.start.get();
        let outcome = (|| {
            let mut iterator = stream.iterator.bind(py).clone();
            loop {
                let Some(piece) = iterator.next().transpose()? else {
                    start.send(&PyBytes::new(py, b""), false)?;
                    return Ok(false);
                };
                let piece = piece
                    .cast_into::<PyBytes>()
                    .map_err(|_| PyTypeError::new_err("a WSGI application must give pieces of bytes"))?;
                if piece.as_bytes().is_empty() {
                    continue;
                }
                if start.send(&piece, true)? == WriteState::Full {
                    return Ok(true);
                }
            }
        })();
        match outcome {
            Ok(true) => {
                self.streams.borrow_mut().insert(id, stream);
            }
            Ok(false) => close(stream.result.bind(py)),
            Err(error) => {
                close(stream.result.bind(py));
                Self::failed(py, host, id, &error);
            }
        }
    }

    fn failed(py: Python<'_>, host: &Rc<Host>, id: ExchangeId, error: &PyErr) {
        // A client that went away in the middle is not the application's error.
        if !error.is_instance_of::<super::exchange::ClientDisconnected>(py) {
            log::exception(py, "Exception in WSGI application", error);
        }
        host.server.fail(id, 500, "Internal Server Error");
        if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
            host.raise_in_loop(py, error);
        }
    }

    /// The environ of a request (PEP 3333, "environ Variables"; RFC 3875 section 4.1).
    fn environ<'py>(
        &self,
        py: Python<'py>,
        head: &RequestHead<'_, '_>,
        from: &ConnectionInfo,
    ) -> PyResult<Bound<'py, PyDict>> {
        let environ = self.templates.borrow()[from.listener].bind(py).copy()?;
        if head.method != "GET" {
            environ.set_item(intern!(py, "REQUEST_METHOD"), method(py, head.method))?;
        }
        if head.version == Version::Http10 {
            environ.set_item(intern!(py, "SERVER_PROTOCOL"), intern!(py, "HTTP/1.0"))?;
        }
        environ.set_item(intern!(py, "PATH_INFO"), latin1_unescaped(py, head.target.path))?;
        if !head.target.query.is_empty() {
            environ.set_item(intern!(py, "QUERY_STRING"), latin1(py, head.target.query))?;
        }
        for field in head.fields {
            let Some(name) = self.names.get(py, field.name) else { continue };
            let value = latin1(py, field.value);
            match environ.get_item(&name)? {
                None => environ.set_item(name, value)?,
                // RFC 3875 section 4.1.18: several fields of one name are one variable.
                Some(before) => {
                    let separator = if field.name.eq_ignore_ascii_case("cookie") { "; " } else { "," };
                    environ.set_item(name, format!("{before}{separator}{value}"))?;
                }
            }
        }
        if let Some(peer) = from.peer {
            environ.set_item(intern!(py, "REMOTE_ADDR"), self.client(py, from, &peer.ip()))?;
            environ.set_item(intern!(py, "REMOTE_PORT"), peer.port().to_string())?;
        }
        Ok(environ)
    }

    fn client<'py>(
        &self,
        py: Python<'py>,
        from: &ConnectionInfo,
        ip: &std::net::IpAddr,
    ) -> Bound<'py, PyString> {
        let mut clients = self.clients.borrow_mut();
        if let Some((serial, client)) = clients.get(from.slot)
            && *serial == from.serial
        {
            return client.bind(py).clone();
        }
        let client = PyString::new(py, &ip.to_string());
        while clients.len() <= from.slot {
            clients.push((0, intern!(py, "").clone().unbind()));
        }
        clients[from.slot] = (from.serial, client.clone().unbind());
        client
    }
}

/// The one body of an answer that is a list or tuple of bytes; `None` for any other iterable.
fn whole_body<'py>(result: &Bound<'py, PyAny>) -> Option<PyResult<Bound<'py, PyBytes>>> {
    let py = result.py();
    if let Ok(list) = result.cast_exact::<PyList>() {
        if list.len() == 1 {
            return Some(list.get_item(0).and_then(piece));
        }
    } else if let Ok(tuple) = result.cast_exact::<PyTuple>() {
        if tuple.len() == 1 {
            return Some(tuple.get_item(0).and_then(piece));
        }
    } else {
        return None;
    }
    let pieces: PyResult<Vec<Bound<'py, PyBytes>>> =
        result.try_iter().and_then(|items| items.map(|item| item.and_then(piece)).collect());
    let pieces = match pieces {
        Ok(pieces) => pieces,
        Err(error) => return Some(Err(error)),
    };
    if pieces.iter().map(|piece| piece.as_bytes().len()).sum::<usize>() > JOIN_UP_TO {
        return None;
    }
    let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece.as_bytes()).copied().collect();
    Some(Ok(PyBytes::new(py, &joined)))
}

fn piece(item: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyBytes>> {
    item.cast_into::<PyBytes>()
        .map_err(|_| PyTypeError::new_err("a WSGI application must give pieces of bytes"))
}

/// `result.close()`, where there is one (PEP 3333: whatever happened before).
fn close(result: &Bound<'_, PyAny>) {
    let py = result.py();
    let closed = (|| {
        if let Some(close) = result.getattr_opt(intern!(py, "close"))? {
            close.call0()?;
        }
        PyResult::Ok(())
    })();
    if let Err(error) = closed {
        log::exception(py, "Exception in close() of a WSGI application's answer", &error);
    }
}

/// Bytes as the string of the same code points, as PEP 3333 has them.
pub(crate) fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && bytes.is_ascii()
    {
        return PyString::new(py, text);
    }
    PyString::new(py, &bytes.iter().copied().map(char::from).collect::<String>())
}

fn latin1_unescaped<'py>(py: Python<'py>, raw: &[u8]) -> Bound<'py, PyString> {
    if raw.contains(&b'%') { latin1(py, &unescaped(raw)) } else { latin1(py, raw) }
}

/// `start_response` of one request.
#[pyclass(frozen, module = "headrace._native", name = "_StartResponse")]
struct StartResponse {
    state: Guarded<Start>,
}

struct Start {
    host: Rc<Host>,
    id: ExchangeId,
    /// The head, written and not yet handed to the server: another call may replace it.
    head: RefCell<Option<(ResponseEncoder, Vec<u8>)>>,
    sent: std::cell::Cell<bool>,
}

impl StartResponse {
    fn new(host: Rc<Host>, id: ExchangeId) -> Self {
        Self {
            state: Guarded::new(Start {
                host,
                id,
                head: RefCell::default(),
                sent: std::cell::Cell::new(false),
            }),
        }
    }

    /// Send a piece of the body, behind the head if that is not out yet.
    fn send(&self, body: &Bound<'_, PyBytes>, more: bool) -> PyResult<WriteState> {
        let state = &self.state;
        if !state.sent.get() {
            let Some((encoder, mut head)) = state.head.borrow_mut().take() else {
                return Err(PyAssertionError::new_err("the WSGI application did not call start_response"));
            };
            state.sent.set(true);
            let started = state.host.server.start_response(state.id, encoder, &head);
            head.clear();
            state.host.scratch.replace(head);
            started.map_err(send_error)?;
        }
        let keep = || -> Box<dyn Payload> { Box::new(PythonBytes(body.clone().unbind())) };
        state.host.server.send_body(state.id, body.as_bytes(), more, keep).map_err(send_error)
    }
}

fn send_error(error: SendError) -> PyErr {
    match error {
        SendError::Gone => super::exchange::ClientDisconnected::new_err("the client has disconnected"),
        other => PyAssertionError::new_err(other.to_string()),
    }
}

#[pymethods]
impl StartResponse {
    #[pyo3(signature = (status, headers, exc_info=None))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        status: &Bound<'py, PyString>,
        headers: &Bound<'py, PyList>,
        exc_info: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let state = &slf.get().state;
        if let Some(exc_info) = exc_info.filter(|exc_info| !exc_info.is_none()) {
            if state.sent.get() {
                return Err(PyErr::from_value(exc_info.get_item(1)?));
            }
        } else if state.sent.get() || state.head.borrow().is_some() {
            return Err(PyAssertionError::new_err("start_response was called twice without exc_info"));
        }
        let mut head = state.host.scratch.take();
        head.clear();
        let encoder = encode(&mut head, status.to_str()?, headers)?;
        *state.head.borrow_mut() = Some((encoder, head));
        ffi::unary::bind::<Write>(slf.as_any())
    }
}

/// The `write` that `start_response` returns, for applications from before WSGI.
struct Write;

impl Unary for Write {
    const NAME: &'static CStr = c"write";
    const TAKES_ARGUMENT: bool = true;

    fn call<'py>(
        bound_to: Borrowed<'_, 'py, PyAny>,
        data: Option<Borrowed<'_, 'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = bound_to.py();
        let data = data.ok_or_else(|| PyTypeError::new_err("write() takes bytes"))?;
        bound_to.cast::<StartResponse>()?.get().send(&data.cast::<PyBytes>()?.to_owned(), true)?;
        Ok(py.None().into_bound(py))
    }
}

fn encode(head: &mut Vec<u8>, status: &str, headers: &Bound<'_, PyList>) -> PyResult<ResponseEncoder> {
    let bad = |error: headrace_server::http1::EncodeError| {
        PyValueError::new_err(format!("start_response: {error}"))
    };
    let (code, reason) = status.split_once(' ').unwrap_or((status, ""));
    let code: u16 = code
        .parse()
        .ok()
        .filter(|_| code.len() == 3)
        .ok_or_else(|| PyValueError::new_err(format!("start_response: bad status {status:?}")))?;
    let mut encoder = ResponseEncoder::begin(head, code, reason.as_bytes()).map_err(bad)?;
    for pair in headers {
        let pair = pair.cast_into::<PyTuple>()?;
        let (name, value) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
        let (name, value) = (name.cast::<PyString>()?, value.cast::<PyString>()?);
        let (name, value) = (name.to_str()?, value.to_str()?);
        if value.is_ascii() {
            encoder.field(head, name.as_bytes(), value.as_bytes()).map_err(bad)?;
        } else {
            let latin1: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
            let latin1 = latin1.ok_or_else(|| {
                PyValueError::new_err(format!("start_response: the value of {name:?} is not latin-1"))
            })?;
            encoder.field(head, name.as_bytes(), &latin1).map_err(bad)?;
        }
    }
    Ok(encoder)
}
