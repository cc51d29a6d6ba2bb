//! File descriptors by number, as Python hands them over.
#![allow(unsafe_code, reason = "borrows a descriptor that Python owns")]

use std::os::fd::{BorrowedFd, RawFd};

/// The descriptor `fd` for the length of one system call.
///
/// Its owner is a Python object (a socket, a pipe). One that was closed behind our back makes the call fail
/// with `EBADF`, or reach another file of the process: as with every call that Python makes by number.
pub(crate) fn borrowed<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // -1 is no descriptor and must not be borrowed; any other number the kernel checks, and it knows no such
    // large one.
    let fd = if fd < 0 { RawFd::MAX } else { fd };
    // SAFETY: not -1. No memory depends on whose descriptor it is, and it is only lent to system calls that
    // check it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
