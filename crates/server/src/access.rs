//! The access log: a line for each request, gathered in memory and written in batches.
//!
//! A sink that does not keep up (a pipe that nobody reads) never stops the server: lines beyond the buffer are
//! dropped, and counted.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use headrace_engine::socket;
use headrace_http1::Field;

/// Bytes after which lines are written at once: few system calls, and still one write of a page cache's few pages.
const WRITE_AT: usize = 32 * 1024;
/// Bytes of lines that wait for a sink, at the most.
const MOST: usize = 256 * 1024;
/// How long a line waits for others.
const DELAY: Duration = Duration::from_secs(1);
/// Bytes that a pipe takes in one piece or not at all (`PIPE_BUF`), so that workers' lines stay whole.
const PIPE_PIECE: usize = 4096;
/// Bytes of the request line, and of any other of the client's texts, in a line; longer ones are cut. With all the
/// rest a line stays below [`PIPE_PIECE`].
const MOST_OF_REQUEST: usize = 2000;
const MOST_OF_FIELD: usize = 700;
/// Entries kept for the next request.
const MAX_SPARE: usize = 64;

/// The status of a request whose client left before there was any; nginx's.
const CLIENT_LEFT: u16 = 499;

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFormat {
    /// The Common Log Format of NCSA's httpd.
    Common,
    /// The same with referer and user agent, as of Apache and nginx.
    Combined,
    /// One JSON object a line.
    Json,
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(crate) struct Entry {
    started: Instant,
    /// Request line, referer and user agent, escaped.
    text: Vec<u8>,
    request_end: usize,
    referer_end: usize,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
}

/// Where lines go, and those that wait.
#[derive(Debug)]
pub(crate) struct AccessLog {
    sink: File,
    /// A regular file always takes all; anything else is asked first, and gets whole lines in small pieces.
    regular: bool,
    format: AccessFormat,
    lines: Vec<u8>,
    /// When what waits is to be written.
    due: Option<Instant>,
    /// The sink took no more when it was last tried.
    blocked: bool,
    dropped: u64,
    // Boxed on purpose: they move between here and the connections.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Entry>>,
}

impl AccessLog {
    pub(crate) fn new(sink: OwnedFd, format: AccessFormat) -> io::Result<Self> {
        let sink = File::from(sink);
        let regular = sink.metadata()?.is_file();
        Ok(Self {
            sink,
            regular,
            format,
            lines: Vec::new(),
            due: None,
            blocked: false,
            dropped: 0,
            spare: Vec::new(),
        })
    }

    /// Lines that were never written.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// When [`AccessLog::write`] is to be called.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Note a request. `bytes` begin with its head, which need not have been understood.
    pub(crate) fn begin(&mut self, bytes: &[u8], fields: &[Field<'_>], started: Instant) -> Box<Entry> {
        let mut entry = self.spare.pop().unwrap_or_else(|| {
            Box::new(Entry { started, text: Vec::new(), request_end: 0, referer_end: 0, status: 0, bytes: 0 })
        });
        let field = |name: &str| {
            fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map_or(&b""[..], |f| f.value)
        };
        let text = &mut entry.text;
        text.clear();
        self.format.escape(text, first_line(bytes), MOST_OF_REQUEST);
        entry.request_end = text.len();
        if self.format != AccessFormat::Common {
            self.format.escape(text, field("referer"), MOST_OF_FIELD);
            entry.referer_end = text.len();
            self.format.escape(text, field("user-agent"), MOST_OF_FIELD);
        }
        entry.started = started;
        entry.status = 0;
        entry.bytes = 0;
        entry
    }

    /// The request is over: its line joins those that wait.
    ///
    /// `date_line` is the Date field's, "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n": the time of the line.
    pub(crate) fn end(&mut self, entry: Box<Entry>, peer: Option<SocketAddr>, date_line: &[u8]) {
        // The one place that reads the clock by itself: what an application took in one go is between events.
        let now = Instant::now();
        if self.lines.len() > MOST {
            self.dropped += 1;
        } else {
            self.format.line(&mut self.lines, &entry, peer, date_line, now - entry.started);
            if self.due.is_none() {
                self.due = Some(now + DELAY);
            }
            if self.lines.len() >= WRITE_AT && !self.blocked {
                self.write(now);
            }
        }
        if self.spare.len() < MAX_SPARE {
            self.spare.push(entry);
        }
    }

    /// Write what waits, as far as the sink takes it without a wait.
    pub(crate) fn write(&mut self, now: Instant) {
        self.blocked = false;
        let mut written = 0;
        while written < self.lines.len() {
            let rest = &self.lines[written..];
            let piece = if self.regular { rest } else { &rest[..whole_lines(rest)] };
            if !self.regular && !socket::is_writable(&self.sink).unwrap_or(true) {
                self.blocked = true;
                break;
            }
            match self.sink.write(piece) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(_) => {
                    // A full disk, a pipe whose reader has gone: later lines may fare better.
                    self.dropped += rest.iter().filter(|&&byte| byte == b'\n').count() as u64;
                    written = self.lines.len();
                }
            }
        }
        self.lines.drain(..written);
        self.due = self.blocked.then(|| now + DELAY);
    }
}

/// Bytes of as many whole lines as a pipe takes in one piece; of one line at the least.
fn whole_lines(bytes: &[u8]) -> usize {
    let end = |part: &[u8]| part.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
    end(&bytes[..bytes.len().min(PIPE_PIECE)])
        .unwrap_or_else(|| bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1))
}

