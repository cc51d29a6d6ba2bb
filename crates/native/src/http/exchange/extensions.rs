//! Messages of the ASGI extensions: files, early hints, trailers (asgiref's documentation, "Extensions").

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use headrace_server::FileSpan;
use headrace_server::http1::{is_field_value, trailer_field};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString};
use pyo3::{PyTypeInfo, intern};
use rustix::fs::{Mode, OFlags};

use super::{Exchange, Stage, each_header};
use crate::ffi;

impl Exchange {
    /// Send a message that is neither `http.response.start` nor `http.response.body`, or one out of turn.
    #[cold]
    pub(super) fn send_extension<'py>(
        this: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let kind: String = kind.extract()?;
        match (this.get().state.stage.get(), kind.as_str()) {
            (Stage::Head, "http.response.pathsend") => Self::send_path(this, message),
            (Stage::Body, "http.response.pathsend") => Err(PyRuntimeError::new_err(
                "'http.response.pathsend' sends the whole body: it cannot follow a part of it.",
            )),
            (Stage::Head | Stage::Body, "http.response.zerocopysend") => Self::send_open_file(this, message),
            (Stage::Start | Stage::Head | Stage::Body, "http.response.early_hint") => {
                Self::send_early_hint(this, message)
            }
            (Stage::Trailers, "http.response.trailers") => Self::send_trailers(this, message),
            (Stage::Start | Stage::Head | Stage::Body, "http.response.trailers")
                if !this.get().state.announced.get() =>
            {
                Err(PyRuntimeError::new_err(
                    "'http.response.trailers' was not announced: 'http.response.start' needs 'trailers': True.",
                ))
            }
            (stage, kind) => Err(PyRuntimeError::new_err(match stage {
                Stage::Start => format!("Expected ASGI message 'http.response.start', but got '{kind}'."),
                Stage::Head | Stage::Body => {
                    format!("Expected ASGI message 'http.response.body', but got '{kind}'.")
                }
                Stage::Trailers => {
                    format!("Expected ASGI message 'http.response.trailers', but got '{kind}'.")
                }
                Stage::Complete => {
                    format!("Unexpected ASGI message '{kind}' sent, after response already completed.")
                }
            })),
        }
    }

    /// `http.response.pathsend`: a file is the whole body.
    fn send_path<'py>(this: &Bound<'py, Self>, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let path = required(message, intern!(py, "path"), "http.response.pathsend")?;
        let file: PathBuf = path.extract()?;
        // The specification asks for an absolute path; Starlette passes on what its user gave, relative or not.
        // Not to wait for the other end of a named pipe, which is refused below.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let span = rustix::fs::open(&file, flags, Mode::empty())
            .map_err(std::io::Error::from)
            .and_then(|opened| FileSpan::new(opened, 0, None))
            .map_err(|error| os_error(&error, &path))?;
        Self::send_span(this, span, false)
    }

    /// `http.response.zerocopysend`: a part of an open file is a piece of the body.
    fn send_open_file<'py>(
        this: &Bound<'py, Self>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        const NAME: &str = "http.response.zerocopysend";
        let py = this.py();
        let file = required(message, intern!(py, "file"), NAME)?;
        let number: i32 = if file.is_instance_of::<PyInt>() {
            file.extract()?
        } else {
            file.call_method0(intern!(py, "fileno")).and_then(|number| number.extract()).map_err(|_| {
                PyTypeError::new_err(format!("'{NAME}': 'file' must be an open file with a descriptor"))
            })?
        };
        let number_of = |key: &Bound<'py, PyString>| -> PyResult<Option<u64>> {
            match message.get_item(key)?.filter(|value| !value.is_none()) {
                None => Ok(None),
                Some(value) => value.extract().map(Some).map_err(|_| {
                    PyValueError::new_err(format!("'{NAME}': '{key}' must be a number, not below zero"))
                }),
            }
        };
        let offset = number_of(intern!(py, "offset"))?;
        let count = number_of(intern!(py, "count"))?;
        let more = match message.get_item(intern!(py, "more_body"))? {
            Some(more) => more.is_truthy()?,
            None => false,
        };
        let owned: OwnedFd = ffi::descriptor::borrowed(number).try_clone_to_owned()?;
        let start = match offset {
            Some(offset) => offset,
            None => position(&file, number)?,
        };
        let span = FileSpan::new(owned, start, count).map_err(|error| os_error(&error, &file))?;
        if offset.is_none() {
            // As `os.sendfile` without an offset does: the next piece begins where this one ends.
            set_position(&file, number, start + span.length())?;
        }
        Self::send_span(this, span, more)
    }

    fn send_span<'py>(this: &Bound<'py, Self>, span: FileSpan, more: bool) -> PyResult<Bound<'py, PyAny>> {
        let state = &this.get().state;
        state.host.tell_time();
        let outcome = state.host.server.send_file(state.id, span, state.goes_on(more));
        Self::piece_sent(this, more, outcome)
    }

    /// `http.response.early_hint`: links ahead of the answer (RFC 8297). Too late for that, it is ignored, as the
    /// specification allows.
    fn send_early_hint<'py>(
        this: &Bound<'py, Self>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        const LINKS: &str = "'http.response.early_hint': 'links' must be values of Link headers, in bytes";
        let py = this.py();
        let state = &this.get().state;
        let mut head = b"HTTP/1.1 103 Early Hints\r\n".to_vec();
        let bare = head.len();
        for link in required(message, intern!(py, "links"), "http.response.early_hint")?.try_iter()? {
            let link = link?.cast_into::<PyBytes>().map_err(|_| PyTypeError::new_err(LINKS))?;
            if !is_field_value(link.as_bytes()) {
                return Err(PyValueError::new_err(LINKS));
            }
            head.extend_from_slice(b"link: ");
            head.extend_from_slice(link.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        if head.len() == bare {
            return Ok(state.host.done(py));
        }
        head.extend_from_slice(b"\r\n");
        state.host.tell_time();
        let outcome = state.host.server.send_interim(state.id, &head);
        Self::sent(this, outcome.is_err(), outcome)
    }

    /// `http.response.trailers`: fields behind the body.
    fn send_trailers<'py>(
        this: &Bound<'py, Self>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let state = &this.get().state;
        let mut fields = state.trailers.take();
        if let Some(headers) = message.get_item(intern!(py, "headers"))? {
            each_header(&headers, |name, value| {
                trailer_field(&mut fields, name, value).map_err(|error| {
                    PyRuntimeError::new_err(format!("ASGI message 'http.response.trailers': {error}"))
                })
            })?;
        }
        let more = match message.get_item(intern!(py, "more_trailers"))? {
            Some(more) => more.is_truthy()?,
            None => false,
        };
        if more {
            state.trailers.replace(fields);
            return Ok(state.host.done(py));
        }
        state.stage.set(Stage::Complete);
        if !state.host.server.accepts_trailers(state.id) {
            // The answer was complete with its body.
            return Ok(state.host.done(py));
        }
        state.host.tell_time();
        let outcome = state.host.server.send_trailers(state.id, &fields);
        Self::sent(this, true, outcome)
    }
}

