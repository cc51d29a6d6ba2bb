//! What the application's side shares: the server, the loop, and who waits for what.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use headrace_engine::{Readiness, Token};
use headrace_server::http1::RequestHead;
use headrace_server::{App, ConnectionInfo, ExchangeId, Server};
use pyo3::intern;
use pyo3::prelude::*;

use super::asgi::Asgi;
use super::awaitable::Done;
use super::exchange::Exchange;
use super::tornado::Tornado;
use super::websocket::WebSocket;
use super::wsgi::{Pool, Wsgi};
use crate::eventloop::LoopCore;

/// The interface that the application speaks.
pub(crate) enum Application {
    Asgi(Asgi),
    Wsgi(Wsgi),
    Tornado(Tornado),
}

/// A server and its application.
pub(crate) struct Host {
    pub(crate) server: Server,
    pub(crate) application: Application,
    pub(crate) event_loop: Py<PyAny>,
    /// Room for one answer's head.
    pub(crate) scratch: RefCell<Vec<u8>>,
    done: Py<Done>,
    /// Exchanges with futures to be set.
    waiting: RefCell<HashMap<ExchangeId, Py<Exchange>>>,
    /// WebSockets whose task is not over.
    pub(crate) sockets: RefCell<HashMap<ExchangeId, Py<WebSocket>>>,
    wakeup: Wakeup,
    /// The deadline that the loop was told last: it waits no longer.
    promised: Cell<Option<Instant>>,
}

/// How to have [`Host::expire`] run earlier than the loop thinks.
pub(crate) enum Wakeup {
    /// There is no need: all happens in the loop's thread, and it asks for deadlines before it waits.
    Asked,
    /// A Headrace loop that may be waiting in another thread.
    Loop,
    /// By a call without arguments.
    Nudge(Py<PyAny>),
}

impl Host {
    pub(crate) fn new(
        py: Python<'_>,
        server: Server,
        application: Application,
        event_loop: Py<PyAny>,
        wakeup: Wakeup,
    ) -> PyResult<Self> {
        Ok(Self {
            server,
            application,
            event_loop,
            scratch: RefCell::default(),
            done: Py::new(py, Done)?,
            waiting: RefCell::default(),
            sockets: RefCell::default(),
            wakeup,
            promised: Cell::new(None),
        })
    }

    pub(crate) fn done<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.done.bind(py).clone().into_any()
    }

    /// A new future that is among `futures` of the exchange until it is woken.
    pub(crate) fn wait<'py>(
        &self,
        exchange: &Bound<'py, Exchange>,
        futures: &RefCell<Vec<Py<PyAny>>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = exchange.py();
        let future = self.event_loop.bind(py).call_method0(intern!(py, "create_future"))?;
        futures.borrow_mut().push(future.clone().unbind());
        self.waiting.borrow_mut().insert(exchange.get().id(), exchange.clone().unbind());
        Ok(future)
    }

    /// The WebSocket of this id, if it is one.
    fn socket<'py>(&self, py: Python<'py>, id: ExchangeId) -> Option<Bound<'py, WebSocket>> {
        self.sockets.borrow().get(&id).map(|socket| socket.bind(py).clone())
    }

    /// The exchange, if somebody waits for it.
    fn waiter<'py>(&self, py: Python<'py>, id: ExchangeId) -> Option<Bound<'py, Exchange>> {
        self.waiting.borrow_mut().remove(&id).map(|exchange| exchange.into_bound(py))
    }

    /// After a call into the server from outside its own events: have what that left to do done soon.
    pub(crate) fn settle(&self, py: Python<'_>) {
        if matches!(self.wakeup, Wakeup::Asked) {
            return;
        }
        if self.pool().is_some_and(Pool::io_comes_soon) && !self.server.has_news() {
            return;
        }
        let Some(next) = self.server.next_deadline() else { return };
        if self.promised.get().is_some_and(|promised| promised <= next) {
            return;
        }
        self.promised.set(Some(next));
        match &self.wakeup {
            Wakeup::Asked => {}
            Wakeup::Loop => {
                if let Some(pool) = self.pool() {
                    pool.rouse();
                }
                if let Ok(core) = self.event_loop.bind(py).cast::<LoopCore>() {
                    core.get().interrupt();
                }
            }
            Wakeup::Nudge(nudge) => {
                if let Err(error) = nudge.bind(py).call0() {
                    error.write_unraisable(py, None);
                }
            }
        }
    }

    /// When the loop must come back; it will not wait longer.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let mut next = self.server.next_deadline();
        if let Some(soon) = self.pool().and_then(Pool::look_again) {
            let soon = Instant::now() + soon;
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        self.promised.set(next);
        next
    }

    /// The loop is awake, and will ask for the deadline before it waits again.
    pub(crate) fn awake(&self, now: Instant) {
        self.promised.set(Some(now));
    }

    /// What runs the requests, unless that is the loop's thread.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        match &self.application {
            Application::Wsgi(wsgi) => wsgi.pool(),
            Application::Asgi(_) | Application::Tornado(_) => None,
        }
    }

    /// Tell the server what time it is, before the application sends: it may have taken long since the last event.
    pub(crate) fn tell_time(&self) {
        self.server.tell_time(Instant::now());
    }

    pub(crate) fn ready(self: &Rc<Self>, py: Python<'_>, token: Token, readiness: Readiness) {
        self.server.ready(&Attached { py, host: self }, token, readiness, Instant::now());
    }

    pub(crate) fn expire(self: &Rc<Self>, py: Python<'_>, now: Instant) {
        self.server.expire(&Attached { py, host: self }, now);
    }

    /// Raise `error` from the loop's run, as an exception of a callback that ends it does.
    pub(crate) fn raise_in_loop(&self, py: Python<'_>, error: &PyErr) {
        let raised = Bound::new(py, Raise { error: error.clone_ref(py) }).and_then(|raise| {
            self.event_loop.bind(py).call_method1(intern!(py, "call_soon_threadsafe"), (raise,))
        });
        if let Err(error) = raised {
            error.write_unraisable(py, None);
        }
    }

    /// Forget an exchange that is over.
    pub(crate) fn forget(&self, exchange: &Bound<'_, Exchange>) {
        if exchange.get().is_waited_for() {
            self.waiting.borrow_mut().remove(&exchange.get().id());
            exchange.get().wake_all(exchange.py());
        }
    }
}

