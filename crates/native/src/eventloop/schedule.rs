//! `call_soon`, `call_later`, `call_at`, `call_soon_threadsafe`, `time`, and what a handle can be asked.

use std::ffi::CStr;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyString, PyType};

use super::core::LoopCore;
use super::cycle::now;
use super::{accept, futures, sock, watch};
use crate::ffi::fastcall::{Args, FastMethod, install as install_method};
use crate::ffi::{context, handle};

pub(super) fn install(class: &Bound<'_, PyType>) -> PyResult<()> {
    install_method::<CallSoon>(class)?;
    install_method::<CallSoonThreadsafe>(class)?;
    install_method::<CallLater>(class)?;
    install_method::<CallAt>(class)?;
    install_method::<Time>(class)?;
    install_method::<Stop>(class)?;
    install_method::<GetDebug>(class)?;
    install_method::<futures::CreateFuture>(class)?;
    install_method::<sock::Recv>(class)?;
    install_method::<sock::RecvInto>(class)?;
    install_method::<sock::SendAll>(class)?;
    install_method::<accept::Accept>(class)?;
    install_method::<watch::Add<false>>(class)?;
    install_method::<watch::Add<true>>(class)?;
    install_method::<watch::Remove<false>>(class)?;
    install_method::<watch::Remove<true>>(class)?;
    install_method::<watch::Watched>(class)
}

pub(super) fn install_on_handles(handle: &Bound<'_, PyType>, timer: &Bound<'_, PyType>) -> PyResult<()> {
    for class in [handle, timer] {
        install_method::<Cancel>(class)?;
        install_method::<Cancelled>(class)?;
    }
    Ok(())
}

/// The positional argument `index`, which must be there.
pub(super) fn required<'a, 'py>(
    args: &Args<'a, 'py>,
    index: usize,
    name: &str,
) -> PyResult<Borrowed<'a, 'py, PyAny>> {
    args.get(index)
        .ok_or_else(|| PyTypeError::new_err(format!("missing required positional argument: '{name}'")))
}

/// Make a handle for this loop. Without a context it runs in a copy of the current one.
pub(super) fn make<'py>(
    owner: Borrowed<'_, 'py, PyAny>,
    callback: Borrowed<'_, 'py, PyAny>,
    arguments: &[*mut pyo3::ffi::PyObject],
    context: Option<Bound<'py, PyAny>>,
    when: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let context = match context {
        Some(context) => context,
        None => context::copy_current(owner.py())?,
    };
    handle::new(handle::Call { owner, callback, arguments, context }, when)
}

/// `context=` of a scheduling call, the only keyword that one takes.
fn context_keyword<'py>(function: &CStr, args: &Args<'_, 'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut context = None;
    if args.has_keywords() {
        for (name, value) in args.keywords() {
            // The tuple of names that futures and tasks pass holds a string that is not interned.
            if name.cast::<PyString>()?.to_str()? != "context" {
                return Err(PyTypeError::new_err(format!(
                    "{}() got an unexpected keyword argument {}",
                    function.to_string_lossy(),
                    name.repr()?
                )));
            }
            if !value.is_none() {
                context = Some(value.to_owned());
            }
        }
    }
    Ok(context)
}

/// Where a callback is to go.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Ready,
    ReadyFromAnyThread,
    Timer(f64),
}

