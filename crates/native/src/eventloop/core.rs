//! The loop's state, and the attributes and hooks that `asyncio.BaseEventLoop` reaches it by.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use headrace_engine::{Events, Interest, Poller, Waker};
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustix::io::Errno;

use super::fds::{Descriptors, WAKER};
use super::timers::Timers;
use crate::ffi::slot::SeenClass;
use crate::ffi::{Guarded, handle};
use crate::guest::{GUEST_TOKEN_BITS, Guest, Seat};

/// Events taken from the kernel at once.
const EVENTS: usize = 512;
/// The shared buffer that reads go into; asyncio reads as much at once (`_SelectorTransport.max_size`).
pub(super) const READ_BUFFER: usize = 256 * 1024;

/// The native half of `headrace.Loop`.
#[pyclass(frozen, subclass, module = "headrace._native")]
pub(crate) struct LoopCore {
    pub(super) state: Guarded<State>,
}

/// Everything that the loop's thread owns. See the module's rules about borrowing.
pub(crate) struct State {
    /// `None` once the loop is closed: a loop lies in cycles of references, and its descriptors must not wait
    /// for the collector.
    poller: RefCell<Option<Arc<Poller>>>,
    pub(super) events: Cell<Option<Events>>,
    /// `None` once the loop is closed.
    waker: RefCell<Option<Waker>>,
    pub(super) ready: RefCell<VecDeque<Py<PyAny>>>,
    pub(super) timers: RefCell<Timers>,
    pub(super) fds: RefCell<Descriptors>,
    /// Transports that hold writes of the running callback.
    pub(super) dirty: RefCell<VecDeque<Py<PyAny>>>,
    pub(super) guests: RefCell<Vec<Option<Rc<dyn Guest>>>>,
    pub(super) read_buffer: RefCell<Vec<u8>>,
    pub(super) debug: Cell<bool>,
    pub(super) closed: Cell<bool>,
    pub(super) stopping: Cell<bool>,
    /// A callback runs, or an event is dispatched: what is written now will be flushed soon.
    pub(super) in_callback: Cell<bool>,
    /// The thread is in, or about to enter, a wait that only the waker ends early.
    pub(super) waiting: Cell<bool>,
    /// Bytes that stream readers were fed since readers last ran.
    pub(super) fed: Cell<usize>,
    /// Process that the poller was made in.
    pub(super) process: Cell<u32>,
    /// `{"loop": this loop}`, which every future is made with; made with the first one.
    pub(super) future_keywords: RefCell<Option<Py<PyDict>>>,
}

/// What asyncio raises for a closed loop.
fn closed_loop() -> PyErr {
    PyRuntimeError::new_err("Event loop is closed")
}

impl std::ops::Deref for LoopCore {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl LoopCore {
    /// The native half of a loop object.
    ///
    /// Fails with `TypeError` for an object that is no Headrace loop.
    pub(crate) fn of<'a, 'py>(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Borrowed<'a, 'py, Self>> {
        static SEEN: SeenClass = SeenClass::new();
        SEEN.cast(object)
    }

    /// Take a guest in: its events come to it straight from the run cycle from now on.
    ///
    /// At most 255 guests at a time. The guest must stay attached for as long as it has descriptors registered.
    pub(crate) fn attach(&self, guest: Rc<dyn Guest>) -> PyResult<Seat> {
        let mut guests = self.guests.borrow_mut();
        let free = guests.iter().position(Option::is_none).unwrap_or(guests.len());
        let Ok(number) = u8::try_from(free + 1) else {
            return Err(PyRuntimeError::new_err("too many guests on this loop"));
        };
        if free == guests.len() {
            guests.push(None);
        }
        guests[free] = Some(guest);
        Ok(Seat {
            poller: self.poller().map_err(|_| closed_loop())?,
            token_base: u64::from(number) << GUEST_TOKEN_BITS,
        })
    }

    /// Let the guest of this seat go. Events of its that are still on their way are dropped.
    pub(crate) fn detach(&self, seat: &Seat) {
        let number = (seat.token_base >> GUEST_TOKEN_BITS) as usize;
        let guest =
            number.checked_sub(1).and_then(|n| self.guests.borrow_mut().get_mut(n).and_then(Option::take));
        // Dropped after the borrow has ended: a guest holds Python objects.
        drop(guest);
    }

    /// Fails with `RuntimeError` when the loop is closed.
    pub(super) fn check_open(&self) -> PyResult<()> {
        if self.closed.get() { Err(closed_loop()) } else { Ok(()) }
    }

    /// Put a handle at the end of the ready queue.
    pub(super) fn push_ready(&self, handle: Py<PyAny>) {
        self.ready.borrow_mut().push_back(handle);
    }

    /// End a wait of the loop's thread, if it is in one.
    pub(super) fn wake(&self) {
        if self.waiting.replace(false) {
            self.interrupt();
        }
    }

    /// End the wait of the loop's thread, or its next one: for other threads, which may run between the loop's
    /// last look and its wait.
    pub(crate) fn interrupt(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake();
        }
    }

    /// Take a wake-up back.
    pub(super) fn drain_waker(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.drain();
        }
    }

    /// The loop's poller. Fails with the error of a closed descriptor once the loop is closed.
    pub(super) fn poller(&self) -> std::io::Result<Arc<Poller>> {
        self.poller.borrow().as_ref().map(Arc::clone).ok_or_else(|| Errno::BADF.into())
    }

    /// A timer of this loop was cancelled while it lay in the heap.
    pub(super) fn timer_cancelled(&self, py: Python<'_>) {
        let due = self.timers.borrow_mut().note_cancelled();
        if due {
            let gone = self.timers.borrow_mut().clear_out(|h| handle::is_cancelled(h.bind_borrowed(py)));
            for timer in gone {
                handle::unschedule(timer.bind_borrowed(py));
            }
        }
    }

