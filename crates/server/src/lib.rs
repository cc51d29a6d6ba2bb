//! HTTP server over the engine, for any [`App`]; it knows no Python.
//!
//! Three rules hold here:
//! 1. No borrow of the server's state is held while the application runs: it may call back at any time, from
//!    inside [`App::request`] or much later.
//! 2. What an application names is an [`ExchangeId`]. One that is over, or whose client has gone, is known as
//!    such; a late call is an answer ([`SendError::Gone`]), never a fault.
//! 3. Time is a parameter. Deadlines come out of [`Server::next_deadline`] and go in by [`Server::expire`].

#![forbid(unsafe_code)]

mod access;
mod answer;
mod app;
pub mod config;
mod connection;
mod core;
mod date;
mod detach;
mod exchange;
mod file;
mod held;
mod late;
mod output;
mod server;
mod upgrade;

pub use access::AccessFormat;
pub use app::{App, ConnectionInfo};
pub use config::Config;
pub use exchange::{BodyRead, ExchangeId, SendError, WriteState};
pub use file::FileSpan;
pub use headrace_http1 as http1;
pub use held::HeldOutput;
pub use output::Payload;
pub use server::{Server, Statistics};
