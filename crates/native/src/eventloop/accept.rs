//! Accepting connections.

use std::ffi::CStr;
use std::os::fd::{IntoRawFd, RawFd};

use pyo3::prelude::*;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use super::address;
use super::errors::os_error;
use crate::ffi::descriptor;
use crate::ffi::fastcall::{Args, FastMethod};

/// `_accept(fd)`: `(descriptor, address)` of a connection, non-blocking and closed on exec; `None` when there is
/// none. A connection that died in the queue is passed over.
///
/// Fails with `OSError` as `accept(2)` does.
pub(super) struct Accept;

impl FastMethod for Accept {
    const NAME: &'static CStr = c"_accept";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let [Some(fd)] = args.bind("_accept", ["fd"], 1)? else { unreachable!("it is required") };
        let listener: RawFd = fd.extract()?;
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(descriptor::borrowed(listener), flags) {
                Ok((connection, peer)) => {
                    // Closed by its owner here if the address cannot be told.
                    let address = address::any_to_python(py, peer)?;
                    return Ok((connection.into_raw_fd(), address).into_pyobject(py)?.into_any());
                }
                Err(Errno::AGAIN) => return Ok(py.None().into_bound(py)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(os_error(py, &errno.into())),
            }
        }
    }
}
