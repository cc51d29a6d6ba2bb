//! `HttpServer`: what Python's side of the server drives.

use std::cell::{Cell, OnceCell};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headrace_engine::{Events, Poller, Readiness, Token};
use headrace_server::{AccessFormat, Config, Server};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::asgi::{Asgi, Tasks};
use super::host::{Application, Host, Wakeup};
use super::tornado::Tornado;
use super::watch;
use super::wsgi::{Pool, Wsgi};
use crate::eventloop::LoopCore;
use crate::ffi::Guarded;
use crate::guest::{Guest, Seat};
use crate::parker::Handover;

/// Events taken at one wait.
const BATCH: usize = 256;

/// An HTTP server that calls an application, on a poller of its own that an asyncio loop watches.
///
/// :param application: the ASGI, WSGI or Tornado application object.
/// :param interface: "asgi", "tornado"; "wsgi" in the loop's own thread, "wsgi.threads" in those that call
///     :meth:`work`, or "wsgi.greenlets" in those that call :meth:`run_queued`.
/// :param event_loop: the asyncio loop that runs the application's tasks, in whose thread all of this runs. For
///     greenlets, an object with two of its methods, ``call_soon_threadsafe(callback)`` and ``create_event()``,
///     which makes an object with ``wait()`` and ``set()``.
/// :param nudge: called with no argument, in the thread that answers, when :meth:`poll` should run soon.
/// :param options: limits and times, by the names of :class:`headrace.server.config.Limits`.
#[pyclass(frozen, module = "headrace._native")]
pub(crate) struct HttpServer {
    state: Guarded<State>,
}

struct State {
    host: Rc<Host>,
    place: Place,
    /// A thread sees to it that output is not held back for an application that blocks.
    watched: Cell<bool>,
}

/// Where the server's descriptors are watched.
enum Place {
    /// On the poller of a Headrace loop, whose run cycle calls the server straight.
    Seat(Seat),
    /// On a poller of its own, which is watched by whatever loop there is.
    Own(Arc<Poller>),
}

/// The guest that a loop knows; the host needs the seat to be made, so it comes in afterwards.
#[derive(Default)]
struct HttpGuest {
    host: OnceCell<Rc<Host>>,
}

