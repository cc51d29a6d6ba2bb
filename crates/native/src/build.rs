//! What this build is: version, profile, commit and compiler, for `headrace --version` and for reports.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Describe this build of the extension.
///
/// Returns a dict with `version`, `profile` ("release", "quick", "debug"), `commit` (short hash, or
/// "unknown" outside a checkout; `+` when the tree was dirty) and `rustc`.
#[pyfunction]
fn build_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("version", env!("CARGO_PKG_VERSION"))?;
    info.set_item("profile", env!("HEADRACE_PROFILE"))?;
    info.set_item("commit", env!("HEADRACE_COMMIT"))?;
    info.set_item("rustc", env!("HEADRACE_RUSTC"))?;
    Ok(info)
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(build_info, module)?)
}
