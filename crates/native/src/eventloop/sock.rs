//! `sock_recv`, `sock_recv_into` and `sock_sendall`, without a future where the result is there already and
//! without a reader that comes and goes with each call.
//!
//! The descriptor of a socket stays watched for reading between operations, until an event comes that nobody
//! waits for. That holds for one socket object: another one with the same number (the first was closed) starts
//! anew. What is not a plain `socket.socket`, and all of debug mode, goes to asyncio's own methods.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use headrace_engine::Interest;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyInt, PyType, PyWeakrefMethods, PyWeakrefReference};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send, sockopt};

use super::core::{LoopCore, READ_BUFFER};
use super::errors::os_error;
use super::fds::Interest0;
use super::futures;
use crate::ffi::bytes::{self, Lent};
use crate::ffi::descriptor;
use crate::ffi::fastcall::{Args, FastMethod};
use crate::ffi::operation::{self, Progress, Step};

/// Reads up to this size go through the loop's buffer; larger ones ask the kernel how much there is.
const SHARED: usize = 64 * 1024;
/// Never wait in the call, whatever mode the socket is in; never a signal.
const RECEIVE: RecvFlags = RecvFlags::DONTWAIT;

static SOCKET: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// What an operation does.
enum Kind {
    Receive(usize),
    ReceiveInto(Py<PyAny>),
    Send { data: Py<PyAny>, lent: Option<Lent>, sent: usize },
}

struct SocketOperation {
    event_loop: Py<PyAny>,
    socket: Py<PyAny>,
    kind: Kind,
    /// The future that is waited on, and the descriptor that it stands with.
    future: Option<(Py<PyAny>, RawFd)>,
}

/// What one attempt came to.
enum Attempt {
    Done(Option<Py<PyAny>>),
    WouldBlock,
}

impl SocketOperation {
    fn direction(&self) -> usize {
        usize::from(matches!(self.kind, Kind::Send { .. }))
    }

    /// asyncio's own method for this operation.
    fn plain(&self, py: Python<'_>) -> PyResult<Progress> {
        let class = py.import("asyncio")?.getattr("SelectorEventLoop")?;
        let arguments = (self.event_loop.bind(py), self.socket.bind(py));
        let coroutine = match &self.kind {
            Kind::Receive(count) => class.call_method1("sock_recv", (arguments.0, arguments.1, *count))?,
            Kind::ReceiveInto(buffer) => {
                class.call_method1("sock_recv_into", (arguments.0, arguments.1, buffer.bind(py)))?
            }
            Kind::Send { data, .. } => {
                class.call_method1("sock_sendall", (arguments.0, arguments.1, data.bind(py)))?
            }
        };
        Ok(Progress::Delegate(coroutine.unbind()))
    }

    fn attempt(&mut self, py: Python<'_>, core: &LoopCore, fd: RawFd) -> PyResult<Attempt> {
        let raise = |errno: Errno| os_error(py, &io::Error::from(errno));
        let received = match &mut self.kind {
            Kind::Receive(count) => {
                let count = *count;
                match receive(py, core, fd, count)? {
                    Ok(data) => Ok((data.as_bytes().len() < count, Some(data.unbind().into_any()))),
                    Err(errno) => Err(errno),
                }
            }
            Kind::ReceiveInto(buffer) => {
                let mut lent =
                    Lent::writable(buffer.bind(py)).map_err(|error| not_writable(py, buffer, error))?;
                let space = lent.len();
                recv(descriptor::borrowed(fd), lent.space(), RECEIVE)
                    .map(|(_, count)| (count < space, Some(PyInt::new(py, count).unbind().into_any())))
            }
            Kind::Send { data, lent, sent } => {
                let lent = match lent {
                    Some(lent) => lent,
                    None => lent.insert(Lent::readable(data.bind(py))?),
                };
                loop {
                    let rest = &lent.content()[*sent..];
                    match send(descriptor::borrowed(fd), rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                        Ok(count) => *sent += count,
                        Err(Errno::INTR) => {}
                        Err(Errno::AGAIN) => return Ok(Attempt::WouldBlock),
                        Err(errno) => return Err(raise(errno)),
                    }
                    if *sent >= lent.len() {
                        return Ok(Attempt::Done(None));
                    }
                }
            }
        };
        match received {
            Ok((short, value)) => {
                if let Some(entry) = core.fds.borrow_mut().entry(fd) {
                    entry.drained = short && entry.is_stream;
                }
                Ok(Attempt::Done(value))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Attempt::WouldBlock),
            Err(errno) => Err(raise(errno)),
        }
    }

