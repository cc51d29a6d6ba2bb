//! Requests as `tornado.web.Application` gets them: the calls of `tornado.httputil.HTTPServerConnectionDelegate`,
//! and the connection object that its handlers answer through.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::IntoRawFd;
use std::rc::Rc;

use headrace_server::http1::{BodyLength, EncodeError, RequestHead, ResponseEncoder, Version};
use headrace_server::{BodyRead, ConnectionInfo, ExchangeId, Payload, SendError, WriteState};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyType};

use super::asgi::method;
use super::host::{Application, Host};
use super::log;
use super::wsgi::latin1;
use crate::ffi::Guarded;

/// Field names that are kept in Tornado's spelling; more of them are made anew each time.
const NAMES_KEPT: usize = 256;

/// A Tornado application and what its requests are made of.
pub(crate) struct Tornado {
    /// `headrace.server.tornado.Hosting.start_request`.
    start_request: Py<PyAny>,
    /// Makes the `context` of a connection of its client's address.
    new_context: Py<PyAny>,
    /// `headrace.server.tornado`, for what is not done at every request.
    helper: Py<PyAny>,
    request_line: Py<PyAny>,
    headers: Py<PyType>,
    input_error: Py<PyAny>,
    /// Whether `HTTPHeaders` is made of the two dictionaries that we know how to fill.
    known_shape: bool,
    names: RefCell<HashMap<Box<[u8]>, Py<PyString>>>,
    /// The `context` of each connection, by slot.
    contexts: RefCell<Vec<(u32, Py<PyAny>)>>,
    /// Requests that are not answered in full.
    open: RefCell<HashMap<ExchangeId, Py<Connection>>>,
    /// A future that is done.
    done: Py<PyAny>,
}

struct PythonBytes(Py<PyBytes>);

impl Payload for PythonBytes {
    fn bytes(&self) -> &[u8] {
        Python::attach(|py| self.0.as_bytes(py))
    }
}

impl Tornado {
    pub(crate) fn new(
        py: Python<'_>,
        application: &Bound<'_, PyAny>,
        event_loop: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let helper = py.import("headrace.server.tornado")?;
        let hosting = helper.call_method1("Hosting", (application,))?;
        let httputil = py.import("tornado.httputil")?;
        let done = event_loop.call_method0("create_future")?;
        done.call_method1("set_result", (py.None(),))?;
        Ok(Self {
            start_request: hosting.getattr("start_request")?.unbind(),
            new_context: hosting.getattr("context")?.unbind(),
            known_shape: helper.call_method0("headers_have_known_shape")?.is_truthy()?,
            helper: helper.into_any().unbind(),
            request_line: httputil.getattr("RequestStartLine")?.unbind(),
            headers: httputil.getattr("HTTPHeaders")?.cast_into::<PyType>()?.unbind(),
            input_error: httputil.getattr("HTTPInputError")?.unbind(),
            names: RefCell::default(),
            contexts: RefCell::default(),
            open: RefCell::default(),
            done: done.unbind(),
        })
    }

    pub(crate) fn request(
        &self,
        py: Python<'_>,
        host: &Rc<Host>,
        id: ExchangeId,
        head: &RequestHead<'_, '_>,
        from: &ConnectionInfo,
    ) {
        let outcome = (|| {
            let context = self.context(py, from)?;
            let connection = Bound::new(py, Connection::new(Rc::clone(host), id, context))?;
            self.open.borrow_mut().insert(id, connection.clone().unbind());
            let delegate = self.start_request.bind(py).call1((context_key(&connection), &connection))?;
            let start_line = self.start_line(py, head)?;
            let headers = self.headers(py, head)?;
            let waits = delegate.call_method1(intern!(py, "headers_received"), (start_line, headers))?;
            if waits.is_none() && head.body == BodyLength::Empty {
                connection.get().state.delivered.set(true);
                delegate.call_method0(intern!(py, "finish"))?;
            } else {
                let deliver = intern!(py, "deliver");
                self.helper.bind(py).call_method1(deliver, (delegate, connection, waits))?;
            }
            PyResult::Ok(())
        })();
        if let Err(error) = outcome {
            self.forget(py, id);
            if error.matches(py, self.input_error.bind(py)).unwrap_or(false) {
                host.server.fail(id, 400, "Bad Request");
            } else {
                log::exception(py, "Exception in Tornado application", &error);
                host.server.fail(id, 500, "Internal Server Error");
            }
        }
        host.settle(py);
    }

