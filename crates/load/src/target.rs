//! What a URL says: where to connect to, and what to speak there.

use std::fmt;
use std::path::PathBuf;

/// A mistake in what the user asked for: one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub(crate) String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

pub(crate) fn refuse<T>(reason: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError(reason.into()))
}

/// Where the connections go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `host:port`; an IPv6 address stands in brackets.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// What is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// WebSocket messages that must come back, on connections opened at `path` with `host` in the Host field.
    WebSocket {
        /// Value of the Host field.
        host: String,
        /// Path and query, beginning with `/`.
        path: String,
    },
    /// HTTP/1.1 requests for `path`, with `host` in their Host field.
    Http {
        /// Value of the Host field.
        host: String,
        /// Path and query, beginning with `/`.
        path: String,
    },
    /// Messages of `size` bytes that must come back unchanged.
    Echo {
        /// Bytes a message, its final line feed included.
        size: usize,
    },
    /// Commands of Redis.
    Redis(RedisLoad),
}

/// A command of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// GET: a value or nil.
    Get,
    /// SET: OK.
    Set,
    /// INCR, on keys of its own: an integer.
    Incr,
    /// PING: PONG.
    Ping,
}

impl Command {
    /// The command's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
            Self::Incr => "INCR",
            Self::Ping => "PING",
        }
    }
}

/// Which commands are sent to Redis, on which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisLoad {
    /// Commands, each with its weight.
    pub commands: Vec<(Command, u32)>,
    /// Keys are `key:` and twelve digits, from 0 to one below this number (INCR: `counter:`).
    pub keys: u64,
    /// Bytes of a value that is set.
    pub size: usize,
    /// Keys come in turn; otherwise at random.
    pub in_turn: bool,
}

/// A parsed URL.
///
/// - `http://host[:port]/path`, `https://…` and `http+unix:PATH:/path` (the path of the socket ends at the last `:/`);
/// - `ws://host[:port]/path` and `wss://…`;
/// - `tcp://host:port?size=N`, `tls://…` and `unix:PATH?size=N`: echo of N bytes (1 to 1 GiB; default 1024);
/// - `redis://host[:port]?…` and `redis+unix:PATH?…`, with the options `get=W&set=W&incr=W&ping=W&keys=N&size=N&order=random|turn`:
///   W are weights (default: only GET; a bare name weighs 1), `keys` (1) is the number of keys, `size` (3) the
///   bytes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URL as it was given.
    pub url: String,
    /// Where the connections go.
    pub endpoint: Endpoint,
    /// What is spoken there.
    pub service: Service,
    /// Over TLS, to a server of this name.
    pub tls: Option<String>,
}

/// What a URL can begin with.
const SCHEMES: [&str; 10] = [
    "http://",
    "https://",
    "http+unix:",
    "ws://",
    "wss://",
    "tcp://",
    "tls://",
    "unix:",
    "redis://",
    "redis+unix:",
];

/// Bytes of an echo message when the URL gives no size: the smallest that the usual echo benches send.
const DEFAULT_ECHO_SIZE: usize = 1024;
const MAX_ECHO_SIZE: usize = 1 << 30;

impl Target {
    /// Parse a URL.
    ///
    /// # Errors
    /// An unknown scheme, a missing port, a size out of range, …: one line that names the mistake.
    pub fn parse(url: &str) -> Result<Self, PlanError> {
        if url.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return refuse(format!(
                "the URL {url:?} has a space or a control character in it: encode it as %20"
            ));
        }
        let mut tls = None;
        let (endpoint, service) = if let Some((secure, websocket, rest)) = web_scheme(url) {
            let (endpoint, host, path) = parse_web(url, rest, if secure { 443 } else { 80 })?;
            tls = secure.then(|| without_port(&host).to_owned());
            (
                endpoint,
                if websocket { Service::WebSocket { host, path } } else { Service::Http { host, path } },
            )
        } else if let Some(rest) = url.strip_prefix("http+unix:") {
            parse_http_unix(url, rest)?
        } else if let Some(rest) = url.strip_prefix("tcp://").or_else(|| url.strip_prefix("tls://")) {
            let (authority, options) = split_options(rest);
            let authority = authority.trim_end_matches('/');
            tls = url.starts_with("tls://").then(|| without_port(authority).to_owned());
            (Endpoint::Tcp(host_and_port(url, authority, None)?), parse_echo(url, options)?)
        } else if let Some(rest) = url.strip_prefix("unix:") {
            let (path, options) = split_options(rest);
            (unix_endpoint(url, path)?, parse_echo(url, options)?)
        } else if let Some(rest) = url.strip_prefix("redis://") {
            let (authority, options) = split_options(rest);
            let authority = host_and_port(url, authority.trim_end_matches('/'), Some(6379))?;
            (Endpoint::Tcp(authority), Service::Redis(parse_redis(url, options)?))
        } else if let Some(rest) = url.strip_prefix("redis+unix:") {
            let (path, options) = split_options(rest);
            (unix_endpoint(url, path)?, Service::Redis(parse_redis(url, options)?))
        } else {
            return refuse(format!(
                "cannot load {url:?}: the URL must begin with one of {}",
                SCHEMES.join(" ")
            ));
        };
        Ok(Self { url: url.to_owned(), endpoint, service, tls })
    }

    /// The protocol's name in reports: `http`, `ws`, `tcp`, `tls`, `unix` or `redis`.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match (&self.service, &self.endpoint) {
            (Service::Http { .. }, _) => "http",
            (Service::WebSocket { .. }, _) => "ws",
            (Service::Redis(_), _) => "redis",
            (Service::Echo { .. }, Endpoint::Tcp(_)) if self.tls.is_some() => "tls",
            (Service::Echo { .. }, Endpoint::Tcp(_)) => "tcp",
            (Service::Echo { .. }, Endpoint::Unix(_)) => "unix",
        }
    }
}