/// The common part: `arguments` of the call from `callback` on.
fn schedule<'py>(
    slf: Borrowed<'_, 'py, PyAny>,
    core: &LoopCore,
    function: &CStr,
    args: Args<'_, 'py>,
    callback_at: usize,
    place: Place,
) -> PyResult<Bound<'py, PyAny>> {
    core.check_open()?;
    let callback = required(&args, callback_at, "callback")?;
    let context = context_keyword(function, &args)?;
    let debug = core.debug.get();
    if debug {
        let name = function.to_string_lossy();
        slf.call_method1("_check_scheduling", (callback, name, place != Place::ReadyFromAnyThread))?;
    }
    let when = if let Place::Timer(when) = place { Some(when) } else { None };
    let made = make(slf, callback, args.tail(callback_at + 1), context, when)?;
    if debug {
        handle::set_source_traceback(made.as_borrowed(), slf.call_method0("_source_traceback")?);
    }
    let held = made.clone().unbind();
    match place {
        Place::Ready => core.push_ready(held),
        Place::ReadyFromAnyThread => {
            core.push_ready(held);
            core.wake();
        }
        Place::Timer(when) => core.timers.borrow_mut().push(when, held),
    }
    Ok(made)
}

struct CallSoon;

impl FastMethod for CallSoon {
    const NAME: &'static CStr = c"call_soon";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = LoopCore::of(slf)?;
        schedule(slf, core.get(), Self::NAME, args, 0, Place::Ready)
    }
}

struct CallSoonThreadsafe;

impl FastMethod for CallSoonThreadsafe {
    const NAME: &'static CStr = c"call_soon_threadsafe";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = LoopCore::of(slf)?;
        schedule(slf, core.get(), Self::NAME, args, 0, Place::ReadyFromAnyThread)
    }
}

/// Seconds, from a number of any kind. Fails with `TypeError`, as adding it to a float would.
fn seconds(value: Borrowed<'_, '_, PyAny>, none: &'static str) -> PyResult<f64> {
    if value.is_none() {
        return Err(PyTypeError::new_err(none));
    }
    value.extract::<f64>()
}

struct CallLater;

impl FastMethod for CallLater {
    const NAME: &'static CStr = c"call_later";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = LoopCore::of(slf)?;
        let delay = seconds(required(&args, 0, "delay")?, "delay must not be None")?;
        schedule(slf, core.get(), Self::NAME, args, 1, Place::Timer(now() + delay))
    }
}

struct CallAt;

impl FastMethod for CallAt {
    const NAME: &'static CStr = c"call_at";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = LoopCore::of(slf)?;
        let when = seconds(required(&args, 0, "when")?, "when cannot be None")?;
        schedule(slf, core.get(), Self::NAME, args, 1, Place::Timer(when))
    }
}

struct Time;

impl FastMethod for Time {
    const NAME: &'static CStr = c"time";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        args.bind("time", [], 0)?;
        Ok(PyFloat::new(slf.py(), now()).into_any())
    }
}

/// `get_debug()`: asked by every future that is made.
struct GetDebug;

impl FastMethod for GetDebug {
    const NAME: &'static CStr = c"get_debug";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        args.bind("get_debug", [], 0)?;
        Ok(PyBool::new(slf.py(), LoopCore::of(slf)?.get().debug.get()).to_owned().into_any())
    }
}

struct Stop;

impl FastMethod for Stop {
    const NAME: &'static CStr = c"stop";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        args.bind("stop", [], 0)?;
        LoopCore::of(slf)?.get().stopping.set(true);
        Ok(slf.py().None().into_bound(slf.py()))
    }
}

struct Cancel;

impl FastMethod for Cancel {
    const NAME: &'static CStr = c"cancel";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, _: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(owner) = handle::owner(slf) {
            let core = LoopCore::of(owner.as_borrowed())?;
            if core.get().debug.get() && !handle::is_cancelled(slf) {
                // Kept for "Executing <Handle…> took 2.5 seconds", as asyncio does.
                handle::set_repr(slf, slf.repr()?.into_any());
            }
            if handle::cancel(slf) {
                core.get().timer_cancelled(py);
            }
        }
        Ok(py.None().into_bound(py))
    }
}

struct Cancelled;

impl FastMethod for Cancelled {
    const NAME: &'static CStr = c"cancelled";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, _: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyBool::new(slf.py(), handle::is_cancelled(slf)).to_owned().into_any())
    }
}
