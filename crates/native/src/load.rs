//! The load generator for Python: started here, it runs on threads of its own and never needs the GIL.

use std::time::{Duration, Instant};

use headrace_load::{
    Body, Expectation, Fault, Histogram, Plan, PlanError, Report, Request, Run, Schedule, Service, Target,
    encode,
};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// How often a waiting thread looks whether the run is over.
const LOOK: Duration = Duration::from_millis(2);

/// A run of the load generator. Made, it is under way.
#[pyclass(module = "headrace._native")]
struct LoadRun {
    run: Option<Run>,
}

fn refused(error: PlanError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Seconds of a user's as a duration; nonsense becomes zero or very long, which the plan refuses by name.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(if seconds > 0.0 { Duration::MAX } else { Duration::ZERO })
}

/// One request as a dict: its method, and what is not in it has its default.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct RequestItem {
    #[pyo3(default)]
    name: Option<String>,
    #[pyo3(default)]
    path: Option<String>,
    #[pyo3(default = 1)]
    weight: u32,
    method: String,
    #[pyo3(default)]
    headers: Vec<String>,
    #[pyo3(default)]
    body: Option<Vec<u8>>,
    #[pyo3(default)]
    body_size: Option<usize>,
    #[pyo3(default)]
    expect_status: Option<u16>,
    #[pyo3(default)]
    expect_body_length: Option<u64>,
    #[pyo3(default)]
    expect_body: Option<Vec<u8>>,
    #[pyo3(default)]
    any_length: bool,
}

impl From<RequestItem> for Request {
    fn from(item: RequestItem) -> Self {
        Self {
            name: item.name,
            path: item.path,
            weight: item.weight,
            method: item.method,
            headers: item.headers,
            body: match (item.body, item.body_size) {
                (Some(bytes), _) => Body::Bytes(bytes),
                (None, Some(size)) => Body::Size(size),
                (None, None) => Body::None,
            },
            expectation: Expectation {
                status: item.expect_status,
                body_length: item.expect_body_length,
                body: item.expect_body,
                any_length: item.any_length,
            },
        }
    }
}

#[pymethods]
impl LoadRun {
    #[new]
    #[pyo3(signature = (
        url, *, connections=64, threads=1, duration=10.0, warmup=0.0, rate=None, rate_to=None, poisson=false,
        pipeline=1, timeout=10.0, pid=None, seed=1, log=false, cacert=None,
        requests=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python class")]
    fn new(
        url: &str,
        connections: usize,
        threads: usize,
        duration: f64,
        warmup: f64,
        rate: Option<f64>,
        rate_to: Option<f64>,
        poisson: bool,
        pipeline: usize,
        timeout: f64,
        pid: Option<u32>,
        seed: u64,
        log: bool,
        cacert: Option<Vec<u8>>,
        requests: Option<Vec<RequestItem>>,
    ) -> PyResult<Self> {
        if warmup.is_nan() || warmup < 0.0 {
            return Err(PyValueError::new_err("the warm-up must not be negative"));
        }
        let mut plan = Plan::new(Target::parse(url).map_err(refused)?);
        plan.connections = connections;
        plan.threads = threads;
        plan.duration = seconds(duration);
        plan.warmup = seconds(warmup);
        plan.schedule = match rate {
            None => Schedule::Closed,
            Some(from) => Schedule::Open { from, to: rate_to.unwrap_or(from), poisson },
        };
        plan.pipeline = pipeline;
        plan.timeout = seconds(timeout);
        plan.server = pid;
        plan.seed = seed;
        plan.log = log;
        plan.authorities = cacert;
        if let Some(requests) = requests {
            plan.requests = requests.into_iter().map(Request::from).collect();
        }
        if let (Service::Redis(_), Some(first)) = (&plan.target.service, plan.requests.first_mut()) {
            // Redis has no requests of its own, only values that may be checked.
            plan.values = std::mem::take(&mut first.expectation);
        }
        Ok(Self { run: Some(Run::start(plan).map_err(refused)?) })
    }

    /// Wait at most so many seconds for the end of the run; says whether it is over.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let Some(run) = &self.run else { return true };
        let deadline = Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or_default();
        py.detach(|| {
            while !run.is_finished() {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                std::thread::sleep(left.min(LOOK));
            }
            true
        })
    }

    /// End the run before its time.
    fn stop(&self) {
        if let Some(run) = &self.run {
            run.stop();
        }
    }

    /// How far the run is: open connections, good answers, errors, and seconds since the first request.
    fn snapshot(&self) -> PyResult<(usize, u64, u64, Option<f64>)> {
        let run = self.run.as_ref().ok_or_else(taken)?;
        let snapshot = run.snapshot();
        Ok((snapshot.open, snapshot.good, snapshot.errors, snapshot.elapsed))
    }

    /// The report, once the run is over; it is given once.
    fn report<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let run = self.run.take().ok_or_else(taken)?;
        let report = py.detach(|| run.finish()).map_err(|error| PyOSError::new_err(error.to_string()))?;
        describe(py, &report)
    }
}

