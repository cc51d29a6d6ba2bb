//! Writing: to OpenSSL at once, and what it makes of it to the transport, which sends it with all else that the
//! running callback writes.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use super::super::channel_of;
use super::super::write::{snapshot, write as write_to_transport};
use super::read::is_wrapped;
use super::session::{Outcome, TlsSession};
use super::{report, session_of};
use crate::ffi::fastcall::{Args, FastMethod, install as install_method};

pub(super) fn install(transport: &Bound<'_, PyType>) -> PyResult<()> {
    install_method::<Write>(transport)?;
    install_method::<WriteLines>(transport)
}

/// `SSLProtocol._do_write` if something waits to be encrypted; whether it does.
pub(super) fn send_backlog(protocol: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = protocol.py();
    let waits = protocol.getattr(pyo3::intern!(py, "_write_backlog"))?.is_truthy()?;
    if waits {
        protocol.call_method0(pyo3::intern!(py, "_do_write"))?;
    }
    Ok(waits)
}

/// `SSLProtocol._process_outgoing`.
pub(super) fn process_outgoing(protocol: &Bound<'_, PyAny>, session: &TlsSession) -> PyResult<()> {
    let py = protocol.py();
    let mut unsent = session.unsent(py)?;
    if unsent > 0 && !protocol.getattr(pyo3::intern!(py, "_ssl_writing_paused"))?.is_truthy()? {
        pass_on(protocol, session)?;
        unsent = 0;
    }
    // With nothing to send there is no reason to pause, unless somebody has set the limit to nothing.
    let look = unsent > 0
        || protocol.getattr(pyo3::intern!(py, "_app_writing_paused"))?.is_truthy()?
        || !protocol.getattr(pyo3::intern!(py, "_outgoing_high_water"))?.is_truthy()?
        || protocol.getattr(pyo3::intern!(py, "_write_buffer_size"))?.is_truthy()?;
    if look {
        protocol.call_method0(pyo3::intern!(py, "_control_app_writing"))?;
    }
    Ok(())
}

/// Give the transport what OpenSSL has encrypted.
fn pass_on(protocol: &Bound<'_, PyAny>, session: &TlsSession) -> PyResult<()> {
    let py = protocol.py();
    let data = session.take_outgoing(py)?;
    let transport = protocol.getattr(pyo3::intern!(py, "_transport"))?;
    let channel = channel_of(transport.as_borrowed())?;
    write_to_transport(&transport, channel.get(), data.as_borrowed())
}

/// The protocol and session of `transport`, if what is written can go to OpenSSL now.
fn open<'py>(
    transport: Borrowed<'_, 'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, TlsSession>)>> {
    let py = transport.py();
    let protocol = transport.getattr(pyo3::intern!(py, "_ssl_protocol"))?;
    if protocol.is_none() {
        return Ok(None);
    }
    let session = session_of(&protocol)?;
    let open = session.get().flows(py)?
        || is_wrapped(&protocol)? && !protocol.getattr(pyo3::intern!(py, "_write_backlog"))?.is_truthy()?;
    Ok(open.then_some((protocol, session)))
}

/// `SSLProtocol._write_appdata`, where nothing waits before `data`.
fn write_data(protocol: &Bound<'_, PyAny>, session: &TlsSession, data: &Bound<'_, PyBytes>) -> PyResult<()> {
    let py = protocol.py();
    let length = data.as_bytes().len();
    let count = match session.encrypt(data)? {
        Outcome::Done(count) if count == length && session.flows(py)? => return pass_on(protocol, session),
        Outcome::Done(count) => count,
        Outcome::Again => 0,
    };
    if count < length {
        let rest = if count == 0 { data.clone() } else { PyBytes::new(py, &data.as_bytes()[count..]) };
        protocol.getattr(pyo3::intern!(py, "_write_backlog"))?.call_method1("append", (rest,))?;
        let size = pyo3::intern!(py, "_write_buffer_size");
        protocol.setattr(size, protocol.getattr(size)?.add(length - count)?)?;
    }
    process_outgoing(protocol, session)
}

/// Call asyncio's own method.
fn plain<'py>(
    slf: Borrowed<'_, 'py, PyAny>,
    name: &CStr,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static PLAIN: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = slf.py();
    let class = PLAIN.import(py, "asyncio.sslproto", "_SSLProtocolTransport")?;
    class.as_any().call_method1(name.to_string_lossy().as_ref(), (slf, argument))
}

struct Write;

impl FastMethod for Write {
    const NAME: &'static CStr = c"write";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let [Some(data)] = args.bind("write", ["data"], 1)? else { unreachable!("it is required") };
        // What is no bytes, or a view that OpenSSL cannot take, fails as it does in asyncio.
        let Ok(data) = snapshot(data) else { return plain(slf, Self::NAME, &data) };
        if data.as_bytes().is_empty() {
            return Ok(py.None().into_bound(py));
        }
        let Some((protocol, session)) = open(slf)? else { return plain(slf, Self::NAME, &data) };
        report(&protocol, write_data(&protocol, session.get(), &data))?;
        Ok(py.None().into_bound(py))
    }
}

struct WriteLines;

impl FastMethod for WriteLines {
    const NAME: &'static CStr = c"writelines";

    /// As one write of all pieces, so that they share records.
    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let [Some(pieces)] = args.bind("writelines", ["list_of_data"], 1)? else {
            unreachable!("it is required")
        };
        // Pieces are gone through once, whatever they are an iterable of.
        let pieces = pieces.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let pieces = pyo3::types::PyList::new(py, pieces)?.into_any();
        let joined = PyBytes::new(py, b"").call_method1(pyo3::intern!(py, "join"), (&pieces,));
        let Some(joined) = joined.ok().and_then(|joined| joined.cast_into::<PyBytes>().ok()) else {
            return plain(slf, Self::NAME, &pieces);
        };
        if joined.as_bytes().is_empty() {
            return Ok(py.None().into_bound(py));
        }
        let Some((protocol, session)) = open(slf)? else {
            let one = pyo3::types::PyList::new(py, [joined])?.into_any();
            return plain(slf, Self::NAME, &one);
        };
        report(&protocol, write_data(&protocol, session.get(), &joined))?;
        Ok(py.None().into_bound(py))
    }
}
