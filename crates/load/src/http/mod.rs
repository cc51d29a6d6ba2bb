//! HTTP/1.1, the client's side, for load: requests prepared once, answers recognised.
//!
//! Answers of a server under load differ in their Date and in nothing else. So the head of the last answer
//! is kept, and one that equals it but for the value of Date is known without parsing; any other is parsed in
//! full. What an answer must look like is in [`expectation`].

mod expectation;
mod head;
mod request;
mod template;

use std::sync::Arc;

use headrace_http1::{BodyDecoder, BodyLength};

pub use expectation::Expectation;
pub use request::{Body, Request};

use crate::protocol::{Answer, Protocol, Step};
use crate::stats::Fault;
pub(crate) use expectation::Reference;
pub(crate) use request::Prepared;
use template::Template;

/// Bytes of an answer's head; curl allows 300 KB, hyper 400 KB, servers send far less.
const MAX_HEAD: usize = 256 * 1024;

/// One kind of request, with what is known of its answers.
#[derive(Debug)]
struct Kind {
    prepared: Prepared,
    reference: Arc<Reference>,
    template: Option<Template>,
}

/// HTTP/1.1 exchanges of one thread.
pub(crate) struct Http {
    kind: Kind,
    /// As many requests as are sent in one piece.
    batch: Vec<u8>,
}

/// Where a connection's current answer stands.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    /// A head that has come in part. Empty almost always.
    partial: Vec<u8>,
    body: Option<OpenBody>,
}

/// An answer whose head is there and whose body is not.
#[derive(Debug)]
struct OpenBody {
    decoder: BodyDecoder,
    length: u64,
    differs: bool,
    until_close: bool,
    answer: Answer,
}

impl Http {
    pub(crate) fn new(prepared: Prepared, reference: Arc<Reference>, pipeline: usize) -> Self {
        let batch = prepared.bytes.repeat(pipeline);
        Self { kind: Kind { prepared, reference, template: None }, batch }
    }
}

impl Protocol for Http {
    type Connection = HttpConnection;

    fn open(&self) -> HttpConnection {
        HttpConnection { partial: Vec::new(), body: None }
    }

    fn requests<'a>(&'a mut self, _: &'a mut HttpConnection, count: usize) -> &'a [u8] {
        &self.batch[..count * self.kind.prepared.bytes.len()]
    }

    fn receive(&mut self, connection: &mut HttpConnection, bytes: &[u8]) -> (usize, Step) {
        if connection.body.is_some() {
            return self.kind.body(connection, bytes);
        }
        if connection.partial.is_empty()
            && let Some((used, answer)) = self.kind.recognise(bytes)
        {
            return (used, Step::Answer(answer));
        }
        self.kind.head(connection, bytes)
    }

    fn end(&mut self, connection: &mut HttpConnection) -> Step {
        match connection.body.take() {
            Some(open) if open.until_close => Step::Answer(self.kind.finish(&open)),
            _ => Step::More,
        }
    }
}

impl Kind {
    /// The fast path: a whole answer at the beginning of `bytes` with the head of the last one.
    #[inline]
    fn recognise(&self, bytes: &[u8]) -> Option<(usize, Answer)> {
        let template = self.template.as_ref()?;
        let body = template.body?;
        let head = template.matches(bytes)?;
        let whole = bytes.get(head..head + body)?;
        let differs = self.reference.differs(0, whole);
        let answer = template.answer;
        let fault = if differs { answer.fault.or(Some(Fault::Body)) } else { answer.fault };
        Some((head + body, Answer { fault, ..answer }))
    }

    /// Take a head, whole or in parts, and then what is there of its body.
    fn head(&mut self, connection: &mut HttpConnection, bytes: &[u8]) -> (usize, Step) {
        let before = connection.partial.len();
        let input = if before == 0 {
            bytes
        } else {
            connection.partial.extend_from_slice(bytes);
            &connection.partial
        };
        let head = match head::parse(input, self.prepared.bodiless) {
            Ok(Some(head)) => head,
            Ok(None) if input.len() >= MAX_HEAD => return (0, Step::Fault(Fault::Protocol)),
            Ok(None) => {
                if before == 0 {
                    connection.partial.extend_from_slice(bytes);
                }
                return (bytes.len(), Step::More);
            }
            Err(head::Malformed) => return (0, Step::Fault(Fault::Protocol)),
        };
        let used = head.length - before;
        if head.status < 200 {
            // Interim answers (100, 103) come before the final one and end with their head.
            connection.partial.clear();
            return self.head_again(connection, bytes, used);
        }
        let answer = Answer {
            status: head.status,
            fault: self.reference.judge_status(head.status),
            close: head.close || head.body == BodyLength::UntilClose,
        };
        self.template = Some(Template::new(&input[..head.length], &head, |body| {
            let fault = answer.fault.or_else(|| self.reference.judge_length(head.status, body));
            Answer { fault, ..answer }
        }));
        connection.partial.clear();
        connection.body = Some(OpenBody {
            decoder: BodyDecoder::new(head.body),
            length: 0,
            differs: false,
            until_close: head.body == BodyLength::UntilClose,
            answer,
        });
        let (more, step) = self.body(connection, &bytes[used..]);
        (used + more, step)
    }

    fn head_again(&mut self, connection: &mut HttpConnection, bytes: &[u8], used: usize) -> (usize, Step) {
        if used == bytes.len() {
            return (used, Step::More);
        }
        let (more, step) = self.head(connection, &bytes[used..]);
        (used + more, step)
    }

    /// Take what is there of a body.
    fn body(&mut self, connection: &mut HttpConnection, bytes: &[u8]) -> (usize, Step) {
        let Some(mut open) = connection.body.take() else { return (0, Step::More) };
        let mut used = 0;
        loop {
            let Ok(piece) = open.decoder.decode(&bytes[used..]) else {
                return (used, Step::Fault(Fault::Protocol));
            };
            let data = &bytes[used..][piece.data];
            open.differs |= self.reference.differs(open.length, data);
            open.length += data.len() as u64;
            used += piece.consumed;
            if piece.end {
                return (used, Step::Answer(self.finish(&open)));
            }
            if used == bytes.len() {
                connection.body = Some(open);
                return (used, Step::More);
            }
        }
    }

    /// The verdict on an answer whose body is complete.
    fn finish(&self, open: &OpenBody) -> Answer {
        let answer = open.answer;
        let fault = answer
            .fault
            .or_else(|| self.reference.judge_length(answer.status, open.length))
            .or(open.differs.then_some(Fault::Body));
        Answer { fault, ..answer }
    }
}
