//! CPU time of a process tree, from the scheduler's accounts.
//!
//! `/proc/PID/task/TID/schedstat` has nanoseconds on a CPU in its first field (Linux,
//! Documentation/scheduler/sched-stats.rst), where `stat` has ticks of 10 ms. A thread's account goes with
//! it, so the tree is sampled during the run: what a thread used after its last sample is all that is lost.

use std::collections::HashMap;
use std::fs;

/// What one thread had used.
#[derive(Clone, Copy, Debug)]
struct Used {
    before: u64,
    last: u64,
}

/// The accounts of a process, its threads and its descendants.
#[derive(Debug)]
pub(crate) struct Account {
    root: u32,
    threads: HashMap<(u32, u32), Used>,
}

fn numbers(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok())
}

/// Call `visit(pid, tid, nanoseconds)` for each thread of the tree under `root` that is alive.
fn walk(root: u32, visit: &mut impl FnMut(u32, u32, u64)) {
    let mut waiting = vec![root];
    while let Some(pid) = waiting.pop() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let path = task.path();
            let used = fs::read_to_string(path.join("schedstat"));
            let nanos = used.ok().and_then(|text| text.split(' ').next()?.parse().ok());
            if let Some(nanos) = nanos {
                visit(pid, tid, nanos);
            }
            // A child belongs to the thread that forked it.
            waiting.extend(numbers(&fs::read_to_string(path.join("children")).unwrap_or_default()));
        }
    }
}

/// Whether there is a process `pid` whose accounts can be read.
pub(crate) fn exists(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/schedstat")).is_ok()
}

impl Account {
    /// Open the account of the tree under `root`: what was used until now does not count.
    pub(crate) fn open(root: u32) -> Self {
        let mut threads = HashMap::new();
        walk(root, &mut |pid, tid, nanos| {
            threads.insert((pid, tid), Used { before: nanos, last: nanos });
        });
        Self { root, threads }
    }

    /// Look again. Threads that were not there before count from nothing.
    pub(crate) fn sample(&mut self) {
        let threads = &mut self.threads;
        walk(self.root, &mut |pid, tid, nanos| {
            let used = threads.entry((pid, tid)).or_insert(Used { before: 0, last: 0 });
            used.last = used.last.max(nanos);
        });
    }

    /// Nanoseconds of CPU time since the account was opened, as of the last look.
    pub(crate) fn nanos(&self) -> u64 {
        self.threads.values().map(|used| used.last - used.before).sum()
    }

    /// Processes seen, those that have gone included.
    pub(crate) fn processes(&self) -> usize {
        let mut pids: Vec<u32> = self.threads.keys().map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// A shell that burns CPU time in itself and in a child, until it is killed.
    fn burner() -> std::process::Child {
        Command::new("sh").args(["-c", "(while :; do :; done) & while :; do :; done"]).spawn().expect("sh")
    }

    #[test]
    fn a_tree_is_counted_whole_and_what_was_before_is_not() {
        let mut child = burner();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Account::open(child.id()).processes() < 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut account = Account::open(child.id());
        assert_eq!((account.nanos(), account.processes()), (0, 2));
        while account.nanos() < 50_000_000 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            account.sample();
        }
        assert!(account.nanos() >= 50_000_000 && account.nanos() < 20_000_000_000);
        let inner: Vec<u32> =
            account.threads.keys().map(|(pid, _)| *pid).filter(|pid| *pid != child.id()).collect();
        for pid in inner {
            let pid = rustix::process::Pid::from_raw(pid as i32).expect("not zero");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("our own grandchild");
        }
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        let before = account.nanos();
        account.sample();
        assert_eq!(account.nanos(), before, "what has gone stays counted");
    }

    #[test]
    fn a_process_that_is_not_there_has_no_account() {
        assert!(exists(std::process::id()));
        assert!(!exists(u32::MAX));
        assert_eq!(Account::open(u32::MAX).processes(), 0);
    }
}
