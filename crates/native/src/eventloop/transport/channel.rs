//! The native half of a stream transport: its state, and what changes it without I/O.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;

use headrace_engine::Interest;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::super::core::LoopCore;
use super::super::errors::os_error;
use super::stream::Stream;
use super::tls::TlsSession;
use super::write::Outgoing;
use crate::ffi::{Guarded, context};

/// Default limits of the write buffer: asyncio's (`_FlowControlMixin._set_write_buffer_limits`).
const HIGH_WATER: usize = 64 * 1024;

/// The native half of a stream transport.
#[pyclass(frozen, module = "headrace._native")]
pub(crate) struct Channel {
    pub(super) state: Guarded<State>,
}

/// What a transport knows. The names are those of asyncio's `_SelectorSocketTransport`.
pub(crate) struct State {
    pub(super) event_loop: Py<PyAny>,
    pub(super) fd: RawFd,
    pub(super) protocol: RefCell<Option<Py<PyAny>>>,
    /// The protocol is a `BufferedProtocol`: it lends the buffer that is read into.
    pub(super) buffered: Cell<bool>,
    /// The protocol is a plain stream protocol: its reader is fed without it.
    pub(super) stream: RefCell<Option<Stream>>,
    /// The protocol is `headrace.tls.SSLProtocol`: OpenSSL's half of the connection.
    pub(super) tls: RefCell<Option<Py<TlsSession>>>,
    /// The context that the protocol's methods run in.
    pub(super) context: RefCell<Option<Py<PyAny>>>,
    /// `connection_made` has been called and reading may begin.
    pub(super) started: Cell<bool>,
    pub(super) paused: Cell<bool>,
    /// The peer has sent its end of stream, and the protocol keeps the connection half open.
    pub(super) read_ended: Cell<bool>,
    pub(super) closing: Cell<bool>,
    pub(super) eof_written: Cell<bool>,
    /// Not zero once `connection_lost` is scheduled; counts the writes since then.
    pub(super) lost: Cell<u32>,
    pub(super) protocol_paused: Cell<bool>,
    pub(super) high_water: Cell<usize>,
    pub(super) low_water: Cell<usize>,
    /// Send at once what is written, never at the end of the callback.
    pub(super) immediate: Cell<bool>,
    /// The future that `sendfile` waits on until everything before it is sent.
    pub(super) empty_waiter: RefCell<Option<Py<PyAny>>>,
    pub(super) outgoing: RefCell<Outgoing>,
    /// The kernel has taken all it can: the rest waits for it.
    pub(super) blocked: Cell<bool>,
    /// Stands in the loop's list of transports to flush.
    pub(super) dirty: Cell<bool>,
    /// The last read filled much of the shared buffer: read the next one straight into its `bytes`.
    pub(super) bulk: Cell<bool>,
}

impl std::ops::Deref for Channel {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl Channel {
    /// The loop's native half.
    pub(super) fn core<'py>(&self, py: Python<'py>) -> PyResult<Borrowed<'_, 'py, LoopCore>> {
        LoopCore::of(self.event_loop.bind_borrowed(py))
    }

    pub(super) fn is_reading(&self) -> bool {
        !self.closing.get() && !self.paused.get()
    }

    /// Whether a reader is fed natively, has no error, and its writer may write: then there is nothing that
    /// `StreamWriter.drain` would wait for or raise.
    ///
    /// A plain stream protocol is paused, and told that the connection is lost, by its transport alone.
    pub(in super::super) fn is_flowing(&self) -> bool {
        !self.closing.get()
            && !self.protocol_paused.get()
            && self.stream.borrow().as_ref().is_some_and(|stream| !stream.state.get().failed())
    }

    pub(super) fn awaits_writing(&self) -> bool {
        self.blocked.get()
    }

    /// Tell the loop what to wait for.
    pub(super) fn update_interest(&self, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = transport.py();
        let mut interest = Interest::NONE;
        if self.started.get() && self.is_reading() && !self.read_ended.get() && self.lost.get() == 0 {
            interest = interest.with(Interest::READ);
        }
        if self.blocked.get() {
            interest = interest.with(Interest::WRITE);
        }
        let core = self.core(py)?;
        if core.get().closed.get() {
            return Ok(());
        }
        core.get().set_transport_interest(self.fd, transport, interest).map_err(|error| os_error(py, &error))
    }

    pub(super) fn protocol<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.protocol.borrow().as_ref().map(|p| p.bind(py).clone())
    }

    /// Run `body` in the context of the connection.
    pub(super) fn in_context<'py, T>(
        &self,
        py: Python<'py>,
        body: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        let context = self.context.borrow().as_ref().map(|c| c.bind(py).clone());
        match context {
            Some(context) => context::within(&context, body),
            None => body(),
        }
    }

    /// Schedule a method of the transport, as `call_soon` would.
    pub(super) fn call_soon(
        &self,
        transport: &Bound<'_, PyAny>,
        method: &str,
        argument: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = transport.py();
        let callback = transport.getattr(method)?;
        let none = py.None().into_bound(py);
        self.event_loop
            .bind(py)
            .call_method1(pyo3::intern!(py, "call_soon"), (callback, argument.unwrap_or(&none)))?;
        Ok(())
    }

    /// Tell the protocol to stop writing when more than the high-water mark waits for the kernel.
    pub(super) fn maybe_pause_protocol(&self, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.outgoing.borrow().len() <= self.high_water.get() || self.protocol_paused.get() {
            return Ok(());
        }
        self.protocol_paused.set(true);
        self.flow_control(transport, "pause_writing")
    }

    /// Let the protocol write again when no more than the low-water mark waits.
    pub(super) fn maybe_resume_protocol(&self, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.protocol_paused.get() || self.outgoing.borrow().len() > self.low_water.get() {
            return Ok(());
        }
        self.protocol_paused.set(false);
        self.flow_control(transport, "resume_writing")
    }

    fn flow_control(&self, transport: &Bound<'_, PyAny>, method: &str) -> PyResult<()> {
        let py = transport.py();
        let Some(protocol) = self.protocol(py) else { return Ok(()) };
        let Err(error) = protocol.call_method0(method) else { return Ok(()) };
        if super::super::errors::ends_the_run(py, &error) {
            return Err(error);
        }
        transport.call_method1("_flow_control_failed", (method, error.into_value(py)))?;
        Ok(())
    }

    /// Report an error of the connection and close it without sending what is left.
    pub(super) fn fatal_error(
        &self,
        transport: &Bound<'_, PyAny>,
        error: PyErr,
        message: &str,
    ) -> PyResult<()> {
        let py = transport.py();
        if super::super::errors::ends_the_run(py, &error) {
            return Err(error);
        }
        transport.call_method1(pyo3::intern!(py, "_fatal_error"), (error.into_value(py), message))?;
        Ok(())
    }
}

