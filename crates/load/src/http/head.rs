//! The head of an answer, with what recognising the next one needs.

use std::ops::Range;

use headrace_http1::{BodyLength, FieldSlots, Limits, Reject, RequestContext, parse_response};

/// Bytes and fields of an answer's head; curl allows 300 KB, hyper 400 KB, servers send far less.
const LIMITS: Limits = Limits { head: 256 * 1024, target: 0, fields: 256 };

/// A parsed head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the head, the empty line included.
    pub(super) length: usize,
    pub(super) status: u16,
    /// The final answer to the same request comes behind this one.
    pub(super) interim: bool,
    pub(super) body: BodyLength,
    /// The connection carries no other request after the answer.
    pub(super) close: bool,
    /// Where the value of Date stands.
    pub(super) date: Option<Range<usize>>,
}

/// Parse the head at the beginning of `input`; `None` when it is not complete. `bodiless`: the request was a
/// HEAD.
pub(super) fn parse(input: &[u8], bodiless: bool) -> Result<Option<Head>, Reject> {
    let mut slots = FieldSlots::new();
    let request = RequestContext { head_request: bodiless };
    let Some(head) = parse_response(input, &mut slots, &LIMITS, &request)? else { return Ok(None) };
    let date = head.fields.iter().find(|field| field.name.eq_ignore_ascii_case("date")).map(|field| {
        let start = field.value.as_ptr().addr() - input.as_ptr().addr();
        start..start + field.value.len()
    });
    Ok(Some(Head {
        length: head.length,
        status: head.status,
        interim: head.is_interim(),
        body: head.body,
        close: !head.keep_alive,
        date,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(head: &str, bodiless: bool) -> (BodyLength, bool) {
        let head = parse(head.as_bytes(), bodiless).expect("well-formed").expect("complete");
        (head.body, head.close)
    }

    #[test]
    fn the_parts_that_load_needs_are_taken_over() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", BodyLength::Known(5), false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", BodyLength::Empty, false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", BodyLength::Chunked, false),
            ("HTTP/1.1 200 OK\r\n\r\n", BodyLength::UntilClose, true),
            ("HTTP/1.1 204 No Content\r\n\r\n", BodyLength::Empty, false),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", BodyLength::Empty, false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", BodyLength::Known(5), true),
            (
                "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n",
                BodyLength::Known(5),
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 5\r\n\r\n",
                BodyLength::Known(5),
                true,
            ),
        ];
        for (head, length, close) in cases {
            assert_eq!(body(head, false), (length, close), "{head}");
        }
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true), (BodyLength::Empty, false));
    }

    #[test]
    fn every_beginning_of_a_head_is_incomplete() {
        let head = "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 05:00:00 GMT\r\nContent-Length: 5\r\n\r\n";
        for end in 0..head.len() {
            assert_eq!(parse(&head.as_bytes()[..end], false), Ok(None), "{end}");
        }
        let parsed = parse(head.as_bytes(), false).expect("well-formed").expect("complete");
        assert_eq!(&head[parsed.date.expect("a date")], "Sat, 21 Nov 2026 05:00:00 GMT");
        assert_eq!(parsed.length, head.len());
    }
}
