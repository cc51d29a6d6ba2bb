//! `start_response`, and the `write` that it returns.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::rc::Rc;

use headrace_server::http1::{EncodeError, ResponseEncoder};
use headrace_server::{ExchangeId, FileSpan, Payload, SendError, WriteState};
use pyo3::exceptions::{PyAssertionError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::ffi::Guarded;
use crate::ffi::unary::{self, Unary};
use crate::http::exchange::ClientDisconnected;
use crate::http::host::Host;

/// `start_response` of one request.
#[pyclass(frozen, module = "headrace._native", name = "_StartResponse")]
pub(super) struct StartResponse {
    state: Guarded<Start>,
}

struct Start {
    host: Rc<Host>,
    id: ExchangeId,
    /// The head, written and not yet handed to the server: another call may replace it.
    head: RefCell<Option<(ResponseEncoder, Vec<u8>)>>,
    sent: Cell<bool>,
}

struct PythonBytes(Py<PyBytes>);

impl Payload for PythonBytes {
    fn bytes(&self) -> &[u8] {
        Python::attach(|py| self.0.as_bytes(py))
    }
}

/// A payload of `bytes`. One of a subclass is copied: its end may run code, and the server may be at work then.
fn payload(bytes: &Bound<'_, PyBytes>) -> Box<dyn Payload> {
    if bytes.is_exact_instance_of::<PyBytes>() {
        Box::new(PythonBytes(bytes.clone().unbind()))
    } else {
        Box::new(bytes.as_bytes().to_vec())
    }
}

impl StartResponse {
    pub(super) fn new(host: Rc<Host>, id: ExchangeId) -> Self {
        Self { state: Guarded::new(Start { host, id, head: RefCell::default(), sent: Cell::new(false) }) }
    }

    pub(super) fn host(&self) -> &Rc<Host> {
        &self.state.host
    }

    pub(super) fn id(&self) -> ExchangeId {
        self.state.id
    }

    /// Send a piece of the body, behind the head if that is not out yet.
    pub(super) fn send(&self, body: &Bound<'_, PyBytes>, more: bool) -> PyResult<WriteState> {
        self.send_head()?;
        let state = &self.state;
        let keep = || payload(body);
        let sent = state.host.server.send_body(state.id, body.as_bytes(), more, keep).map_err(send_error);
        state.host.settle(body.py());
        sent
    }

    /// Send a part of a file as the whole body.
    pub(super) fn send_file(&self, py: Python<'_>, file: FileSpan) -> PyResult<()> {
        self.send_head()?;
        let state = &self.state;
        let sent = state.host.server.send_file(state.id, file, false).map_err(send_error);
        state.host.settle(py);
        sent.map(drop)
    }

    fn send_head(&self) -> PyResult<()> {
        let state = &self.state;
        state.host.tell_time();
        if let Some(pool) = state.host.pool() {
            state.host.server.hold_answers(pool.may_hold());
        }
        if state.sent.get() {
            return Ok(());
        }
        let Some((encoder, mut head)) = state.head.borrow_mut().take() else {
            return Err(PyAssertionError::new_err("the WSGI application did not call start_response"));
        };
        state.sent.set(true);
        let started = state.host.server.start_response(state.id, encoder, &head);
        head.clear();
        state.host.scratch.replace(head);
        started.map_err(send_error)
    }
}

fn send_error(error: SendError) -> PyErr {
    match error {
        SendError::Gone => ClientDisconnected::new_err("the client has disconnected"),
        other => PyAssertionError::new_err(other.to_string()),
    }
}

#[pymethods]
impl StartResponse {
    #[pyo3(signature = (status, headers, exc_info=None))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        status: &Bound<'py, PyString>,
        headers: &Bound<'py, PyList>,
        exc_info: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let state = &slf.get().state;
        if let Some(exc_info) = exc_info.filter(|exc_info| !exc_info.is_none()) {
            if state.sent.get() {
                return Err(PyErr::from_value(exc_info.get_item(1)?));
            }
        } else if state.sent.get() || state.head.borrow().is_some() {
            return Err(PyAssertionError::new_err("start_response was called twice without exc_info"));
        }
        let mut head = state.host.scratch.take();
        head.clear();
        let encoder = encode(&mut head, status.to_str()?, headers)?;
        *state.head.borrow_mut() = Some((encoder, head));
        unary::bind::<Write>(slf.as_any())
    }
}

/// The `write` that `start_response` returns, for applications from before WSGI.
struct Write;

impl Unary for Write {
    const NAME: &'static CStr = c"write";
    const TAKES_ARGUMENT: bool = true;

    fn call<'py>(
        bound_to: Borrowed<'_, 'py, PyAny>,
        data: Option<Borrowed<'_, 'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = bound_to.py();
        let data = data.ok_or_else(|| PyTypeError::new_err("write() takes bytes"))?;
        let start = bound_to.cast::<StartResponse>()?;
        let state = start.get().send(&data.cast::<PyBytes>()?.to_owned(), true)?;
        if state == WriteState::Full
            && let Some(pool) = start.get().host().pool()
        {
            pool.wait_until_writable(py, start.get().host(), start.get().id())?;
        }
        Ok(py.None().into_bound(py))
    }
}

fn encode(head: &mut Vec<u8>, status: &str, headers: &Bound<'_, PyList>) -> PyResult<ResponseEncoder> {
    let bad = |error: EncodeError| PyValueError::new_err(format!("start_response: {error}"));
    let (code, reason) = status.split_once(' ').unwrap_or((status, ""));
    let code: u16 = code
        .parse()
        .ok()
        .filter(|_| code.len() == 3)
        .ok_or_else(|| PyValueError::new_err(format!("start_response: bad status {status:?}")))?;
    let mut encoder = ResponseEncoder::begin(head, code, reason.as_bytes()).map_err(bad)?;
    for pair in headers {
        let pair = pair.cast_into::<PyTuple>()?;
        let (name, value) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
        let (name, value) = (name.cast::<PyString>()?, value.cast::<PyString>()?);
        let (name, value) = (name.to_str()?, value.to_str()?);
        if value.is_ascii() {
            encoder.field(head, name.as_bytes(), value.as_bytes()).map_err(bad)?;
        } else {
            let latin1: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
            let latin1 = latin1.ok_or_else(|| {
                PyValueError::new_err(format!("start_response: the value of {name:?} is not latin-1"))
            })?;
            encoder.field(head, name.as_bytes(), &latin1).map_err(bad)?;
        }
    }
    Ok(encoder)
}
