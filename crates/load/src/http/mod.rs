//! HTTP/1.1, the client's side, for load: requests prepared once, answers recognised.
//!
//! Answers of a server under load differ in their Date and in nothing else. So the head of the last answer
//! is kept, and one that equals it but for the value of Date is known without parsing; any other is parsed in
//! full. What an answer must look like is in [`crate::expectation`].

mod head;
mod request;
mod template;

use std::collections::VecDeque;
use std::sync::Arc;

use headrace_http1::{BodyDecoder, BodyLength};

pub use request::{Body, Request};

use crate::expectation::Reference;
use crate::mix::Mix;
use crate::protocol::{Answer, Protocol, Step};
use crate::stats::Fault;
pub(crate) use request::Prepared;
use template::Template;

/// HTTP/1.1 exchanges of one thread.
pub(crate) struct Http {
    kinds: Vec<Kind>,
    mix: Mix,
    /// Requests that are sent in one piece.
    batch: Vec<u8>,
}

/// One kind of request, with what is known of its answers.
#[derive(Debug)]
struct Kind {
    prepared: Prepared,
    reference: Arc<Reference>,
    template: Template,
}

/// Where a connection's current answer stands.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    /// Kinds of the requests whose answers are awaited, oldest first; not kept where there is only one kind.
    awaited: VecDeque<usize>,
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
    /// Requests of these kinds, in this mixture, up to `pipeline` of them at once.
    pub(crate) fn new(kinds: Vec<(Prepared, Arc<Reference>)>, mix: Mix, pipeline: usize) -> Self {
        let kind = |(prepared, reference)| Kind { prepared, reference, template: Template::default() };
        let kinds: Vec<Kind> = kinds.into_iter().map(kind).collect();
        let batch = match kinds.as_slice() {
            [only] => only.prepared.bytes.repeat(pipeline),
            _ => Vec::new(),
        };
        Self { kinds, mix, batch }
    }

    fn awaited(&self, connection: &HttpConnection) -> usize {
        if self.kinds.len() == 1 { 0 } else { connection.awaited.front().copied().unwrap_or(0) }
    }
}

impl Protocol for Http {
    type Connection = HttpConnection;

    fn open(&self) -> HttpConnection {
        HttpConnection { awaited: VecDeque::new(), partial: Vec::new(), body: None }
    }

    fn requests<'a>(&'a mut self, connection: &'a mut HttpConnection, count: usize) -> &'a [u8] {
        if let [only] = self.kinds.as_slice() {
            return &self.batch[..count * only.prepared.bytes.len()];
        }
        if count == 1 {
            let kind = self.mix.next();
            connection.awaited.push_back(kind);
            return &self.kinds[kind].prepared.bytes;
        }
        self.batch.clear();
        for _ in 0..count {
            let kind = self.mix.next();
            connection.awaited.push_back(kind);
            self.batch.extend_from_slice(&self.kinds[kind].prepared.bytes);
        }
        &self.batch
    }

    fn receive(&mut self, connection: &mut HttpConnection, bytes: &mut [u8]) -> (usize, Step) {
        let index = self.awaited(connection);
        let kind = &mut self.kinds[index];
        let (used, step) = if connection.body.is_some() {
            kind.body(connection, bytes)
        } else if connection.partial.is_empty()
            && let Some((used, answer)) = kind.recognise(bytes)
        {
            (used, Step::Answer(answer))
        } else {
            kind.head(connection, bytes)
        };
        match step {
            Step::Answer(answer) => {
                connection.awaited.pop_front();
                (used, Step::Answer(Answer { kind: index, ..answer }))
            }
            step => (used, step),
        }
    }

    fn end(&mut self, connection: &mut HttpConnection) -> Step {
        let index = self.awaited(connection);
        match connection.body.take() {
            Some(open) if open.until_close => {
                Step::Answer(Answer { kind: index, ..self.kinds[index].finish(&open) })
            }
            _ => Step::More,
        }
    }

    fn blame(&self, answer: &Answer) -> String {
        self.kinds[answer.kind].reference.blame(answer)
    }
}

impl Kind {
    /// The fast path: a whole answer at the beginning of `bytes` with the head of the last one.
    #[inline]
    fn recognise(&self, bytes: &[u8]) -> Option<(usize, Answer)> {
        let body = self.template.body?;
        let head = self.template.matches(bytes)?;
        let whole = bytes.get(head..head + body)?;
        let answer = self.template.answer;
        let fault = match answer.fault {
            None if self.reference.differs(0, whole) => Some(Fault::Body),
            fault => fault,
        };
        Some((head + body, Answer { fault, ..answer }))
    }

