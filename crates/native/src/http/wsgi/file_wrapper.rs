//! `wsgi.file_wrapper` (PEP 3333, "Optional Platform-Specific File Handling").

use std::os::fd::OwnedFd;

use headrace_server::FileSpan;
use pyo3::intern;
use pyo3::prelude::*;

use crate::ffi::descriptor;

/// What an application wraps a file in to have it sent as its answer.
///
/// A regular file that Python has opened in binary mode goes from the kernel's cache to the socket, from its
/// current position on, and of it what Content-Length says. Anything else with a `read` is read, piece by piece.
///
/// :param file: what to send.
/// :param block_size: bytes to read at a time.
#[pyclass(frozen, module = "headrace._native")]
pub(crate) struct FileWrapper {
    file: Py<PyAny>,
    block_size: usize,
}

#[pymethods]
impl FileWrapper {
    #[new]
    #[pyo3(signature = (file, block_size=65536, /))]
    fn new(file: Py<PyAny>, block_size: usize) -> Self {
        Self { file, block_size }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let data = self.file.bind(py).call_method1(intern!(py, "read"), (self.block_size,))?;
        Ok(data.is_truthy()?.then_some(data))
    }

    /// Close the file.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(close) = self.file.bind(py).getattr_opt(intern!(py, "close"))? {
            close.call0()?;
        }
        Ok(())
    }
}

/// The part of a file that the application's answer stands for, if the kernel can send it.
pub(super) fn span(result: &Bound<'_, PyAny>) -> Option<FileSpan> {
    let py = result.py();
    let wrapper = result.cast_exact::<FileWrapper>().ok()?;
    // Whatever cannot be found out is found out again, and raised, by reading.
    plain(wrapper.get().file.bind(py)).ok().flatten()
}

fn plain(file: &Bound<'_, PyAny>) -> PyResult<Option<FileSpan>> {
    let py = file.py();
    let io = py.import(intern!(py, "io"))?;
    // tempfile's wrappers name the file that they wrap.
    let inner = if file.get_type().module()? == "tempfile" {
        file.getattr(intern!(py, "file"))?
    } else {
        file.clone()
    };
    // Not just anything with a fileno(): that of a gzip.GzipFile is the packed file's.
    let raw = if inner.is_instance(&io.getattr(intern!(py, "BufferedReader"))?)?
        || inner.is_instance(&io.getattr(intern!(py, "BufferedRandom"))?)?
    {
        inner.getattr(intern!(py, "raw"))?
    } else {
        inner.clone()
    };
    if !raw.get_type().is(io.getattr(intern!(py, "FileIO"))?) {
        return Ok(None);
    }
    if inner.call_method0(intern!(py, "writable"))?.is_truthy()? {
        inner.call_method0(intern!(py, "flush"))?;
    }
    // The buffer's position, which is not the descriptor's.
    let offset: u64 = inner.call_method0(intern!(py, "tell"))?.extract()?;
    let fd: i32 = inner.call_method0(intern!(py, "fileno"))?.extract()?;
    let fd: OwnedFd = descriptor::borrowed(fd).try_clone_to_owned()?;
    Ok(FileSpan::new(fd, offset, None).ok())
}
