//! The Date field's line, written anew once a second (RFC 9110 section 6.6.1).

use std::time::{Duration, Instant, SystemTime};

/// "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", as of the last [`DateLine::refresh`].
#[derive(Debug)]
pub(crate) struct DateLine {
    line: Vec<u8>,
    stale: Instant,
}

impl DateLine {
    pub(crate) fn new(now: Instant) -> Self {
        let mut date = Self { line: Vec::new(), stale: now };
        date.refresh(now);
        date
    }

    /// Write the line anew when the wall clock's second is over.
    pub(crate) fn refresh(&mut self, now: Instant) {
        if now < self.stale {
            return;
        }
        let wall = SystemTime::now();
        self.line.clear();
        self.line.extend_from_slice(format!("date: {}\r\n", httpdate::fmt_http_date(wall)).as_bytes());
        let into_second = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        self.stale = now + Duration::from_nanos(u64::from(1_000_000_000 - into_second));
    }

    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }
}