    fn new_poller(waker: &Waker) -> std::io::Result<Arc<Poller>> {
        let poller = Poller::new()?;
        poller.register(waker, WAKER, Interest::READ)?;
        Ok(Arc::new(poller))
    }

    /// In a forked child the poller is still the parent's: take one of our own before it is used.
    pub(super) fn adopt_after_fork(&self, py: Python<'_>) -> PyResult<()> {
        let process = std::process::id();
        if self.process.get() == process {
            return Ok(());
        }
        let raise = |error: std::io::Error| super::errors::os_error(py, &error);
        let poller = match &*self.waker.borrow() {
            Some(waker) => Self::new_poller(waker).map_err(raise)?,
            None => return Err(closed_loop()),
        };
        self.fds.borrow_mut().move_to(&poller);
        *self.poller.borrow_mut() = Some(poller);
        self.process.set(process);
        Ok(())
    }
}

#[pymethods]
impl LoopCore {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let raise = |e: std::io::Error| super::errors::os_error(py, &e);
        let waker = Waker::new().map_err(raise)?;
        let poller = Self::new_poller(&waker).map_err(raise)?;
        Ok(Self {
            state: Guarded::new(State {
                poller: RefCell::new(Some(poller)),
                events: Cell::new(Some(Events::with_capacity(EVENTS))),
                waker: RefCell::new(Some(waker)),
                ready: RefCell::default(),
                timers: RefCell::default(),
                fds: RefCell::default(),
                dirty: RefCell::default(),
                guests: RefCell::default(),
                read_buffer: RefCell::default(),
                debug: Cell::new(false),
                closed: Cell::new(false),
                stopping: Cell::new(false),
                in_callback: Cell::new(false),
                waiting: Cell::new(false),
                fed: Cell::new(0),
                process: Cell::new(std::process::id()),
                future_keywords: RefCell::default(),
            }),
        })
    }

    /// Run until `stop()` was called: the hook that `BaseEventLoop.run_forever` calls in a loop.
    ///
    /// asyncio's runs one turn; this one runs all of them, so that nothing of Python stands between two turns.
    fn _run_once(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().run(slf.as_any())
    }

    #[getter(_debug)]
    fn debug(&self) -> bool {
        self.debug.get()
    }

    #[setter(_debug)]
    fn set_debug(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.debug.set(value.is_truthy()?);
        Ok(())
    }

    #[getter(_closed)]
    fn closed(&self) -> bool {
        self.closed.get()
    }

    #[setter(_closed)]
    fn set_closed(&self, value: bool) {
        self.closed.set(value);
    }

    #[getter(_stopping)]
    fn stopping(&self) -> bool {
        self.stopping.get()
    }

    #[setter(_stopping)]
    fn set_stopping(&self, value: bool) {
        self.stopping.set(value);
    }

    /// Put a handle, ours or asyncio's, at the end of the ready queue unless it is cancelled.
    fn _add_callback(&self, handle: &Bound<'_, PyAny>) -> PyResult<()> {
        let cancelled = if handle::is_native(handle.as_borrowed()) {
            handle::is_cancelled(handle.as_borrowed())
        } else {
            handle.getattr("_cancelled")?.is_truthy()?
        };
        if !cancelled {
            self.push_ready(handle.clone().unbind());
        }
        Ok(())
    }

    /// End the wait of the loop's thread. May be called from any thread.
    fn _write_to_self(&self) {
        self.interrupt();
    }

    /// `(ready, timers, descriptors)`: how many callbacks are ready, timers in the heap, descriptors watched.
    fn _counts(&self) -> (usize, usize, usize) {
        (self.ready.borrow().len(), self.timers.borrow().len(), self.fds.borrow().watched().len())
    }

    /// Before `close()`: in a forked child the parent's poller must go on watching what is deregistered here.
    fn _prepare_close(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed.get() { Ok(()) } else { self.adopt_after_fork(py) }
    }

    /// Drop everything that is scheduled or watched, and the descriptors of the loop itself. The last step of
    /// `close()`.
    fn _release(&self, py: Python<'_>) {
        let ready = self.ready.take();
        let timers = self.timers.take();
        let dirty = self.dirty.take();
        let guests = self.guests.take();
        // Nothing is deregistered one by one: the poller ends with what it watched.
        let fds = self.fds.take();
        let poller = self.poller.take();
        let waker = self.waker.take();
        *self.read_buffer.borrow_mut() = Vec::new();
        for timer in timers.handles() {
            handle::unschedule(timer.bind_borrowed(py));
        }
        // Only now may Python code run.
        drop((ready, timers, dirty, guests, fds, poller, waker, self.future_keywords.take()));
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A cell that is borrowed just now is left out: what it holds then counts as referred to from outside.
        if let Ok(ready) = self.ready.try_borrow() {
            for held in ready.iter() {
                handle::traverse_held(held, visit)?;
            }
        }
        if let Ok(timers) = self.timers.try_borrow() {
            for held in timers.handles() {
                handle::traverse_held(held, visit)?;
            }
        }
        if let Ok(fds) = self.fds.try_borrow() {
            for held in fds.objects() {
                handle::traverse_held(held, visit)?;
            }
        }
        if let Ok(keywords) = self.future_keywords.try_borrow() {
            visit.call(&*keywords)?;
        }
        if let Ok(dirty) = self.dirty.try_borrow() {
            for held in dirty.iter() {
                visit.call(held)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self, py: Python<'_>) {
        self._release(py);
    }
}
