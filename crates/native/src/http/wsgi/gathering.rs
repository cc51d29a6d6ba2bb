//! A request's body, gathered before the application is called: in memory, and in a temporary file if it is large.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Bytes of a body that are kept in memory; a larger one goes to a temporary file. waitress: 512 KB, Django's
/// uploads 2.5 MB, Werkzeug's 500 KB.
const SPILL_AT: usize = 1024 * 1024;

/// A request whose body is not complete.
pub(super) struct Gathering {
    pub(super) environ: Py<PyDict>,
    memory: Vec<u8>,
    file: Option<Py<PyAny>>,
    length: usize,
}

impl Gathering {
    pub(super) fn new(environ: Py<PyDict>) -> Self {
        Self { environ, memory: Vec::new(), file: None, length: 0 }
    }

    /// Add what has come.
    ///
    /// # Errors
    /// `OSError` of the temporary file: the disk is full.
    pub(super) fn add(&mut self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        self.length += bytes.len();
        if self.file.is_none() && self.memory.len() + bytes.len() > SPILL_AT {
            let file = py.import("tempfile")?.call_method0("TemporaryFile")?;
            let memory = std::mem::take(&mut self.memory);
            file.call_method1(intern!(py, "write"), (PyBytes::new(py, &memory),))?;
            self.file = Some(file.unbind());
        }
        match &self.file {
            None => self.memory.extend_from_slice(bytes),
            Some(file) => {
                file.bind(py).call_method1(intern!(py, "write"), (PyBytes::new(py, bytes),))?;
            }
        }
        Ok(())
    }

    /// The body is complete: the file-like object to read it from.
    ///
    /// A body that came in chunks gets its length, now that it is known: Django and others read no more of
    /// `wsgi.input` than `CONTENT_LENGTH` says (PEP 3333), and waitress, which gathers bodies too, does the same.
    pub(super) fn finish<'py>(
        self,
        py: Python<'py>,
        bytes_io: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let environ = self.environ.bind(py);
        if !environ.contains(intern!(py, "CONTENT_LENGTH"))? {
            environ.set_item(intern!(py, "CONTENT_LENGTH"), self.length.to_string())?;
            environ.del_item(intern!(py, "HTTP_TRANSFER_ENCODING"))?;
        }
        match self.file {
            None => bytes_io.call1((PyBytes::new(py, &self.memory),)),
            Some(file) => {
                let file = file.into_bound(py);
                file.call_method1(intern!(py, "seek"), (0,))?;
                Ok(file)
            }
        }
    }
}
