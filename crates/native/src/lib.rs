//! The extension module `headrace._native`: the one crate that names pyo3.

mod build;
mod eventloop;
mod ffi;
mod guest;
mod http;
mod load;
mod parker;

use pyo3::prelude::*;

/// Native parts of Headrace. The public API is `headrace`; nothing here is stable.
#[pymodule(gil_used = true)]
mod _native {
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        build::add_to(module)?;
        http::add_to(module)?;
        load::add_to(module)?;
        eventloop::add_to(module)
    }
}