    fn start_line<'py>(&self, py: Python<'py>, head: &RequestHead<'_, '_>) -> PyResult<Bound<'py, PyAny>> {
        let target = if head.target.query.is_empty() {
            latin1(py, head.target.path)
        } else {
            latin1(py, &[head.target.path, b"?", head.target.query].concat())
        };
        let version = match head.version {
            Version::Http10 => intern!(py, "HTTP/1.0"),
            Version::Http11 => intern!(py, "HTTP/1.1"),
        };
        self.request_line.bind(py).call1((method(py, head.method), target, version))
    }

    fn headers<'py>(&self, py: Python<'py>, head: &RequestHead<'_, '_>) -> PyResult<Bound<'py, PyAny>> {
        let class = self.headers.bind(py);
        if !self.known_shape {
            let headers = class.call0()?;
            for field in head.fields {
                let value = latin1(py, field.value);
                headers.call_method1(intern!(py, "add"), (field.name, value))?;
            }
            if let Some(host) = head.implied_host() {
                headers.call_method1(intern!(py, "add"), (intern!(py, "Host"), latin1(py, host)))?;
            }
            return Ok(headers);
        }
        let lists = PyDict::new(py);
        for field in head.fields {
            let name = self.name(py, field.name);
            let value = latin1(py, field.value);
            match lists.get_item(&name)? {
                None => lists.set_item(name, PyList::new(py, [value])?)?,
                Some(values) => values.cast::<PyList>()?.append(value)?,
            }
        }
        if let Some(host) = head.implied_host() {
            lists.set_item(intern!(py, "Host"), PyList::new(py, [latin1(py, host)])?)?;
        }
        let headers = class.call_method1(intern!(py, "__new__"), (class,))?;
        headers.setattr(intern!(py, "_as_list"), lists)?;
        headers.setattr(intern!(py, "_combined_cache"), PyDict::new(py))?;
        Ok(headers)
    }

    /// A field's name as Tornado spells it: `Content-Type`.
    fn name<'py>(&self, py: Python<'py>, name: &str) -> Bound<'py, PyString> {
        if let Some(known) = self.names.borrow().get(name.as_bytes()) {
            return known.bind(py).clone();
        }
        let mut first = true;
        let spelled: String = name
            .chars()
            .map(|c| {
                let spelled = if first { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
                first = c == '-';
                spelled
            })
            .collect();
        let spelled = PyString::new(py, &spelled);
        let mut names = self.names.borrow_mut();
        if names.len() < NAMES_KEPT {
            names.insert(name.as_bytes().into(), spelled.clone().unbind());
        }
        spelled
    }

    fn context(&self, py: Python<'_>, from: &ConnectionInfo) -> PyResult<Py<PyAny>> {
        if let Some((serial, context)) = self.contexts.borrow().get(from.slot)
            && *serial == from.serial
        {
            return Ok(context.clone_ref(py));
        }
        let peer = from.peer.map(|peer| (peer.ip().to_string(), peer.port()));
        let context = self.new_context.bind(py).call1((peer,))?.unbind();
        let mut contexts = self.contexts.borrow_mut();
        while contexts.len() <= from.slot {
            contexts.push((0, py.None()));
        }
        contexts[from.slot] = (from.serial, context.clone_ref(py));
        Ok(context)
    }

    fn forget(&self, py: Python<'_>, id: ExchangeId) -> Option<Py<Connection>> {
        let connection = self.open.borrow_mut().remove(&id)?;
        connection.bind(py).get().state.over.set(true);
        Some(connection)
    }

    fn find(&self, py: Python<'_>, id: ExchangeId) -> Option<Py<Connection>> {
        self.open.borrow().get(&id).map(|connection| connection.clone_ref(py))
    }

    pub(crate) fn body_ready(&self, py: Python<'_>, id: ExchangeId) {
        if let Some(connection) = self.find(py, id) {
            connection.get().state.wake(py);
        }
    }

    pub(crate) fn writable(&self, py: Python<'_>, id: ExchangeId) {
        self.body_ready(py, id);
    }

    pub(crate) fn disconnected(&self, py: Python<'_>, id: ExchangeId) {
        let Some(connection) = self.forget(py, id) else { return };
        let state = &connection.get().state;
        state.gone.set(true);
        let callback = state.close_callback.borrow_mut().take().filter(|_| state.delivered.get());
        state.wake(py);
        if let Some(callback) = callback
            && let Err(error) = callback.bind(py).call0()
        {
            log::exception(py, "Exception in a Tornado handler's on_connection_close", &error);
        }
    }
}

