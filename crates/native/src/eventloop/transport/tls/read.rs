//! Reading: one `recv` into the loop's buffer, then all that OpenSSL makes of it, at once.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use super::super::super::core::LoopCore;
use super::super::channel::Channel;
use super::super::read::{Received, ended, failed, fill};
use super::super::stream;
use super::session::{Decrypted, TlsSession};
use super::write::{process_outgoing, send_backlog};
use super::{report, session_of};
use crate::ffi::fastcall::{Args, FastMethod, install as install_method};

pub(super) fn install(protocol: &Bound<'_, PyType>) -> PyResult<()> {
    install_method::<DoReadCopied>(protocol)
}

/// Whether the handshake is done and shutdown has not begun.
pub(super) fn is_wrapped(protocol: &Bound<'_, PyAny>) -> PyResult<bool> {
    static WRAPPED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = protocol.py();
    let wrapped = WRAPPED.get_or_try_init(py, || {
        let states = py.import("asyncio.sslproto")?.getattr("SSLProtocolState")?;
        states.getattr("WRAPPED").map(Bound::unbind)
    })?;
    Ok(protocol.getattr(pyo3::intern!(py, "_state"))?.is(wrapped))
}

/// Readiness to read of the transport under `session`. Runs in the connection's context.
pub(in super::super) fn ready(
    core: &LoopCore,
    transport: &Bound<'_, PyAny>,
    channel: &Channel,
    session: &TlsSession,
) -> PyResult<()> {
    let py = transport.py();
    let Some(protocol) = channel.protocol(py) else { return Ok(()) };
    // Out of its cell, as wherever Python's objects are called.
    let mut buffer = core.read_buffer.take();
    let outcome = fill(&mut buffer, channel.fd);
    let taken = if let Ok(1..) = outcome { session.receive(py, &buffer) } else { Ok(()) };
    core.read_buffer.replace(buffer);
    match outcome {
        Ok(0) => return ended(transport, channel),
        Ok(_) => {}
        Err(error) => {
            return match failed(py, error) {
                Received::Failed(error) => {
                    channel.fatal_error(transport, error, "Fatal read error on socket transport")
                }
                _ => Ok(()),
            };
        }
    }
    match taken.and_then(|()| arrived(&protocol, session)) {
        Ok(()) => Ok(()),
        Err(error) => {
            channel.fatal_error(transport, error, "Fatal error: protocol.buffer_updated() call failed.")
        }
    }
}

/// `SSLProtocol.buffer_updated`, after the bytes have gone to OpenSSL.
fn arrived(protocol: &Bound<'_, PyAny>, session: &TlsSession) -> PyResult<()> {
    let py = protocol.py();
    if session.flows(py)? {
        return report(protocol, do_read_flowing(protocol, session));
    }
    let usual =
        is_wrapped(protocol)? && !protocol.getattr(pyo3::intern!(py, "_app_reading_paused"))?.is_truthy()?;
    if usual {
        return report(protocol, do_read(protocol, session));
    }
    protocol.call_method0(pyo3::intern!(py, "_bytes_arrived")).map(drop)
}

/// `SSLProtocol._do_read`, where data flows.
fn do_read_flowing(protocol: &Bound<'_, PyAny>, session: &TlsSession) -> PyResult<()> {
    let py = protocol.py();
    let decrypted = session.decrypt(py)?;
    hand_out(protocol, session, &decrypted)?;
    if session.flows(py)? && session.unsent(py)? == 0 {
        return Ok(());
    }
    settle(protocol, session)
}

/// `SSLProtocol._do_read`, where the application reads.
fn do_read(protocol: &Bound<'_, PyAny>, session: &TlsSession) -> PyResult<()> {
    let py = protocol.py();
    if protocol.getattr(pyo3::intern!(py, "_app_protocol_is_buffer"))?.is_truthy()? {
        protocol.call_method0(pyo3::intern!(py, "_do_read__buffered"))?;
    } else {
        do_read_copied(protocol, session)?;
    }
    settle(protocol, session)
}

/// The end of `SSLProtocol._do_read`: send what reading has brought about, and look at the limits.
fn settle(protocol: &Bound<'_, PyAny>, session: &TlsSession) -> PyResult<()> {
    let py = protocol.py();
    if !send_backlog(protocol)? {
        process_outgoing(protocol, session)?;
    }
    // With nothing unread there is no reason to pause, unless somebody has set the limit to nothing.
    let look = session.unread(py)? > 0
        || protocol.getattr(pyo3::intern!(py, "_ssl_reading_paused"))?.is_truthy()?
        || !protocol.getattr(pyo3::intern!(py, "_incoming_high_water"))?.is_truthy()?;
    if look {
        protocol.call_method0(pyo3::intern!(py, "_control_ssl_reading"))?;
    }
    Ok(())
}

fn do_read_copied(protocol: &Bound<'_, PyAny>, session: &TlsSession) -> PyResult<()> {
    let decrypted = session.decrypt(protocol.py())?;
    hand_out(protocol, session, &decrypted)
}

fn hand_out(protocol: &Bound<'_, PyAny>, session: &TlsSession, decrypted: &Decrypted<'_>) -> PyResult<()> {
    let py = protocol.py();
    if !decrypted.data.as_bytes().is_empty() {
        deliver(protocol, session, &decrypted.data)?;
    }
    if decrypted.ended {
        protocol.call_method0(pyo3::intern!(py, "_call_eof_received"))?;
        protocol.call_method0(pyo3::intern!(py, "_start_shutdown"))?;
    }
    Ok(())
}

fn deliver(protocol: &Bound<'_, PyAny>, session: &TlsSession, data: &Bound<'_, PyBytes>) -> PyResult<()> {
    let py = protocol.py();
    if let Some((reader, state)) = session.reader(py) {
        let state = state.get();
        if stream::hand_over(state, data)? || stream::feed(&reader, state, data.as_bytes())? {
            return Ok(());
        }
    }
    protocol
        .getattr(pyo3::intern!(py, "_app_protocol"))?
        .call_method1(pyo3::intern!(py, "data_received"), (data,))
        .map(drop)
}

struct DoReadCopied;

impl FastMethod for DoReadCopied {
    const NAME: &'static CStr = c"_do_read__copied";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, _: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let session = session_of(&slf)?;
        do_read_copied(&slf, session.get())?;
        Ok(py.None().into_bound(py))
    }
}