impl Guest for HttpGuest {
    fn ready(&self, py: Python<'_>, token: Token, readiness: Readiness) {
        if let Some(host) = self.host.get() {
            host.ready(py, token, readiness);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.host.get()?.next_deadline()
    }

    fn has_work(&self) -> bool {
        self.host.get().is_some_and(|host| host.server.has_work())
    }

    fn expire(&self, py: Python<'_>, now: Instant) {
        if let Some(host) = self.host.get() {
            host.expire(py, now);
        }
    }

    fn hand_over(&self) -> Option<Handover> {
        self.host.get()?.pool()?.hand_over()
    }
}

fn config(options: &Bound<'_, PyDict>) -> PyResult<Config> {
    let mut config = Config::default();
    for (name, value) in options {
        let name: String = name.extract()?;
        let seconds = || -> PyResult<Duration> {
            Duration::try_from_secs_f64(value.extract()?)
                .map_err(|error| PyValueError::new_err(error.to_string()))
        };
        match name.as_str() {
            "head_size" => config.head.head = value.extract()?,
            "head_fields" => config.head.fields = value.extract()?,
            "target_size" => config.head.target = value.extract()?,
            "body_size" => config.body = value.extract()?,
            "connections" => config.connections = value.extract()?,
            "head_timeout" => config.head_timeout = seconds()?,
            "body_timeout" => config.body_timeout = seconds()?,
            "write_timeout" => config.write_timeout = seconds()?,
            "keep_alive" => config.keep_alive = seconds()?,
            "linger" => config.linger = seconds()?,
            "in_flight" => config.in_flight = value.extract()?,
            "requests_per_connection" => config.requests_per_connection = value.extract()?,
            "websocket_message_size" => config.message = value.extract()?,
            "server_header" => {
                let value: Option<String> = value.extract()?;
                config.server_line =
                    value.map(|v| format!("server: {v}\r\n").into_bytes()).unwrap_or_default();
            }
            _ => return Err(PyValueError::new_err(format!("unknown server option {name:?}"))),
        }
    }
    Ok(config)
}

fn tasks(py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<Tasks> {
    let eager = py.version_info() >= (3, 12);
    if eager && event_loop.call_method0("get_task_factory")?.is_none() {
        return Ok(Tasks::Eager {
            class: py.import("asyncio")?.getattr("Task")?.unbind(),
            names: PyTuple::new(py, ["loop", "eager_start"])?.unbind(),
        });
    }
    Ok(Tasks::Later { create_task: event_loop.getattr("create_task")?.unbind() })
}

impl HttpServer {
    pub(super) fn server(&self) -> &Server {
        &self.state.host.server
    }
}

#[pymethods]
impl HttpServer {
    #[new]
    fn new(
        py: Python<'_>,
        application: Py<PyAny>,
        interface: &str,
        event_loop: Py<PyAny>,
        nudge: Py<PyAny>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let application = match interface {
            "asgi" => Application::Asgi(Asgi::new(py, application, tasks(py, event_loop.bind(py))?)),
            "wsgi" => Application::Wsgi(Wsgi::inline(py, application)?),
            "wsgi.threads" => Application::Wsgi(Wsgi::threads(py, application)?),
            "wsgi.greenlets" => {
                let make_event = event_loop.bind(py).getattr("create_event")?;
                Application::Wsgi(Wsgi::greenlets(py, application, make_event.unbind())?)
            }
            "tornado" => Application::Tornado(Tornado::new(py, application.bind(py), event_loop.bind(py))?),
            other => return Err(PyValueError::new_err(format!("unknown interface {other:?}"))),
        };
        let mut config = config(options)?;
        config.body_limit_is_late = matches!(application, Application::Tornado(_));
        config.gather_pieces = !matches!(application, Application::Wsgi(_));
        let now = Instant::now();
        let state = if let Ok(core) = event_loop.bind(py).cast::<LoopCore>() {
            let guest = Rc::new(HttpGuest::default());
            let seat = core.get().attach(Rc::clone(&guest) as Rc<dyn Guest>)?;
            let server = Server::new(config, Arc::clone(&seat.poller), seat.token_base, now);
            let wakeup = if interface == "wsgi.threads" { Wakeup::Loop } else { Wakeup::Asked };
            let host = Rc::new(Host::new(py, server, application, event_loop.clone_ref(py), wakeup)?);
            let _ = guest.host.set(Rc::clone(&host));
            State { host, place: Place::Seat(seat), watched: Cell::new(false) }
        } else {
            let poller = Arc::new(Poller::new()?);
            let server = Server::new(config, Arc::clone(&poller), 0, now);
            let host = Rc::new(Host::new(py, server, application, event_loop, Wakeup::Nudge(nudge))?);
            State { host, place: Place::Own(poller), watched: Cell::new(false) }
        };
        Ok(Self { state: Guarded::new(state) })
    }

    /// Accept connections from the listening, non-blocking socket `fd`, which is duplicated.
    ///
    /// :param template: the scope or environ that each request of this listener starts from.
    fn listen(slf: &Bound<'_, Self>, fd: i32, template: Py<PyDict>) -> PyResult<()> {
        let (py, state) = (slf.py(), &slf.get().state);
        let fd: OwnedFd = crate::ffi::descriptor::borrowed(fd).try_clone_to_owned()?;
        // In a pool of threads, the one of I/O comes to it.
        if !state.watched.get() && !state.host.pool().is_some_and(Pool::has_threads) {
            watch::start(slf)?;
            state.watched.set(true);
        }
        match &state.host.application {
            Application::Asgi(asgi) => asgi.add_template(template.into_bound(py))?,
            Application::Wsgi(wsgi) => wsgi.add_template(template),
            // What Tornado wants to know of a listener is the connection's: its client.
            Application::Tornado(_) => {}
        }
        state.host.server.listen(fd)?;
        Ok(())
    }

    /// Write a line for each request to a duplicate of `fd` from now on; None: to nowhere.
    ///
    /// :param format: "common", "combined" or "json".
    fn log_to(&self, fd: Option<i32>, format: &str) -> PyResult<()> {
        let format = match format {
            "common" => AccessFormat::Common,
            "combined" => AccessFormat::Combined,
            "json" => AccessFormat::Json,
            other => return Err(PyValueError::new_err(format!("unknown format {other:?}"))),
        };
        let sink = fd.map(|fd| crate::ffi::descriptor::borrowed(fd).try_clone_to_owned()).transpose()?;
        Ok(self.state.host.server.log_to(sink.map(|sink| (sink, format)))?)
    }

    /// Give each request a copy of the lifespan's state.
    fn set_state(&self, state: Option<Py<PyDict>>) {
        if let Application::Asgi(asgi) = &self.state.host.application {
            asgi.set_state(state);
        }
    }

    /// The descriptor to watch for :meth:`poll`; None on a Headrace loop, which calls the server by itself.
    fn fileno(&self) -> Option<i32> {
        match &self.state.place {
            Place::Seat(_) => None,
            Place::Own(poller) => Some(poller.as_raw_fd()),
        }
    }

    /// Handle what is ready on a poller of our own, without waiting.
    ///
    /// :returns: the seconds until it must be called again though nothing is ready; None: no need.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let Place::Own(poller) = &self.state.place else { return Ok(None) };
        let host = Rc::clone(&self.state.host);
        host.awake(Instant::now());
        let mut events = Events::with_capacity(BATCH);
        poller.wait(&mut events, Some(Duration::ZERO))?;
        for event in events.iter() {
            host.ready(py, event.token, event.readiness);
        }
        let now = Instant::now();
        if host.server.next_deadline().is_some_and(|deadline| deadline <= now) {
            host.expire(py, now);
        }
        if let Some(next) = host.pool().and_then(Pool::summon) {
            next.wake();
        }
        Ok(host.next_deadline().map(|deadline| deadline.saturating_duration_since(now).as_secs_f64()))
    }

    /// Close everything and leave the loop. Nothing of the server may be used any more.
    fn close(&self, py: Python<'_>) {
        self.abort(py);
        self.server().held_output().end();
        self.state.host.server.write_log();
        if let Place::Seat(seat) = &self.state.place
            && let Ok(core) = self.state.host.event_loop.bind(py).cast::<LoopCore>()
        {
            core.get().detach(seat);
        }
    }

    /// Stop accepting; close idle connections, and the others after the answer they are at.
    fn drain(&self, py: Python<'_>) {
        let host = &self.state.host;
        host.server.drain();
        let sockets: Vec<_> = host.sockets.borrow().values().map(|socket| socket.clone_ref(py)).collect();
        for socket in sockets {
            socket.bind(py).get().end(py, 1012, 503, "Service Unavailable");
        }
    }

    /// Close every connection at once.
    fn abort(&self, py: Python<'_>) {
        self.state.host.server.abort();
        self.state.host.expire(py, Instant::now());
    }

    /// Ask the clients of WebSockets that were silent since the last call for a sign of life, and close those that
    /// have given none since it asked before.
    fn ping(&self, py: Python<'_>) {
        let host = &self.state.host;
        let sockets: Vec<_> = host.sockets.borrow().values().map(|socket| socket.clone_ref(py)).collect();
        for socket in sockets {
            socket.bind(py).get().ping();
        }
        host.settle(py);
    }

    /// Tasks of requests that are not done.
    fn tasks(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        match &self.state.host.application {
            Application::Asgi(asgi) => asgi.running(py),
            Application::Wsgi(_) | Application::Tornado(_) => Vec::new(),
        }
    }

    // What threads and greenlets of WSGI applications call

    /// Run requests in this thread until :meth:`stop_working`. Returns at once if the interface is another.
    fn work(&self, py: Python<'_>) {
        if let Application::Wsgi(wsgi) = &self.state.host.application {
            wsgi.work(py, &Rc::clone(&self.state.host));
        }
    }

    /// Run the requests that wait for a greenlet, in this one, until there are none.
    fn run_queued(&self, py: Python<'_>) {
        if let Application::Wsgi(wsgi) = &self.state.host.application {
            wsgi.run_queued(py, &Rc::clone(&self.state.host));
        }
    }

    /// How many requests wait for a thread or greenlet.
    fn queued(&self) -> usize {
        self.state.host.pool().map_or(0, Pool::waiting)
    }

    /// Drop the requests that wait, and have each thread's :meth:`work` return when it has no request.
    fn stop_working(&self) {
        if let Some(pool) = self.state.host.pool() {
            pool.stop();
        }
    }

    /// Counts: `connections` and `in_flight` now; `accepted`, `requests` and `unlogged` (lines of the
    /// access log that nobody took) since the start.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = self.state.host.server.statistics();
        let counts = PyDict::new(py);
        counts.set_item("connections", now.connections)?;
        counts.set_item("in_flight", now.in_flight)?;
        counts.set_item("accepted", now.accepted)?;
        counts.set_item("requests", now.requests)?;
        counts.set_item("unlogged", now.unlogged)?;
        Ok(counts)
    }
}
