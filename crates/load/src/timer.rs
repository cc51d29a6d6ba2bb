//! A timer to the microsecond. The poller's own timeouts are whole milliseconds: at a thousand requests a
//! second that would be a whole gap.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A descriptor that is readable once its time has come.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { fd: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// Become readable `nanos` from now (at least one); what was set before is forgotten, and the descriptor
    /// is not readable until then.
    pub(crate) fn set(&self, nanos: u64) {
        let nanos = nanos.max(1);
        let value = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once).expect("an open timer and a valid time");
    }

    /// Do not become readable, and be so no more.
    pub(crate) fn clear(&self) {
        let never = Itimerspec { it_interval: Timespec::default(), it_value: Timespec::default() };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &never)
            .expect("an open timer and a valid time");
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
