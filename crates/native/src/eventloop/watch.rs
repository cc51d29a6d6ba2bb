//! Readers and writers: `_add_reader` and its like, which asyncio's own classes call on a loop.

use std::os::fd::RawFd;

use headrace_engine::Interest;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::core::LoopCore;
use super::errors::os_error;
use super::schedule;
use crate::ffi::fastcall::{Args, FastMethod};
use crate::ffi::handle;

/// The number of a file object, by the rules and with the errors of `selectors` and of `select.epoll`.
fn descriptor(object: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    let number = if object.is_instance_of::<PyInt>() {
        Some(object.clone())
    } else {
        let number = object.call_method0(pyo3::intern!(object.py(), "fileno"));
        number.ok().filter(|number| number.is_instance_of::<PyInt>())
    };
    let Some(number) = number else {
        return Err(PyValueError::new_err(format!("Invalid file object: {}", object.repr()?)));
    };
    if number.lt(0)? {
        return Err(PyValueError::new_err(format!("Invalid file descriptor: {number}")));
    }
    number
        .extract::<RawFd>()
        .map_err(|_| PyOverflowError::new_err(format!("file descriptor {number} is too large")))
}

impl LoopCore {
    /// Watch `fd` for `handle`; one that was there for the same direction is cancelled.
    fn watch(&self, py: Python<'_>, fd: RawFd, handle: Py<PyAny>, write: bool) -> PyResult<()> {
        let poller = self.poller().map_err(|error| os_error(py, &error))?;
        let mut fds = self.fds.borrow_mut();
        let ended = fds.end_socket_use(&poller, fd);
        let entry = fds.entry(fd).ok_or_else(|| PyValueError::new_err("Invalid file descriptor"))?;
        let place = if write { &mut entry.writer } else { &mut entry.reader };
        let old = place.replace(handle);
        let outcome = fds.update(&poller, fd);
        let failed = outcome.is_err().then(|| {
            let entry = fds.entry(fd)?;
            if write { entry.writer.take() } else { entry.reader.take() }
        });
        drop(fds);
        if let Some(old) = &old {
            handle::cancel(old.bind_borrowed(py));
        }
        drop((failed, ended));
        outcome.map_err(|error| os_error(py, &error))
    }

    /// Watch `fd` no more for that direction. Returns whether it was watched.
    pub(super) fn unwatch(&self, py: Python<'_>, fd: RawFd, write: bool) -> bool {
        let Ok(poller) = self.poller() else { return false };
        let mut fds = self.fds.borrow_mut();
        if fds.get(fd).is_none() {
            return false;
        }
        let Some(entry) = fds.entry(fd) else { return false };
        let old = if write { entry.writer.take() } else { entry.reader.take() };
        let Some(old) = old else { return false };
        let _ = fds.update(&poller, fd);
        drop(fds);
        handle::cancel(old.bind_borrowed(py));
        true
    }

    /// What a transport wants of its descriptor from now on; `None` where it wants nothing.
    pub(super) fn set_transport_interest(
        &self,
        fd: RawFd,
        transport: &Bound<'_, PyAny>,
        interest: Interest,
    ) -> std::io::Result<()> {
        let poller = self.poller()?;
        let mut fds = self.fds.borrow_mut();
        let ended = fds.end_socket_use(&poller, fd);
        let held = (!interest.is_empty()).then(|| transport.clone().unbind());
        let old = fds.set_transport(fd, held, interest);
        let outcome = fds.update(&poller, fd);
        drop(fds);
        drop((old, ended));
        outcome
    }
}

/// `_add_reader(fd, callback, *args)` and `_add_writer`: give the handle back, as asyncio's do.
pub(super) struct Add<const WRITE: bool>;

impl<const WRITE: bool> FastMethod for Add<WRITE> {
    const NAME: &'static std::ffi::CStr = if WRITE { c"_add_writer" } else { c"_add_reader" };

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = LoopCore::of(slf)?;
        core.get().check_open()?;
        let fd = descriptor(&schedule::required(&args, 0, "fd")?.to_owned())?;
        let callback = schedule::required(&args, 1, "callback")?;
        let handle = schedule::make(slf, callback, args.tail(2), None, None)?;
        core.get().watch(slf.py(), fd, handle.clone().unbind(), WRITE)?;
        Ok(handle)
    }
}

/// `_remove_reader(fd)` and `_remove_writer`: say whether the descriptor was watched.
pub(super) struct Remove<const WRITE: bool>;

impl<const WRITE: bool> FastMethod for Remove<WRITE> {
    const NAME: &'static std::ffi::CStr = if WRITE { c"_remove_writer" } else { c"_remove_reader" };

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let core = LoopCore::of(slf)?;
        if core.get().closed.get() {
            return Ok(pyo3::types::PyBool::new(py, false).to_owned().into_any());
        }
        let was = match descriptor(&schedule::required(&args, 0, "fd")?.to_owned()) {
            Ok(fd) => core.get().unwatch(py, fd, WRITE),
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => false,
            Err(error) => return Err(error),
        };
        Ok(pyo3::types::PyBool::new(py, was).to_owned().into_any())
    }
}

/// `_watched()`: `{fd: (reader, writer)}` of every watched descriptor, for the selector's stand-in.
pub(super) struct Watched;

impl FastMethod for Watched {
    const NAME: &'static std::ffi::CStr = c"_watched";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, _: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let watched = LoopCore::of(slf)?.get().fds.borrow().watched();
        let result = pyo3::types::PyDict::new(slf.py());
        for (fd, read, write) in watched {
            result.set_item(fd, (read, write))?;
        }
        Ok(result.into_any())
    }
}
