//! Whether output is held back while the application keeps the thread that would send it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, Thread};
use std::time::Duration;

/// Output that waited for so long, and up to as long again, waits for an application that blocks.
const STUCK_AFTER: Duration = Duration::from_millis(5);
/// The watcher looks so often in vain before it sleeps.
const LOOKS: u32 = 20;

/// What a server tells another thread about the output that it holds back.
///
/// Nothing is locked, and nothing costs a system call while there is traffic.
#[derive(Debug, Default)]
pub struct HeldOutput {
    /// Odd while output is held back; grows each time that begins or ends.
    changes: AtomicUsize,
    watcher: OnceLock<Thread>,
    watcher_sleeps: AtomicBool,
    over: AtomicBool,
}

impl HeldOutput {
    /// Output is held back from now on, or no more.
    pub(crate) fn change(&self) {
        // Only one thread at a time has the server.
        self.changes.store(self.changes.load(SeqCst).wrapping_add(1), SeqCst);
        if self.watcher_sleeps.load(SeqCst) {
            self.wake();
        }
    }

    /// End [`HeldOutput::wait_until_stuck`] for good.
    pub fn end(&self) {
        self.over.store(true, SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.watcher_sleeps.store(false, SeqCst);
        if let Some(watcher) = self.watcher.get() {
            watcher.unpark();
        }
    }

    /// Wait until output has been held back for too long: [`crate::Server::flush_held`] is to be called. Returns
    /// `false` when the server is over. Always to be called by the same thread.
    pub fn wait_until_stuck(&self) -> bool {
        self.watcher.get_or_init(thread::current);
        let (mut seen, mut left) = (0, LOOKS);
        while !self.over.load(SeqCst) {
            let now = self.changes.load(SeqCst);
            if now != seen {
                (seen, left) = (now, LOOKS);
            } else if now % 2 == 1 {
                return true;
            } else if left > 0 {
                left -= 1;
            } else {
                self.sleep(now);
                continue;
            }
            thread::park_timeout(STUCK_AFTER);
        }
        false
    }

    fn sleep(&self, seen: usize) {
        self.watcher_sleeps.store(true, SeqCst);
        while self.watcher_sleeps.load(SeqCst) && self.changes.load(SeqCst) == seen && !self.over.load(SeqCst)
        {
            thread::park();
        }
        self.watcher_sleeps.store(false, SeqCst);
    }
}