/// What names the connection in `start_request`: the same object for all its requests.
fn context_key<'py>(connection: &Bound<'py, Connection>) -> Bound<'py, PyAny> {
    connection.get().context.bind(connection.py()).clone()
}

/// One request's connection, as `tornado.httputil.HTTPConnection` has it.
#[pyclass(frozen, module = "headrace._native", name = "_TornadoConnection")]
pub(crate) struct Connection {
    context: Py<PyAny>,
    state: Guarded<State>,
}

struct State {
    host: Rc<Host>,
    id: ExchangeId,
    /// The answer is complete, the client has gone, or the connection was given away.
    over: Cell<bool>,
    /// The client has gone.
    gone: Cell<bool>,
    /// The delegate has all of the request: until then it is the delegate that hears of the client's going, not the
    /// close callback.
    delivered: Cell<bool>,
    close_callback: RefCell<Option<Py<PyAny>>>,
    /// Seconds that the whole body may take, where the handler has said so.
    body_timeout: Cell<Option<f64>>,
    /// Futures that wait for room, or for more of the body.
    waiting: RefCell<Vec<Py<PyAny>>>,
    /// The head of an answer that changes the protocol: it goes out when the connection is detached.
    upgrade: RefCell<Option<Vec<u8>>>,
}

impl State {
    fn tornado(&self) -> PyResult<&Tornado> {
        match &self.host.application {
            Application::Tornado(tornado) => Ok(tornado),
            _ => Err(PyRuntimeError::new_err("not a Tornado application's connection")),
        }
    }

    fn wake(&self, py: Python<'_>) {
        for future in self.waiting.take() {
            let future = future.bind(py);
            let woken = future.call_method0(intern!(py, "done")).and_then(|done| {
                if !done.is_truthy()? {
                    future.call_method1(intern!(py, "set_result"), (py.None(),))?;
                }
                Ok(())
            });
            if let Err(error) = woken {
                error.write_unraisable(py, None);
            }
        }
    }

    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let future = self.host.event_loop.bind(py).call_method0(intern!(py, "create_future"))?;
        self.waiting.borrow_mut().push(future.clone().unbind());
        Ok(future)
    }

    /// The answer is complete.
    fn finished(&self, py: Python<'_>) -> PyResult<()> {
        self.tornado()?.forget(py, self.id);
        self.over.set(true);
        self.close_callback.take();
        self.wake(py);
        Ok(())
    }

    /// Send a piece of body: what to wait for.
    fn send<'py>(
        &self,
        py: Python<'py>,
        body: &Bound<'py, PyBytes>,
        more: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let keep = || -> Box<dyn Payload> { Box::new(PythonBytes(body.clone().unbind())) };
        self.host.tell_time();
        let outcome = self.host.server.send_body(self.id, body.as_bytes(), more, keep);
        if !more {
            self.finished(py)?;
        }
        self.host.settle(py);
        match outcome {
            Ok(WriteState::Ready) => Ok(self.tornado()?.done.bind(py).clone()),
            Ok(WriteState::Full) => self.wait(py),
            Err(error) => self.failed(py, error),
        }
    }

    /// A future that has failed where the client is gone; any other fault is the application's, and raised.
    fn failed<'py>(&self, py: Python<'py>, error: SendError) -> PyResult<Bound<'py, PyAny>> {
        match error {
            SendError::Gone => self.tornado()?.helper.bind(py).call_method0(intern!(py, "stream_closed")),
            other => Err(PyErr::from_value(
                self.tornado()?
                    .helper
                    .bind(py)
                    .call_method1(intern!(py, "output_error"), (other.to_string(),))?,
            )),
        }
    }
}

fn encode_error(error: EncodeError) -> PyErr {
    PyValueError::new_err(error.reason())
}