/// The request line, whatever it is; empty lines before it are passed over (RFC 9112 section 2.2).
fn first_line(bytes: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = bytes.iter().position(|byte| !is_end(byte)).unwrap_or(bytes.len());
    let rest = &bytes[start..];
    &rest[..rest.iter().position(is_end).unwrap_or(rest.len())]
}

impl AccessFormat {
    /// Append what a client sent, so that it can neither end the line nor its quotes, nor talk to a terminal.
    fn escape(self, out: &mut Vec<u8>, text: &[u8], most: usize) {
        let start = out.len();
        let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if text.len() <= most && text.iter().all(plain) {
            return out.extend_from_slice(text);
        }
        let json = self == Self::Json;
        let valid = std::str::from_utf8(text).ok().filter(|_| json);
        // In JSON valid UTF-8 stays readable; a byte that is none is shown as the character of its number.
        let characters: Box<dyn Iterator<Item = char> + '_> = match valid {
            Some(valid) => Box::new(valid.chars()),
            None => Box::new(text.iter().map(|&byte| char::from(byte))),
        };
        for character in characters {
            if out.len() - start + 6 > most {
                return out.extend_from_slice(b"...");
            }
            match character {
                '"' | '\\' if json => out.extend_from_slice(&[b'\\', character as u8]),
                ' '..='~' if character != '"' && character != '\\' => out.push(character as u8),
                '\u{a0}'.. if valid.is_some() && !matches!(character, '\u{2028}' | '\u{2029}') => {
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                other if json => push(out, format_args!("\\u{:04x}", other as u32)),
                other => push(out, format_args!("\\x{:02X}", other as u32)),
            }
        }
    }

    fn line(
        self,
        out: &mut Vec<u8>,
        entry: &Entry,
        peer: Option<SocketAddr>,
        date_line: &[u8],
        took: Duration,
    ) {
        let status = if entry.status == 0 { CLIENT_LEFT } else { entry.status };
        let text = |from: usize, to: usize| match &entry.text[from..to] {
            b"" if self != Self::Json => b"-",
            text => text,
        };
        // "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        let (day, month, year, time) =
            (&date_line[11..13], &date_line[14..17], &date_line[18..22], &date_line[23..31]);
        if self == Self::Json {
            let months = b"JanFebMarAprMayJunJulAugSepOctNovDec";
            let number = months.chunks(3).position(|name| name == month).map_or(0, |at| at + 1);
            out.extend_from_slice(b"{\"time\":\"");
            out.extend_from_slice(year);
            push(out, format_args!("-{number:02}-"));
            join(out, &[day, b"T", time, b"Z\",\"client\":\""]);
            client(out, peer);
            join(out, &[b"\",\"request\":\"", text(0, entry.request_end)]);
            push(
                out,
                format_args!(
                    "\",\"status\":{status},\"bytes\":{},\"duration\":{}.{:06},\"referer\":\"",
                    entry.bytes,
                    took.as_secs(),
                    took.subsec_micros()
                ),
            );
            join(out, &[text(entry.request_end, entry.referer_end), b"\",\"user_agent\":\""]);
            return join(out, &[text(entry.referer_end, entry.text.len()), b"\"}\n"]);
        }
        client(out, peer);
        join(out, &[b" - - [", day, b"/", month, b"/", year, b":", time, b" +0000] \""]);
        out.extend_from_slice(text(0, entry.request_end));
        push(out, format_args!("\" {status} {}", entry.bytes));
        if self == Self::Combined {
            join(out, &[b" \"", text(entry.request_end, entry.referer_end), b"\" \""]);
            join(out, &[text(entry.referer_end, entry.text.len()), b"\""]);
        }
        out.push(b'\n');
    }
}