/// A callback that raises.
#[pyclass(frozen, module = "headrace._native", name = "_Raise")]
struct Raise {
    error: PyErr,
}

#[pymethods]
impl Raise {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        Err(self.error.clone_ref(py))
    }
}

/// The host with the interpreter attached: what the server calls.
struct Attached<'a, 'py> {
    py: Python<'py>,
    host: &'a Rc<Host>,
}

impl App for Attached<'_, '_> {
    fn request(&self, _: &Server, id: ExchangeId, head: &RequestHead<'_, '_>, from: &ConnectionInfo) {
        match &self.host.application {
            Application::Asgi(asgi) => asgi.request(self.py, self.host, id, head, from),
            Application::Wsgi(wsgi) => wsgi.request(self.py, self.host, id, head, from),
            Application::Tornado(tornado) => tornado.request(self.py, self.host, id, head, from),
        }
    }

    fn body_ready(&self, _: &Server, id: ExchangeId) {
        match &self.host.application {
            Application::Asgi(_) => {
                if let Some(socket) = self.host.socket(self.py, id) {
                    return socket.get().input_ready(self.py);
                }
                if let Some(exchange) = self.host.waiter(self.py, id) {
                    exchange.get().wake_receivers(self.py);
                    self.host.rewait(&exchange);
                }
            }
            Application::Wsgi(wsgi) => wsgi.body_ready(self.py, self.host, id),
            Application::Tornado(tornado) => tornado.body_ready(self.py, id),
        }
    }

    fn writable(&self, _: &Server, id: ExchangeId) {
        match &self.host.application {
            Application::Asgi(_) => {
                if let Some(socket) = self.host.socket(self.py, id) {
                    return socket.get().writable(self.py);
                }
                if let Some(exchange) = self.host.waiter(self.py, id) {
                    exchange.get().wake_all(self.py);
                }
            }
            Application::Wsgi(wsgi) => wsgi.writable(self.py, self.host, id),
            Application::Tornado(tornado) => tornado.writable(self.py, id),
        }
    }

    fn disconnected(&self, _: &Server, id: ExchangeId) {
        match &self.host.application {
            Application::Asgi(_) => {
                if let Some(socket) = self.host.socket(self.py, id) {
                    return socket.get().disconnected(self.py);
                }
                if let Some(exchange) = self.host.waiter(self.py, id) {
                    exchange.get().wake_all(self.py);
                }
            }
            Application::Wsgi(wsgi) => wsgi.disconnected(self.py, self.host, id),
            Application::Tornado(tornado) => tornado.disconnected(self.py, id),
        }
    }
}

impl Host {
    /// Keep an exchange that somebody still waits for, after others were woken.
    fn rewait(&self, exchange: &Bound<'_, Exchange>) {
        if exchange.get().is_waited_for() {
            self.waiting.borrow_mut().insert(exchange.get().id(), exchange.clone().unbind());
        }
    }
}

/// Set the futures' results; those whose task was cancelled are done already.
pub(crate) fn wake(py: Python<'_>, futures: Vec<Py<PyAny>>) {
    for future in futures {
        let future = future.bind(py);
        let set = || -> PyResult<()> {
            if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
                future.call_method1(intern!(py, "set_result"), (py.None(),))?;
            }
            Ok(())
        };
        if let Err(error) = set() {
            error.write_unraisable(py, Some(future));
        }
    }
}
