//! Load generator over the engine: drives a server and measures what its clients would see.
//!
//! A [`Plan`] says what to do, [`Run`] does it on threads of its own, a [`Report`] says what was seen.
//! Threads share nothing while they load but a window of time and a flag. What is spoken is a `Protocol`
//! (bytes in, bytes out); the driver in `worker` knows sockets and clocks and no protocol.

#![forbid(unsafe_code)]

mod account;
mod clock;
mod connection;
#[cfg(test)]
mod cuts;
mod echo;
mod expectation;
mod http;
mod intervals;
mod mix;
mod plan;
mod protocol;
mod random;
mod report;
mod resp;
mod run;
mod schedule;
mod shared;
mod stats;
mod target;
mod timer;
mod tls;
mod wire;
mod worker;
mod ws;

pub use expectation::Expectation;
pub use hdrhistogram::Histogram;
pub use http::{Body, Request};
pub use intervals::{Interval, encode};
pub use plan::Plan;
pub use report::{BOUND_SHARE, Report, ServerCpu};
pub use run::{Run, Snapshot};
pub use schedule::Schedule;
pub use stats::{Errors, Fault, KindStats, Stats};
pub use target::{Command, Endpoint, PlanError, RedisLoad, Service, Target};
