//! Native `read`, `readline`, `readexactly` and `readuntil` of a stream reader.
//!
//! They work on the state behind the reader's attributes (`_buffer`, `_waiter`, `_paused`, …; see `reader.rs`) and do
//! the common case: data is there, or will come. Whatever else there is (end of stream, an error, a limit overrun,
//! a second reader, odd arguments) goes to asyncio's own method, which starts from the same state.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyInt, PyType};

use super::futures;
use super::reader::{self, ReaderState};
use super::transport::Want;
use crate::ffi::fastcall::{Args, FastMethod, install as install_method};
use crate::ffi::operation::{self, Progress, Step};
use crate::ffi::property;

static PLAIN_READER: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// `asyncio.StreamReader`.
pub(super) fn plain_reader(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    PLAIN_READER.import(py, "asyncio", "StreamReader")
}

/// Give `class`, a subclass of `asyncio.StreamReader` without slots of its own, native read methods.
#[pyfunction]
pub(super) fn _define_reader(class: &Bound<'_, PyType>) -> PyResult<()> {
    reader::install(class)?;
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
    state: Py<ReaderState>,
    kind: Kind,
    waiting: bool,
    /// Bytes of the buffer in which the separator does not begin.
    searched: usize,
}

impl Kind {
    /// How many bytes of the buffer's front are what is asked for; `None` when it takes more of them.
    fn complete(&self, py: Python<'_>, content: &[u8], searched: &mut usize) -> Option<usize> {
        let separator: &[u8] = match self {
            Self::AtMost(count) => return (!content.is_empty()).then(|| content.len().min(*count)),
            Self::Exactly(count) => return (content.len() >= *count).then_some(*count),
            Self::Line => b"\n",
            Self::Until(separator) => separator.as_bytes(py),
        };
        let from = (*searched).min(content.len());
        let found = if let [byte] = separator {
            memchr::memchr(*byte, &content[from..])
        } else {
            memchr::memmem::find(&content[from..], separator)
        };
        *searched = (content.len() + 1).saturating_sub(separator.len());
        found.map(|at| from + at + separator.len())
    }

    /// The length of the separator, where there is one.
    fn separator(&self, py: Python<'_>) -> Option<usize> {
        match self {
            Self::Line => Some(1),
            Self::Until(separator) => Some(separator.as_bytes(py).len()),
            _ => None,
        }
    }
}

impl Reading {
    /// asyncio's own method for this read.
    fn plain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = plain_reader(py)?.as_any();
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

    /// Wait for more: `StreamReader._wait_for_data`.
    fn wait(&mut self, py: Python<'_>, buffered: usize) -> PyResult<Progress> {
        let reader = self.reader.bind(py);
        let state = self.state.get();
        if state.paused.replace(false) {
            let transport = reader.getattr(pyo3::intern!(py, "_transport"))?;
            transport.call_method0(pyo3::intern!(py, "resume_reading"))?;
        }
        state.want.set(match self.kind {
            _ if buffered > 0 => Want::Nothing,
            Kind::AtMost(count) => Want::AtMost(count),
            Kind::Exactly(count) => Want::Exactly(count),
            Kind::Line => Want::Line(state.limit.get()),
            Kind::Until(_) => Want::Nothing,
        });
        let own = property::own(reader.as_borrowed())?;
        let event_loop = match own.get_item(pyo3::intern!(py, "_loop"))? {
            Some(event_loop) => event_loop,
            None => reader.getattr(pyo3::intern!(py, "_loop"))?,
        };
        let future = futures::to_yield(event_loop.as_borrowed())?;
        let old = state.waiter.replace(Some(future.clone().unbind()));
        drop(old);
        self.waiting = true;
        Ok(Progress::Yield(future.unbind()))
    }

    /// No longer waiting.
    fn woken(&mut self) {
        self.waiting = false;
        let state = self.state.get();
        state.want.set(Want::Nothing);
        let old = state.waiter.take();
        drop(old);
    }
}

impl Step for Reading {
    fn step(&mut self, py: Python<'_>) -> PyResult<Progress> {
        if self.waiting {
            self.woken();
            if let Some(data) = self.state.get().handed.take() {
                return Ok(Progress::Return(Some(data.into_any())));
            }
        }
        let Self { state, kind, searched, .. } = self;
        let state = state.get();
        if state.failed() {
            return self.delegate(py);
        }
        let Some(length) = state.buffered(py) else { return self.delegate(py) };
        let complete = state.look(py, |content| kind.complete(py, content, searched)).flatten();
        let most = kind.separator(py).map(|separator| state.limit.get().saturating_add(separator));
        let Some(count) = complete else {
            if most.is_some_and(|most| length > most.saturating_sub(1))
                || state.eof.get()
                || state.waiter.borrow().is_some()
            {
                return self.delegate(py);
            }
            return self.wait(py, length);
        };
        if most.is_some_and(|most| count > most) {
            return self.delegate(py);
        }
        let data = state.take(py, count)?;
        if state.paused.get() {
            let reader = self.reader.bind(py);
            reader.call_method0(pyo3::intern!(py, "_maybe_resume_transport"))?;
        }
        Ok(Progress::Return(Some(data.unbind().into_any())))
    }

    fn interrupt(&mut self, py: Python<'_>) {
        self.woken();
        // What came for a read that was cancelled is there for the next one, as in asyncio.
        if let Err(error) = self.state.get().put_back(py) {
            error.write_unraisable(py, Some(self.reader.bind(py)));
        }
    }

    fn referents(&self) -> [Option<&Py<PyAny>>; 3] {
        [Some(&self.reader), Some(self.state.as_any()), None]
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
    let state = ReaderState::of(slf)?.unbind();
    let reading = Reading { reader: slf.to_owned().unbind(), state, kind, waiting: false, searched: 0 };
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
    let class = plain_reader(py)?;
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
