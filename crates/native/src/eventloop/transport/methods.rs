//! The native methods of `headrace.transport.SocketTransport`.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyType};

use super::channel::Channel;
use super::channel_of;
use super::write;
use crate::ffi::fastcall::{Args, FastMethod, install as install_method};

pub(super) fn install(class: &Bound<'_, PyType>) -> PyResult<()> {
    install_method::<Write>(class)?;
    install_method::<WriteLines>(class)?;
    install_method::<WriteEof>(class)?;
    install_method::<WriteBufferSize>(class)?;
    install_method::<IsClosing>(class)?;
    install_method::<IsReading>(class)?;
    install_method::<PauseReading>(class)?;
    install_method::<ResumeReading>(class)?;
    install_method::<Close>(class)?;
    install_method::<ForceClose>(class)
}

type Receiver<'a, 'py> = Borrowed<'a, 'py, PyAny>;
type Answer<'py> = PyResult<Bound<'py, PyAny>>;

fn none<'py>(slf: Receiver<'_, 'py>) -> Answer<'py> {
    Ok(slf.py().None().into_bound(slf.py()))
}

fn boolean<'py>(slf: Receiver<'_, 'py>, value: bool) -> Answer<'py> {
    Ok(PyBool::new(slf.py(), value).to_owned().into_any())
}

/// Close: send what is written, then `connection_lost(None)`.
pub(super) fn close(transport: &Bound<'_, PyAny>, channel: &Channel) -> PyResult<()> {
    write::flush(transport, channel)?;
    if channel.closing.replace(true) {
        return Ok(());
    }
    channel.update_interest(transport)?;
    if channel.outgoing.borrow().len() == 0 {
        channel.lost.set(channel.lost.get() + 1);
        channel.call_soon(transport, "_call_connection_lost", None)?;
    }
    Ok(())
}

struct Write;

impl FastMethod for Write {
    const NAME: &'static CStr = c"write";

    fn call<'py>(slf: Receiver<'_, 'py>, args: Args<'_, 'py>) -> Answer<'py> {
        let channel = channel_of(slf)?;
        let data = match args.get(0) {
            Some(data) if args.len() == 1 && !args.has_keywords() => data,
            _ => match args.bind("write", ["data"], 1)? {
                [Some(data)] => data,
                [None] => return none(slf),
            },
        };
        write::write(&slf, channel.get(), data)?;
        none(slf)
    }
}

struct WriteLines;

impl FastMethod for WriteLines {
    const NAME: &'static CStr = c"writelines";

    fn call<'py>(slf: Receiver<'_, 'py>, args: Args<'_, 'py>) -> Answer<'py> {
        let channel = channel_of(slf)?;
        if let [Some(parts)] = args.bind("writelines", ["list_of_data"], 1)? {
            write::write_lines(&slf, channel.get(), parts)?;
        }
        none(slf)
    }
}

struct WriteEof;

impl FastMethod for WriteEof {
    const NAME: &'static CStr = c"write_eof";

    fn call<'py>(slf: Receiver<'_, 'py>, _: Args<'_, 'py>) -> Answer<'py> {
        let channel = channel_of(slf)?;
        let channel = channel.get();
        if channel.closing.get() || channel.eof_written.get() {
            return none(slf);
        }
        write::flush(&slf, channel)?;
        channel.eof_written.set(true);
        if channel.outgoing.borrow().len() == 0 && channel.lost.get() == 0 {
            write::shut_down_writing(&slf, channel)?;
        }
        none(slf)
    }
}

struct WriteBufferSize;

impl FastMethod for WriteBufferSize {
    const NAME: &'static CStr = c"get_write_buffer_size";

    /// What the kernel has not taken: so what the callback has written so far is offered to it first.
    fn call<'py>(slf: Receiver<'_, 'py>, _: Args<'_, 'py>) -> Answer<'py> {
        let channel = channel_of(slf)?;
        write::flush(&slf, channel.get())?;
        let size = channel.get().outgoing.borrow().len();
        Ok(PyInt::new(slf.py(), size).into_any())
    }
}

struct IsClosing;

impl FastMethod for IsClosing {
    const NAME: &'static CStr = c"is_closing";

    fn call<'py>(slf: Receiver<'_, 'py>, _: Args<'_, 'py>) -> Answer<'py> {
        boolean(slf, channel_of(slf)?.get().closing.get())
    }
}

struct IsReading;

impl FastMethod for IsReading {
    const NAME: &'static CStr = c"is_reading";

    fn call<'py>(slf: Receiver<'_, 'py>, _: Args<'_, 'py>) -> Answer<'py> {
        boolean(slf, channel_of(slf)?.get().is_reading())
    }
}

struct PauseReading;

impl FastMethod for PauseReading {
    const NAME: &'static CStr = c"pause_reading";

    fn call<'py>(slf: Receiver<'_, 'py>, _: Args<'_, 'py>) -> Answer<'py> {
        let channel = channel_of(slf)?;
        if channel.get().is_reading() {
            channel.get().paused.set(true);
            channel.get().update_interest(&slf)?;
        }
        none(slf)
    }
}

struct ResumeReading;

impl FastMethod for ResumeReading {
    const NAME: &'static CStr = c"resume_reading";

    fn call<'py>(slf: Receiver<'_, 'py>, _: Args<'_, 'py>) -> Answer<'py> {
        let channel = channel_of(slf)?;
        let channel = channel.get();
        if !channel.closing.get() && channel.paused.replace(false) {
            channel.update_interest(&slf)?;
        }
        none(slf)
    }
}

struct Close;

impl FastMethod for Close {
    const NAME: &'static CStr = c"close";

    fn call<'py>(slf: Receiver<'_, 'py>, _: Args<'_, 'py>) -> Answer<'py> {
        close(&slf, channel_of(slf)?.get())?;
        none(slf)
    }
}

struct ForceClose;

impl FastMethod for ForceClose {
    const NAME: &'static CStr = c"_force_close";

    /// Close without sending what the kernel has not taken, then `connection_lost(exception)`.
    fn call<'py>(slf: Receiver<'_, 'py>, args: Args<'_, 'py>) -> Answer<'py> {
        let channel = channel_of(slf)?;
        let channel = channel.get();
        if channel.lost.get() != 0 {
            return none(slf);
        }
        // Where asyncio's write() would have sent it already, it still goes out.
        write::flush(&slf, channel)?;
        if channel.lost.get() != 0 {
            return none(slf);
        }
        let unsent = channel.outgoing.take();
        drop(unsent);
        channel.blocked.set(false);
        channel.closing.set(true);
        channel.lost.set(1);
        channel.update_interest(&slf)?;
        let exception = args.get(0).map(|e| e.to_owned());
        channel.call_soon(&slf, "_call_connection_lost", exception.as_ref())?;
        none(slf)
    }
}
