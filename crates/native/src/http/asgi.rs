//! Requests as ASGI 3 applications get them: a scope, `receive`, `send`, and a task of their own.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use headrace_server::http1::{RequestHead, Version};
use headrace_server::{ConnectionInfo, ExchangeId};
use headrace_websocket::Handshake;
use pyo3::exceptions::asyncio::CancelledError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::conversation::Conversation;
use super::exchange::{ClientDisconnected, Exchange, Receive, Send};
use super::host::Host;
use super::log;
use super::names::Names;
use super::websocket::{self, WebSocket};
use crate::ffi;
use crate::ffi::unary::Unary;

/// Makes tasks: an eager one runs to its first real wait before the constructor returns.
pub(crate) enum Tasks {
    /// `asyncio.Task(coroutine, loop=loop, eager_start=True)`, CPython 3.12 and later.
    Eager { class: Py<PyAny>, names: Py<PyTuple> },
    /// `loop.create_task(coroutine)`: before 3.12, or where the user has set a task factory.
    Later { create_task: Py<PyAny> },
}

/// An ASGI application and what its scopes are made of.
pub(crate) struct Asgi {
    application: Py<PyAny>,
    tasks: Tasks,
    names: Names<PyBytes>,
    /// A scope for each listener, complete but for what differs from request to request.
    templates: RefCell<Vec<Py<PyDict>>>,
    /// `scope["extensions"]`: each request gets a copy.
    extensions: RefCell<Option<Py<PyDict>>>,
    /// The lifespan's state: each request gets a copy.
    state: RefCell<Option<Py<PyDict>>>,
    /// `scope["client"]` of each connection, by slot; made once a connection.
    clients: RefCell<Vec<(u32, Py<PyAny>)>>,
    /// Tasks that are not done: asyncio itself holds them only weakly.
    running: RefCell<HashMap<u64, Py<PyAny>>>,
    next_task: Cell<u64>,
}

impl Asgi {
    pub(crate) fn new(py: Python<'_>, application: Py<PyAny>, tasks: Tasks) -> Self {
        Self {
            application,
            tasks,
            names: Names::asgi(py),
            templates: RefCell::default(),
            extensions: RefCell::default(),
            state: RefCell::default(),
            clients: RefCell::default(),
            running: RefCell::default(),
            next_task: Cell::new(0),
        }
    }

    pub(crate) fn add_template(&self, template: Bound<'_, PyDict>) -> PyResult<()> {
        let extensions = template.get_item(intern!(template.py(), "extensions"))?;
        *self.extensions.borrow_mut() =
            extensions.map(|extensions| extensions.cast_into::<PyDict>()).transpose()?.map(Bound::unbind);
        self.templates.borrow_mut().push(template.unbind());
        Ok(())
    }

    pub(crate) fn set_state(&self, state: Option<Py<PyDict>>) {
        *self.state.borrow_mut() = state;
    }

    /// Tasks that are not done yet.
    pub(crate) fn running(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.running.borrow().values().map(|task| task.clone_ref(py)).collect()
    }

    pub(crate) fn request(
        &self,
        py: Python<'_>,
        host: &Rc<Host>,
        id: ExchangeId,
        head: &RequestHead<'_, '_>,
        from: &ConnectionInfo,
    ) {
        if head.upgrade.is_some() && self.websocket(py, host, id, head, from) {
            return;
        }
        let exchange = match Bound::new(py, Exchange::new(Rc::clone(host), id)) {
            Ok(exchange) => exchange,
            Err(error) => return self.failed(py, host, id, &error),
        };
        let outcome = self
            .scope(py, head, from)
            .and_then(|scope| self.call::<Receive, Send>(exchange.as_any(), host, &scope));
        match outcome {
            Ok(task) => self.follow(py, host, Conversation::Http(exchange.clone().unbind()), &task),
            Err(error) => {
                host.forget(&exchange);
                self.failed(py, host, id, &error);
            }
        }
    }

    /// Begin a WebSocket, if that is what the request asks for. Returns whether it has been dealt with.
    fn websocket(
        &self,
        py: Python<'_>,
        host: &Rc<Host>,
        id: ExchangeId,
        head: &RequestHead<'_, '_>,
        from: &ConnectionInfo,
    ) -> bool {
        let fields = head.fields.iter().map(|field| (field.name, field.value));
        let handshake = match Handshake::from_request(head.method.as_bytes(), fields) {
            Ok(Some(handshake)) => handshake,
            Ok(None) => return false,
            Err(refusal) => {
                host.server.fail(id, refusal.status(), "not a valid WebSocket handshake");
                return true;
            }
        };
        let outcome = (|| {
            let scope = self.scope(py, head, from)?;
            scope.set_item(intern!(py, "type"), intern!(py, "websocket"))?;
            scope.set_item(intern!(py, "scheme"), intern!(py, "ws"))?;
            scope.set_item(intern!(py, "subprotocols"), PyList::new(py, handshake.subprotocols())?)?;
            let extensions = PyDict::new(py);
            extensions.set_item("websocket.http.response", PyDict::new(py))?;
            scope.set_item(intern!(py, "extensions"), extensions)?;
            scope.del_item(intern!(py, "method"))?;
            let socket = Bound::new(py, WebSocket::new(Rc::clone(host), id, handshake))?;
            host.sockets.borrow_mut().insert(id, socket.clone().unbind());
            let task = self.call::<websocket::Receive, websocket::Send>(socket.as_any(), host, &scope)?;
            self.follow(py, host, Conversation::WebSocket(socket.unbind()), &task);
            PyResult::Ok(())
        })();
        if let Err(error) = outcome {
            host.sockets.borrow_mut().remove(&id);
            self.failed(py, host, id, &error);
        }
        true
    }

