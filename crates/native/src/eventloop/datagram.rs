//! UDP: the hot methods of `headrace.datagram.DatagramTransport`.
//!
//! The class is asyncio's `_SelectorDatagramTransport`, so that buffering, limits and their accounting are those
//! of the CPython that runs. Native are reading, and sending while nothing is buffered; whatever is not the
//! common case (an empty datagram, a host name, a full socket, a second address) goes to asyncio's own method.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyType};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, send, sendto};

use super::address;
use super::core::{LoopCore, READ_BUFFER};
use super::errors::os_error;
use crate::ffi::bytes::Lent;
use crate::ffi::fastcall::{Args, FastMethod, install as install_method};
use crate::ffi::slot::SlotOffset;
use crate::ffi::{Guarded, descriptor};

/// Datagrams read for one event at most; libuv reads as many.
const BATCH: u32 = 32;
/// Peers whose addresses are kept as Python objects; a power of two.
const KNOWN_PEERS: usize = 64;

/// An address as the kernel has it and as Python has it.
type Peer = (SocketAddr, Py<PyAny>);

/// The native half of a datagram transport.
#[pyclass(frozen, module = "headrace._native")]
pub(crate) struct Datagram {
    state: Guarded<State>,
}

struct State {
    /// `None` once the transport is closed, and its descriptor maybe somebody else's.
    open: RefCell<Option<Open>>,
    /// How many datagrams the next event is expected to bring: an attempt that ends in `EAGAIN` costs a system
    /// call, and so does asking the poller again.
    expected: Cell<u32>,
    /// Peers seen last, each in the place that its address hashes to.
    peers: RefCell<[Option<Peer>; KNOWN_PEERS]>,
    /// The peer of the last datagram, whom most answers go to.
    last: RefCell<Option<Peer>>,
}

struct Open {
    event_loop: Py<PyAny>,
    fd: RawFd,
    /// The family is `AF_INET6`.
    v6: bool,
    /// The socket is connected: the kernel knows whom it sends to.
    connected: bool,
    /// The address that `create_datagram_endpoint` was given, and no other may be sent to.
    address: Option<Py<PyAny>>,
}

struct Class {
    _class: Py<PyType>,
    datagram: SlotOffset,
}

static CLASS: OnceLock<Class> = OnceLock::new();

/// Give `class` its native methods. It must define the slot `_datagram`; only one class in a process does.
#[pyfunction]
pub(super) fn _define_datagram_transport(class: &Bound<'_, PyType>) -> PyResult<()> {
    let datagram = SlotOffset::find(class, "_datagram")?;
    if CLASS.set(Class { _class: class.clone().unbind(), datagram }).is_err() {
        return Err(PyTypeError::new_err("the datagram transport class is defined already"));
    }
    install_method::<ReadReady>(class)?;
    install_method::<SendTo>(class)
}

fn datagram_of<'a, 'py>(transport: Borrowed<'a, 'py, PyAny>) -> PyResult<Borrowed<'a, 'py, Datagram>> {
    let half = CLASS.get().and_then(|class| class.datagram.read(transport));
    let half = half.ok_or_else(|| PyTypeError::new_err("not a Headrace datagram transport"))?;
    Ok(half.cast::<Datagram>()?)
}

#[pymethods]
impl Datagram {
    /// The native half for the non-blocking socket `fd` on `event_loop`.
    #[new]
    fn new(event_loop: Py<PyAny>, fd: RawFd, v6: bool, connected: bool, address: Option<Py<PyAny>>) -> Self {
        Self {
            state: Guarded::new(State {
                open: RefCell::new(Some(Open { event_loop, fd, v6, connected, address })),
                expected: Cell::new(1),
                peers: RefCell::new([const { None }; KNOWN_PEERS]),
                last: RefCell::new(None),
            }),
        }
    }

    /// The transport is closed: touch its descriptor no more.
    fn release(&self) {
        let held = self.state.open.take();
        drop(held);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(open) = self.state.open.try_borrow()
            && let Some(open) = &*open
        {
            visit.call(&open.event_loop)?;
            visit.call(&open.address)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        self.release();
    }
}

impl State {
    /// The Python object for the address of a peer: the same one for as long as the peer is known.
    fn address_of<'py>(&self, py: Python<'py>, peer: SocketAddr) -> PyResult<Bound<'py, PyAny>> {
        if let Some((address, object)) = &*self.last.borrow()
            && *address == peer
        {
            return Ok(object.bind(py).clone());
        }
        let place = place_of(&peer);
        let known = match &self.peers.borrow()[place] {
            Some((address, object)) if *address == peer => Some(object.bind(py).clone()),
            _ => None,
        };
        let object = match known {
            Some(object) => object,
            None => {
                let made = address::to_python(py, &peer)?;
                let old = self.peers.borrow_mut()[place].replace((peer, made.clone().unbind()));
                drop(old);
                made
            }
        };
        self.remember(peer, &object);
        Ok(object)
    }

    fn remember(&self, peer: SocketAddr, object: &Bound<'_, PyAny>) {
        let old = self.last.replace(Some((peer, object.clone().unbind())));
        drop(old);
    }

    /// The address that a Python object stands for, where no name must be looked up.
    fn peer_of(&self, object: Borrowed<'_, '_, PyAny>, v6: bool) -> Option<SocketAddr> {
        if let Some((address, known)) = &*self.last.borrow()
            && known.is(object)
        {
            return Some(*address);
        }
        let address = address::from_python(object, v6)?;
        self.remember(address, &object);
        Some(address)
    }
}