/// A string as the bytes of the same code points.
fn latin1_bytes(text: &str) -> PyResult<Vec<u8>> {
    text.chars()
        .map(|c| u8::try_from(u32::from(c)))
        .collect::<Result<_, _>>()
        .map_err(|_| PyValueError::new_err(format!("{text:?} is not latin-1")))
}

/// Call `add` with each field's name and value.
fn each_field(headers: &Bound<'_, PyAny>, mut add: impl FnMut(&[u8], &[u8]) -> PyResult<()>) -> PyResult<()> {
    let mut pair = |name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>| {
        let (name, value) = (name.cast::<PyString>()?.to_str()?, value.cast::<PyString>()?.to_str()?);
        if value.is_ascii() {
            add(name.as_bytes(), value.as_bytes())
        } else {
            add(name.as_bytes(), &latin1_bytes(value)?)
        }
    };
    if let Ok(lists) = headers.getattr(intern!(headers.py(), "_as_list"))
        && let Ok(lists) = lists.cast_into::<PyDict>()
    {
        for (name, values) in lists {
            for value in values.cast::<PyList>()? {
                pair(&name, &value)?;
            }
        }
        return Ok(());
    }
    for item in headers.call_method0(intern!(headers.py(), "get_all"))?.try_iter()? {
        let item = item?;
        pair(&item.get_item(0)?, &item.get_item(1)?)?;
    }
    Ok(())
}

impl Connection {
    fn new(host: Rc<Host>, id: ExchangeId, context: Py<PyAny>) -> Self {
        Self {
            context,
            state: Guarded::new(State {
                host,
                id,
                over: Cell::new(false),
                gone: Cell::new(false),
                delivered: Cell::new(false),
                close_callback: RefCell::default(),
                body_timeout: Cell::new(None),
                waiting: RefCell::default(),
                upgrade: RefCell::default(),
            }),
        }
    }
}

#[pymethods]
impl Connection {
    #[getter]
    fn context(&self, py: Python<'_>) -> Py<PyAny> {
        self.context.clone_ref(py)
    }

    /// Whether the answer is complete, or nobody is left to get one.
    #[getter]
    fn over(&self) -> bool {
        self.state.over.get()
    }

    /// Whether the client has gone.
    #[getter]
    fn gone(&self) -> bool {
        self.state.gone.get()
    }