    /// Whether this very socket is known to have nothing to read, and is watched: then asking is a waste.
    fn known_empty(&self, py: Python<'_>, core: &LoopCore, fd: RawFd) -> bool {
        let fds = core.fds.borrow();
        let Some(entry) = fds.get(fd) else { return false };
        entry.drained
            && entry.socket_interest.0.contains(Interest::READ)
            && entry.socket.as_ref().is_some_and(|known| same(py, known, &self.socket))
    }

    fn wait(&mut self, py: Python<'_>, core: &LoopCore, fd: RawFd) -> PyResult<Progress> {
        let event_loop = self.event_loop.bind_borrowed(py);
        let direction = self.direction();
        let known = core
            .fds
            .borrow()
            .get(fd)
            .and_then(|entry| entry.socket.as_ref().map(|known| same(py, known, &self.socket)))
            .unwrap_or(false);
        let mut fresh = None;
        if !known {
            event_loop.call_method1(pyo3::intern!(py, "_ensure_fd_no_transport"), (fd,))?;
            fresh = Some(PyWeakrefReference::new(self.socket.bind(py))?.unbind().into_any());
        }
        let future = futures::to_yield(event_loop)?.unbind();
        let poller = core.poller().map_err(|error| os_error(py, &error))?;
        let mut fds = core.fds.borrow_mut();
        let Some(entry) = fds.entry(fd) else { return Err(os_error(py, &Errno::BADF.into())) };
        let mut dropped = Vec::new();
        if let Some(reference) = fresh {
            dropped.extend(entry.socket.replace(reference));
            dropped.extend(entry.waiting.iter_mut().filter_map(Option::take));
            entry.is_stream = sockopt::socket_type(descriptor::borrowed(fd)) == Ok(SocketType::STREAM);
            entry.socket_interest = Interest0(Interest::NONE);
            // The number may have been another socket's, which took its registration with it when it closed.
            entry.forget_registration();
        }
        dropped.extend(entry.waiting[direction].replace(future.clone_ref(py)));
        let interest = if direction == 0 { Interest::READ } else { Interest::WRITE };
        entry.socket_interest = Interest0(entry.socket_interest.0.with(interest));
        let outcome = fds.update(&poller, fd);
        drop(fds);
        drop(dropped);
        outcome.map_err(|error| os_error(py, &error))?;
        self.future = Some((future.clone_ref(py), fd));
        Ok(Progress::Yield(future))
    }
}

/// The error that `socket.recv_into` raises for what cannot be written to.
fn not_writable(py: Python<'_>, buffer: &Py<PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyBufferError>(py) {
        return error;
    }
    let name = buffer.bind(py).get_type().name().map(|name| name.to_string()).unwrap_or_default();
    PyTypeError::new_err(format!("recv_into() argument 1 must be read-write bytes-like object, not {name}"))
}

/// Whether the weak reference `known` is to `socket`.
fn same(py: Python<'_>, known: &Py<PyAny>, socket: &Py<PyAny>) -> bool {
    known
        .bind(py)
        .cast::<PyWeakrefReference>()
        .ok()
        .and_then(|reference| reference.upgrade())
        .is_some_and(|alive| alive.is(socket))
}

/// Read at most `count` bytes into a `bytes` of the size that came.
fn receive<'py>(
    py: Python<'py>,
    core: &LoopCore,
    fd: RawFd,
    count: usize,
) -> PyResult<Result<Bound<'py, PyBytes>, Errno>> {
    let into = |space: &mut [MaybeUninit<u8>]| {
        recv(descriptor::borrowed(fd), space, RECEIVE).map(|(_, received)| received)
    };
    if count > SHARED {
        let waiting = rustix::io::ioctl_fionread(descriptor::borrowed(fd)).unwrap_or(0);
        let waiting = usize::try_from(waiting).unwrap_or(count);
        if waiting > SHARED {
            return bytes::filled(py, waiting.min(count), into);
        }
    }
    let mut buffer = core.read_buffer.borrow_mut();
    buffer.clear();
    if buffer.capacity() < READ_BUFFER {
        buffer.reserve_exact(READ_BUFFER);
    }
    let space = &mut buffer.spare_capacity_mut()[..count.min(SHARED)];
    Ok(recv(descriptor::borrowed(fd), space, RECEIVE).map(|((received, _), _)| PyBytes::new(py, received)))
}

