//! Tests that hold for every protocol: how the network cuts its bytes makes no difference, and no bytes panic.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;

use crate::echo::Echo;
use crate::expectation::{Expectation, Reference};
use crate::http::{Http, Request};
use crate::mix::Mix;
use crate::protocol::{Answer, Protocol, Step};
use crate::resp::Resp;
use crate::stats::Fault;
use crate::target::{Command, RedisLoad};

/// Requests whose answers are awaited from the beginning: more than any of these streams holds.
const AWAITED: usize = 64;

/// The answers in `bytes`, cut at `cuts`, and the fault that ends them, if one does.
fn outcome<P: Protocol>(protocol: &mut P, bytes: &[u8], cuts: &[usize]) -> (Vec<Answer>, Option<Fault>) {
    let mut connection = protocol.open();
    protocol.requests(&mut connection, AWAITED);
    let mut answers = Vec::new();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    for end in ends {
        let mut piece = bytes[start..end].to_vec();
        start = end;
        let mut at = 0;
        while at < piece.len() {
            let (used, step) = protocol.receive(&mut connection, &mut piece[at..]);
            at += used;
            match step {
                Step::More => assert_eq!(at, piece.len(), "`More` has used all"),
                Step::Answer(answer) => answers.push(answer),
                Step::Fault(fault, _) => return (answers, Some(fault)),
                Step::Ready => unreachable!("none of these has a greeting"),
            }
        }
    }
    (answers, None)
}

fn http() -> Http {
    let prepared = Request::default().prepare("h", "/").expect("good");
    let expectation = Expectation { any_length: true, ..Expectation::default() };
    Http::new(vec![(prepared, Arc::new(Reference::new(expectation)))], Mix::new(&[1], 1), AWAITED)
}

fn resp() -> Resp {
    let load = RedisLoad { commands: vec![(Command::Get, 1)], keys: 9, size: 1, in_turn: true };
    let expectation = Expectation { any_length: true, ..Expectation::default() };
    Resp::new(&load, Arc::new(Reference::new(expectation)), 1, 0, 1)
}

/// A stream made of these words, with random bytes here and there.
fn stream(words: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        20 => select(words).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

const HTTP_WORDS: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 05:00:00 GMT\r\nContent-Length: 2\r\n\r\nhi",
    b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 05:00:01 GMT\r\nContent-Length: 2\r\n\r\nho",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"Content-Length: 1\r\n",
    b"\r\n",
];

const RESP_WORDS: &[&[u8]] = &[
    b"$5\r\nhello\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"+OK\r\n",
    b"-ERR\r\n",
    b":1\r\n",
    b"_\r\n",
    b"$2\r\n",
    b"\r\n",
];

proptest! {
    #[test]
    fn http_is_the_same_however_it_is_cut(bytes in stream(HTTP_WORDS), cuts in prop::collection::vec(any::<usize>(), 0..20)) {
        prop_assert_eq!(outcome(&mut http(), &bytes, &cuts), outcome(&mut http(), &bytes, &[]));
    }

    #[test]
    fn resp_is_the_same_however_it_is_cut(bytes in stream(RESP_WORDS), cuts in prop::collection::vec(any::<usize>(), 0..20)) {
        prop_assert_eq!(outcome(&mut resp(), &bytes, &cuts), outcome(&mut resp(), &bytes, &[]));
    }

    #[test]
    fn echo_is_the_same_however_it_is_cut(bytes in prop::collection::vec(any::<u8>(), 0..200), cuts in prop::collection::vec(any::<usize>(), 0..20)) {
        let mut echo = Echo::new(16, AWAITED);
        prop_assert_eq!(outcome(&mut echo, &bytes, &cuts), outcome(&mut Echo::new(16, AWAITED), &bytes, &[]));
    }
}