/// Whether a URL of the web is secure, and one of a WebSocket; and what follows its scheme.
fn web_scheme(url: &str) -> Option<(bool, bool, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    match scheme {
        "http" => Some((false, false, rest)),
        "https" => Some((true, false, rest)),
        "ws" => Some((false, true, rest)),
        "wss" => Some((true, true, rest)),
        _ => None,
    }
}

/// Where to connect, the value of the Host field, and the path.
fn parse_web(url: &str, rest: &str, port: u16) -> Result<(Endpoint, String, String), PlanError> {
    let rest = rest.split('#').next().unwrap_or(rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let path = match tail.as_bytes().first() {
        None => "/".to_owned(),
        Some(b'?') => format!("/{tail}"),
        Some(_) => tail.to_owned(),
    };
    Ok((Endpoint::Tcp(host_and_port(url, authority, Some(port))?), authority.to_owned(), path))
}

/// The host of `host:port`, without brackets.
fn without_port(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.split(':').next().unwrap_or(authority),
    }
}

fn parse_http_unix(url: &str, rest: &str) -> Result<(Endpoint, Service), PlanError> {
    let (socket, path) = match rest.rfind(":/") {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, "/"),
    };
    Ok((unix_endpoint(url, socket)?, Service::Http { host: "localhost".to_owned(), path: path.to_owned() }))
}

fn parse_echo(url: &str, options: &str) -> Result<Service, PlanError> {
    let mut size = DEFAULT_ECHO_SIZE;
    for (name, value) in pairs(options) {
        match name {
            "size" => size = number(url, "size", value, 1, MAX_ECHO_SIZE)?,
            _ => return refuse(format!("{url:?}: an echo URL has no option {name:?}, only size=N")),
        }
    }
    Ok(Service::Echo { size })
}

/// Keys: the twelve digits of a key's number.
const MAX_KEYS: usize = 999_999_999_999;
/// Bytes of a value that is set: the size that Redis itself allows.
const MAX_VALUE: usize = 512 << 20;

fn parse_redis(url: &str, options: &str) -> Result<RedisLoad, PlanError> {
    // Defaults of redis-benchmark: one key, three bytes.
    let mut load = RedisLoad { commands: Vec::new(), keys: 1, size: 3, in_turn: false };
    let all = [Command::Get, Command::Set, Command::Incr, Command::Ping];
    for (name, value) in pairs(options) {
        let command = all.into_iter().find(|command| command.name().eq_ignore_ascii_case(name));
        match (command, name, value) {
            (Some(command), _, "") => load.commands.push((command, 1)),
            (Some(command), _, _) => {
                load.commands.push((command, number(url, name, value, 1, 1_000_000)? as u32));
            }
            (None, "keys", _) => load.keys = number(url, name, value, 1, MAX_KEYS)? as u64,
            (None, "size", _) => load.size = number(url, name, value, 0, MAX_VALUE)?,
            (None, "order", "random") => load.in_turn = false,
            (None, "order", "turn") => load.in_turn = true,
            (None, "order", _) => return refuse(format!("{url:?}: order must be random or turn")),
            _ => {
                return refuse(format!(
                    "{url:?}: a redis URL has the options get, set, incr, ping, keys, size and order, not {name:?}"
                ));
            }
        }
    }
    if load.commands.is_empty() {
        load.commands.push((Command::Get, 1));
    }
    Ok(load)
}

fn unix_endpoint(url: &str, path: &str) -> Result<Endpoint, PlanError> {
    // sockaddr_un holds 108 bytes, the last of them zero.
    if path.is_empty() || path.len() > 107 {
        return refuse(format!("{url:?}: the path of a Unix socket has 1 to 107 bytes"));
    }
    Ok(Endpoint::Unix(PathBuf::from(path)))
}

