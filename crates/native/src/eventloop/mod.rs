//! The event loop's engine: ready queue, timers, poller, run cycle, readers and writers, transports.
//!
//! `headrace.Loop` joins it with CPython's own `asyncio.SelectorEventLoop` (see `python/headrace/loop.py`):
//! what is not overridden here is inherited there.
//!
//! Three rules hold here:
//! 1. No cell stays borrowed while Python code may run; dropping a reference may run Python code.
//! 2. One callback, then one flush: what a callback has written goes out together when it returns.
//! 3. The interpreter lock is given up only around a wait that can block.

mod accept;
mod address;
mod core;
mod cycle;
mod datagram;
mod errors;
mod fds;
mod futures;
mod reader;
mod schedule;
mod sock;
mod streams;
mod timers;
mod transport;
mod watch;
mod writers;

use std::os::fd::IntoRawFd;

use pyo3::prelude::*;
use pyo3::types::PyType;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

pub(crate) use self::core::LoopCore;
use crate::ffi::{handle, operation};

/// Make the native handle types and give them the methods of asyncio's own that are not native.
///
/// `handle_class` and `timer_class` are `asyncio.Handle` and `asyncio.TimerHandle`. Returns the native types.
#[pyfunction]
fn _define_handles<'py>(
    handle_class: &Bound<'py, PyAny>,
    timer_class: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyType>)> {
    let (handle, timer) = handle::define(handle_class, timer_class)?;
    schedule::install_on_handles(&handle, &timer)?;
    Ok((handle, timer))
}

/// How many native handles exist, over all loops: for leak checks.
#[pyfunction]
fn _handles_alive() -> isize {
    handle::alive()
}

/// `os.pidfd_open(pid)`, closed on exec, also where CPython was built without it (against old headers).
#[pyfunction]
fn _pidfd_open(py: Python<'_>, pid: i32) -> PyResult<i32> {
    let missing = || errors::os_error(py, &Errno::SRCH.into());
    let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(missing)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| errors::os_error(py, &errno.into()))?;
    Ok(pidfd.into_raw_fd())
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    operation::define(py)?;
    module.add_class::<LoopCore>()?;
    module.add_class::<transport::Channel>()?;
    module.add_class::<datagram::Datagram>()?;
    module.add_class::<transport::TlsSession>()?;
    schedule::install(&py.get_type::<LoopCore>())?;
    module.add_function(wrap_pyfunction!(_define_handles, module)?)?;
    module.add_function(wrap_pyfunction!(_handles_alive, module)?)?;
    module.add_function(wrap_pyfunction!(_pidfd_open, module)?)?;
    module.add_function(wrap_pyfunction!(datagram::_define_datagram_transport, module)?)?;
    module.add_function(wrap_pyfunction!(streams::_define_reader, module)?)?;
    module.add_function(wrap_pyfunction!(writers::_define_writer, module)?)?;
    module.add_function(wrap_pyfunction!(transport::_define_tls, module)?)?;
    module.add_function(wrap_pyfunction!(transport::_define_transport, module)?)
}
