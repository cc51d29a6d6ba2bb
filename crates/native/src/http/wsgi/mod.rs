//! Requests as WSGI applications get them (PEP 3333), in one of three ways.
//!
//! - Inline: in the thread that serves the connections. The application is called once the whole body is there,
//!   so that reading it never blocks; its answer's iterable is stopped while the client is slow, and taken up
//!   again when it has caught up.
//! - In threads, and in greenlets of gevent's: the application is called when the head has come. It may block,
//!   on its own business and on the client: while it reads the body, and while the client is slow.

mod answer;
mod environ;
mod file_wrapper;
mod gathering;
mod input;
mod pool;
mod start_response;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use headrace_server::http1::{BodyLength, RequestHead};
use headrace_server::{BodyRead, ConnectionInfo, ExchangeId};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

pub(crate) use environ::latin1;
pub(crate) use file_wrapper::FileWrapper;
pub(crate) use pool::Pool;

use answer::{Progress, Stream};
use environ::Environs;
use gathering::Gathering;
use input::Input;
use pool::{Job, Kind};
use start_response::StartResponse;

use super::exchange::ClientDisconnected;
use super::host::Host;
use super::log;
use crate::parker::Parker;

/// A WSGI application and what runs it.
pub(crate) struct Wsgi {
    application: Py<PyAny>,
    bytes_io: Py<PyAny>,
    environs: Environs,
    concurrency: Concurrency,
}

enum Concurrency {
    Inline(Inline),
    Pooled(Pool),
}

/// What is between two events of the server.
struct Inline {
    set_running_loop: Py<PyAny>,
    /// Requests whose body is not complete.
    gathering: RefCell<HashMap<ExchangeId, Gathering>>,
    /// Answers whose client is slow.
    streams: RefCell<HashMap<ExchangeId, Stream>>,
}

impl Wsgi {
    fn new(py: Python<'_>, application: Py<PyAny>, concurrency: Concurrency) -> PyResult<Self> {
        Ok(Self {
            application,
            bytes_io: py.import("io")?.getattr("BytesIO")?.unbind(),
            environs: Environs::new(py),
            concurrency,
        })
    }

    /// Requests run in the thread that serves the connections.
    pub(crate) fn inline(py: Python<'_>, application: Py<PyAny>) -> PyResult<Self> {
        let inline = Inline {
            set_running_loop: py.import("asyncio")?.getattr("_set_running_loop")?.unbind(),
            gathering: RefCell::default(),
            streams: RefCell::default(),
        };
        Self::new(py, application, Concurrency::Inline(inline))
    }

    /// Requests run in threads that call [`Wsgi::work`].
    pub(crate) fn threads(py: Python<'_>, application: Py<PyAny>) -> PyResult<Self> {
        Self::new(py, application, Concurrency::Pooled(Pool::new(Kind::Threads)))
    }

    /// Requests run in greenlets that call [`Wsgi::run_queued`]. What they wait for is made by `make_event()`.
    pub(crate) fn greenlets(py: Python<'_>, application: Py<PyAny>, make_event: Py<PyAny>) -> PyResult<Self> {
        Self::new(py, application, Concurrency::Pooled(Pool::new(Kind::Greenlets { make_event })))
    }

    pub(crate) fn add_template(&self, template: Py<PyDict>) {
        self.environs.add_template(template);
    }

