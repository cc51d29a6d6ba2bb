//! What is to be done: everything the user says, checked before the first connection is opened.

use std::time::Duration;

use crate::expectation::Expectation;
use crate::http::{Body, Request};
use crate::schedule::Schedule;
use crate::target::{PlanError, Service, Target, refuse};
use crate::ws::{DEFAULT_SIZE, WebSocketLoad};

/// A run, as the user asks for it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to, and what is spoken.
    pub target: Target,
    /// Connections that are kept open, all threads together: exactly so many.
    pub connections: usize,
    /// Threads that share them; at most one for each connection.
    pub threads: usize,
    /// How long requests are sent before counting begins.
    pub warmup: Duration,
    /// How long requests are counted.
    pub duration: Duration,
    /// How requests arrive.
    pub schedule: Schedule,
    /// Requests that a connection sends in one piece, before it waits for all their answers.
    pub pipeline: usize,
    /// How long a connection may take to open, and an answer to come.
    pub timeout: Duration,
    /// Process whose CPU time is counted, with its children.
    pub server: Option<u32>,
    /// Keep a histogram of each second, for an HDR log.
    pub log: bool,
    /// Seed of all that is random: the same seed gives the same run.
    pub seed: u64,
    /// The requests, for `http`: one at least.
    pub requests: Vec<Request>,
    /// Certificates in PEM, to verify the server's by; without them none is verified.
    pub authorities: Option<Vec<u8>>,
    /// What the values that Redis answers must be.
    pub values: Expectation,
}

/// Connections: four times as many as one address pair has ports is surely a slip.
const MAX_CONNECTIONS: usize = 1 << 18;
/// Requests in one piece; redis-benchmark's users go to some hundreds.
const MAX_PIPELINE: usize = 10_000;
const MAX_THREADS: usize = 1024;
/// A day: longer runs are soak tests, whose histograms nobody would wait for.
const MAX_SECONDS: u64 = 86_400;
/// Bytes of the requests that are sent in one piece.
const MAX_BATCH: usize = 1 << 30;