    /// Call the application and make a task of it. `object` is what `receive` and `send` are bound to.
    fn call<'py, R: Unary, S: Unary>(
        &self,
        object: &Bound<'py, PyAny>,
        host: &Rc<Host>,
        scope: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = scope.py();
        let receive = ffi::unary::bind::<R>(object)?;
        let send = ffi::unary::bind::<S>(object)?;
        let coroutine = self.application.bind(py).call1((scope, receive, send))?;
        match &self.tasks {
            Tasks::Eager { class, names } => {
                let event_loop = host.event_loop.bind(py);
                let eager = pyo3::types::PyBool::new(py, true);
                ffi::call::with_names(
                    class.bind(py),
                    [&coroutine, event_loop, eager.as_any()],
                    names.bind(py),
                )
            }
            Tasks::Later { create_task } => create_task.bind(py).call1((coroutine,)),
        }
    }

    /// Look after a task: now if it is done already, else when it is.
    fn follow(&self, py: Python<'_>, host: &Rc<Host>, conversation: Conversation, task: &Bound<'_, PyAny>) {
        let followed = (|| {
            if task.call_method0(intern!(py, "done"))?.is_truthy()? {
                self.over(py, host, &conversation, task);
                return Ok(());
            }
            let number = self.next_task.get();
            self.next_task.set(number.wrapping_add(1));
            self.running.borrow_mut().insert(number, task.clone().unbind());
            let follower = Bound::new(py, Follower { conversation, number })?;
            task.call_method1(intern!(py, "add_done_callback"), (follower,))?;
            PyResult::Ok(())
        })();
        if let Err(error) = followed {
            log::exception(py, "Exception in the server", &error);
        }
    }

    /// The task of a conversation is over.
    fn over(&self, py: Python<'_>, host: &Rc<Host>, conversation: &Conversation, task: &Bound<'_, PyAny>) {
        match conversation {
            Conversation::Http(exchange) => self.finished(py, host, exchange.bind(py), task),
            Conversation::WebSocket(socket) => self.hung_up(py, host, socket.bind(py), task),
        }
    }

    /// The task of a WebSocket is over: see that the client hears of it.
    fn hung_up(
        &self,
        py: Python<'_>,
        host: &Rc<Host>,
        socket: &Bound<'_, WebSocket>,
        task: &Bound<'_, PyAny>,
    ) {
        let id = socket.get().id();
        match task.call_method0(intern!(py, "exception")) {
            Ok(none) if none.is_none() => {
                if socket.get().is_unfinished() {
                    socket.get().end(py, 1000, 500, "Internal Server Error");
                }
            }
            Err(error) if error.is_instance_of::<CancelledError>(py) => {
                socket.get().end(py, 1012, 503, "Service Unavailable");
            }
            Ok(exception) => self.socket_failed(py, host, socket, &PyErr::from_value(exception)),
            Err(error) => self.socket_failed(py, host, socket, &error),
        }
        host.sockets.borrow_mut().remove(&id);
        host.settle(py);
    }

    fn socket_failed(&self, py: Python<'_>, host: &Rc<Host>, socket: &Bound<'_, WebSocket>, error: &PyErr) {
        socket.get().end(py, 1011, 500, "Internal Server Error");
        self.failed(py, host, socket.get().id(), error);
    }

    /// The task is over: see that its request is answered, and that nobody waits in vain.
    fn finished(
        &self,
        py: Python<'_>,
        host: &Rc<Host>,
        exchange: &Bound<'_, Exchange>,
        task: &Bound<'_, PyAny>,
    ) {
        let id = exchange.get().id();
        match task.call_method0(intern!(py, "exception")) {
            Ok(none) if none.is_none() => {
                if !exchange.get().is_complete() && host.server.is_open(id) {
                    let started = exchange.get().is_started();
                    log::error(
                        py,
                        if started {
                            "ASGI callable returned without completing response."
                        } else {
                            "ASGI callable returned without starting response."
                        },
                    );
                }
                // A client that has ended its half alone still holds the connection: it must not stay for ever.
                host.server.fail(id, 500, "Internal Server Error");
            }
            Ok(exception) => self.failed(py, host, id, &PyErr::from_value(exception)),
            // Cancelled: by the application itself, or by us at the end of the grace time.
            Err(error) if error.is_instance_of::<CancelledError>(py) => {
                host.server.fail(id, 500, "Internal Server Error");
            }
            Err(error) => self.failed(py, host, id, &error),
        }
        host.forget(exchange);
        host.settle(py);
    }

    /// The application raised.
    fn failed(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId, error: &PyErr) {
        // A client that went away is not an error, and the application need not catch it.
        if !error.is_instance_of::<ClientDisconnected>(py) || host.server.is_open(id) {
            log::exception(py, "Exception in ASGI application", error);
        }
        host.server.fail(id, 500, "Internal Server Error");
        if !error.is_instance_of::<pyo3::exceptions::PyException>(py)
            && !error.is_instance_of::<CancelledError>(py)
        {
            // SystemExit and KeyboardInterrupt end the loop, as in asyncio.
            host.raise_in_loop(py, error);
        }
    }

    /// The scope of a request (ASGI HTTP specification, "HTTP connection scope").
    fn scope<'py>(
        &self,
        py: Python<'py>,
        head: &RequestHead<'_, '_>,
        from: &ConnectionInfo,
    ) -> PyResult<Bound<'py, PyDict>> {
        let scope = self.templates.borrow()[from.listener].bind(py).copy()?;
        if head.version == Version::Http10 {
            scope.set_item(intern!(py, "http_version"), intern!(py, "1.0"))?;
        }
        if head.method != "GET" {
            scope.set_item(intern!(py, "method"), method(py, head.method))?;
        }
        scope.set_item(intern!(py, "path"), path(py, head.target.path))?;
        scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, head.target.path))?;
        if !head.target.query.is_empty() {
            scope.set_item(intern!(py, "query_string"), PyBytes::new(py, head.target.query))?;
        }
        let headers = PyList::new(
            py,
            head.fields.iter().map(|field| (self.names.get(py, field.name), PyBytes::new(py, field.value))),
        )?;
        if let Some(host) = head.implied_host() {
            headers.append((PyBytes::new(py, b"host"), PyBytes::new(py, host)))?;
        }
        scope.set_item(intern!(py, "headers"), headers)?;
        if let Some(extensions) = &*self.extensions.borrow() {
            // A copy: what an application adds for one request must not be there in the next.
            scope.set_item(intern!(py, "extensions"), extensions.bind(py).copy()?)?;
        }
        if from.peer.is_some() {
            scope.set_item(intern!(py, "client"), self.client(py, from)?)?;
        }
        if let Some(state) = &*self.state.borrow() {
            scope.set_item(intern!(py, "state"), state.bind(py).copy()?)?;
        }
        Ok(scope)
    }

    fn client<'py>(&self, py: Python<'py>, from: &ConnectionInfo) -> PyResult<Bound<'py, PyAny>> {
        let mut clients = self.clients.borrow_mut();
        if let Some((serial, client)) = clients.get(from.slot)
            && *serial == from.serial
        {
            return Ok(client.bind(py).clone());
        }
        let Some(peer) = from.peer else { return Ok(py.None().into_bound(py)) };
        let client = (peer.ip().to_string(), peer.port()).into_pyobject(py)?.into_any();
        while clients.len() <= from.slot {
            clients.push((0, py.None()));
        }
        clients[from.slot] = (from.serial, client.clone().unbind());
        Ok(client)
    }
}

