//! Parts of files that are sent as (parts of) an answer's body, by `sendfile(2)` where the file system can.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use headrace_engine::socket::{self, Io};

/// Bytes of a file that are sent at one readiness of its connection: the others have their turn then. What a
/// socket takes at once is less, unless its reader is as fast as we are.
pub(crate) const TURN: usize = 1024 * 1024;

/// Bytes read at a time from a file of which the kernel cannot send: as much as pipes and copies take at once.
const COPY: usize = 64 * 1024;

/// A part of a regular file. It is held open for as long as something of it is to be sent.
#[derive(Debug)]
pub struct FileSpan {
    file: OwnedFd,
    offset: u64,
    length: u64,
    /// The caller asked for what there is, not for so many bytes.
    open_ended: bool,
    /// `sendfile` was refused: the bytes are read and sent.
    copied: Cell<bool>,
}

impl FileSpan {
    /// `count` bytes of `file` from `offset` on, or what there is until its end, whichever is less.
    ///
    /// # Errors
    /// `InvalidInput`: it is not a regular file, so nothing is known of its length; the system's errors.
    pub fn new(file: OwnedFd, offset: u64, count: Option<u64>) -> io::Result<Self> {
        let size = socket::file_length(&file)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))?;
        let length = size.saturating_sub(offset).min(count.unwrap_or(u64::MAX));
        Ok(Self { file, offset, length, open_ended: count.is_none(), copied: Cell::new(false) })
    }

    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// A span that goes to the end of its file ends with the length that was promised: the file may have grown
    /// since its size was asked for.
    pub(crate) fn fit(&mut self, promised: u64) {
        if self.open_ended {
            self.length = self.length.min(promised);
        }
    }

    /// From now on its bytes are read and sent: the kernel cannot do it by itself.
    pub(crate) fn copy(&self) {
        self.copied.set(true);
    }

    /// Send what the kernel takes of it behind its first `sent` bytes, at most [`TURN`].
    ///
    /// # Errors
    /// The connection's; `UnexpectedEof` when the file has become shorter.
    pub(crate) fn send(&self, fd: BorrowedFd<'_>, sent: usize) -> io::Result<Io> {
        let offset = self.offset + sent as u64;
        let left = usize::try_from(self.length).unwrap_or(usize::MAX) - sent;
        if !self.copied.get() {
            match socket::send_file(fd, &self.file, offset, left.min(TURN)) {
                Ok(Io::Done(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => self.copy(),
                outcome => return outcome,
            }
        }
        let mut buffer = vec![0; left.min(COPY)];
        match socket::read_file(self.file.as_fd(), offset, &mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => socket::send(fd, &buffer[..count]),
        }
    }
}