impl Plan {
    /// A plan with the defaults: 64 connections on one thread, 10 s, closed loop, no pipelining, a timeout of
    /// 10 s, GET, answers like the first.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            connections: 64,
            threads: 1,
            warmup: Duration::ZERO,
            duration: Duration::from_secs(10),
            schedule: Schedule::Closed,
            pipeline: 1,
            timeout: Duration::from_secs(10),
            server: None,
            log: false,
            seed: 1,
            requests: vec![Request::default()],
            authorities: None,
            values: Expectation::default(),
        }
    }

    /// Refuse what cannot be meant.
    ///
    /// # Errors
    /// One line that names the option and what it may be.
    pub fn check(&self) -> Result<(), PlanError> {
        let day = Duration::from_secs(MAX_SECONDS);
        if !(1..=MAX_CONNECTIONS).contains(&self.connections) {
            return refuse(format!("the number of connections must be from 1 to {MAX_CONNECTIONS}"));
        }
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return refuse(format!("the number of threads must be from 1 to {MAX_THREADS}"));
        }
        if self.threads > self.connections {
            return refuse(format!(
                "{} threads cannot share {} connections: each thread needs one",
                self.threads, self.connections
            ));
        }
        if self.duration.is_zero() || self.duration > day {
            return refuse("the duration must be above 0 and at most a day");
        }
        if self.warmup > day {
            return refuse("the warm-up must be at most a day");
        }
        if self.timeout.is_zero() || self.timeout > day {
            return refuse("the timeout must be above 0 and at most a day");
        }
        if !(1..=MAX_PIPELINE).contains(&self.pipeline) {
            return refuse(format!("the pipeline must be from 1 to {MAX_PIPELINE} requests"));
        }
        if self.pipeline > 1 && self.schedule != Schedule::Closed {
            return refuse(
                "requests that arrive at a rate are sent one by one: give either a rate or a pipeline",
            );
        }
        self.schedule.check()?;
        let bytes = match &self.target.service {
            Service::Http { host, path } => self.check_requests(host, path)?,
            Service::WebSocket { host, path } => self.websocket(host, path)?.message.len() + 64,
            _ if self.requests != [Request::default()] => {
                return refuse("methods, headers, bodies and expected answers belong to http:// URLs");
            }
            Service::Echo { size } => *size,
            // The longest command is a SET, with about fifty bytes around its value.
            Service::Redis(load) => load.size + 64,
        };
        if bytes.saturating_mul(self.pipeline) > MAX_BATCH {
            return refuse("the requests of one pipeline must have at most 1 GiB together");
        }
        Ok(())
    }

    /// Check the HTTP requests; says how many bytes the longest has.
    fn check_requests(&self, host: &str, path: &str) -> Result<usize, PlanError> {
        let mut longest = 0;
        let mut weights = 0;
        for request in &self.requests {
            weights += u64::from(request.weight);
            longest = longest.max(request.prepare(host, path)?.bytes.len());
            if request.expectation.status.is_some_and(|status| !(100..=999).contains(&status)) {
                return refuse("the expected status must have three digits");
            }
        }
        if weights == 0 {
            return refuse("there must be a request whose weight is above 0");
        }
        Ok(longest)
    }

    /// What is sent over WebSockets at `path`: the fields of the one request belong to the opening handshake, its
    /// body is the message.
    pub(crate) fn websocket(&self, host: &str, path: &str) -> Result<WebSocketLoad, PlanError> {
        let [request] = self.requests.as_slice() else {
            return refuse("several requests belong to http:// URLs");
        };
        if request.method != "GET" || request.expectation.status.is_some() {
            return refuse(
                "a WebSocket is opened by GET and has no status: -m and --expect-status do not fit it",
            );
        }
        let opening = Request { body: Body::None, ..request.clone() }.prepare(host, path)?;
        // Without its empty line: the fields of the handshake follow.
        let head = opening.bytes[..opening.bytes.len() - 2].to_vec();
        let message = match &request.body {
            Body::None => vec![b'x'; DEFAULT_SIZE],
            body => body.bytes()?,
        };
        Ok(WebSocketLoad { head, message, expectation: request.expectation.clone() })
    }

    /// Names of the kinds of requests, in their order.
    #[must_use]
    pub fn kinds(&self) -> Vec<String> {
        match &self.target.service {
            Service::Http { path, .. } => self.requests.iter().map(|request| request.label(path)).collect(),
            Service::Echo { .. } => vec!["echo".to_owned()],
            Service::WebSocket { .. } => vec!["message".to_owned()],
            Service::Redis(load) => {
                load.commands.iter().map(|(command, _)| command.name().to_owned()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(url: &str) -> Plan {
        Plan::new(Target::parse(url).expect(url))
    }

    #[test]
    fn defaults_pass() {
        for url in ["http://h/", "wss://h/", "tcp://h:1", "unix:/s", "http+unix:/s:/"] {
            assert_eq!(plan(url).check(), Ok(()), "{url}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let refused = |change: fn(&mut Plan), word: &str| {
            let mut plan = plan("http://h/");
            change(&mut plan);
            let error = plan.check().expect_err(word).to_string();
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        };
        refused(|p| p.connections = 0, "connections");
        refused(|p| p.connections = 1 << 20, "connections");
        refused(|p| p.threads = 0, "threads");
        refused(|p| p.threads = 65, "each thread needs one");
        refused(|p| p.duration = Duration::ZERO, "duration");
        refused(|p| p.timeout = Duration::ZERO, "timeout");
        refused(|p| p.pipeline = 0, "pipeline");
        refused(|p| p.schedule = Schedule::Open { from: 0.0, to: 1.0, poisson: false }, "rate");
        refused(|p| p.requests[0].expectation.status = Some(20), "three digits");
        refused(|p| p.requests[0].headers = vec!["nonsense".into()], "no colon");
        refused(|p| p.requests[0].weight = 0, "weight");
        refused(|p| p.requests.clear(), "weight");
        refused(
            |p| {
                p.pipeline = 2;
                p.schedule = Schedule::Open { from: 5.0, to: 5.0, poisson: true };
            },
            "either a rate or a pipeline",
        );
    }

    #[test]
    fn http_options_do_not_fit_echo() {
        let mut plan = plan("tcp://h:1");
        plan.requests[0].expectation.status = Some(200);
        assert!(plan.check().is_err());
    }
}
