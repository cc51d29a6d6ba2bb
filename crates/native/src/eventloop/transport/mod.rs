//! The TCP and Unix stream transport.
//!
//! The Python object is `headrace.transport.SocketTransport`, a class with slots in the family of
//! `asyncio.Transport`; its slot `_channel` holds the native half, a [`Channel`], and its hot methods are
//! native. What happens once in a connection's life is Python, in that class.
//!
//! The loop refers to a transport only while it waits for its descriptor, or holds writes of the running
//! callback: as in asyncio, one that is neither can be collected, and warns when it is.

mod channel;
mod methods;
mod read;
mod stream;
mod tls;
mod write;

use std::sync::OnceLock;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

pub(super) use self::channel::Channel;
pub(super) use self::stream::Want;
pub(super) use self::tls::{_define_tls, TlsSession, is_flowing as tls_is_flowing};
pub(super) use self::write::{flush_transport, write};
use super::core::LoopCore;
use crate::ffi::slot::SlotOffset;

/// The transport class and the place of its channel.
struct Class {
    _class: Py<PyType>,
    channel: SlotOffset,
}

static CLASS: OnceLock<Class> = OnceLock::new();

/// Give `class` its native methods. It must define the slot `_channel`; only one class in a process does.
#[pyfunction]
pub(super) fn _define_transport(class: &Bound<'_, PyType>) -> PyResult<()> {
    let channel = SlotOffset::find(class, "_channel")?;
    if CLASS.set(Class { _class: class.clone().unbind(), channel }).is_err() {
        return Err(PyTypeError::new_err("the transport class is defined already"));
    }
    methods::install(class)
}

/// The native half of a transport, if `transport` is one of ours and open enough to have one.
pub(super) fn channel_of<'a, 'py>(
    transport: Borrowed<'a, 'py, PyAny>,
) -> PyResult<Borrowed<'a, 'py, Channel>> {
    let class = CLASS.get().ok_or_else(|| PyTypeError::new_err("no transport class is defined"))?;
    let Some(channel) = class.channel.read(transport) else {
        return Err(PyTypeError::new_err("not a Headrace transport, or one that was never opened"));
    };
    Ok(channel.cast::<Channel>()?)
}

/// The descriptor of a transport is ready.
pub(super) fn ready(core: &LoopCore, transport: &Bound<'_, PyAny>, read: bool, write: bool) -> PyResult<()> {
    let channel = channel_of(transport.as_borrowed())?.to_owned();
    if read {
        read::ready(core, transport, channel.get())?;
    }
    // The reader may have closed it, or paused: what is wanted is looked at anew.
    if write && channel.get().awaits_writing() {
        write::ready(transport, channel.get())?;
    }
    Ok(())
}
