//! RESP, the protocol of Redis, the client's side: GET, SET, INCR and PING on a range of keys.
//!
//! Grammar of a reply (Redis serialization protocol specification), as far as these commands have one:
//! `+text\r\n` | `-error\r\n` | `:integer\r\n` | `$-1\r\n` or `_\r\n` (nil) | `$length\r\n` bytes `\r\n`.
//!
//! A nil and a value are both replies, and very different work for a server: they are counted apart.

use std::collections::VecDeque;
use std::sync::Arc;

use memchr::memchr;

use crate::expectation::Reference;
use crate::mix::Mix;
use crate::protocol::{Answer, Protocol, Step};
use crate::random::Random;
use crate::stats::Fault;
use crate::target::{Command, RedisLoad};

/// Bytes of a reply's first line. Errors are the longest, and end up in logs.
const MAX_LINE: usize = 16 * 1024;
/// Bytes of a value: Redis's own limit (`proto-max-bulk-len`).
const MAX_VALUE: u64 = 512 << 20;
/// Digits of a key's number, as redis-benchmark has them.
const DIGITS: usize = 12;

/// What a reply was: these stand where HTTP has its status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Value = 1,
    Nil,
    Ok,
    Integer,
    Error,
}

/// The name of a reply that was counted under `code`.
pub(crate) fn reply_name(code: u16) -> &'static str {
    ["", "value", "nil", "ok", "integer", "error"].get(usize::from(code)).copied().unwrap_or("")
}

/// Commands of one thread.
pub(crate) struct Resp {
    commands: Vec<Template>,
    mix: Mix,
    keys: u64,
    /// The next key, where they come in turn.
    next_key: Option<u64>,
    random: Random,
    batch: Vec<u8>,
    reference: Arc<Reference>,
}

/// A command's bytes, and where the number of its key stands in them.
#[derive(Debug)]
struct Template {
    command: Command,
    bytes: Vec<u8>,
    digits: Option<usize>,
}

/// Where a connection's current reply stands.
#[derive(Debug)]
pub(crate) struct RespConnection {
    awaited: VecDeque<usize>,
    /// A first line that has come in part. Empty almost always.
    partial: Vec<u8>,
    value: Option<OpenValue>,
}

/// A value whose bytes have not all come.
#[derive(Clone, Copy, Debug)]
struct OpenValue {
    length: u64,
    received: u64,
    differs: bool,
}

fn template(command: Command, size: usize) -> Template {
    let value = "x".repeat(size);
    let words: &[&str] = match command {
        Command::Get => &["GET", "key:000000000000"],
        Command::Set => &["SET", "key:000000000000", &value],
        Command::Incr => &["INCR", "counter:000000000000"],
        Command::Ping => &["PING"],
    };
    let mut text = format!("*{}\r\n", words.len());
    let mut digits = None;
    for (place, word) in words.iter().enumerate() {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        if place == 1 {
            digits = Some(text.len() - 2 - DIGITS);
        }
    }
    Template { command, bytes: text.into_bytes(), digits }
}

impl Resp {
    /// These commands, as thread `thread` of `threads` sends them.
    pub(crate) fn new(
        load: &RedisLoad,
        reference: Arc<Reference>,
        seed: u64,
        thread: usize,
        threads: usize,
    ) -> Self {
        let weights: Vec<u32> = load.commands.iter().map(|(_, weight)| *weight).collect();
        // Threads that go through the keys in turn begin at different ones, so that together they cover them.
        let first = load.keys * thread as u64 / threads as u64;
        Self {
            commands: load.commands.iter().map(|(command, _)| template(*command, load.size)).collect(),
            mix: Mix::new(&weights, seed),
            keys: load.keys,
            next_key: load.in_turn.then_some(first),
            random: Random::new(!seed),
            batch: Vec::new(),
            reference,
        }
    }

    fn key(&mut self) -> u64 {
        match &mut self.next_key {
            Some(next) => {
                let key = *next;
                *next = if key + 1 == self.keys { 0 } else { key + 1 };
                key
            }
            None => self.random.below(self.keys),
        }
    }