    /// The pool that runs the requests, unless they run in the server's own thread.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        match &self.concurrency {
            Concurrency::Inline(_) => None,
            Concurrency::Pooled(pool) => Some(pool),
        }
    }

    // What the server tells

    pub(crate) fn request(
        &self,
        py: Python<'_>,
        host: &Rc<Host>,
        id: ExchangeId,
        head: &RequestHead<'_, '_>,
        from: &ConnectionInfo,
    ) {
        let environ = match self.environs.make(py, head, from) {
            Ok(environ) => environ,
            Err(error) => return Self::failed(py, host, id, &error),
        };
        match &self.concurrency {
            Concurrency::Pooled(pool) => pool.push(Job { id, environ: environ.unbind() }),
            Concurrency::Inline(inline) if head.body == BodyLength::Empty => {
                self.run_inline(py, inline, host, id, || Ok((environ, self.bytes_io.bind(py).call0()?)));
            }
            Concurrency::Inline(inline) => {
                inline.gathering.borrow_mut().insert(id, Gathering::new(environ.unbind()));
                self.gather(py, inline, host, id);
            }
        }
    }

    pub(crate) fn body_ready(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId) {
        match &self.concurrency {
            Concurrency::Pooled(pool) => pool.wake(py, id),
            Concurrency::Inline(inline) => self.gather(py, inline, host, id),
        }
    }

    pub(crate) fn writable(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId) {
        match &self.concurrency {
            Concurrency::Pooled(pool) => pool.wake(py, id),
            Concurrency::Inline(inline) => {
                let stream = inline.streams.borrow_mut().remove(&id);
                if let Some(stream) = stream {
                    inline.outside_loop(py, host, || inline.keep(py, host, id, stream.go_on(py)));
                }
            }
        }
    }

    pub(crate) fn disconnected(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId) {
        let inline = match &self.concurrency {
            Concurrency::Pooled(pool) => return pool.wake(py, id),
            Concurrency::Inline(inline) => inline,
        };
        let gathering = inline.gathering.borrow_mut().remove(&id);
        if gathering.is_some() {
            // The application was not called and will not be: nobody else ends this exchange.
            host.server.fail(id, 400, "request body ended early");
        }
        let stream = inline.streams.borrow_mut().remove(&id);
        if let Some(stream) = stream {
            stream.close(py);
            host.server.fail(id, 500, "the answer was broken off");
        }
    }

    // Inline

    /// Take what has come of the body; run the application when it is complete.
    fn gather(&self, py: Python<'_>, inline: &Inline, host: &Rc<Host>, id: ExchangeId) {
        loop {
            let Some(mut gathering) = inline.gathering.borrow_mut().remove(&id) else { return };
            let read = host.server.read_body(id, |bytes| gathering.add(py, bytes));
            match read {
                BodyRead::Data { data: Err(error), .. } => return Self::failed(py, host, id, &error),
                BodyRead::Data { more: true, .. } => {
                    inline.gathering.borrow_mut().insert(id, gathering);
                }
                BodyRead::Pending => {
                    inline.gathering.borrow_mut().insert(id, gathering);
                    return;
                }
                BodyRead::Data { more: false, .. } | BodyRead::Finished => {
                    return self.run_inline(py, inline, host, id, || {
                        let environ = gathering.environ.bind(py).clone();
                        Ok((environ, gathering.finish(py, self.bytes_io.bind(py))?))
                    });
                }
                BodyRead::Disconnected => {
                    host.server.fail(id, 400, "request body ended early");
                    return;
                }
            }
        }
    }

    fn run_inline<'py>(
        &self,
        py: Python<'py>,
        inline: &Inline,
        host: &Rc<Host>,
        id: ExchangeId,
        request: impl FnOnce() -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyAny>)>,
    ) {
        inline.outside_loop(py, host, || {
            let progress = request().and_then(|(environ, input)| self.call(host, id, &environ, input));
            inline.keep(py, host, id, progress);
        });
    }

    /// Call the application, and send of its answer what the client takes.
    fn call<'py>(
        &self,
        host: &Rc<Host>,
        id: ExchangeId,
        environ: &Bound<'py, PyDict>,
        input: Bound<'py, PyAny>,
    ) -> PyResult<Progress> {
        let py = environ.py();
        environ.set_item(intern!(py, "wsgi.input"), input)?;
        let start = Bound::new(py, StartResponse::new(Rc::clone(host), id))?;
        let result = self.application.bind(py).call1((environ, &start))?;
        answer::begin(&start, &result)
    }

    fn failed(py: Python<'_>, host: &Rc<Host>, id: ExchangeId, error: &PyErr) {
        let ordinary = error.is_instance_of::<pyo3::exceptions::PyException>(py);
        if !ordinary && host.pool().is_some_and(Pool::is_stopping) {
            // A greenlet that is killed because its time is over.
            return;
        }
        // A client that went away in the middle is not the application's error.
        if !error.is_instance_of::<ClientDisconnected>(py) {
            log::exception(py, "Exception in WSGI application", error);
        }
        host.server.fail(id, 500, "Internal Server Error");
        host.settle(py);
        if !ordinary {
            host.raise_in_loop(py, error);
        }
    }

    // Threads and greenlets

    /// Run requests in this thread until the pool is stopped.
    pub(crate) fn work(&self, py: Python<'_>, host: &Rc<Host>) {
        let Some(pool) = self.pool() else { return };
        let parker = Arc::new(Parker::new());
        loop {
            self.run_queued(py, host);
            if !pool.sleep(py, &parker) {
                return;
            }
        }
    }

    /// Run the requests that wait, in this thread or greenlet, until there are none.
    pub(crate) fn run_queued(&self, py: Python<'_>, host: &Rc<Host>) {
        let Some(pool) = self.pool() else { return };
        while let Some(job) = pool.pop() {
            let id = job.id;
            if let Err(error) = pool.attend(|| self.run_blocking(py, pool, host, job)) {
                Self::failed(py, host, id, &error);
            }
            pool.forget(id);
        }
    }

    fn run_blocking(&self, py: Python<'_>, pool: &Pool, host: &Rc<Host>, job: Job) -> PyResult<()> {
        let Job { id, environ } = job;
        let input = match host.server.whole_body(id, |bytes| PyBytes::new(py, bytes)) {
            Some(body) if body.as_bytes().is_empty() => self.bytes_io.bind(py).call0()?,
            Some(body) => self.bytes_io.bind(py).call1((body,))?,
            None => Bound::new(py, Input::new(Rc::clone(host), id))?.into_any(),
        };
        let mut progress = self.call(host, id, environ.bind(py), input)?;
        while let Progress::Full(stream) = progress {
            if let Err(error) = pool.wait_until_writable(py, host, id) {
                stream.close(py);
                return Err(error);
            }
            progress = stream.go_on(py)?;
        }
        Ok(())
    }
}

impl Inline {
    /// Run `body` as code outside any loop: Django's ORM, for one, refuses to work where a loop is running, and
    /// the application may want to run one of its own.
    fn outside_loop(&self, py: Python<'_>, host: &Host, body: impl FnOnce()) {
        let set = |event_loop: Bound<'_, PyAny>| {
            if let Err(error) = self.set_running_loop.bind(py).call1((event_loop,)) {
                error.write_unraisable(py, None);
            }
        };
        set(py.None().into_bound(py));
        body();
        set(host.event_loop.bind(py).clone());
        host.settle(py);
    }

    /// See to it that an answer goes on when its client has caught up.
    fn keep(&self, py: Python<'_>, host: &Rc<Host>, id: ExchangeId, progress: PyResult<Progress>) {
        match progress {
            Ok(Progress::Done) => {}
            Ok(Progress::Full(stream)) => {
                self.streams.borrow_mut().insert(id, stream);
            }
            Err(error) => Wsgi::failed(py, host, id, &error),
        }
    }
}