fn client(out: &mut Vec<u8>, peer: Option<SocketAddr>) {
    match peer {
        Some(peer) => push(out, format_args!("{}", peer.ip().to_canonical())),
        None => out.push(b'-'),
    }
}

fn join(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn push(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a vector takes everything");
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const DATE: &[u8] = b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    fn log(format: AccessFormat) -> (AccessLog, io::PipeReader) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (AccessLog::new(OwnedFd::from(writer), format).expect("a log"), reader)
    }

    fn one(format: AccessFormat, request: &[u8], fields: &[Field<'_>]) -> String {
        let (mut log, mut reader) = log(format);
        let mut entry = log.begin(request, fields, Instant::now());
        (entry.status, entry.bytes) = (200, 12);
        log.end(entry, Some("[::ffff:10.0.0.1]:80".parse().expect("an address")), DATE);
        log.write(Instant::now());
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("the log is UTF-8");
        text
    }

    #[test]
    fn lines_of_each_format() {
        let fields = [
            Field { name: "Referer", value: b"http://a/" },
            Field { name: "user-agent", value: b"curl \"1\"" },
        ];
        let request = b"\r\nGET /x?y HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(
            one(AccessFormat::Common, request, &fields),
            "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /x?y HTTP/1.1\" 200 12\n"
        );
        assert_eq!(
            one(AccessFormat::Combined, request, &fields),
            "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /x?y HTTP/1.1\" 200 12 \"http://a/\" \"curl \\x221\\x22\"\n"
        );
        let json = one(AccessFormat::Json, request, &fields);
        assert!(
            json.starts_with(
                "{\"time\":\"1994-11-06T08:49:37Z\",\"client\":\"10.0.0.1\",\"request\":\"GET /x?y HTTP/1.1\","
            ),
            "{json}"
        );
        assert!(json.ends_with("\"referer\":\"http://a/\",\"user_agent\":\"curl \\\"1\\\"\"}\n"), "{json}");
    }

    #[test]
    fn every_byte_is_harmless_and_long_texts_are_cut() {
        let hostile: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        for format in [AccessFormat::Common, AccessFormat::Combined, AccessFormat::Json] {
            let fields =
                [Field { name: "Referer", value: &hostile }, Field { name: "User-Agent", value: &hostile }];
            let line = one(format, b"\x01\x02\"\\\xff\x1b[2J", &fields);
            assert!(line.len() < PIPE_PIECE);
            assert_eq!(line.matches('\n').count(), 1);
            assert!(line.trim_end().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
        }
        assert!(one(AccessFormat::Json, "ü\u{2028}".as_bytes(), &[]).contains("ü\\u2028"));
    }

    #[test]
    fn a_sink_that_takes_nothing_costs_lines_and_no_time() {
        let (mut log, mut reader) = log(AccessFormat::Common);
        for _ in 0..20_000 {
            let entry = log.begin(b"GET / HTTP/1.1\r\n", &[], Instant::now());
            log.end(entry, None, DATE);
        }
        assert!(log.dropped() > 0);
        assert!(log.lines.len() < MOST + PIPE_PIECE);
        let dropped = log.dropped();
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        while log.due().is_some() {
            log.write(Instant::now());
        }
        drop(log);
        let text = reading.join().expect("no panic").expect("all is read");
        assert_eq!(text.lines().count() as u64 + dropped, 20_000);
        assert!(text.lines().all(|line| line.ends_with("\"GET / HTTP/1.1\" 499 0")));
    }

    #[test]
    fn a_sink_whose_reader_has_gone_is_counted() {
        let (mut log, reader) = log(AccessFormat::Common);
        drop(reader);
        let entry = log.begin(b"GET / HTTP/1.1\r\n", &[], Instant::now());
        log.end(entry, None, DATE);
        assert!(log.due().is_some());
        log.write(Instant::now());
        assert_eq!((log.dropped(), log.due()), (1, None));
    }
}
