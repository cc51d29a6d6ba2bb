//! Native `read`, `readline`, `readexactly` and `readuntil` of a stream reader.
//!
//! They work on the reader's own attributes (`_buffer`, `_waiter`, `_paused`, …), as asyncio's do, and do the
//! common case: data is there, or will come. Whatever else there is (end of stream, an error, a limit overrun,
//! a second reader, odd arguments) goes to asyncio's own method, which starts from the same state.

use std::ffi::CStr;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyInt, PyType};

use super::futures;
use super::transport::{Handoff, Want, handoff_of};
use crate::ffi::bytes;
use crate::ffi::fastcall::{Args, FastMethod, install as install_method};
use crate::ffi::operation::{self, Progress, Step};

static PLAIN_READER: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Give `class`, a subclass of `asyncio.StreamReader` without slots of its own, native read methods.
#[pyfunction]
pub(super) fn _define_reader(class: &Bound<'_, PyType>) -> PyResult<()> {
    install_method::<Read>(class)?;
    install_method::<ReadExactly>(class)?;
    install_method::<ReadLine>(class)?;
    install_method::<ReadUntil>(class)
}

/// What a read is for.
enum Kind {
    AtMost(usize),
    Exactly(usize),
    Line,
    Until(Py<PyBytes>),
}

struct Reading {
    reader: Py<PyAny>,
    kind: Kind,
    /// Where the transport may leave data, while this read waits.
    handoff: Option<Rc<Handoff>>,
    waiting: bool,
    /// Bytes of the buffer in which the separator does not begin.
    searched: usize,
}

impl Reading {
    /// asyncio's own method for this read.
    fn plain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = PLAIN_READER.import(py, "asyncio", "StreamReader")?.as_any();
        let reader = self.reader.bind(py);
        match &self.kind {
            Kind::AtMost(count) => class.call_method1("read", (reader, *count)),
            Kind::Exactly(count) => class.call_method1("readexactly", (reader, *count)),
            Kind::Line => class.call_method1("readline", (reader,)),
            Kind::Until(separator) => class.call_method1("readuntil", (reader, separator.bind(py))),
        }
    }

    fn delegate(&mut self, py: Python<'_>) -> PyResult<Progress> {
        Ok(Progress::Delegate(self.plain(py)?.unbind()))
    }

    /// How many bytes of the buffer's front are what is asked for; `None` when it takes more of them.
    fn complete(&mut self, py: Python<'_>, content: &[u8]) -> Option<usize> {
        let separator: &[u8] = match &self.kind {
            Kind::AtMost(count) => return (!content.is_empty()).then(|| content.len().min(*count)),
            Kind::Exactly(count) => return (content.len() >= *count).then_some(*count),
            Kind::Line => b"\n",
            Kind::Until(separator) => separator.as_bytes(py),
        };
        let from = self.searched.min(content.len());
        let found = if let [byte] = separator {
            memchr::memchr(*byte, &content[from..])
        } else {
            content[from..].windows(separator.len()).position(|window| window == separator)
        };
        self.searched = (content.len() + 1).saturating_sub(separator.len());
        found.map(|at| from + at + separator.len())
    }

    /// The length of the separator, where there is one.
    fn separator(&self, py: Python<'_>) -> Option<usize> {
        match &self.kind {
            Kind::Line => Some(1),
            Kind::Until(separator) => Some(separator.as_bytes(py).len()),
            _ => None,
        }
    }

    /// Wait for more: `StreamReader._wait_for_data`.
    fn wait(&mut self, reader: &Bound<'_, PyAny>, buffered: usize, limit: usize) -> PyResult<Progress> {
        let py = reader.py();
        let transport = reader.getattr(pyo3::intern!(py, "_transport"))?;
        if reader.getattr(pyo3::intern!(py, "_paused"))?.is_truthy()? {
            reader.setattr(pyo3::intern!(py, "_paused"), false)?;
            transport.call_method0(pyo3::intern!(py, "resume_reading"))?;
        }
        if self.handoff.is_none() {
            self.handoff = handoff_of(transport.as_borrowed());
        }
        if let Some(handoff) = &self.handoff {
            handoff.want.set(match self.kind {
                _ if buffered > 0 => Want::Nothing,
                Kind::AtMost(count) => Want::AtMost(count),
                Kind::Exactly(count) => Want::Exactly(count),
                Kind::Line => Want::Line(limit),
                Kind::Until(_) => Want::Nothing,
            });
        }
        let event_loop = reader.getattr(pyo3::intern!(py, "_loop"))?;
        let future = futures::to_yield(event_loop.as_borrowed())?;
        reader.setattr(pyo3::intern!(py, "_waiter"), &future)?;
        self.waiting = true;
        Ok(Progress::Yield(future.unbind()))
    }

    /// No longer waiting: take what was handed over.
    fn woken(&mut self, reader: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyBytes>>> {
        self.waiting = false;
        reader.setattr(pyo3::intern!(reader.py(), "_waiter"), reader.py().None())?;
        let Some(handoff) = &self.handoff else { return Ok(None) };
        handoff.want.set(Want::Nothing);
        Ok(handoff.bytes.take())
    }
}

