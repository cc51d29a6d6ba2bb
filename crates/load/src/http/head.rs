//! The head of an answer, and how its body ends (RFC 9112 section 6.3).

use headrace_http1::BodyLength;

/// Fields of an answer's head; servers send a dozen.
const MAX_FIELDS: usize = 128;

/// A parsed head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the head, the empty line included.
    pub(super) length: usize,
    pub(super) status: u16,
    pub(super) body: BodyLength,
    /// The server closes the connection after the answer.
    pub(super) close: bool,
    /// Where the value of Date stands.
    pub(super) date: Option<std::ops::Range<usize>>,
}

/// Not the head of an HTTP/1 answer, or one with two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Parse the head at the beginning of `input`; `None` when it is not complete. `bodiless`: the request was a
/// HEAD, whose answer has no body whatever its fields say.
pub(super) fn parse(input: &[u8], bodiless: bool) -> Result<Option<Head>, Malformed> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Malformed),
    };
    let status = response.code.ok_or(Malformed)?;
    let mut known = None;
    let mut coding = None;
    let mut date = None;
    let (mut close, mut keep_alive) = (false, false);
    for field in response.headers.iter() {
        let name = field.name;
        if name.eq_ignore_ascii_case("content-length") {
            let value = std::str::from_utf8(field.value).map_err(|_| Malformed)?;
            if known.is_some() || value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
                return Err(Malformed);
            }
            known = Some(value.parse::<u64>().map_err(|_| Malformed)?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if coding.is_some() {
                return Err(Malformed);
            }
            coding = Some(field.value);
        } else if name.eq_ignore_ascii_case("connection") {
            for token in field.value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                close |= token.eq_ignore_ascii_case(b"close");
                keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if name.eq_ignore_ascii_case("date") {
            let start = field.value.as_ptr().addr() - input.as_ptr().addr();
            date = Some(start..start + field.value.len());
        }
    }
    let body = match (coding, known) {
        _ if bodiless || status < 200 || status == 204 || status == 304 => BodyLength::Empty,
        // Both lengths: no reading is certain (RFC 9112 section 6.3, item 3).
        (Some(_), Some(_)) => return Err(Malformed),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => BodyLength::Chunked,
        (Some(_), None) => BodyLength::UntilClose,
        (None, Some(0)) => BodyLength::Empty,
        (None, Some(n)) => BodyLength::Known(n),
        (None, None) => BodyLength::UntilClose,
    };
    let close = close || (response.version == Some(0) && !keep_alive);
    Ok(Some(Head { length, status, body, close, date }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(head: &str, bodiless: bool) -> (BodyLength, bool) {
        let head = parse(head.as_bytes(), bodiless).expect("well-formed").expect("complete");
        (head.body, head.close)
    }

    #[test]
    fn the_body_ends_as_the_rfc_says() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", BodyLength::Known(5), false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", BodyLength::Empty, false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", BodyLength::Chunked, false),
            ("HTTP/1.1 200 OK\r\n\r\n", BodyLength::UntilClose, false),
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
    fn what_has_two_readings_has_none() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            assert_eq!(parse(head.as_bytes(), false), Err(Malformed), "{head}");
        }
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