    /// The verdict on a reply.
    fn judge(&self, connection: &mut RespConnection, reply: Reply, length: u64, differs: bool) -> Step {
        let Some(kind) = connection.awaited.pop_front() else { return Step::garbage() };
        let fault = match (self.commands[kind].command, reply) {
            (_, Reply::Error) => Some(Fault::Status),
            (Command::Get, Reply::Value) => {
                self.reference.judge_length(Reply::Value as u16, length).or(differs.then_some(Fault::Body))
            }
            (Command::Get, Reply::Nil)
            | (Command::Set | Command::Ping, Reply::Ok)
            | (Command::Incr, Reply::Integer) => None,
            _ => Some(Fault::Body),
        };
        Step::Answer(Answer { status: reply as u16, fault, kind, ..Answer::GOOD })
    }

    /// A reply's first line, without its line end; `More` when a value follows.
    fn line(&self, connection: &mut RespConnection, line: &[u8]) -> Step {
        let Some((kind, rest)) = line.split_first() else { return Step::garbage() };
        let reply = match kind {
            b'+' => Reply::Ok,
            b'-' => Reply::Error,
            b':' => Reply::Integer,
            b'_' => Reply::Nil,
            b'$' if rest == b"-1" => Reply::Nil,
            b'$' => {
                let Some(length) = decimal(rest).filter(|length| *length <= MAX_VALUE) else {
                    return Step::garbage();
                };
                connection.value = Some(OpenValue { length, received: 0, differs: false });
                return Step::More;
            }
            _ => return Step::garbage(),
        };
        self.judge(connection, reply, 0, false)
    }