impl Step for SocketOperation {
    fn step(&mut self, py: Python<'_>) -> PyResult<Progress> {
        let event_loop = self.event_loop.clone_ref(py).into_bound(py);
        let core = LoopCore::of(event_loop.as_borrowed())?;
        let core = core.get();
        let first = self.future.take().is_none();
        let plain = SOCKET.import(py, "socket", "socket")?;
        if first && (core.debug.get() || !self.socket.bind(py).get_type().is(plain)) {
            return self.plain(py);
        }
        let fd: RawFd = self.socket.bind(py).call_method0(pyo3::intern!(py, "fileno"))?.extract()?;
        if first && self.direction() == 0 && self.known_empty(py, core, fd) {
            return self.wait(py, core, fd);
        }
        match self.attempt(py, core, fd)? {
            Attempt::Done(value) => Ok(Progress::Return(value)),
            Attempt::WouldBlock => self.wait(py, core, fd),
        }
    }

    fn interrupt(&mut self, py: Python<'_>) {
        let Some((future, fd)) = self.future.take() else { return };
        let event_loop = self.event_loop.bind_borrowed(py);
        let Ok(core) = LoopCore::of(event_loop) else { return };
        let core = core.get();
        let direction = self.direction();
        let Ok(poller) = core.poller() else { return };
        let mut fds = core.fds.borrow_mut();
        let Some(entry) = fds.entry(fd) else { return };
        if !entry.waiting[direction].as_ref().is_some_and(|known| known.is(&future)) {
            return;
        }
        let dropped = entry.waiting[direction].take();
        let interest = if direction == 0 { Interest::READ } else { Interest::WRITE };
        entry.socket_interest = Interest0(entry.socket_interest.0.without(interest));
        let _ = fds.update(&poller, fd);
        drop(fds);
        drop(dropped);
    }

    fn referents(&self) -> [Option<&Py<PyAny>>; 3] {
        let third = match &self.kind {
            Kind::Receive(_) => None,
            Kind::ReceiveInto(buffer) => Some(buffer),
            Kind::Send { data, .. } => Some(data),
        };
        [Some(&self.event_loop), Some(&self.socket), third]
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Receive(_) => "Loop.sock_recv",
            Kind::ReceiveInto(_) => "Loop.sock_recv_into",
            Kind::Send { .. } => "Loop.sock_sendall",
        }
    }
}

fn start<'py>(
    slf: Borrowed<'_, 'py, PyAny>,
    socket: Borrowed<'_, 'py, PyAny>,
    kind: Kind,
) -> PyResult<Bound<'py, PyAny>> {
    let operation = SocketOperation {
        event_loop: slf.to_owned().unbind(),
        socket: socket.to_owned().unbind(),
        kind,
        future: None,
    };
    operation::new(slf.py(), Box::new(operation))
}

/// `sock_recv(sock, n)`.
pub(super) struct Recv;

impl FastMethod for Recv {
    const NAME: &'static CStr = c"sock_recv";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let [Some(socket), Some(count)] = args.bind("sock_recv", ["sock", "n"], 2)? else {
            unreachable!("both are required")
        };
        let native = count.cast_exact::<PyInt>().ok().and_then(|n| n.extract::<isize>().ok());
        match native.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0) {
            Some(n) => start(slf, socket, Kind::Receive(n)),
            None => {
                let class = slf.py().import("asyncio")?.getattr("SelectorEventLoop")?;
                class.call_method1("sock_recv", (slf, socket, count))
            }
        }
    }
}

/// `sock_recv_into(sock, buf)`.
pub(super) struct RecvInto;

impl FastMethod for RecvInto {
    const NAME: &'static CStr = c"sock_recv_into";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let [Some(socket), Some(buffer)] = args.bind("sock_recv_into", ["sock", "buf"], 2)? else {
            unreachable!("both are required")
        };
        start(slf, socket, Kind::ReceiveInto(buffer.to_owned().unbind()))
    }
}

/// `sock_sendall(sock, data)`.
pub(super) struct SendAll;

impl FastMethod for SendAll {
    const NAME: &'static CStr = c"sock_sendall";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let [Some(socket), Some(data)] = args.bind("sock_sendall", ["sock", "data"], 2)? else {
            unreachable!("both are required")
        };
        start(slf, socket, Kind::Send { data: data.to_owned().unbind(), lent: None, sent: 0 })
    }
}
