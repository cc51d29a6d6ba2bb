//! What a run has shown.

use crate::intervals::Interval;
use crate::resp::reply_name;
use crate::schedule::Schedule;
use crate::stats::{Fault, Stats};

/// A client thread at this share of its core may have been the limit itself: k6 asks for a fifth of idle time.
pub const BOUND_SHARE: f64 = 0.8;

/// CPU time of the server's process tree in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCpu {
    /// The process that was asked for.
    pub pid: u32,
    /// Nanoseconds on a CPU, of the process, its threads and its descendants.
    pub nanos: u64,
    /// Processes seen.
    pub processes: usize,
}

/// What a run has shown, counted in its window.
#[derive(Clone, Debug)]
pub struct Report {
    /// The URL.
    pub url: String,
    /// `http`, `tcp`, `unix` or `redis`.
    pub protocol: &'static str,
    /// Connections asked for.
    pub connections: usize,
    /// Connections open at the end.
    pub open: usize,
    /// Threads.
    pub threads: usize,
    /// Requests in one piece.
    pub pipeline: usize,
    /// How requests arrived.
    pub schedule: Schedule,
    /// Seconds of the window; shorter than asked for when the run was stopped.
    pub seconds: f64,
    /// Whether it was stopped.
    pub interrupted: bool,
    /// What was counted.
    pub stats: Stats,
    /// The window second by second, where a log is kept.
    pub intervals: Vec<Interval>,
    /// Names of the kinds of requests, in the order of [`Stats::kinds`].
    pub kinds: Vec<String>,
    /// Open loop: requests meant to start in the window.
    pub offered: u64,
    /// Open loop: of those, never sent for want of a free connection.
    pub unsent: u64,
    /// Requests without an answer when the window closed.
    pub awaited: u64,
    /// CPU time of the client's threads, nanoseconds.
    pub client_cpu: u64,
    /// The largest share of a core that a client thread used.
    pub client_share: f64,
    /// The server's CPU time, where its process was given.
    pub server: Option<ServerCpu>,
    /// The first thing that went wrong, in words.
    pub first_error: Option<(Fault, String)>,
}

impl Report {
    /// Good answers a second.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.stats.good as f64 / self.seconds } else { 0.0 }
    }

    /// Answers by status code (HTTP) or kind of reply (Redis), good or not.
    pub fn statuses(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let redis = self.protocol == "redis";
        let name = move |code: u16| if redis { reply_name(code).to_owned() } else { code.to_string() };
        self.stats.statuses().filter(|(code, _)| *code > 0).map(move |(code, count)| (name(code), count))
    }

    /// Whether the client may have been the limit itself.
    #[must_use]
    pub fn client_bound(&self) -> bool {
        self.client_share >= BOUND_SHARE
    }
}
