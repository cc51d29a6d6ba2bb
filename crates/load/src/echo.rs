//! Echo: what is sent must come back, byte for byte.

use crate::protocol::{Answer, Protocol, Step};
use crate::random::Random;
use crate::stats::Fault;

/// Messages of one size over a stream.
pub(crate) struct Echo {
    /// One message, as often as requests are sent in one piece.
    batch: Vec<u8>,
    size: usize,
}

/// Where the echo of a connection stands.
#[derive(Debug, Default)]
pub(crate) struct EchoConnection {
    /// Bytes of the current message that have come back.
    received: usize,
    /// Whether they all were the ones sent.
    differs: bool,
}

impl Echo {
    /// Messages of `size` bytes, up to `pipeline` of them at once.
    ///
    /// Letters without any order, so that a byte lost or swapped is seen, and one line feed at the end: the
    /// same message serves servers that read lines and those that read bytes.
    pub(crate) fn new(size: usize, pipeline: usize) -> Self {
        let mut random = Random::new(0x6563_686f);
        let mut message: Vec<u8> = (1..size).map(|_| b'a' + random.below(26) as u8).collect();
        message.push(b'\n');
        Self { batch: message.repeat(pipeline), size }
    }
}

impl Protocol for Echo {
    type Connection = EchoConnection;

    fn open(&self) -> EchoConnection {
        EchoConnection::default()
    }

    fn requests<'a>(&'a mut self, _: &'a mut EchoConnection, count: usize) -> &'a [u8] {
        &self.batch[..count * self.size]
    }

    fn receive(&mut self, connection: &mut EchoConnection, bytes: &mut [u8]) -> (usize, Step) {
        let used = bytes.len().min(self.size - connection.received);
        let expected = &self.batch[connection.received..connection.received + used];
        connection.differs |= expected != &bytes[..used];
        connection.received += used;
        if connection.received < self.size {
            return (used, Step::More);
        }
        let fault = connection.differs.then_some(Fault::Body);
        *connection = EchoConnection::default();
        (used, Step::Answer(Answer { fault, ..Answer::GOOD }))
    }

    fn end(&mut self, _: &mut EchoConnection) -> Step {
        Step::More
    }

    fn blame(&self, _: &Answer) -> String {
        "what came back is not what was sent".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(size: usize, count: usize) -> Vec<u8> {
        let mut echo = Echo::new(size, count);
        let mut connection = echo.open();
        echo.requests(&mut connection, count).to_vec()
    }

    #[test]
    fn a_message_is_one_line_of_the_size_asked_for() {
        for size in [1, 2, 1024] {
            let message = sent(size, 1);
            assert_eq!(message.len(), size);
            assert_eq!(message.iter().position(|&b| b == b'\n'), Some(size - 1));
        }
    }

    #[test]
    fn whole_and_byte_by_byte_and_with_the_next_behind() {
        let bytes = sent(64, 2);
        for step in [1, 63, 64, 65, 128] {
            let mut echo = Echo::new(64, 2);
            let mut connection = echo.open();
            let mut good = 0;
            for mut part in bytes.chunks(step) {
                while !part.is_empty() {
                    let (used, outcome) = echo.receive(&mut connection, &mut part.to_vec());
                    part = &part[used..];
                    if let Step::Answer(answer) = outcome {
                        assert_eq!(answer.fault, None);
                        good += 1;
                    }
                }
            }
            assert_eq!(good, 2, "in steps of {step}");
        }
    }

    #[test]
    fn one_wrong_byte_is_seen_and_only_in_its_own_message() {
        let mut bytes = sent(64, 2);
        bytes[10] ^= 1;
        let mut echo = Echo::new(64, 2);
        let mut connection = echo.open();
        let (used, first) = echo.receive(&mut connection, &mut bytes.clone());
        let (_, second) = echo.receive(&mut connection, &mut bytes[used..]);
        let answer = |fault| Step::Answer(Answer { fault, ..Answer::GOOD });
        assert_eq!((used, first, second), (64, answer(Some(Fault::Body)), answer(None)));
    }
}
