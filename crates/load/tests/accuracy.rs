//! What is measured against what is known: a server whose delays this file chooses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use headrace_load::{Fault, Plan, Report, Run, Schedule, Target};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server with a thread for each connection, that answers request number n after `delay(n)`. Its threads
/// end with their connections, the one that accepts with the process.
fn server(delay: impl Fn(u64) -> Duration + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let delay = Arc::new(delay);
    let count = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (delay, count) = (Arc::clone(&delay), Arc::clone(&count));
            thread::spawn(move || answer(stream, &*delay, &count));
        }
    });
    address
}

fn answer(mut stream: TcpStream, delay: &dyn Fn(u64) -> Duration, count: &AtomicU64) {
    stream.set_nodelay(true).expect("a TCP socket");
    let mut buffer = [0; 4096];
    while let Ok(received) = stream.read(&mut buffer) {
        if received == 0 {
            return;
        }
        for _ in 0..buffer[..received].windows(4).filter(|end| end == b"\r\n\r\n").count() {
            thread::sleep(delay(count.fetch_add(1, Ordering::Relaxed)));
            if stream.write_all(ANSWER).is_err() {
                return;
            }
        }
    }
}

fn plan(address: SocketAddr, connections: usize, seconds: f64) -> Plan {
    let mut plan = Plan::new(Target::parse(&format!("http://{address}/")).expect("a URL"));
    plan.connections = connections;
    plan.duration = Duration::from_secs_f64(seconds);
    plan
}

/// These tests measure: one at a time, so that they do not disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

/// A pause of a shared machine can only spoil a measurement, never mend a wrong one: of four attempts one has
/// to be right, and the last one's complaint is shown.
fn attempt(measure: impl Fn() -> Result<(), String>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = (0..3).map(|_| measure()).find(Result::is_ok).unwrap_or_else(&measure);
    assert_eq!(outcome, Ok(()));
}

fn within(what: &str, seen: f64, expected: f64, share: f64) -> Result<(), String> {
    let good = (seen / expected - 1.0).abs() <= share;
    if good { Ok(()) } else { Err(format!("{what}: {seen} for {expected}")) }
}

fn run(plan: Plan) -> Report {
    Run::start(plan).expect("a good plan").finish().expect("threads and descriptors")
}

/// One answer in 250 takes 500 ms, the others 20 ms. The quantile of 99.9 % is one of the long ones.
#[test]
fn the_quantile_of_999_in_a_thousand_is_right_to_one_percent() {
    let long = Duration::from_millis(500);
    let address = server(move |n| if n % 250 == 249 { long } else { Duration::from_millis(20) });
    for poisson in [false, true] {
        attempt(|| {
            let mut plan = plan(address, 60, 3.0);
            plan.schedule = Schedule::Open { from: 1000.0, to: 1000.0, poisson };
            let report = run(plan);
            assert_eq!(report.stats.errors.total(), 0);
            assert_eq!(report.stats.good + report.unsent, report.offered);
            let quantile = |of: f64| report.stats.latency.value_at_quantile(of) as f64;
            within("p50", quantile(0.5), 21_000.0, 0.05)?;
            within("p99.9", quantile(0.999), 500_000.0, 0.01)
        });
    }
}

/// The server stands still for half a second once. Users who come meanwhile wait too: a closed loop sees one
/// slow request a connection, an open loop all those that were meant to start.
#[test]
fn a_pause_is_not_forgiven_in_an_open_loop() {
    let once = |n| if n == 50 { Duration::from_millis(500) } else { Duration::ZERO };
    let waited = |schedule| {
        let mut plan = plan(server(once), 1, 1.5);
        plan.schedule = schedule;
        let report = run(plan);
        let slow = report.stats.latency.iter_recorded().filter(|bar| bar.value_iterated_to() > 50_000);
        slow.map(|bar| bar.count_at_value()).sum::<u64>() as f64
    };
    attempt(|| {
        // 200 a second for half a second; those of its last 50 ms wait less than that.
        within("open", waited(Schedule::Open { from: 200.0, to: 200.0, poisson: false }), 90.0, 0.1)?;
        within("closed", waited(Schedule::Closed), 1.0, 0.0)
    });
}

/// Connections and their share of the load are exact, whatever the number of threads.
#[test]
fn no_connection_is_rounded_away() {
    let address = server(|_| Duration::from_millis(10));
    attempt(|| {
        let mut odd = plan(address, 50, 1.0);
        odd.threads = 12;
        let report = run(odd);
        assert_eq!((report.connections, report.open), (50, 50));
        // Little's law: 50 connections that are always busy.
        within("requests", report.stats.good as f64, 50e6 / report.stats.latency.mean(), 0.05)
    });
}

/// Errors are sorted by what went wrong, and never counted as answers.
#[test]
fn a_deadline_that_passes_is_a_timeout_and_not_an_answer() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let address = server(|_| Duration::from_millis(300));
    let mut impatient = plan(address, 3, 0.8);
    impatient.timeout = Duration::from_millis(100);
    let report = run(impatient);
    assert_eq!(report.stats.good, 0);
    let timeouts = report.stats.errors.of(Fault::Timeout);
    assert_eq!(timeouts, report.stats.errors.total());
    assert!((3..=30).contains(&timeouts), "{timeouts}");
}
