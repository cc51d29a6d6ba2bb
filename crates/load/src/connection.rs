//! One connection's state.

use std::collections::VecDeque;

use headrace_engine::Token;

use crate::protocol::Protocol;
use crate::wire::Wire;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No socket: waiting for its turn to open.
    Closed,
    /// The socket connects, since then.
    Connecting(u64),
    /// TLS, or what the protocol sends before requests, is exchanged; since the connecting began.
    Greeting(u64),
    /// Ready for requests, or waiting for answers.
    Open,
}

/// A connection and what it waits for.
pub(crate) struct Connection<P: Protocol> {
    pub(crate) state: State,
    /// There is one unless the state is `Closed`.
    pub(crate) wire: Option<Wire>,
    /// Tells events of this socket from those of earlier ones at the same place.
    pub(crate) generation: u32,
    pub(crate) protocol: P::Connection,
    /// The protocol's greeting, if it has one, was sent.
    pub(crate) greeted: bool,
    /// Starts (open loop: intended starts) of the requests whose answers are awaited, oldest first.
    pub(crate) awaited: VecDeque<u64>,
    /// When requests were last sent.
    pub(crate) sent: u64,
    /// In the queue of idle connections.
    pub(crate) idle: bool,
    /// Has had an answer since it was opened.
    pub(crate) answered: bool,
    /// Was opened, or has failed to, at least once.
    pub(crate) settled: bool,
}

impl<P: Protocol> Connection<P> {
    pub(crate) fn new(protocol: &P, pipeline: usize) -> Self {
        Self {
            state: State::Closed,
            wire: None,
            generation: 0,
            protocol: protocol.open(),
            greeted: false,
            awaited: VecDeque::with_capacity(pipeline),
            sent: 0,
            idle: false,
            answered: false,
            settled: false,
        }
    }

    /// Forget the socket and all that was awaited from it.
    pub(crate) fn close(&mut self, protocol: &P) {
        self.state = State::Closed;
        self.wire = None;
        self.generation = self.generation.wrapping_add(1);
        self.protocol = protocol.open();
        self.greeted = false;
        self.awaited.clear();
        self.answered = false;
    }

    /// The token for this connection at place `index`.
    pub(crate) fn token(&self, index: usize) -> Token {
        Token(u64::from(self.generation) << 32 | index as u64)
    }
}