/// `host:port`, checked in form; without a port the default is put in, where there is one.
fn host_and_port(url: &str, authority: &str, default: Option<u16>) -> Result<String, PlanError> {
    let after_host = if authority.starts_with('[') {
        authority.find(']').map(|at| at + 1)
    } else {
        Some(authority.find(':').unwrap_or(authority.len()))
    };
    let Some(end) = after_host.filter(|&end| end > 0) else {
        return refuse(format!("{url:?} names no host"));
    };
    if authority.contains('@') {
        return refuse(format!("{url:?}: give credentials in a header, not in the URL"));
    }
    let (host, port) = authority.split_at(end);
    match (port.strip_prefix(':'), default) {
        (None, Some(default)) if port.is_empty() => Ok(format!("{host}:{default}")),
        (Some(digits), _) if digits.parse::<u16>().is_ok_and(|p| p > 0) => Ok(authority.to_owned()),
        (None, None) if port.is_empty() => refuse(format!("{url:?} names no port")),
        _ => refuse(format!("{url:?}: the port must be a number from 1 to 65535")),
    }
}

fn split_options(rest: &str) -> (&str, &str) {
    rest.split_once('?').unwrap_or((rest, ""))
}

fn pairs(options: &str) -> impl Iterator<Item = (&str, &str)> {
    options.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn number(url: &str, name: &str, value: &str, least: usize, most: usize) -> Result<usize, PlanError> {
    match value.parse::<usize>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => refuse(format!("{url:?}: {name} must be a number from {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(host: &str, path: &str) -> Service {
        Service::Http { host: host.to_owned(), path: path.to_owned() }
    }

    fn redis(commands: &[(Command, u32)], keys: u64, size: usize) -> Service {
        Service::Redis(RedisLoad { commands: commands.to_vec(), keys, size, in_turn: false })
    }

    #[test]
    fn every_form_is_read() {
        let cases = [
            ("http://127.0.0.1:8000", Endpoint::Tcp("127.0.0.1:8000".into()), http("127.0.0.1:8000", "/")),
            ("http://name/a?b=1#c", Endpoint::Tcp("name:80".into()), http("name", "/a?b=1")),
            ("http://name?b", Endpoint::Tcp("name:80".into()), http("name", "/?b")),
            ("http://[::1]:81/x", Endpoint::Tcp("[::1]:81".into()), http("[::1]:81", "/x")),
            ("http+unix:/tmp/s:/x:1", Endpoint::Unix("/tmp/s".into()), http("localhost", "/x:1")),
            ("http+unix:/tmp/s", Endpoint::Unix("/tmp/s".into()), http("localhost", "/")),
            ("tcp://h:7?size=100", Endpoint::Tcp("h:7".into()), Service::Echo { size: 100 }),
            ("tcp://h:7/", Endpoint::Tcp("h:7".into()), Service::Echo { size: 1024 }),
            ("redis://h", Endpoint::Tcp("h:6379".into()), redis(&[(Command::Get, 1)], 1, 3)),
            (
                "redis://h:1?set&get=9&keys=50&size=64",
                Endpoint::Tcp("h:1".into()),
                redis(&[(Command::Set, 1), (Command::Get, 9)], 50, 64),
            ),
            ("redis+unix:/s?ping", Endpoint::Unix("/s".into()), redis(&[(Command::Ping, 1)], 1, 3)),
            ("unix:/tmp/s?size=1", Endpoint::Unix("/tmp/s".into()), Service::Echo { size: 1 }),
        ];
        for (url, endpoint, service) in cases {
            let target = Target::parse(url).expect(url);
            assert_eq!((target.endpoint, target.service), (endpoint, service), "{url}");
        }
    }

    #[test]
    fn tls_has_the_name_of_the_host() {
        let read = |url| Target::parse(url).map(|t| (t.endpoint.clone(), t.tls.clone(), t.protocol()));
        let tcp = |at: &str| Endpoint::Tcp(at.to_owned());
        assert_eq!(read("https://h/x"), Ok((tcp("h:443"), Some("h".to_owned()), "http")));
        assert_eq!(read("wss://[::1]:8/x"), Ok((tcp("[::1]:8"), Some("::1".to_owned()), "ws")));
        assert_eq!(read("tls://h:7?size=9"), Ok((tcp("h:7"), Some("h".to_owned()), "tls")));
        assert_eq!(read("ws://h"), Ok((tcp("h:80"), None, "ws")));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("ftp://h/", "must begin with"),
            ("https://h:0/", "port must be"),
            ("http://", "names no host"),
            ("http://:80/", "names no host"),
            ("http://h:0/", "port must be"),
            ("http://h:99999/", "port must be"),
            ("http://[::1/", "names no host"),
            ("http://u@h/", "credentials"),
            ("http://h/a b", "%20"),
            ("http://h/a\r\nX: y", "control"),
            ("tcp://h", "no port"),
            ("tcp://h:1?size=0", "size must be"),
            ("tcp://h:1?sise=5", "no option \"sise\""),
            ("unix:", "1 to 107 bytes"),
            ("redis://h?get=0", "get must be"),
            ("redis://h?del=1", "not \"del\""),
            ("redis://h?order=up", "random or turn"),
        ];
        for (url, part) in cases {
            let error = Target::parse(url).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains('\n'), "{url}: {error}");
        }
    }
}
