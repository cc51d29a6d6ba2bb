//! Requests as bytes, prepared once.

use crate::expectation::Expectation;
use crate::target::{PlanError, refuse};

/// The body of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// None.
    #[default]
    None,
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many bytes of printable text.
    Size(usize),
}

impl Body {
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, PlanError> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Size(size) if *size > MAX_BODY => refuse("the body must be at most 1 GiB"),
            Self::Size(size) => Ok(vec![b'x'; *size]),
        }
    }
}

/// A request as the user gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name in reports; by default method and path.
    pub name: Option<String>,
    /// Path and query; by default the URL's.
    pub path: Option<String>,
    /// How often it is sent, against the weights of the others.
    pub weight: u32,
    /// The method: a token (RFC 9110 section 9.1).
    pub method: String,
    /// Fields as `Name: value`; one named Host, Content-Length or Transfer-Encoding takes the place of what
    /// would be sent otherwise.
    pub headers: Vec<String>,
    /// The body.
    pub body: Body,
    /// What its answers must be.
    pub expectation: Expectation,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            name: None,
            path: None,
            weight: 1,
            method: "GET".to_owned(),
            headers: Vec::new(),
            body: Body::None,
            expectation: Expectation::default(),
        }
    }
}

/// A request as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) bytes: Vec<u8>,
    /// Its answers have no body (HEAD).
    pub(crate) bodiless: bool,
}

/// The largest body: it is held in memory, once for each request that is sent in one piece.
const MAX_BODY: usize = 1 << 30;

impl Request {
    /// What reports call it, with `path` as the URL's path.
    pub(crate) fn label(&self, path: &str) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| format!("{} {}", self.method, self.path.as_deref().unwrap_or(path)))
    }

    /// The bytes of this request at `host`, with `path` as the URL's path. Nothing is added that was not asked for but Host and,
    /// where there is a body or the method suggests one, Content-Length.
    pub(crate) fn prepare(&self, host: &str, path: &str) -> Result<Prepared, PlanError> {
        if !is_token(&self.method) {
            return refuse(format!("{:?} is not an HTTP method", self.method));
        }
        let path = self.path.as_deref().unwrap_or(path);
        if !path.starts_with('/') || path.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return refuse(format!(
                "the path {path:?} must begin with / and have no spaces: encode them as %20"
            ));
        }
        let body = self.body.bytes()?;
        let mut bytes = format!("{} {path} HTTP/1.1\r\n", self.method).into_bytes();
        let mut own = (false, false);
        let mut fields = Vec::new();
        for line in &self.headers {
            let (name, value) = split_field(line)?;
            own.0 |= name.eq_ignore_ascii_case("host");
            own.1 |= name.eq_ignore_ascii_case("content-length");
            own.1 |= name.eq_ignore_ascii_case("transfer-encoding");
            fields.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if !own.0 {
            bytes.extend_from_slice(format!("Host: {host}\r\n").as_bytes());
        }
        bytes.extend_from_slice(&fields);
        let expected = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        if !own.1 && (self.body != Body::None || expected) {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&body);
        Ok(Prepared { bytes, bodiless: self.method == "HEAD" })
    }
}

fn split_field(line: &str) -> Result<(&str, &str), PlanError> {
    let Some((name, value)) = line.split_once(':') else {
        return refuse(format!("the header {line:?} has no colon: write 'Name: value'"));
    };
    let value = value.trim_matches([' ', '\t']);
    if !is_token(name) {
        return refuse(format!("{name:?} cannot be the name of a header"));
    }
    if value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 0x7f) {
        return refuse(format!("the value of the header {name:?} has a control character in it"));
    }
    Ok((name, value))
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(request: &Request) -> String {
        String::from_utf8(request.prepare("h:80", "/p?q").expect("good").bytes).expect("ASCII")
    }

    #[test]
    fn a_plain_request_has_a_host_and_nothing_else() {
        assert_eq!(text(&Request::default()), "GET /p?q HTTP/1.1\r\nHost: h:80\r\n\r\n");
    }

    #[test]
    fn fields_and_bodies_are_put_in() {
        let request = Request {
            method: "POST".into(),
            headers: vec!["X-A:  b c ".into(), "HOST: other".into()],
            body: Body::Size(3),
            ..Request::default()
        };
        let expected = "POST /p?q HTTP/1.1\r\nX-A: b c\r\nHOST: other\r\nContent-Length: 3\r\n\r\nxxx";
        assert_eq!(text(&request), expected);
        let empty = Request { method: "PUT".into(), ..Request::default() };
        assert!(text(&empty).contains("Content-Length: 0\r\n"));
    }

    #[test]
    fn nonsense_is_refused() {
        let bad = |method: &str, header: &str| {
            let headers = vec![header.to_owned()];
            Request { method: method.into(), headers, ..Request::default() }.prepare("h", "/").is_err()
        };
        assert!(!bad("GET", "A: b"));
        assert!(bad("", "A: b") && bad("GET /", "A: b") && bad("GET", "A") && bad("GET", ": b"));
        let path = |path: &str| Request { path: Some(path.into()), ..Request::default() };
        assert!(path("/a").prepare("h", "/").is_ok());
        assert!(path("a").prepare("h", "/").is_err() && path("/a b").prepare("h", "/").is_err());
        assert!(bad("GET", "A b: c") && bad("GET", "A: b\r\nC: d") && bad("GET", "A: \0"));
    }
}