    /// Take a head, whole or in parts, and then what is there of its body.
    fn head(&mut self, connection: &mut HttpConnection, bytes: &[u8]) -> (usize, Step) {
        let mut used = 0;
        loop {
            let before = connection.partial.len();
            let input = if before == 0 {
                &bytes[used..]
            } else {
                connection.partial.extend_from_slice(&bytes[used..]);
                &connection.partial
            };
            let head = match head::parse(input, self.prepared.bodiless) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    if before == 0 {
                        connection.partial.extend_from_slice(&bytes[used..]);
                    }
                    return (bytes.len(), Step::More);
                }
                Err(_) => return (used, Step::garbage()),
            };
            used += head.length - before;
            if !head.interim {
                connection.body = Some(self.open_body(&input[..head.length], &head));
            }
            connection.partial.clear();
            if head.interim {
                continue;
            }
            let (more, step) = self.body(connection, &bytes[used..]);
            return (used + more, step);
        }
    }

    /// Judge a head, and remember it for the next answer.
    fn open_body(&mut self, bytes: &[u8], head: &head::Head) -> OpenBody {
        let answer = Answer {
            status: head.status,
            fault: self.reference.judge_status(head.status),
            close: head.close,
            kind: 0,
        };
        let reference = &self.reference;
        self.template.learn(bytes, head, |body| {
            let fault = answer.fault.or_else(|| reference.judge_length(head.status, body));
            Answer { fault, ..answer }
        });
        OpenBody {
            decoder: BodyDecoder::new(head.body),
            length: 0,
            differs: false,
            until_close: head.body == BodyLength::UntilClose,
            answer,
        }
    }

    /// Take what is there of a body.
    fn body(&mut self, connection: &mut HttpConnection, bytes: &[u8]) -> (usize, Step) {
        let Some(mut open) = connection.body.take() else { return (0, Step::More) };
        let mut used = 0;
        loop {
            let Ok(piece) = open.decoder.decode(&bytes[used..]) else {
                return (used, Step::garbage());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::Expectation;

    const HELLO: &str =
        "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 05:00:00 GMT\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: v\r\n\r\n";
    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";

    fn http(expectation: Expectation) -> Http {
        let prepared = Request::default().prepare("h", "/").expect("good");
        Http::new(vec![(prepared, Arc::new(Reference::new(expectation)))], Mix::new(&[1], 1), 4)
    }

    /// The answers in `bytes`, handed over in pieces of `step`: status and fault of each.
    fn answers(http: &mut Http, bytes: &str, step: usize) -> Result<Vec<(u16, Option<Fault>)>, Fault> {
        let mut connection = http.open();
        let mut found = Vec::new();
        for mut piece in bytes.as_bytes().chunks(step) {
            while !piece.is_empty() {
                let (used, outcome) = http.receive(&mut connection, &mut piece.to_vec());
                piece = &piece[used..];
                match outcome {
                    Step::More => {}
                    Step::Answer(answer) => found.push((answer.status, answer.fault)),
                    Step::Fault(fault, _) => return Err(fault),
                    Step::Ready => unreachable!("HTTP has no greeting"),
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn answers_are_the_same_however_they_are_cut() {
        let stream = [HELLO, HELLO, CHUNKED, HINTS, HELLO, HINTS, HINTS, CHUNKED, HELLO].concat();
        for step in [1, 2, 3, 7, 50, HELLO.len(), HELLO.len() + 1, stream.len()] {
            let mut http = http(Expectation { body: Some(b"hello".to_vec()), ..Expectation::default() });
            assert_eq!(answers(&mut http, &stream, step), Ok(vec![(200, None); 6]), "in steps of {step}");
        }
    }

    #[test]
    fn a_recognised_head_does_not_hide_another_body() {
        let other = HELLO.replace("hello", "hallo");
        let stream = [HELLO, HELLO, &other, HELLO].concat();
        for step in [1, HELLO.len(), stream.len()] {
            let mut http = http(Expectation { body: Some(b"hello".to_vec()), ..Expectation::default() });
            let good = (200, None);
            let expected = vec![good, good, (200, Some(Fault::Body)), good];
            assert_eq!(answers(&mut http, &stream, step), Ok(expected), "in steps of {step}");
        }
    }

    #[test]
    fn another_length_is_a_body_fault_each_time() {
        let other = HELLO.replace("Length: 5\r\n\r\nhello", "Length: 6\r\n\r\nhello!");
        let stream = [HELLO, &other, &other, HELLO].concat();
        for step in [1, stream.len()] {
            let found = answers(&mut http(Expectation::default()), &stream, step).expect("answers");
            let faults: Vec<_> = found.into_iter().map(|(_, fault)| fault).collect();
            assert_eq!(faults, [None, Some(Fault::Body), Some(Fault::Body), None], "in steps of {step}");
        }
    }

    #[test]
    fn garbage_is_a_fault_and_no_panic() {
        for garbage in
            ["\0", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "GET /\r\n"]
        {
            for step in [1, 100] {
                let found = answers(&mut http(Expectation::default()), garbage, step);
                assert_eq!(found, Err(Fault::Protocol), "{garbage:?}");
            }
        }
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(300_000));
        assert_eq!(answers(&mut http(Expectation::default()), &endless, 10_000), Err(Fault::Protocol));
    }

    #[test]
    fn each_kind_of_request_has_its_own_answers() {
        let kind = |method: &str| {
            let request = Request { method: method.to_owned(), ..Request::default() };
            (request.prepare("h", "/").expect("good"), Arc::new(Reference::new(Expectation::default())))
        };
        let mut http = Http::new(vec![kind("GET"), kind("HEAD")], Mix::new(&[1, 1], 3), 8);
        let mut connection = http.open();
        let sent = String::from_utf8(http.requests(&mut connection, 8).to_vec()).expect("ASCII");
        let methods: Vec<bool> = sent.split("\r\n\r\n").map(|r| r.starts_with("HEAD")).take(8).collect();
        assert!(methods.contains(&true) && methods.contains(&false));
        let head = &HELLO[..HELLO.len() - 5];
        let stream: String = methods.iter().map(|is_head| if *is_head { head } else { HELLO }).collect();
        let mut rest = stream.as_bytes();
        for is_head in methods {
            let (used, step) = http.receive(&mut connection, &mut rest.to_vec());
            rest = &rest[used..];
            let expected = Answer { status: 200, fault: None, close: false, kind: usize::from(is_head) };
            assert_eq!(step, Step::Answer(expected));
        }
        assert!(rest.is_empty());
    }
}
