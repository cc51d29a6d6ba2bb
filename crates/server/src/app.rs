//! What the server wants of an application.

use std::net::SocketAddr;

use headrace_http1::RequestHead;

use crate::{ExchangeId, Server};

/// An application: it is told what happens, and answers by calling the [`Server`] it is handed.
///
/// None of these may block for long: they run on the thread that serves every connection.
pub trait App {
    /// A request's head is complete. What has arrived of its body can be read at once.
    fn request(&self, server: &Server, id: ExchangeId, head: &RequestHead<'_, '_>, from: &ConnectionInfo);

    /// After [`crate::BodyRead::Pending`]: more of the body is there, or its end.
    fn body_ready(&self, server: &Server, id: ExchangeId);

    /// After [`crate::WriteState::Full`]: the client has taken enough for more to be sent.
    fn writable(&self, server: &Server, id: ExchangeId);

    /// The client has gone, or will send nothing more, before the answer was complete.
    fn disconnected(&self, server: &Server, id: ExchangeId);
}

/// The connection that a request came by.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionInfo {
    /// A number that no other open connection has; small, and used again after it is closed.
    pub slot: usize,
    /// A number that no other connection of this server has had.
    pub serial: u32,
    /// Which listener accepted it, in the order of [`Server::listen`].
    pub listener: usize,
    /// The client's address; `None` for Unix sockets.
    pub peer: Option<SocketAddr>,
}
