//! A run: threads that load, and one that opens their window and keeps the server's account.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockAddr;

use crate::account::{self, Account};
use crate::clock::nanos;
use crate::echo::Echo;
use crate::expectation::Reference;
use crate::http::{Http, Prepared, Request};
use crate::mix::Mix;
use crate::plan::Plan;
use crate::report::{Report, ServerCpu};
use crate::resp::Resp;
use crate::shared::{Shared, Window};
use crate::stats::Stats;
use crate::target::{Endpoint, PlanError, RedisLoad, Service, refuse};
use crate::tls::TlsPlan;
use crate::worker::{Outcome, Part, Worker};
use crate::ws::{WebSocket, WebSocketLoad};

/// How far a run is, its warm-up excluded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// Connections open now.
    pub open: usize,
    /// Good answers so far.
    pub good: u64,
    /// Faults so far.
    pub errors: u64,
    /// Seconds since the first request; `None` before it.
    pub elapsed: Option<f64>,
}

/// A run under way, on threads of its own.
#[derive(Debug)]
pub struct Run {
    shared: Arc<Shared>,
    conductor: JoinHandle<io::Result<Report>>,
}

/// What the threads speak, prepared once for all.
enum Speech {
    Http(Vec<(Prepared, Arc<Reference>)>, Vec<u32>),
    Echo(usize),
    Redis(RedisLoad, Arc<Reference>),
    WebSocket(Arc<WebSocketLoad>),
}

/// How often the server's accounts are looked at, so that children that come and go are counted.
const SAMPLE: u64 = 100_000_000;
/// Looking at the accounts may take one part in so many of the time: a server of hundreds of threads has as many
/// files to read, on a core that the load may need.
const SAMPLE_SHARE: u64 = 100;
/// How long one of several addresses may take to show whether it takes a connection.
const PROBE: Duration = Duration::from_secs(1);
/// From the moment all threads are ready to the first request, so that all begin together.
const NOTICE: u64 = 2_000_000;

impl Run {
    /// Check the plan and set out.
    ///
    /// # Errors
    /// What [`Plan::check`] refuses; a host without an address; a server process that is not there.
    pub fn start(plan: Plan) -> Result<Self, PlanError> {
        plan.check()?;
        let address = resolve(&plan.target.endpoint)?;
        if let Some(pid) = plan.server.filter(|pid| !account::exists(*pid)) {
            return refuse(format!("there is no process {pid} whose CPU time could be read"));
        }
        let speech = match &plan.target.service {
            Service::Http { host, path } => {
                let kind = |request: &Request| {
                    let reference = Reference::new(request.expectation.clone());
                    Ok((request.prepare(host, path)?, Arc::new(reference)))
                };
                let kinds: Result<_, PlanError> = plan.requests.iter().map(kind).collect();
                Speech::Http(kinds?, plan.requests.iter().map(|request| request.weight).collect())
            }
            Service::WebSocket { host, path } => Speech::WebSocket(Arc::new(plan.websocket(host, path)?)),
            Service::Echo { size } => Speech::Echo(*size),
            Service::Redis(load) => {
                Speech::Redis(load.clone(), Arc::new(Reference::new(plan.values.clone())))
            }
        };
        let authorities = plan.authorities.as_deref();
        let tls = plan.target.tls.as_ref().map(|name| TlsPlan::new(name, authorities)).transpose()?;
        let shared = Arc::new(Shared::new(plan.threads));
        let theirs = Arc::clone(&shared);
        let conductor = thread::Builder::new()
            .name("headrace-load".to_owned())
            .spawn(move || conduct(&plan, &theirs, &address, tls.as_ref(), &speech))
            .map_err(|error| PlanError(format!("cannot start a thread: {error}")))?;
        Ok(Self { shared, conductor })
    }

    /// Whether the run is over.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.conductor.is_finished()
    }

    /// End the run before its time; what was counted so far is reported.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// How far the run is.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let sum = |of: fn(&crate::shared::Progress) -> u64| self.shared.progress.iter().map(of).sum();
        let elapsed = self.shared.window.get().map(|window| {
            let now = self.shared.clock.now().min(window.end);
            now.saturating_sub(window.begin) as f64 / 1e9
        });
        Snapshot {
            open: self.shared.progress.iter().map(|p| p.open.load(Ordering::Relaxed)).sum(),
            good: sum(|p| p.good.load(Ordering::Relaxed)),
            errors: sum(|p| p.errors.load(Ordering::Relaxed)),
            elapsed,
        }
    }

    /// Wait for the end of the run.
    ///
    /// # Errors
    /// The system's, met while the threads were set up: out of file descriptors, threads or memory.
    pub fn finish(self) -> io::Result<Report> {
        self.conductor.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the run has panicked")))
    }
}

fn resolve(endpoint: &Endpoint) -> Result<SockAddr, PlanError> {
    match endpoint {
        Endpoint::Tcp(host_and_port) => match host_and_port.to_socket_addrs() {
            Ok(found) => match reachable(found.collect()) {
                Some(address) => Ok(address.into()),
                None => refuse(format!("the host of {host_and_port} has no address")),
            },
            Err(error) => refuse(format!("cannot find the host of {host_and_port}: {error}")),
        },
        Endpoint::Unix(path) => unix_address(path),
    }
}

/// The first of a name's addresses that takes a connection, or just the first: `localhost` is often both ::1
/// and 127.0.0.1, and a server listens on one of them. A single address is not tried.
fn reachable(addresses: Vec<SocketAddr>) -> Option<SocketAddr> {
    let takes = |address: &&SocketAddr| TcpStream::connect_timeout(address, PROBE).is_ok();
    match addresses.as_slice() {
        [_, _, ..] => addresses.iter().find(takes).or(addresses.first()).copied(),
        _ => addresses.first().copied(),
    }
}