fn place_of(peer: &SocketAddr) -> usize {
    let host = match peer {
        SocketAddr::V4(v4) => u32::from(*v4.ip()),
        SocketAddr::V6(v6) => v6
            .ip()
            .octets()
            .chunks(4)
            .fold(0, |sum, part| sum ^ part.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))),
    };
    (host ^ host >> 8 ^ u32::from(peer.port())) as usize % KNOWN_PEERS
}

/// `error_received(exception)` of the protocol. What that raises is the caller's to report.
fn report(transport: Borrowed<'_, '_, PyAny>, errno: Errno) -> PyResult<()> {
    let py = transport.py();
    let error = os_error(py, &errno.into()).into_value(py);
    transport
        .getattr(pyo3::intern!(py, "_protocol"))?
        .call_method1(pyo3::intern!(py, "error_received"), (error,))?;
    Ok(())
}

/// Whether the loop still watches `fd` for reading: the transport has neither been paused nor closed.
fn is_watched(core: &LoopCore, fd: RawFd) -> bool {
    core.fds.borrow().get(fd).is_some_and(|entry| entry.reader.is_some())
}

struct ReadReady;

impl FastMethod for ReadReady {
    const NAME: &'static CStr = c"_read_ready";

    /// Datagrams that are there, each given to the protocol before the next is read.
    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, _: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let none = py.None().into_bound(py);
        let half = datagram_of(slf)?;
        let state = &half.get().state;
        let (event_loop, fd) = match &*state.open.borrow() {
            Some(open) => (open.event_loop.bind(py).clone(), open.fd),
            None => return Ok(none),
        };
        if slf.getattr(pyo3::intern!(py, "_conn_lost"))?.is_truthy()? {
            return Ok(none);
        }
        let core = LoopCore::of(event_loop.as_borrowed())?;
        let core = core.get();
        let expected = state.expected.get();
        for count in 0..expected {
            let received = {
                let mut buffer = core.read_buffer.borrow_mut();
                buffer.clear();
                if buffer.capacity() < READ_BUFFER {
                    buffer.reserve_exact(READ_BUFFER);
                }
                recvfrom(
                    descriptor::borrowed(fd),
                    rustix::buffer::spare_capacity(&mut buffer),
                    RecvFlags::DONTWAIT,
                )
                .map(|(_, _, peer)| (PyBytes::new(py, &buffer), peer))
            };
            match received {
                Ok((data, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    let address = match peer {
                        Some(peer) => state.address_of(py, peer)?,
                        None => none.clone(),
                    };
                    slf.getattr(pyo3::intern!(py, "_protocol"))?
                        .call_method1(pyo3::intern!(py, "datagram_received"), (data, address))?;
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    state.expected.set(count.max(1));
                    return Ok(none);
                }
                Err(errno) => {
                    report(slf, errno)?;
                    return Ok(none);
                }
            }
            if !is_watched(core, fd) {
                return Ok(none);
            }
        }
        // As many as were expected, so there may be more: the poller will tell.
        state.expected.set((expected * 2).min(BATCH));
        Ok(none)
    }
}

struct SendTo;

impl FastMethod for SendTo {
    const NAME: &'static CStr = c"sendto";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let [Some(data), address] = args.bind("sendto", ["data", "addr"], 1)? else {
            unreachable!("data is required")
        };
        let address = address.filter(|address| !address.is_none());
        match try_send(slf, data, address)? {
            Some(Ok(())) => Ok(py.None().into_bound(py)),
            Some(Err(errno)) => {
                report(slf, errno)?;
                Ok(py.None().into_bound(py))
            }
            None => slf.call_method1(pyo3::intern!(py, "_sendto_plain"), (data, address)),
        }
    }
}

/// Send at once; `None` where asyncio's own method has to.
fn try_send(
    transport: Borrowed<'_, '_, PyAny>,
    data: Borrowed<'_, '_, PyAny>,
    address: Option<Borrowed<'_, '_, PyAny>>,
) -> PyResult<Option<Result<(), Errno>>> {
    let py = transport.py();
    let half = datagram_of(transport)?;
    let state = &half.get().state;
    let known = data.is_instance_of::<PyBytes>()
        || data.is_instance_of::<PyByteArray>()
        || data.is_instance_of::<PyMemoryView>();
    if !known {
        return Ok(None);
    }
    // What may run Python code comes before the borrow.
    let Ok(lent) = Lent::readable(&data) else { return Ok(None) };
    let lost = transport.getattr(pyo3::intern!(py, "_conn_lost"))?.is_truthy()?;
    let open = state.open.borrow();
    let Some(open) = &*open else { return Ok(None) };
    if lent.len() == 0 || lost {
        return Ok(None);
    }
    if let (Some(own), Some(given)) = (&open.address, address)
        && !given.is(own)
    {
        return Ok(None);
    }
    {
        let core = LoopCore::of(open.event_loop.bind_borrowed(py))?;
        let fds = core.get().fds.borrow();
        // The transport waits to write exactly while something is buffered; that goes first.
        if fds.get(open.fd).is_some_and(|entry| entry.writer.is_some()) {
            return Ok(None);
        }
    }
    let address = address.or_else(|| open.address.as_ref().map(|own| own.bind_borrowed(py)));
    let peer = match address {
        _ if open.connected => None,
        Some(address) => match state.peer_of(address, open.v6) {
            Some(peer) => Some(peer),
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let fd = descriptor::borrowed(open.fd);
    let sent = match &peer {
        None => send(fd, lent.content(), flags),
        Some(peer) => sendto(fd, lent.content(), flags, peer),
    };
    Ok(match sent {
        Ok(_) => Some(Ok(())),
        Err(Errno::AGAIN | Errno::INTR) => None,
        Err(errno) => Some(Err(errno)),
    })
}
