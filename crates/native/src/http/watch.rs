//! A thread for the case that the application blocks the loop's: answers held back for others go out all the same.

use std::io;
use std::thread;
use std::time::Instant;

use pyo3::prelude::*;

use super::python::HttpServer;

/// Start the thread. It ends when the server is closed, and sleeps while there is no traffic.
pub(super) fn start(server: &Bound<'_, HttpServer>) -> io::Result<()> {
    let output = server.get().server().held_output();
    let server = server.clone().unbind();
    thread::Builder::new().name("headrace-watch".to_owned()).spawn(move || {
        let mut interpreter = Some(());
        while interpreter.is_some() && output.wait_until_stuck() {
            interpreter = Python::try_attach(|_| server.get().server().flush_held(Instant::now()));
        }
        // The object goes where it may: it would wait for the next thread that is attached.
        Python::try_attach(move |_| drop(server));
    })?;
    Ok(())
}
