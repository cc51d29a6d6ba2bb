//! Applications that may block: a pool of threads or greenlets runs them, the I/O thread never does.
//!
//! Three rules hold here:
//! 1. The interpreter lock guards it all: the queue, and the server itself. A thread of the pool holds it while
//!    it is in this file, so that it writes its answer straight to the socket, with no hand-over and no lock.
//! 2. The lock is given up only where nothing is borrowed: in a sleep, and by the application.
//! 3. At most one thread at a time is on its way to the queue. One that comes back from the application takes
//!    the next request without a sleep in between, so that requests which do not block cost one wake-up a
//!    batch. Where the application has blocked lately, a thread that takes a request has another one stand by
//!    for the rest of the queue; where it has not, the I/O thread comes back soon to see that nothing is left.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headrace_server::ExchangeId;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::http::host::Host;
use crate::parker::{Handover, Nap, Parker};

/// For so many requests after one that has blocked, another thread stands by. One that does so in vain costs two
/// switches of threads for each batch.
const STAND_BY_FOR: u32 = 1000;

/// While requests wait and no thread stands by, the I/O thread looks again when none was done for this time.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The I/O thread, and all else that runs in its loop, is away no longer than this while the pool is at work.
const LONGEST_NAP: Duration = Duration::from_millis(20);

/// A thread that waited so long for the interpreter lock took it from one that works (`sys.getswitchinterval`, 5 ms):
/// that one did not block.
const TAKEN_AFTER: Duration = Duration::from_millis(4);

/// Requests for which it is worth that the I/O thread sleeps until they are done.
const BATCH: usize = 4;

/// A request that waits for a thread or greenlet.
pub(super) struct Job {
    pub(super) id: ExchangeId,
    /// Complete but for `wsgi.input`.
    pub(super) environ: Py<PyDict>,
}

/// What runs the requests.
pub(super) enum Kind {
    Threads,
    /// `make_event()` gives what a greenlet waits for: an object with `wait()` and `set()`.
    Greenlets {
        make_event: Py<PyAny>,
    },
}

/// Somebody who waits for a client.
enum Waiter {
    Thread(Arc<Parker>),
    Greenlet(Py<PyAny>),
}

/// Requests and who is to run them.
pub(crate) struct Pool {
    kind: Kind,
    queue: RefCell<VecDeque<Job>>,
    /// Threads without a request. The one that went to sleep last is woken first: its caches are warm.
    idle: RefCell<Vec<Arc<Parker>>>,
    /// A thread was woken and has not looked at the queue yet.
    coming: Cell<bool>,
    stopping: Cell<bool>,
    /// Counts whenever a thread was given the interpreter lock after a wait.
    turns: Cell<u64>,
    /// See [`STAND_BY_FOR`].
    stand_by: Cell<u32>,
    /// The I/O thread's sleep while the pool is at work, and whether it may be in it.
    io: RefCell<Option<Arc<Parker>>>,
    io_sleeps: Cell<bool>,
    /// Requests that were run.
    done: Arc<AtomicUsize>,
    /// Who waits for a client to send, or to take, something.
    waiters: RefCell<HashMap<ExchangeId, Vec<Waiter>>>,
}

