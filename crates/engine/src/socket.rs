//! Non-blocking sockets: open, accept, read, write.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use socket2::{Domain, SockAddr, Socket, Type};

pub use rustix::net::SocketAddrAny;

/// Connections that the kernel completes and queues before they are accepted; it caps this at
/// `net.core.somaxconn`. uvicorn, gunicorn and granian: 2048, 2048, 1024.
pub const DEFAULT_BACKLOG: i32 = 2048;

/// Outcome of one non-blocking read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// So many bytes moved; for a read, zero is the end of the stream.
    Done(usize),
    /// Nothing could move now.
    WouldBlock,
}

fn outcome(result: rustix::io::Result<usize>) -> io::Result<Io> {
    match result {
        Ok(n) => Ok(Io::Done(n)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Io::WouldBlock),
        Err(error) => Err(error.into()),
    }
}

/// Read into the spare capacity of `buffer`, behind what is in it, with one system call.
///
/// # Errors
/// The connection's: reset, timed out, …
pub fn receive(fd: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<Io> {
    outcome(rustix::net::recv(fd, rustix::buffer::spare_capacity(buffer), RecvFlags::empty()).map(|(n, _)| n))
}

/// Write what the kernel takes of `bytes`, with one system call.
///
/// # Errors
/// The connection's: reset, broken pipe (never a signal), …
pub fn send(fd: impl AsFd, bytes: &[u8]) -> io::Result<Io> {
    outcome(rustix::net::send(fd, bytes, SendFlags::NOSIGNAL))
}

/// Write what the kernel takes of `parts`, in order, with one system call.
///
/// # Errors
/// As [`send`].
pub fn send_vectored(fd: impl AsFd, parts: &[IoSlice<'_>]) -> io::Result<Io> {
    outcome(rustix::net::sendmsg(
        fd,
        parts,
        &mut rustix::net::SendAncillaryBuffer::default(),
        SendFlags::NOSIGNAL,
    ))
}

/// End the writing half: the peer reads what was sent, and then the end of the stream.
///
/// # Errors
/// The socket is not connected any more.
pub fn shut_down_write(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, rustix::net::Shutdown::Write)?)
}

/// Accept one connection, non-blocking and closed on exec; `None` when there is none.
///
/// # Errors
/// Out of descriptors or memory (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`): back off, the connection stays
/// queued. A connection that died in the queue is passed over.
pub fn accept(listener: impl AsFd) -> io::Result<Option<(OwnedFd, Option<SocketAddrAny>)>> {
    use rustix::io::Errno;
    let listener = listener.as_fd();
    loop {
        match rustix::net::acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR | Errno::CONNABORTED | Errno::PERM | Errno::PROTO) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Open a listening TCP socket, non-blocking and closed on exec.
///
/// # Errors
/// `AddrInUse`, `PermissionDenied`, …
pub fn listen_tcp(address: SocketAddr, backlog: i32, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// Open a listening Unix socket, non-blocking and closed on exec. The path must not exist.
///
/// # Errors
/// `AddrInUse`, `PermissionDenied`, …
pub fn listen_unix(path: &Path, backlog: i32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// Begin to connect; readiness for writing tells that it is over, `take_error` how it ended.
///
/// # Errors
/// Those that are known at once: no route, no such Unix socket, …
pub fn connect(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM.nonblocking().cloexec(), None)?;
    match socket.connect(address) {
        Err(e) if e.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Err(e),
        _ => Ok(socket),
    }
}

/// The first address that `host:port` resolves to.
///
/// # Errors
/// Unknown host, or no port.
pub fn resolve(host_and_port: &str) -> io::Result<SocketAddr> {
    host_and_port
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
}

/// Send small packets at once: answers and pings must not wait for the peer's acknowledgement.
pub fn set_nodelay(fd: impl AsFd) {
    // Fails on Unix sockets, which have no such delay.
    let _ = rustix::net::sockopt::set_tcp_nodelay(fd, true);
}