    /// What handlers know as the connection's stream.
    #[getter]
    fn stream<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().state.tornado()?.helper.bind(slf.py()).call_method1(intern!(slf.py(), "Stream"), (slf,))
    }

    /// A duplicate of the connection's descriptor; None when there is no connection any more.
    fn duplicate(&self) -> Option<i32> {
        self.state.host.server.duplicate(self.state.id).map(IntoRawFd::into_raw_fd)
    }

    /// Close the connection at once.
    fn close(&self, py: Python<'_>) {
        self.state.host.server.close(self.state.id);
        self.state.host.settle(py);
    }

    /// Close the connection after this answer.
    fn end_after_answer(&self) {
        self.state.host.server.end_after_answer(self.state.id);
    }

    #[pyo3(signature = (start_line, headers, chunk=None))]
    fn write_headers<'py>(
        &self,
        start_line: &Bound<'py, PyAny>,
        headers: &Bound<'py, PyAny>,
        chunk: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = start_line.py();
        let state = &self.state;
        let status: u16 = start_line.getattr(intern!(py, "code"))?.extract()?;
        let reason = start_line.getattr(intern!(py, "reason"))?;
        let reason = latin1_bytes(reason.cast::<PyString>()?.to_str()?)?;
        if status == 101 {
            let mut head = [b"HTTP/1.1 101 ", reason.as_slice(), b"\r\n"].concat();
            each_field(headers, |name, value| {
                head.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
                Ok(())
            })?;
            head.extend_from_slice(b"\r\n");
            state.upgrade.replace(Some(head));
            return Ok(state.tornado()?.done.bind(py).clone());
        }
        let body = match chunk {
            None => PyBytes::new(py, b""),
            Some(chunk) => bytes(chunk)?,
        };
        let mut head = state.host.scratch.take();
        head.clear();
        let mut length = None;
        let started = (|| {
            let mut encoder = ResponseEncoder::begin(&mut head, status, &reason).map_err(encode_error)?;
            each_field(headers, |name, value| {
                if name.eq_ignore_ascii_case(b"content-length") {
                    length = std::str::from_utf8(value).ok().and_then(|text| text.parse::<usize>().ok());
                }
                encoder.field(&mut head, name, value).map_err(encode_error)
            })?;
            PyResult::Ok(state.host.server.start_response(state.id, encoder, &head))
        })();
        state.host.scratch.replace(head);
        if let Err(error) = started? {
            return state.failed(py, error);
        }
        // All of a body of known length: the answer is complete, and goes out as a whole.
        let whole = length == Some(body.as_bytes().len()) && !body.as_bytes().is_empty();
        state.send(py, &body, !whole)
    }

    fn write<'py>(&self, chunk: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, state, chunk) = (chunk.py(), &self.state, bytes(chunk)?);
        if chunk.as_bytes().is_empty() && state.over.get() && !state.gone.get() {
            // The handler's finish() after a flush() that had all of a body of known length, and so was the end.
            return Ok(state.tornado()?.done.bind(py).clone());
        }
        state.send(py, &chunk, true)
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        if !self.state.over.get() && self.state.upgrade.borrow().is_none() {
            self.state.send(py, &PyBytes::new(py, b""), false)?;
        }
        Ok(())
    }

    #[pyo3(signature = (callback))]
    fn set_close_callback(&self, callback: Option<Py<PyAny>>) {
        // One that is over has nobody left to tell, and must not keep its handler alive.
        let callback = callback.filter(|_| !self.state.over.get());
        drop(self.state.close_callback.replace(callback));
    }

    fn set_max_body_size(&self, limit: u64) {
        self.state.host.server.limit_body(self.state.id, limit);
    }

    fn set_body_timeout(&self, seconds: f64) {
        self.state.body_timeout.set(Some(seconds));
    }

    #[getter]
    fn body_timeout(&self) -> Option<f64> {
        self.state.body_timeout.get()
    }

    /// Take what has come of the body: bytes, None at its end, or a future after which to ask again.
    ///
    /// :raises OSError: when the client has gone.
    fn read_body<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = &self.state;
        if state.host.server.refuse_long_body(state.id) {
            state.host.settle(py);
            return Err(super::exchange::ClientDisconnected::new_err("the request's body is too large"));
        }
        let read = state.host.server.read_body(state.id, |data| PyBytes::new(py, data));
        state.host.settle(py);
        match read {
            BodyRead::Data { data, more } if more || !data.as_bytes().is_empty() => Ok(Some(data.into_any())),
            BodyRead::Data { .. } | BodyRead::Finished => {
                state.delivered.set(true);
                Ok(None)
            }
            BodyRead::Pending => state.wait(py).map(Some),
            BodyRead::Disconnected => {
                Err(super::exchange::ClientDisconnected::new_err("the client has disconnected"))
            }
        }
    }

    /// Answer in the application's place, if nothing has gone out; else break the connection off.
    fn fail(&self, py: Python<'_>, status: u16) {
        let text = match status {
            400 => "Bad Request",
            408 => "Request Timeout",
            _ => "Internal Server Error",
        };
        self.state.host.server.fail(self.state.id, status, text);
        self.state.host.settle(py);
    }

    /// Take the connection out of the server: a `tornado.iostream.IOStream`.
    fn detach<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = &self.state;
        let detached = state.host.server.detach(state.id);
        let Some((fd, unread)) = detached else {
            return Err(PyRuntimeError::new_err(
                "the connection cannot be detached: it is closed or answered",
            ));
        };
        state.finished(py)?;
        let head = state.upgrade.take().unwrap_or_default();
        let helper = state.tornado()?.helper.bind(py);
        let (head, unread) = (PyBytes::new(py, &head), PyBytes::new(py, &unread));
        helper.call_method1(intern!(py, "stream"), (fd.into_raw_fd(), head, unread))
    }
}

fn bytes<'py>(chunk: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match chunk.cast::<PyBytes>() {
        Ok(chunk) => Ok(chunk.clone()),
        // A bytearray or memoryview may change before it is out: it is copied.
        Err(_) => Ok(chunk.py().get_type::<PyBytes>().call1((chunk,))?.cast_into::<PyBytes>()?),
    }
}
