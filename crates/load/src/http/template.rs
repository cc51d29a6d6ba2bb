//! The head of the last answer, to recognise the next one by.

use headrace_http1::BodyLength;

use super::head::Head;
use crate::protocol::Answer;

/// A head that was parsed and judged once.
#[derive(Debug)]
pub(super) struct Template {
    head: Vec<u8>,
    /// Where the value of Date begins and ends: what stands there may differ. Empty without a Date.
    date: std::ops::Range<usize>,
    /// Bytes of the body where the head alone says so.
    pub(super) body: Option<usize>,
    /// The answer when its body has that length.
    pub(super) answer: Answer,
}

impl Default for Template {
    /// One that nothing equals.
    fn default() -> Self {
        Self { head: Vec::new(), date: 0..0, body: None, answer: Answer::GOOD }
    }
}

impl Template {
    /// Keep this head in place of the last one; `judge` gives the answer for a body of the length announced.
    pub(super) fn learn(&mut self, bytes: &[u8], head: &Head, judge: impl FnOnce(u64) -> Answer) {
        let length = match head.body {
            BodyLength::Empty => Some(0),
            BodyLength::Known(n) => usize::try_from(n).ok(),
            BodyLength::Chunked | BodyLength::UntilClose => None,
        };
        self.head.clear();
        self.head.extend_from_slice(bytes);
        self.date = head.date.clone().unwrap_or(0..0);
        // A head that closes is parsed in full each time: its connection costs far more than that.
        self.body = length.filter(|_| !head.close);
        if let Some(length) = self.body {
            self.answer = judge(length as u64);
        }
    }

    /// The length of the head if `bytes` begin with this one, its Date aside.
    #[inline]
    pub(super) fn matches(&self, bytes: &[u8]) -> Option<usize> {
        let length = self.head.len();
        let bytes = bytes.get(..length)?;
        let same = bytes[..self.date.start] == self.head[..self.date.start]
            && bytes[self.date.end..] == self.head[self.date.end..];
        // A line break in place of the date would make it another head.
        let one_line = memchr::memchr2(b'\r', b'\n', &bytes[self.date.clone()]).is_none();
        (same && one_line).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::super::head;
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 05:00:00 GMT\r\nContent-Length: 5\r\n\r\n";

    fn template(head: &str) -> Template {
        let parsed = head::parse(head.as_bytes(), false).expect("well-formed").expect("complete");
        let mut template = Template::default();
        template.learn(head.as_bytes(), &parsed, |_| Answer::GOOD);
        template
    }

    #[test]
    fn another_date_is_the_same_head_and_nothing_else_is() {
        let template = template(HEAD);
        assert_eq!(template.body, Some(5));
        assert_eq!(template.matches(HEAD.replace("05:00:00", "06:11:22").as_bytes()), Some(HEAD.len()));
        for other in [
            HEAD.replace("200 OK", "500 OK"),
            HEAD.replace("Length: 5", "Length: 6"),
            HEAD.replace("Sat, 21 Nov 2026 05:00:00 GMT", "Sat, 21 Nov 2026\r\nA: 0:00 GMT"),
            HEAD[..HEAD.len() - 1].to_owned(),
        ] {
            assert_eq!(template.matches(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn without_a_date_every_byte_counts() {
        let template = template("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        assert!(template.matches(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_some());
        assert!(template.matches(b"hTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_none());
    }

    #[test]
    fn bodies_of_unknown_length_are_not_recognised() {
        assert_eq!(template("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").body, None);
        assert_eq!(template("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n").body, None);
    }
}