impl Pool {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            queue: RefCell::default(),
            idle: RefCell::default(),
            coming: Cell::new(false),
            stopping: Cell::new(false),
            turns: Cell::new(0),
            stand_by: Cell::new(0),
            io: RefCell::default(),
            io_sleeps: Cell::new(false),
            done: Arc::default(),
            waiters: RefCell::default(),
        }
    }

    /// Queue a request. Its thread is woken when the I/O thread has handed out all that was ready.
    pub(super) fn push(&self, job: Job) {
        self.queue.borrow_mut().push_back(job);
    }

    pub(super) fn pop(&self) -> Option<Job> {
        self.queue.borrow_mut().pop_front()
    }

    /// How many requests wait for a thread or greenlet.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.borrow().len()
    }

    /// For a thread of I/O before it waits: a thread that should be woken now.
    pub(crate) fn summon(&self) -> Option<Arc<Parker>> {
        self.turns.set(self.turns.get() + 1);
        self.next_thread()
    }

    /// As [`Pool::summon`], for the one I/O thread that also asks [`Pool::look_again`]. Where the application has
    /// not blocked lately, it sleeps while the queue is worked off: what comes meanwhile is taken in one go after
    /// it, without a switch of threads for the first of it, and another for want of the lock.
    pub(crate) fn hand_over(&self) -> Option<Handover> {
        self.io_sleeps.set(false);
        let next = self.summon()?;
        let nap = (self.stand_by.get() == 0 && self.waiting() >= BATCH).then(|| {
            let own = Arc::clone(self.io.borrow_mut().get_or_insert_with(|| Arc::new(Parker::new())));
            own.forget();
            self.io_sleeps.set(true);
            Nap { parker: own, progress: Arc::clone(&self.done), patience: LOOK_AGAIN, most: LONGEST_NAP }
        });
        Some(Handover { next, nap })
    }

    /// End the I/O thread's sleep, if it is in one.
    pub(crate) fn rouse(&self) {
        if let Some(io) = self.sleeping_io() {
            io.wake();
        }
    }

    pub(crate) fn has_threads(&self) -> bool {
        matches!(self.kind, Kind::Threads)
    }

    /// Whether the I/O thread sleeps and comes soon by itself.
    pub(crate) fn io_comes_soon(&self) -> bool {
        self.io_sleeps.get()
    }

    /// Whether an answer may wait for that of the next request: it is there, and should it block after all, the I/O
    /// thread comes soon.
    pub(super) fn may_hold(&self) -> bool {
        match self.kind {
            Kind::Threads => self.io_sleeps.get() && !self.queue.borrow().is_empty(),
            Kind::Greenlets { .. } => true,
        }
    }

    fn sleeping_io(&self) -> Option<Arc<Parker>> {
        if self.io_sleeps.replace(false) { self.io.borrow().clone() } else { None }
    }

    /// When the I/O thread must summon again, should nothing else happen.
    pub(crate) fn look_again(&self) -> Option<Duration> {
        let unattended = !self.queue.borrow().is_empty() && !self.idle.borrow().is_empty();
        unattended.then_some(LOOK_AGAIN)
    }

    /// Run one request, with another thread at hand for the rest of the queue if it is likely to block.
    pub(super) fn attend<T>(&self, run: impl FnOnce() -> T) -> T {
        let stand_by = self.stand_by.get();
        if stand_by > 0
            && let Some(another) = self.next_thread()
        {
            another.wake();
        }
        let before = self.turns.get();
        let result = run();
        self.done.fetch_add(1, Ordering::Relaxed);
        // If another thread had its turn meanwhile, the application has given up the lock.
        let blocked = self.turns.get() != before;
        self.stand_by.set(if blocked { STAND_BY_FOR } else { stand_by.saturating_sub(1) });
        result
    }

    /// A thread to be woken: there are requests, and nobody is on the way to them.
    fn next_thread(&self) -> Option<Arc<Parker>> {
        if self.coming.get() || self.queue.borrow().is_empty() {
            return None;
        }
        let parker = self.idle.borrow_mut().pop()?;
        self.coming.set(true);
        Some(parker)
    }

    /// Sleep until there may be a request. Returns whether the pool goes on.
    pub(super) fn sleep(&self, py: Python<'_>, parker: &Arc<Parker>) -> bool {
        if !self.stopping.get() {
            self.idle.borrow_mut().push(Arc::clone(parker));
            let io = self.sleeping_io();
            let woken = py.detach(|| {
                if let Some(io) = io {
                    io.wake();
                }
                parker.sleep();
                Instant::now()
            });
            self.coming.set(false);
            if woken.elapsed() < TAKEN_AFTER {
                self.turns.set(self.turns.get() + 1);
            }
        }
        !self.stopping.get()
    }

    /// Drop what waits, and have the threads end when they are idle.
    pub(crate) fn stop(&self) {
        self.stopping.set(true);
        let jobs = self.queue.take();
        for parker in self.idle.take() {
            parker.wake();
        }
        // Only now may Python code run.
        drop(jobs);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Wait until the client has taken enough of the answer, or has gone.
    pub(super) fn wait_until_writable(
        &self,
        py: Python<'_>,
        host: &Rc<Host>,
        id: ExchangeId,
    ) -> PyResult<()> {
        while host.server.is_full(id) {
            host.settle(py);
            self.wait(py, id)?;
        }
        Ok(())
    }

    /// Wait until something has happened to this exchange.
    pub(super) fn wait(&self, py: Python<'_>, id: ExchangeId) -> PyResult<()> {
        match &self.kind {
            Kind::Threads => {
                let parker = Arc::new(Parker::new());
                self.add_waiter(id, Waiter::Thread(Arc::clone(&parker)));
                py.detach(|| parker.sleep());
            }
            Kind::Greenlets { make_event } => {
                let event = make_event.bind(py).call0()?;
                self.add_waiter(id, Waiter::Greenlet(event.clone().unbind()));
                event.call_method0(intern!(py, "wait"))?;
            }
        }
        Ok(())
    }

    fn add_waiter(&self, id: ExchangeId, waiter: Waiter) {
        self.waiters.borrow_mut().entry(id).or_default().push(waiter);
    }

    /// Something has happened to this exchange.
    pub(super) fn wake(&self, py: Python<'_>, id: ExchangeId) {
        let waiters = self.waiters.borrow_mut().remove(&id);
        for waiter in waiters.into_iter().flatten() {
            match waiter {
                Waiter::Thread(parker) => parker.wake(),
                Waiter::Greenlet(event) => {
                    if let Err(error) = event.bind(py).call_method0(intern!(py, "set")) {
                        error.write_unraisable(py, None);
                    }
                }
            }
        }
    }

    /// This exchange is over: nobody waits for it any more.
    pub(super) fn forget(&self, id: ExchangeId) {
        if !self.waiters.borrow().is_empty() {
            let gone = self.waiters.borrow_mut().remove(&id);
            drop(gone);
        }
    }
}
