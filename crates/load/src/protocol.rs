//! What the driver asks of a protocol: bytes of requests out, bytes of answers in. No sockets, no clocks.

use crate::stats::Fault;

/// What came out of the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All bytes are used; the answer is not complete.
    More,
    /// The greeting is answered: the connection is ready for requests. Bytes may be left.
    Ready,
    /// One answer is complete; bytes may be left.
    Answer(Answer),
    /// These bytes are no answer, and why: the connection is of no more use.
    Fault(Fault, String),
}

impl Step {
    /// Bytes that are no answer by the protocol's grammar.
    pub(crate) fn garbage() -> Self {
        Self::Fault(Fault::Protocol, "the bytes received are no answer".to_owned())
    }
}

/// One complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Status code; zero where the protocol has none.
    pub(crate) status: u16,
    /// What is wrong with it, if anything.
    pub(crate) fault: Option<Fault>,
    /// The server closes the connection after it.
    pub(crate) close: bool,
    /// Which kind of request it answers, where there are several.
    pub(crate) kind: usize,
}

impl Answer {
    /// A good one, with no status and on a connection that stays.
    pub(crate) const GOOD: Self = Self { status: 0, fault: None, close: false, kind: 0 };
}

/// One side of a protocol's exchanges, shared by all connections of a thread.
pub(crate) trait Protocol {
    /// What must be remembered for each connection.
    type Connection;

    /// The state of a connection that has just been opened.
    fn open(&self) -> Self::Connection;

    /// What is sent before the first request, where the protocol has such a thing; [`Step::Ready`] ends it.
    fn greeting<'a>(&'a mut self, _: &'a mut Self::Connection) -> Option<&'a [u8]> {
        None
    }

    /// The bytes of the next `count` requests of a connection, to be sent in one piece.
    fn requests<'a>(&'a mut self, connection: &'a mut Self::Connection, count: usize) -> &'a [u8];

    /// Take bytes that the server sent; says how many were used. Called again with the rest after an answer.
    fn receive(&mut self, connection: &mut Self::Connection, bytes: &mut [u8]) -> (usize, Step);

    /// What the protocol itself has to send, after bytes were received: to be sent and cleared.
    fn replies<'a>(&'a mut self, _: &'a mut Self::Connection) -> Option<&'a mut Vec<u8>> {
        None
    }

    /// The server has ended the stream while an answer was awaited. `More` means that it came too early.
    fn end(&mut self, connection: &mut Self::Connection) -> Step;

    /// What is wrong with an answer that has a fault, in words.
    fn blame(&self, answer: &Answer) -> String;
}