fn unix_address(path: &Path) -> Result<SockAddr, PlanError> {
    SockAddr::unix(path)
        .map_err(|error| PlanError(format!("{} is no socket's path: {error}", path.display())))
}

/// How many of `connections` thread `thread` of `threads` has: all are given out, none more than one apart.
fn share(connections: usize, thread: usize, threads: usize) -> usize {
    connections / threads + usize::from(thread < connections % threads)
}

fn work(part: Part<'_>, speech: &Speech) -> io::Result<Outcome> {
    let (plan, thread) = (part.plan, part.thread);
    let seed = plan.seed.wrapping_add(thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match speech {
        Speech::Http(kinds, weights) => {
            let http = Http::new(kinds.clone(), Mix::new(weights, seed), plan.pipeline);
            Ok(Worker::new(part, http)?.run())
        }
        Speech::Echo(size) => Ok(Worker::new(part, Echo::new(*size, plan.pipeline))?.run()),
        Speech::Redis(load, reference) => {
            let resp = Resp::new(load, Arc::clone(reference), seed, thread, plan.threads);
            Ok(Worker::new(part, resp)?.run())
        }
        Speech::WebSocket(load) => Ok(Worker::new(part, WebSocket::new(Arc::clone(load), seed))?.run()),
    }
}

fn conduct(
    plan: &Plan,
    shared: &Shared,
    address: &SockAddr,
    tls: Option<&TlsPlan>,
    speech: &Speech,
) -> io::Result<Report> {
    thread::scope(|scope| {
        let mut workers = Vec::with_capacity(plan.threads);
        for thread in 0..plan.threads {
            let body = move || {
                let connections = share(plan.connections, thread, plan.threads);
                let outcome = work(Part { shared, plan, address, tls, thread, connections }, speech);
                if outcome.is_err() {
                    // The others must not wait for a thread that could not start.
                    shared.stop();
                }
                outcome
            };
            let name = format!("headrace-load-{thread}");
            match thread::Builder::new().name(name).spawn_scoped(scope, body) {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    shared.stop();
                    return Err(error);
                }
            }
        }
        let server = watch(plan, shared);
        let stopped_at = shared.clock.now();
        let mut outcomes = Vec::with_capacity(workers.len());
        for worker in workers {
            let outcome =
                worker.join().unwrap_or_else(|_| Err(io::Error::other("a load thread has panicked")));
            outcomes.push(outcome?);
        }
        Ok(report(plan, shared, stopped_at, server, outcomes))
    })
}

/// Open the window when all threads are ready, and keep the server's account until it closes.
fn watch(plan: &Plan, shared: &Shared) -> Option<ServerCpu> {
    while shared.ready.load(Ordering::Relaxed) < plan.threads {
        if shared.stopped() {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let begin = shared.clock.now() + NOTICE;
    let start = begin + nanos(plan.warmup);
    let end = start + nanos(plan.duration);
    shared.window.set(Window { begin, start, end }).expect("only this thread sets it, once");
    sleep_until(shared, start);
    let mut account = plan.server.map(Account::open);
    let (mut next, mut pause) = (start, SAMPLE);
    while !shared.stopped() && next < end {
        next = (next + pause).min(end);
        sleep_until(shared, next);
        if let Some(account) = &mut account {
            let before = shared.clock.now();
            account.sample();
            pause = SAMPLE.max(SAMPLE_SHARE * (shared.clock.now() - before));
        }
    }
    account.map(|account| ServerCpu {
        pid: plan.server.unwrap_or_default(),
        nanos: account.nanos(),
        processes: account.processes(),
    })
}

/// Sleep until `until`, or until the run is stopped.
fn sleep_until(shared: &Shared, until: u64) {
    while !shared.stopped() {
        let left = until.saturating_sub(shared.clock.now());
        if left == 0 {
            return;
        }
        thread::sleep(Duration::from_nanos(left.min(SAMPLE)));
    }
}

fn report(
    plan: &Plan,
    shared: &Shared,
    stopped_at: u64,
    server: Option<ServerCpu>,
    outcomes: Vec<Outcome>,
) -> Report {
    let window = shared.window.get();
    let nanoseconds = window.map_or(0, |w| stopped_at.min(w.end).saturating_sub(w.start));
    let mut report = Report {
        url: plan.target.url.clone(),
        protocol: plan.target.protocol(),
        connections: plan.connections,
        open: 0,
        threads: plan.threads,
        pipeline: plan.pipeline,
        schedule: plan.schedule,
        seconds: nanoseconds as f64 / 1e9,
        interrupted: shared.stopped(),
        stats: Stats::new(plan.kinds().len()),
        intervals: shared.intervals.finish(),
        kinds: plan.kinds(),
        offered: 0,
        unsent: 0,
        awaited: 0,
        client_cpu: 0,
        client_share: 0.0,
        server,
        first_error: None,
    };
    for outcome in outcomes {
        report.stats.add(&outcome.stats);
        report.offered += outcome.offered;
        report.unsent += outcome.unsent;
        report.awaited += outcome.awaited;
        report.open += outcome.open;
        report.client_cpu += outcome.cpu;
        if nanoseconds > 0 {
            report.client_share = report.client_share.max(outcome.cpu as f64 / nanoseconds as f64);
        }
        report.first_error = report.first_error.or(outcome.first_error);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_is_given_out() {
        for (connections, threads) in [(500, 12), (100, 12), (1, 1), (7, 7), (10_000, 3)] {
            let shares: Vec<usize> = (0..threads).map(|t| share(connections, t, threads)).collect();
            assert_eq!(shares.iter().sum::<usize>(), connections);
            let (most, least) = (shares.iter().max(), shares.iter().min());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
        }
    }
}