impl Step for Reading {
    fn step(&mut self, py: Python<'_>) -> PyResult<Progress> {
        let reader = self.reader.clone_ref(py).into_bound(py);
        if self.waiting
            && let Some(data) = self.woken(&reader)?
        {
            return Ok(Progress::Return(Some(data.into_any())));
        }
        if !reader.getattr(pyo3::intern!(py, "_exception"))?.is_none() {
            return self.delegate(py);
        }
        let buffer = reader.getattr(pyo3::intern!(py, "_buffer"))?;
        let Ok(buffer) = buffer.cast_exact::<PyByteArray>() else { return self.delegate(py) };
        let length = buffer.len();
        let complete = bytes::with_content(buffer, |content| self.complete(py, content));
        let limit = match self.separator(py) {
            Some(_) => reader.getattr(pyo3::intern!(py, "_limit"))?.extract()?,
            None => 0,
        };
        let Some(count) = complete else {
            let overrun = self.separator(py).is_some_and(|separator| length + 1 > limit + separator);
            if overrun
                || reader.getattr(pyo3::intern!(py, "_eof"))?.is_truthy()?
                || !reader.getattr(pyo3::intern!(py, "_waiter"))?.is_none()
            {
                return self.delegate(py);
            }
            return self.wait(&reader, length, limit);
        };
        if self.separator(py).is_some_and(|separator| count > limit + separator) {
            return self.delegate(py);
        }
        let data = bytes::take_front(buffer, count)?;
        if reader.getattr(pyo3::intern!(py, "_paused"))?.is_truthy()? {
            reader.call_method0(pyo3::intern!(py, "_maybe_resume_transport"))?;
        }
        Ok(Progress::Return(Some(data.unbind().into_any())))
    }

    fn interrupt(&mut self, py: Python<'_>) {
        let reader = self.reader.bind(py).clone();
        let restored = self.woken(&reader).and_then(|data| {
            // What came for a read that was cancelled is there for the next one, as in asyncio.
            let Some(data) = data else { return Ok(()) };
            let buffer = reader.getattr(pyo3::intern!(py, "_buffer"))?;
            let joined = data.bind(py).as_any().add(&buffer)?;
            buffer.call_method0("clear")?;
            buffer.call_method1("extend", (joined,))?;
            Ok(())
        });
        if let Err(error) = restored {
            error.write_unraisable(py, Some(&reader));
        }
    }

    fn referents(&self) -> [Option<&Py<PyAny>>; 3] {
        [Some(&self.reader), None, None]
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::AtMost(_) => "StreamReader.read",
            Kind::Exactly(_) => "StreamReader.readexactly",
            Kind::Line => "StreamReader.readline",
            Kind::Until(_) => "StreamReader.readuntil",
        }
    }
}

fn start<'py>(slf: Borrowed<'_, 'py, PyAny>, kind: Kind) -> PyResult<Bound<'py, PyAny>> {
    let reading =
        Reading { reader: slf.to_owned().unbind(), kind, handoff: None, waiting: false, searched: 0 };
    operation::new(slf.py(), Box::new(reading))
}

/// A positive count; anything else is for asyncio's own method.
fn positive(argument: Option<Borrowed<'_, '_, PyAny>>) -> Option<usize> {
    let count = argument?.cast_exact::<PyInt>().ok()?.extract::<isize>().ok()?;
    usize::try_from(count).ok().filter(|count| *count > 0)
}

/// Call asyncio's own method with the same arguments.
fn plain<'py>(
    slf: Borrowed<'_, 'py, PyAny>,
    name: &CStr,
    args: Args<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let class = PLAIN_READER.import(py, "asyncio", "StreamReader")?;
    let method = class.as_any().getattr(name.to_string_lossy().as_ref())?;
    let keywords = pyo3::types::PyDict::new(py);
    for (name, value) in args.keywords() {
        keywords.set_item(name, value)?;
    }
    let mut values = vec![slf.to_owned()];
    values.extend((0..args.len()).filter_map(|index| args.get(index).map(|value| value.to_owned())));
    method.call(pyo3::types::PyTuple::new(py, values)?, Some(&keywords))
}

struct Read;

impl FastMethod for Read {
    const NAME: &'static CStr = c"read";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        match positive(args.get(0)) {
            Some(count) if args.len() == 1 && !args.has_keywords() => start(slf, Kind::AtMost(count)),
            _ => plain(slf, Self::NAME, args),
        }
    }
}

struct ReadExactly;

impl FastMethod for ReadExactly {
    const NAME: &'static CStr = c"readexactly";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        match positive(args.get(0)) {
            Some(count) if args.len() == 1 && !args.has_keywords() => start(slf, Kind::Exactly(count)),
            _ => plain(slf, Self::NAME, args),
        }
    }
}

struct ReadLine;

impl FastMethod for ReadLine {
    const NAME: &'static CStr = c"readline";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        if args.len() == 0 && !args.has_keywords() {
            start(slf, Kind::Line)
        } else {
            plain(slf, Self::NAME, args)
        }
    }
}

struct ReadUntil;

impl FastMethod for ReadUntil {
    const NAME: &'static CStr = c"readuntil";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let separator = match args.bind("readuntil", ["separator"], 0)? {
            [None] => Some(PyBytes::new(slf.py(), b"\n")),
            [Some(separator)] => separator.cast_exact::<PyBytes>().ok().map(|s| s.to_owned()),
        };
        match separator {
            Some(separator) if !separator.as_bytes().is_empty() => {
                start(slf, Kind::Until(separator.unbind()))
            }
            _ => plain(slf, Self::NAME, args),
        }
    }
}
