//! Field names as the two interfaces want them, made once: `b"accept"` for ASGI, `"HTTP_ACCEPT"` for WSGI.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// Names that browsers, proxies and HTTP libraries send. Any other name works too, at the price of an object.
const COMMON: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    "access-control-request-method",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "dnt",
    "expect",
    "forwarded",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "origin",
    "pragma",
    "priority",
    "range",
    "referer",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "x-api-key",
    "x-csrf-token",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
    "x-requested-with",
];

/// A power of two, large enough for few collisions among the names above.
const BUCKETS: usize = 256;

/// Common names, found by length, first and last letter.
pub(crate) struct Names<T> {
    buckets: Vec<Vec<(&'static str, Py<T>)>>,
}

fn bucket(name: &str) -> usize {
    let bytes = name.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return 0 };
    let middle = bytes[bytes.len() / 2] | 0x20;
    (bytes.len() * 31 + usize::from(first | 0x20) * 7 + usize::from(last | 0x20) * 3 + usize::from(middle))
        % BUCKETS
}

impl<T> Names<T> {
    fn new(make: impl Fn(&'static str) -> Py<T>) -> Self {
        let mut buckets: Vec<Vec<_>> = (0..BUCKETS).map(|_| Vec::new()).collect();
        for name in COMMON {
            buckets[bucket(name)].push((*name, make(name)));
        }
        Self { buckets }
    }

    fn find(&self, name: &str) -> Option<&Py<T>> {
        self.buckets[bucket(name)]
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, object)| object)
    }
}

impl Names<PyBytes> {
    /// Lower-case names as bytes.
    pub(crate) fn asgi(py: Python<'_>) -> Self {
        Self::new(|name| PyBytes::new(py, name.as_bytes()).unbind())
    }

    /// `name` in lower case.
    pub(crate) fn get<'py>(&self, py: Python<'py>, name: &str) -> Bound<'py, PyBytes> {
        match self.find(name) {
            Some(known) => known.bind(py).clone(),
            None => PyBytes::new(py, name.to_ascii_lowercase().as_bytes()),
        }
    }
}

impl Names<PyString> {
    /// CGI variables (RFC 3875 section 4.1.18, PEP 3333).
    pub(crate) fn wsgi(py: Python<'_>) -> Self {
        Self::new(|name| PyString::intern(py, &cgi_variable(name)).unbind())
    }

    /// The variable that holds the field `name`; `None` for a name with an underscore, which would pass for
    /// one with a hyphen in its place (a known way to forge what a proxy sets).
    pub(crate) fn get<'py>(&self, py: Python<'py>, name: &str) -> Option<Bound<'py, PyString>> {
        match self.find(name) {
            Some(known) => Some(known.bind(py).clone()),
            None if name.contains('_') => None,
            None => Some(PyString::new(py, &cgi_variable(name))),
        }
    }
}

fn cgi_variable(name: &str) -> String {
    let upper = name.to_ascii_uppercase().replace('-', "_");
    match upper.as_str() {
        "CONTENT_TYPE" | "CONTENT_LENGTH" => upper,
        _ => format!("HTTP_{upper}"),
    }
}
