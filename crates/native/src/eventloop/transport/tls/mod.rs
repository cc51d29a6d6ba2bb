//! TLS over the stream transport.
//!
//! The protocol is `headrace.tls.SSLProtocol`, a subclass of `asyncio.sslproto.SSLProtocol` that adds nothing to
//! it: its attributes are the only state, and handshake, shutdown, timeouts and errors are asyncio's own. What
//! runs for each message is here: received bytes go from the loop's buffer to OpenSSL and what it decrypts to the
//! application; what the application writes goes to OpenSSL and what it encrypts to the transport.
//!
//! OpenSSL is called directly on the objects that `_ssl` has made (see `ffi::openssl`); where its functions are not
//! to be had, by the C methods of `_ssl._SSLSocket` and `ssl.MemoryBIO`. Reading ends when nothing is left, not with
//! an exception that says so.

mod read;
mod session;
mod write;

use std::sync::OnceLock;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::ffi::openssl;

pub(super) use self::read::ready;
pub(in super::super) use self::session::TlsSession;

/// What `asyncio.sslproto` says of an error while it reads or writes.
const FATAL: &str = "Fatal error on SSL protocol";

/// `headrace.tls.SSLTransport`.
static TRANSPORT: OnceLock<Py<PyType>> = OnceLock::new();

/// Give `headrace.tls.SSLProtocol` and `SSLTransport` their native methods; to be called once in a process.
///
/// `find` gives the address of a function of the OpenSSL that `_ssl` is linked to, 0 where that cannot be found or
/// this CPython's objects are not known.
#[pyfunction]
pub(in super::super) fn _define_tls(
    protocol: &Bound<'_, PyType>,
    transport: &Bound<'_, PyType>,
    find: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let mut addresses = [0; openssl::FUNCTIONS.len()];
    for (address, name) in addresses.iter_mut().zip(openssl::FUNCTIONS) {
        *address = find.call1((name,))?.extract()?;
    }
    openssl::load(addresses);
    if TRANSPORT.set(transport.clone().unbind()).is_err() {
        return Err(PyTypeError::new_err("the TLS transport class is defined already"));
    }
    read::install(protocol)?;
    write::install(transport)
}

/// Whether `transport` is a TLS transport of ours.
fn is_ours(transport: Borrowed<'_, '_, PyAny>) -> bool {
    TRANSPORT.get().is_some_and(|class| transport.get_type().is(class))
}

/// The session of one of our protocols.
///
/// The transport does not refer to it: the application may keep that for longer than the connection lives.
fn session_of<'py>(protocol: &Bound<'py, PyAny>) -> PyResult<Bound<'py, TlsSession>> {
    Ok(protocol.getattr(pyo3::intern!(protocol.py(), "_session"))?.cast_into()?)
}

/// Whether `transport` is a TLS transport of ours under a native stream, to which may be written without waiting.
pub(in super::super) fn is_flowing(transport: Borrowed<'_, '_, PyAny>) -> PyResult<bool> {
    let py = transport.py();
    if !is_ours(transport) {
        return Ok(false);
    }
    let protocol = transport.getattr(pyo3::intern!(py, "_ssl_protocol"))?;
    if protocol.is_none() {
        return Ok(false);
    }
    let session = session_of(&protocol)?;
    Ok(session.get().flows(py)? && session.get().feeds_well())
}

/// `SSLProtocol._fatal_error` for what asyncio catches there; other errors go on.
fn report(protocol: &Bound<'_, PyAny>, outcome: PyResult<()>) -> PyResult<()> {
    let py = protocol.py();
    match outcome {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            protocol.call_method1(pyo3::intern!(py, "_fatal_error"), (error.into_value(py), FATAL)).map(drop)
        }
        other => other,
    }
}
