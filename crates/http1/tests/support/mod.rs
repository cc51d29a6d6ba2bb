//! A peer without sockets: reads requests from bytes as they come, the way a server has to. Shared by the tests and
//! the fuzz targets.

use headrace_http1::{BodyDecoder, FieldSlots, Limits, RequestHead, head_may_be_complete, parse_request};

/// A complete message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Method, target and version, as they stood in the request line, the target in origin form.
    pub(crate) line: Vec<u8>,
    /// Host and port.
    pub(crate) host: Vec<u8>,
    /// All fields, in order.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Content.
    pub(crate) body: Vec<u8>,
    /// Whether the connection stays open.
    pub(crate) keep_alive: bool,
    /// Whether the client waits for 100.
    pub(crate) expect_continue: bool,
    /// Protocols it wants to change to.
    pub(crate) upgrade: Option<Vec<u8>>,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A message.
    Request(Box<Request>),
    /// A refusal; nothing is read behind it.
    Reject {
        /// Status of the answer.
        status: u16,
        /// What was wrong.
        reason: &'static str,
    },
    /// A message that has not ended.
    Incomplete,
}

/// When a head that has not ended is parsed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Whenever bytes have come.
    Always,
    /// When `head_may_be_complete` says so, or the limit is reached: what a server does.
    WhenItMayBeComplete,
}

/// Reads one connection.
#[derive(Debug)]
pub(crate) struct Reader {
    policy: Policy,
    limits: Limits,
    buffer: Vec<u8>,
    seen: usize,
    message: Option<(Request, BodyDecoder)>,
    over: bool,
    events: Vec<Event>,
    /// How often a head was parsed.
    pub(crate) parses: usize,
}

impl Reader {
    /// A connection on which nothing has come.
    pub(crate) fn new(policy: Policy, limits: Limits) -> Self {
        let (buffer, events) = (Vec::new(), Vec::new());
        Self { policy, limits, buffer, seen: 0, message: None, over: false, events, parses: 0 }
    }

    /// Take bytes as they come.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        while !self.over && self.step() {}
    }

    /// All that was read.
    pub(crate) fn finish(mut self) -> Vec<Event> {
        if !self.over && (self.message.is_some() || !self.buffer.is_empty()) {
            self.events.push(Event::Incomplete);
        }
        self.events
    }

    /// Read a head, or a piece of a body; false when more bytes are needed.
    fn step(&mut self) -> bool {
        let Some((request, decoder)) = &mut self.message else { return self.head() };
        match decoder.decode(&self.buffer) {
            Ok(piece) => {
                assert!(piece.data.end <= piece.consumed && piece.consumed <= self.buffer.len());
                request.body.extend_from_slice(&self.buffer[piece.data.clone()]);
                self.buffer.drain(..piece.consumed);
                if piece.end {
                    let (request, _) = self.message.take().expect("matched above");
                    self.over = !request.keep_alive;
                    self.events.push(Event::Request(Box::new(request)));
                }
                piece.end || !piece.data.is_empty()
            }
            Err(reject) => self.reject(reject.status, reject.reason),
        }
    }

    fn head(&mut self) -> bool {
        let worth = self.policy == Policy::Always
            || self.buffer.len() >= self.limits.head
            || head_may_be_complete(&self.buffer, self.seen);
        self.seen = self.buffer.len();
        if self.buffer.is_empty() || !worth {
            return false;
        }
        self.parses += 1;
        let mut slots = FieldSlots::new();
        match parse_request(&self.buffer, &mut slots, &self.limits) {
            Ok(None) => false,
            Ok(Some(head)) => {
                self.message = Some((request(&head), BodyDecoder::new(head.body)));
                let length = head.length;
                self.buffer.drain(..length);
                self.seen = 0;
                true
            }
            Err(reject) => self.reject(reject.status, reject.reason),
        }
    }

    fn reject(&mut self, status: u16, reason: &'static str) -> bool {
        self.events.push(Event::Reject { status, reason });
        self.over = true;
        false
    }
}

fn request(head: &RequestHead<'_, '_>) -> Request {
    let mut line = format!("{} ", head.method).into_bytes();
    line.extend_from_slice(head.target.path);
    if !head.target.query.is_empty() {
        line.push(b'?');
        line.extend_from_slice(head.target.query);
    }
    line.extend_from_slice(match head.version {
        headrace_http1::Version::Http10 => b" HTTP/1.0",
        headrace_http1::Version::Http11 => b" HTTP/1.1",
    });
    Request {
        line,
        host: head.host.to_vec(),
        fields: head.fields.iter().map(|f| (f.name.as_bytes().to_vec(), f.value.to_vec())).collect(),
        body: Vec::new(),
        keep_alive: head.keep_alive,
        expect_continue: head.expect_continue,
        upgrade: head.upgrade.map(<[u8]>::to_vec),
    }
}
