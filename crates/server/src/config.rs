//! Limits and times, each with a safe default.

use std::time::Duration;

use headrace_http1::Limits;

/// Largest request body: nginx 1 MB, waitress 1 GB, gunicorn and uvicorn none. Applications have limits of
/// their own for what they buffer; this one bounds what a client can make the server pass on.
pub const DEFAULT_BODY: u64 = 1 << 30;
/// Time from a head's first byte to its last: granian 30 s, nginx 60 s, uvicorn and gunicorn's asgi worker none.
pub const DEFAULT_HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a connection may be idle between requests: nginx 75 s, Node 5 s, uvicorn 5 s. Longer than the
/// minute that load balancers keep theirs, so that it is they who close first.
pub const DEFAULT_KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Time in which a client must send something of a body that is waited for: nginx 60 s, gunicorn 30 s.
pub const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a client must take something of an answer: nginx 60 s.
pub const DEFAULT_WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that a connection which we closed is still read from, so that the answer is not lost to a reset
/// (RFC 9112 section 9.6): nginx 5 s (lingering_timeout).
pub const DEFAULT_LINGER: Duration = Duration::from_secs(2);
/// Connections at a time; gunicorn 1000 a worker, granian and uvicorn none.
pub const DEFAULT_CONNECTIONS: usize = 65_536;
/// Requests that the application is at, at a time: gunicorn's `worker_connections` 1000, uvicorn's
/// `--limit-concurrency` none. Above it the answer is 503.
pub const DEFAULT_IN_FLIGHT: usize = 10_000;
/// Requests of one connection: nginx 1000. Clients that keep one for ever stay with one worker for ever.
pub const DEFAULT_REQUESTS_PER_CONNECTION: u32 = 100_000;
/// Bytes of one message on a connection that has left HTTP: uvicorn and gunicorn 16 MiB.
pub const DEFAULT_MESSAGE: usize = 16 * 1024 * 1024;

/// Configuration of a [`crate::Server`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Bounds on heads.
    pub head: Limits,
    /// Bytes of a request's body; more is 413.
    pub body: u64,
    /// The application may raise that limit for a request once it has seen its head: a length beyond it is refused
    /// by [`crate::Server::refuse_long_body`], not at once.
    pub body_limit_is_late: bool,
    /// Hold small pieces of an answer back until [`crate::Server::expire`], as the ends of answers are, so that what the
    /// application sends in one go is one system call. Otherwise each goes out at once, as WSGI demands (PEP 3333,
    /// "Buffering and Streaming").
    pub gather_pieces: bool,
    /// See [`DEFAULT_HEAD_TIMEOUT`]; past it the answer is 408.
    pub head_timeout: Duration,
    /// See [`DEFAULT_KEEP_ALIVE`].
    pub keep_alive: Duration,
    /// See [`DEFAULT_BODY_TIMEOUT`]; past it the answer is 408, or the connection breaks.
    pub body_timeout: Duration,
    /// See [`DEFAULT_WRITE_TIMEOUT`]; past it the connection breaks.
    pub write_timeout: Duration,
    /// See [`DEFAULT_LINGER`].
    pub linger: Duration,
    /// Connections at a time; more stay in the listener's queue.
    pub connections: usize,
    /// Requests at a time; more are answered 503.
    pub in_flight: usize,
    /// Requests of one connection; with the last it closes.
    pub requests_per_connection: u32,
    /// Bytes of one message on a connection that has left HTTP; see [`crate::Server::message_limit`].
    pub message: usize,
    /// A whole "server: …\r\n" line for answers that name none; empty for none.
    pub server_line: Vec<u8>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            head: Limits::default(),
            body: DEFAULT_BODY,
            body_limit_is_late: false,
            gather_pieces: false,
            head_timeout: DEFAULT_HEAD_TIMEOUT,
            keep_alive: DEFAULT_KEEP_ALIVE,
            body_timeout: DEFAULT_BODY_TIMEOUT,
            write_timeout: DEFAULT_WRITE_TIMEOUT,
            linger: DEFAULT_LINGER,
            connections: DEFAULT_CONNECTIONS,
            in_flight: DEFAULT_IN_FLIGHT,
            requests_per_connection: DEFAULT_REQUESTS_PER_CONNECTION,
            message: DEFAULT_MESSAGE,
            server_line: b"server: headrace\r\n".to_vec(),
        }
    }
}
