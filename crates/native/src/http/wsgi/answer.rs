//! What an application returned, on its way to the client.

use headrace_server::WriteState;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyTuple};

use super::file_wrapper;
use super::start_response::StartResponse;
use crate::http::log;

/// Pieces of a list are sent as one body up to this size; above it, one by one.
const JOIN_UP_TO: usize = 1024 * 1024;

/// An answer that is being iterated over.
pub(super) struct Stream {
    start: Py<StartResponse>,
    result: Py<PyAny>,
    iterator: Py<PyIterator>,
}

/// How far an answer got.
pub(super) enum Progress {
    /// It is sent or queued, and closed.
    Done,
    /// The client is slow: [`Stream::go_on`] when it has caught up, or has gone.
    Full(Stream),
}

/// Send what the application returned, as far as the client takes it.
pub(super) fn begin<'py>(
    start: &Bound<'py, StartResponse>,
    result: &Bound<'py, PyAny>,
) -> PyResult<Progress> {
    let py = start.py();
    if let Some(whole) = whole_body(result) {
        // A list and a tuple have no close().
        return whole.and_then(|body| start.get().send(&body, false)).map(|_| Progress::Done);
    }
    if let Some(file) = file_wrapper::span(result) {
        let sent = start.get().send_file(py, file);
        close(result);
        return sent.map(|()| Progress::Done);
    }
    match result.try_iter() {
        Ok(iterator) => {
            let stream = Stream {
                start: start.clone().unbind(),
                result: result.clone().unbind(),
                iterator: iterator.unbind(),
            };
            stream.go_on(py)
        }
        Err(error) => {
            close(result);
            Err(error)
        }
    }
}

impl Stream {
    /// Send pieces until there are no more, or the client has enough for now. Closes the answer at its end, and
    /// after an error.
    pub(super) fn go_on(self, py: Python<'_>) -> PyResult<Progress> {
        match self.send_pieces(py) {
            Ok(true) => Ok(Progress::Full(self)),
            Ok(false) => {
                self.close(py);
                Ok(Progress::Done)
            }
            Err(error) => {
                self.close(py);
                Err(error)
            }
        }
    }

    /// Returns whether the client has enough for now.
    fn send_pieces(&self, py: Python<'_>) -> PyResult<bool> {
        let start = self.start.get();
        let mut iterator = self.iterator.bind(py).clone();
        loop {
            let Some(piece) = iterator.next().transpose()?.map(piece).transpose()? else {
                start.send(&PyBytes::new(py, b""), false)?;
                return Ok(false);
            };
            if !piece.as_bytes().is_empty() && start.send(&piece, true)? == WriteState::Full {
                return Ok(true);
            }
        }
    }

    /// Break the answer off.
    pub(super) fn close(&self, py: Python<'_>) {
        close(self.result.bind(py));
    }
}

/// The one body of an answer that is a list or tuple of bytes; `None` for any other iterable.
fn whole_body<'py>(result: &Bound<'py, PyAny>) -> Option<PyResult<Bound<'py, PyBytes>>> {
    let py = result.py();
    if let Ok(list) = result.cast_exact::<PyList>() {
        if list.len() == 1 {
            return Some(list.get_item(0).and_then(piece));
        }
    } else if let Ok(tuple) = result.cast_exact::<PyTuple>() {
        if tuple.len() == 1 {
            return Some(tuple.get_item(0).and_then(piece));
        }
    } else {
        return None;
    }
    let pieces: PyResult<Vec<Bound<'py, PyBytes>>> =
        result.try_iter().and_then(|items| items.map(|item| item.and_then(piece)).collect());
    let pieces = match pieces {
        Ok(pieces) => pieces,
        Err(error) => return Some(Err(error)),
    };
    if pieces.iter().map(|piece| piece.as_bytes().len()).sum::<usize>() > JOIN_UP_TO {
        return None;
    }
    let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece.as_bytes()).copied().collect();
    Some(Ok(PyBytes::new(py, &joined)))
}

fn piece(item: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyBytes>> {
    item.cast_into::<PyBytes>()
        .map_err(|_| PyTypeError::new_err("a WSGI application must give pieces of bytes"))
}

/// `result.close()`, where there is one (PEP 3333: whatever happened before).
fn close(result: &Bound<'_, PyAny>) {
    let py = result.py();
    let closed = (|| {
        if let Some(close) = result.getattr_opt(intern!(py, "close"))? {
            close.call0()?;
        }
        PyResult::Ok(())
    })();
    if let Err(error) = closed {
        log::exception(py, "Exception in close() of a WSGI application's answer", &error);
    }
}