fn required<'py>(
    message: &Bound<'py, PyDict>,
    key: &Bound<'py, PyString>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    message
        .get_item(key)?
        .ok_or_else(|| PyRuntimeError::new_err(format!("ASGI message '{name}' has no '{key}'")))
}

/// Where a file object stands; for a number, or an object that does not tell, where its descriptor does.
fn position(file: &Bound<'_, PyAny>, number: i32) -> PyResult<u64> {
    let py = file.py();
    match file.getattr_opt(intern!(py, "tell"))? {
        Some(tell) => tell.call0()?.extract(),
        None => py.import(intern!(py, "os"))?.call_method1(intern!(py, "lseek"), (number, 0, 1))?.extract(),
    }
}

fn set_position(file: &Bound<'_, PyAny>, number: i32, to: u64) -> PyResult<()> {
    let py = file.py();
    match file.getattr_opt(intern!(py, "seek"))? {
        Some(seek) => seek.call1((to,))?,
        None => py.import(intern!(py, "os"))?.call_method1(intern!(py, "lseek"), (number, to, 0))?,
    };
    Ok(())
}

/// `FileNotFoundError: [Errno 2] No such file or directory: '…'` and the like.
fn os_error(error: &std::io::Error, file: &Bound<'_, PyAny>) -> PyErr {
    let py = file.py();
    let Some(number) = error.raw_os_error() else {
        let file = file.repr().map_or_else(|_| String::new(), |text| text.to_string());
        return PyValueError::new_err(format!("{file}: {error}"));
    };
    let made = (|| {
        let text = py.import(intern!(py, "os"))?.call_method1(intern!(py, "strerror"), (number,))?;
        pyo3::exceptions::PyOSError::type_object(py).call1((number, text, file))
    })();
    match made {
        Ok(made) => PyErr::from_value(made),
        Err(error) => error,
    }
}