#[pymethods]
impl Channel {
    /// The native half for the connected, non-blocking socket `fd` on `event_loop`.
    #[new]
    fn new(event_loop: &Bound<'_, PyAny>, fd: RawFd) -> PyResult<Self> {
        LoopCore::of(event_loop.as_borrowed())?;
        Ok(Self {
            state: Guarded::new(State {
                event_loop: event_loop.clone().unbind(),
                fd,
                protocol: RefCell::new(None),
                buffered: Cell::new(false),
                stream: RefCell::new(None),
                tls: RefCell::new(None),
                context: RefCell::new(None),
                started: Cell::new(false),
                paused: Cell::new(false),
                read_ended: Cell::new(false),
                closing: Cell::new(false),
                eof_written: Cell::new(false),
                lost: Cell::new(0),
                protocol_paused: Cell::new(false),
                high_water: Cell::new(HIGH_WATER),
                low_water: Cell::new(HIGH_WATER / 4),
                immediate: Cell::new(false),
                empty_waiter: RefCell::new(None),
                outgoing: RefCell::default(),
                blocked: Cell::new(false),
                dirty: Cell::new(false),
                bulk: Cell::new(false),
            }),
        })
    }

    /// Use this protocol from now on. `buffered`: it is a `BufferedProtocol`; `reader`: the weak reference to
    /// the reader of a plain stream protocol, which is then fed natively; `session`: it is our TLS protocol.
    #[pyo3(signature = (protocol, buffered, reader = None, session = None))]
    fn set_protocol(
        &self,
        protocol: Option<Py<PyAny>>,
        buffered: bool,
        reader: Option<Bound<'_, PyAny>>,
        session: Option<Py<TlsSession>>,
    ) -> PyResult<()> {
        let stream = reader.map_or(Ok(None), Stream::new)?;
        self.buffered.set(buffered);
        let old = (self.protocol.replace(protocol), self.stream.replace(stream), self.tls.replace(session));
        drop(old);
        Ok(())
    }

    #[getter]
    fn get_protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol.borrow().as_ref().map(|p| p.clone_ref(py))
    }

    /// `connection_made` has returned: begin to read, in a copy of the current context.
    fn start(&self, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let context = context::copy_current(transport.py())?.unbind();
        self.context.replace(Some(context));
        self.started.set(true);
        self.update_interest(transport)
    }

    #[getter]
    fn closing(&self) -> bool {
        self.closing.get()
    }

    #[getter]
    fn paused(&self) -> bool {
        self.paused.get()
    }

    #[getter]
    fn eof(&self) -> bool {
        self.eof_written.get()
    }

    #[getter]
    fn lost(&self) -> u32 {
        self.lost.get()
    }

    #[getter]
    fn blocked(&self) -> bool {
        self.blocked.get()
    }

    #[getter]
    fn protocol_paused(&self) -> bool {
        self.protocol_paused.get()
    }

    /// `(low, high)` in bytes.
    #[getter]
    fn limits(&self) -> (usize, usize) {
        (self.low_water.get(), self.high_water.get())
    }

    #[setter]
    fn set_limits(&self, limits: (usize, usize)) {
        self.low_water.set(limits.0);
        self.high_water.set(limits.1);
    }

    #[getter]
    fn immediate(&self) -> bool {
        self.immediate.get()
    }

    #[setter]
    fn set_immediate(&self, immediate: bool) {
        self.immediate.set(immediate);
    }

    #[getter]
    fn get_empty_waiter(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.empty_waiter.borrow().as_ref().map(|w| w.clone_ref(py))
    }

    #[setter]
    fn set_empty_waiter(&self, waiter: Option<Py<PyAny>>) {
        let old = self.empty_waiter.replace(waiter);
        drop(old);
    }

    /// Pause the protocol now if what waits is over the limit: after the limits have changed.
    fn check_limits(&self, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        self.maybe_pause_protocol(transport)
    }

    #[getter]
    fn streaming(&self) -> bool {
        self.stream.borrow().is_some()
    }

    /// Wait for the descriptor no more, and let protocol and context go: the last step of closing.
    fn release(&self, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        self.started.set(false);
        self.blocked.set(false);
        self.update_interest(transport)?;
        let held = (self.protocol.take(), self.context.take(), self.outgoing.take());
        drop(held);
        let held = (self.stream.take(), self.tls.take());
        drop(held);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        for cell in [&self.protocol, &self.context, &self.empty_waiter] {
            if let Ok(held) = cell.try_borrow() {
                visit.call(&*held)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let held = (self.protocol.take(), self.context.take(), self.empty_waiter.take());
        drop(held);
    }
}
