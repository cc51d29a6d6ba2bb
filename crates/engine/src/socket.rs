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

/// Write what the kernel takes of `parts` as [`send_vectored`] does, and say that more follows at once: what
/// does not fill a packet waits for it (`MSG_MORE`, Linux).
///
/// # Errors
/// As [`send`].
pub fn send_vectored_before_more(fd: impl AsFd, parts: &[IoSlice<'_>]) -> io::Result<Io> {
    #[cfg(target_os = "linux")]
    let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
    #[cfg(not(target_os = "linux"))]
    let flags = SendFlags::NOSIGNAL;
    outcome(rustix::net::sendmsg(fd, parts, &mut rustix::net::SendAncillaryBuffer::default(), flags))
}

/// Write up to `count` bytes of `file`, from `offset` on, without a copy through this process (`sendfile(2)`).
/// `Done(0)`: the file ends there.
///
/// # Errors
/// As [`send`]; `Unsupported` when the file's system cannot do it: read and send instead.
pub fn send_file(fd: impl AsFd, file: impl AsFd, offset: u64, count: usize) -> io::Result<Io> {
    #[cfg(target_os = "linux")]
    {
        use rustix::io::Errno;
        let mut at = offset;
        match rustix::fs::sendfile(fd, file, Some(&mut at), count) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
            result => outcome(result),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (fd, file, offset, count);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Read into `buffer` what `file` has at `offset`; zero bytes: it ends there.
///
/// # Errors
/// The file system's.
pub fn read_file(file: impl AsFd, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut *buffer, offset))?)
}

/// The length in bytes of a regular file; `None` for anything else (a pipe, a socket, a terminal).
///
/// # Errors
/// The descriptor is not open.
pub fn file_length(file: impl AsFd) -> io::Result<Option<u64>> {
    let status = rustix::fs::fstat(file)?;
    let regular = rustix::fs::FileType::from_raw_mode(status.st_mode).is_file();
    Ok(regular.then(|| u64::try_from(status.st_size).unwrap_or_default()))
}

/// End the writing half: the peer reads what was sent, and then the end of the stream.
///
/// # Errors
/// The socket is not connected any more.
pub fn shut_down_write(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, rustix::net::Shutdown::Write)?)
}

/// Whether something can be written to a pipe, terminal or socket now; a pipe then takes `PIPE_BUF` bytes.
///
/// # Errors
/// The system's.
pub fn is_writable(fd: impl AsFd) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::OUT)];
    Ok(poll(&mut fds, Some(&Timespec::default()))? > 0)
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