/// The method as a string; the usual ones are interned.
pub(crate) fn method<'py>(py: Python<'py>, method: &str) -> Bound<'py, PyString> {
    match method {
        "GET" => intern!(py, "GET").clone(),
        "POST" => intern!(py, "POST").clone(),
        "HEAD" => intern!(py, "HEAD").clone(),
        "PUT" => intern!(py, "PUT").clone(),
        "PATCH" => intern!(py, "PATCH").clone(),
        "DELETE" => intern!(py, "DELETE").clone(),
        "OPTIONS" => intern!(py, "OPTIONS").clone(),
        other => PyString::new(py, other),
    }
}

/// `scope["path"]`: percent-escapes resolved, then UTF-8.
fn path<'py>(py: Python<'py>, raw: &[u8]) -> Bound<'py, PyString> {
    if raw.contains(&b'%') {
        PyString::new(py, &String::from_utf8_lossy(&unescaped(raw)))
    } else {
        // Targets are ASCII: the parser lets nothing else through.
        PyString::new(py, &String::from_utf8_lossy(raw))
    }
}

/// Percent-escapes resolved; what is not one stays as it is (RFC 3986 section 2.1).
pub(crate) fn unescaped(raw: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, tail @ ..] = rest {
        if let (b'%', [high, low, after @ ..]) = (*first, tail)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            out.push(high << 4 | low);
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

/// Called when a task is done.
#[pyclass(frozen, module = "headrace._native", name = "_Follower")]
struct Follower {
    conversation: Conversation,
    number: u64,
}

#[pymethods]
impl Follower {
    fn __call__(&self, task: &Bound<'_, PyAny>) {
        let py = task.py();
        let host = self.conversation.host(py);
        if let super::host::Application::Asgi(asgi) = &host.application {
            asgi.running.borrow_mut().remove(&self.number);
            asgi.over(py, &host, &self.conversation, task);
        }
    }
}