impl Drop for LoadRun {
    fn drop(&mut self) {
        self.stop();
    }
}

fn taken() -> PyErr {
    PyRuntimeError::new_err("the report was taken already")
}

fn describe<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let (stats, requests) = (&report.stats, report.stats.good);
    let each = |nanos: u64| (requests > 0).then(|| nanos as f64 / requests as f64);
    let all = PyDict::new(py);
    all.set_item("url", &report.url)?;
    all.set_item("protocol", report.protocol)?;
    all.set_item("connections", report.connections)?;
    all.set_item("connections_open", report.open)?;
    all.set_item("threads", report.threads)?;
    all.set_item("pipeline", report.pipeline)?;
    all.set_item("duration_s", report.seconds)?;
    all.set_item("interrupted", report.interrupted)?;
    all.set_item("rate", report.schedule.rate())?;
    let (arrivals, ramp) = match report.schedule {
        Schedule::Closed => (None, None),
        Schedule::Open { from, to, poisson } => {
            (Some(if poisson { "poisson" } else { "constant" }), (from != to).then_some([from, to]))
        }
    };
    all.set_item("arrivals", arrivals)?;
    all.set_item("ramp", ramp)?;
    all.set_item("requests", requests)?;
    all.set_item("requests_per_second", report.requests_per_second())?;
    let open_loop = report.schedule.rate().is_some();
    all.set_item("offered", open_loop.then_some(report.offered))?;
    all.set_item("unsent", open_loop.then_some(report.unsent))?;
    all.set_item("awaited", report.awaited)?;
    all.set_item("reconnects", stats.reconnects)?;
    let errors = PyDict::new(py);
    for fault in Fault::ALL {
        errors.set_item(fault.name(), stats.errors.of(fault))?;
    }
    all.set_item("errors", errors)?;
    all.set_item(
        "first_error",
        report.first_error.as_ref().map(|(fault, why)| format!("{}: {why}", fault.name())),
    )?;
    let status = PyDict::new(py);
    for (name, count) in report.statuses() {
        status.set_item(name, count)?;
    }
    all.set_item("status", status)?;
    all.set_item("bytes_in", stats.bytes_in)?;
    all.set_item("bytes_out", stats.bytes_out)?;
    all.set_item("latency_us", spread(py, &stats.latency)?)?;
    all.set_item("histogram", PyBytes::new(py, &encode(&stats.latency)))?;
    all.set_item("lag_us", if open_loop { Some(spread(py, &stats.lag)?) } else { None })?;
    let client = PyDict::new(py);
    client.set_item("cpu_ns_per_request", each(report.client_cpu))?;
    client.set_item("cpu_share", report.client_share)?;
    client.set_item("bound", report.client_bound())?;
    all.set_item("client", client)?;
    if let Some(cpu) = report.server {
        let server = PyDict::new(py);
        server.set_item("pid", cpu.pid)?;
        server.set_item("cpu_ns", cpu.nanos)?;
        server.set_item("cpu_ns_per_request", each(cpu.nanos))?;
        server.set_item("processes", cpu.processes)?;
        all.set_item("server", server)?;
    }
    let kinds = PyList::empty(py);
    for (name, seen) in report.kinds.iter().zip(&stats.kinds) {
        let kind = PyDict::new(py);
        kind.set_item("name", name)?;
        kind.set_item("requests", seen.latency.len())?;
        kind.set_item("bad", seen.bad)?;
        kind.set_item("latency_us", spread(py, &seen.latency)?)?;
        kinds.append(kind)?;
    }
    all.set_item("kinds", kinds)?;
    let intervals = PyList::empty(py);
    for interval in &report.intervals {
        intervals.append((interval.count, interval.max, PyBytes::new(py, &interval.encoded)))?;
    }
    all.set_item("intervals", intervals)?;
    Ok(all)
}

/// The figures of a histogram of microseconds; `None` for each when it is empty.
fn spread<'py>(py: Python<'py>, histogram: &Histogram<u64>) -> PyResult<Bound<'py, PyDict>> {
    let figures = PyDict::new(py);
    let some = !histogram.is_empty();
    figures.set_item("min", some.then(|| histogram.min()))?;
    figures.set_item("mean", some.then(|| histogram.mean()))?;
    figures.set_item("stdev", some.then(|| histogram.stdev()))?;
    for (name, quantile) in [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
        figures.set_item(name, some.then(|| histogram.value_at_quantile(quantile)))?;
    }
    figures.set_item("max", some.then(|| histogram.max()))?;
    Ok(figures)
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LoadRun>()
}