    /// Take what is there of a value and its line end.
    fn value(&self, connection: &mut RespConnection, mut open: OpenValue, bytes: &[u8]) -> (usize, Step) {
        let left = open.length + 2 - open.received;
        let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let data = usize::try_from(open.length.saturating_sub(open.received)).unwrap_or(usize::MAX).min(used);
        let (data, line_end) = bytes[..used].split_at(data);
        open.differs |= self.reference.differs(open.received, data);
        open.received += used as u64;
        let expected = &b"\r\n"[..open.received.saturating_sub(open.length) as usize];
        if !expected.ends_with(line_end) {
            return (used, Step::garbage());
        }
        if open.received < open.length + 2 {
            connection.value = Some(open);
            return (used, Step::More);
        }
        connection.value = None;
        (used, self.judge(connection, Reply::Value, open.length, open.differs))
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    // Nine digits are beyond the limit of a value, and overflow nothing.
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

fn write_digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        if number == 0 {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

impl Protocol for Resp {
    type Connection = RespConnection;

    fn open(&self) -> RespConnection {
        RespConnection { awaited: VecDeque::new(), partial: Vec::new(), value: None }
    }

    fn requests<'a>(&'a mut self, connection: &'a mut RespConnection, count: usize) -> &'a [u8] {
        self.batch.clear();
        for _ in 0..count {
            let kind = self.mix.next();
            connection.awaited.push_back(kind);
            let key = self.key();
            let template = &self.commands[kind];
            let start = self.batch.len();
            self.batch.extend_from_slice(&template.bytes);
            if let Some(digits) = template.digits {
                write_digits(&mut self.batch[start + digits..start + digits + DIGITS], key);
            }
        }
        &self.batch
    }

    fn receive(&mut self, connection: &mut RespConnection, bytes: &mut [u8]) -> (usize, Step) {
        if let Some(open) = connection.value.take() {
            return self.value(connection, open, bytes);
        }
        let Some(end) = memchr(b'\n', bytes) else {
            connection.partial.extend_from_slice(bytes);
            let too_long = connection.partial.len() > MAX_LINE;
            return (bytes.len(), if too_long { Step::garbage() } else { Step::More });
        };
        let used = end + 1;
        let step = if connection.partial.is_empty() {
            match bytes[..end].strip_suffix(b"\r") {
                Some(line) => self.line(connection, line),
                None => Step::garbage(),
            }
        } else {
            let mut partial = std::mem::take(&mut connection.partial);
            partial.extend_from_slice(&bytes[..end]);
            let step = match partial.strip_suffix(b"\r") {
                Some(line) => self.line(connection, line),
                None => Step::garbage(),
            };
            partial.clear();
            connection.partial = partial;
            step
        };
        match connection.value.take() {
            Some(open) => {
                let (more, step) = self.value(connection, open, &bytes[used..]);
                (used + more, step)
            }
            None => (used, step),
        }
    }

    fn end(&mut self, _: &mut RespConnection) -> Step {
        Step::More
    }

    fn blame(&self, answer: &Answer) -> String {
        let command = self.commands[answer.kind].command.name();
        format!("the reply to {command} was of the kind {:?}", reply_name(answer.status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::Expectation;

    fn resp(commands: &[(Command, u32)], in_turn: bool, expectation: Expectation) -> Resp {
        let load = RedisLoad { commands: commands.to_vec(), keys: 1_000, size: 5, in_turn };
        Resp::new(&load, Arc::new(Reference::new(expectation)), 1, 0, 1)
    }

    fn replies(commands: &[Command], bytes: &[u8], step: usize) -> Result<Vec<(u16, Option<Fault>)>, Fault> {
        let all: Vec<(Command, u32)> = commands.iter().map(|command| (*command, 1)).collect();
        let mut resp = resp(&all, true, Expectation::default());
        let mut connection = resp.open();
        connection.awaited.extend(0..commands.len());
        let mut found = Vec::new();
        for mut piece in bytes.chunks(step) {
            while !piece.is_empty() {
                let (used, outcome) = resp.receive(&mut connection, &mut piece.to_vec());
                piece = &piece[used..];
                match outcome {
                    Step::More => {}
                    Step::Answer(answer) => found.push((answer.status, answer.fault)),
                    Step::Fault(fault, _) => return Err(fault),
                    Step::Ready => unreachable!("RESP has no greeting"),
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings_with_keys_in_range() {
        let mut resp = resp(&[(Command::Set, 1)], true, Expectation::default());
        let mut connection = resp.open();
        let text = String::from_utf8(resp.requests(&mut connection, 2).to_vec()).expect("ASCII");
        let one = |key: &str| format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key}\r\n$5\r\nxxxxx\r\n");
        assert_eq!(text, one("000000000000") + &one("000000000001"));
        resp.next_key = Some(999);
        let text = String::from_utf8(resp.requests(&mut connection, 2).to_vec()).expect("ASCII");
        assert_eq!(text, one("000000000999") + &one("000000000000"));
    }

    #[test]
    fn random_keys_stay_below_the_bound_and_use_all_of_it() {
        let mut resp = resp(&[(Command::Get, 1)], false, Expectation::default());
        let keys: std::collections::HashSet<u64> = (0..20_000).map(|_| resp.key()).collect();
        assert_eq!((keys.len(), keys.iter().max()), (1_000, Some(&999)));
    }

    #[test]
    fn replies_are_told_apart_however_they_are_cut() {
        use Command::{Get, Incr, Ping, Set};
        let commands = [Get, Get, Get, Set, Incr, Ping, Get, Get];
        let bytes = b"$5\r\nhello\r\n$-1\r\n_\r\n+OK\r\n:17\r\n+PONG\r\n-ERR no\r\n$5\r\n\r\n\r\nx\r\n";
        for step in 1..=bytes.len() {
            let expected = vec![
                (1, None),
                (2, None),
                (2, None),
                (3, None),
                (4, None),
                (3, None),
                (5, Some(Fault::Status)),
                (1, None),
            ];
            assert_eq!(replies(&commands, bytes, step), Ok(expected), "in steps of {step}");
        }
    }

    #[test]
    fn a_reply_of_the_wrong_kind_or_length_is_a_fault() {
        let body = Some(Fault::Body);
        assert_eq!(replies(&[Command::Get], b"+OK\r\n", 99), Ok(vec![(3, body)]));
        assert_eq!(replies(&[Command::Set], b"$-1\r\n", 99), Ok(vec![(2, body)]));
        let two = replies(&[Command::Get, Command::Get], b"$1\r\na\r\n$2\r\nab\r\n", 99);
        assert_eq!(two, Ok(vec![(1, None), (1, body)]));
    }

    #[test]
    fn garbage_is_a_fault_and_no_panic() {
        let long = [b'+'; MAX_LINE + 2];
        for garbage in [
            &b"HTTP/1.1 200 OK\r\n"[..],
            b"\r\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"$9999999999\r\n",
            b"+OK\n",
            b"$1\r\nabc",
            &long,
        ] {
            for step in [1, garbage.len()] {
                assert_eq!(replies(&[Command::Get], garbage, step), Err(Fault::Protocol), "{garbage:?}");
            }
        }
    }
}
