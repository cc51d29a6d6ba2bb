//! Native `write` and `drain` of a stream writer.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use super::transport;
use crate::ffi::fastcall::{Args, FastMethod, install as install_method};
use crate::ffi::operation;
use crate::ffi::property;

static PLAIN_WRITER: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Give `class`, a subclass of `asyncio.StreamWriter` without slots of its own, native methods.
#[pyfunction]
pub(super) fn _define_writer(class: &Bound<'_, PyType>) -> PyResult<()> {
    install_method::<Write>(class)?;
    install_method::<Drain>(class)
}

struct Write;

impl FastMethod for Write {
    const NAME: &'static CStr = c"write";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let [Some(data)] = args.bind("write", ["data"], 1)? else { unreachable!("it is required") };
        let inner = transport_of(slf)?;
        match transport::channel_of(inner.as_borrowed()) {
            Ok(channel) => transport::write(&inner, channel.get(), data)?,
            Err(_) => {
                inner.call_method1(pyo3::intern!(py, "write"), (data,))?;
            }
        }
        Ok(py.None().into_bound(py))
    }
}

struct Drain;

impl FastMethod for Drain {
    const NAME: &'static CStr = c"drain";

    /// Where nothing is to be waited for or raised, what is returned completes at once. Otherwise asyncio's own.
    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        args.bind("drain", [], 0)?;
        if flowing(slf)? {
            return operation::completed(py);
        }
        let class = PLAIN_WRITER.import(py, "asyncio", "StreamWriter")?;
        class.as_any().call_method1("drain", (slf,))
    }
}

/// The transport of a writer: its own attribute, which the class does not define.
fn transport_of<'py>(writer: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let name = pyo3::intern!(writer.py(), "_transport");
    match property::own(writer)?.get_item(name)? {
        Some(transport) => Ok(transport),
        None => writer.getattr(name),
    }
}

/// Whether reader, transport and protocol are all well, and the protocol may write.
///
/// That the writer's reader is the one that the transport feeds was seen to when the writer was made native.
fn flowing(writer: Borrowed<'_, '_, PyAny>) -> PyResult<bool> {
    let inner = transport_of(writer)?;
    match transport::channel_of(inner.as_borrowed()) {
        Ok(channel) => Ok(channel.get().is_flowing()),
        Err(_) => transport::tls_is_flowing(inner.as_borrowed()),
    }
}
