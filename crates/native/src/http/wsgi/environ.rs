//! The environ of a request (PEP 3333, "environ Variables"; RFC 3875 section 4.1).

use std::cell::RefCell;
use std::net::SocketAddr;

use headrace_server::ConnectionInfo;
use headrace_server::http1::{RequestHead, Version};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::http::asgi::{method, unescaped};
use crate::http::names::Names;

/// What environs are made of.
pub(super) struct Environs {
    names: Names<PyString>,
    /// An environ for each listener, complete but for what differs from request to request.
    templates: RefCell<Vec<Py<PyDict>>>,
    /// The client of each connection, by slot.
    clients: RefCell<Vec<Client>>,
}

/// `REMOTE_ADDR` and `REMOTE_PORT` of a connection.
struct Client {
    serial: u32,
    address: Py<PyString>,
    port: Py<PyString>,
}

impl Environs {
    pub(super) fn new(py: Python<'_>) -> Self {
        Self { names: Names::wsgi(py), templates: RefCell::default(), clients: RefCell::default() }
    }

    pub(super) fn add_template(&self, template: Py<PyDict>) {
        self.templates.borrow_mut().push(template);
    }

    /// A new environ, complete but for `wsgi.input`.
    pub(super) fn make<'py>(
        &self,
        py: Python<'py>,
        head: &RequestHead<'_, '_>,
        from: &ConnectionInfo,
    ) -> PyResult<Bound<'py, PyDict>> {
        let environ = self.templates.borrow()[from.listener].bind(py).copy()?;
        if head.method != "GET" {
            environ.set_item(intern!(py, "REQUEST_METHOD"), method(py, head.method))?;
        }
        if head.version == Version::Http10 {
            environ.set_item(intern!(py, "SERVER_PROTOCOL"), intern!(py, "HTTP/1.0"))?;
        }
        environ.set_item(intern!(py, "PATH_INFO"), latin1_unescaped(py, head.target.path))?;
        if !head.target.query.is_empty() {
            environ.set_item(intern!(py, "QUERY_STRING"), latin1(py, head.target.query))?;
        }
        for field in head.fields {
            let Some(name) = self.names.get(py, field.name) else { continue };
            let value = latin1(py, field.value);
            match environ.get_item(&name)? {
                None => environ.set_item(name, value)?,
                // RFC 3875 section 4.1.18: several fields of one name are one variable.
                Some(before) => {
                    let separator = if field.name.eq_ignore_ascii_case("cookie") { "; " } else { "," };
                    environ.set_item(name, format!("{before}{separator}{value}"))?;
                }
            }
        }
        if let Some(host) = head.implied_host() {
            environ.set_item(intern!(py, "HTTP_HOST"), latin1(py, host))?;
        }
        if let Some(peer) = from.peer {
            let (address, port) = self.client(py, from, peer);
            environ.set_item(intern!(py, "REMOTE_ADDR"), address)?;
            environ.set_item(intern!(py, "REMOTE_PORT"), port)?;
        }
        Ok(environ)
    }

    fn client<'py>(
        &self,
        py: Python<'py>,
        from: &ConnectionInfo,
        peer: SocketAddr,
    ) -> (Bound<'py, PyString>, Bound<'py, PyString>) {
        let mut clients = self.clients.borrow_mut();
        if clients.get(from.slot).is_none_or(|client| client.serial != from.serial) {
            let nobody = || intern!(py, "").clone().unbind();
            while clients.len() <= from.slot {
                clients.push(Client { serial: 0, address: nobody(), port: nobody() });
            }
            clients[from.slot] = Client {
                serial: from.serial,
                address: PyString::new(py, &peer.ip().to_string()).unbind(),
                port: PyString::new(py, &peer.port().to_string()).unbind(),
            };
        }
        let client = &clients[from.slot];
        (client.address.bind(py).clone(), client.port.bind(py).clone())
    }
}

/// Bytes as the string of the same code points, as PEP 3333 has them.
pub(crate) fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && bytes.is_ascii()
    {
        return PyString::new(py, text);
    }
    PyString::new(py, &bytes.iter().copied().map(char::from).collect::<String>())
}

fn latin1_unescaped<'py>(py: Python<'py>, raw: &[u8]) -> Bound<'py, PyString> {
    if raw.contains(&b'%') { latin1(py, &unescaped(raw)) } else { latin1(py, raw) }
}
