//! Connections that leave HTTP: after the answer 101 their bytes are the application's, both ways.

use std::os::fd::AsFd;

use headrace_engine::socket::{self, Io};

use crate::connection::{ConnectionKey, Phase};
use crate::core::{Core, HIGH_WATER, Todo};
use crate::exchange::{ExchangeId, Response, SendError, WriteState};
use crate::server::Server;

impl Server {
    /// Leave HTTP: `head` is the whole answer 101. What the client sends from now on is told by
    /// [`crate::App::body_ready`], and taken by [`Server::converse`].
    ///
    /// # Errors
    /// [`SendError::Gone`], [`SendError::AlreadyStarted`].
    pub fn upgrade(&self, id: ExchangeId, head: &[u8]) -> Result<(), SendError> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let connection = core.in_exchange(id).ok_or(SendError::Gone)?;
        if !matches!(connection.exchange.response, Response::None) {
            return Err(SendError::AlreadyStarted);
        }
        core.leave_exchange(id.slot());
        let connection = &mut core.connections[id.slot()];
        connection.phase = Phase::Upgraded;
        if let Some(entry) = &mut connection.entry {
            entry.status = 101;
        }
        let early = !connection.input.is_empty();
        let connection = &mut core.connections[id.slot()];
        connection.output.lend(&mut core.spare);
        connection.output.append(head);
        if early {
            core.todo.push_back(Todo::BodyReady(id));
        }
        core.flush(id.slot());
        Ok(())
    }

    /// Let `step` take what it can of the bytes that have come, and write what is to be sent.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    pub fn converse<T>(
        &self,
        id: ExchangeId,
        step: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>) -> T,
    ) -> Result<(T, WriteState), SendError> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        core.in_exchange(id).filter(|c| c.phase == Phase::Upgraded).ok_or(SendError::Gone)?;
        let mut out = core.spare.pop().unwrap_or_default();
        let connection = &mut core.connections[id.slot()];
        let result = step(&mut connection.input, &mut out);
        if connection.input.is_empty() && connection.input.capacity() > HIGH_WATER {
            connection.input = Vec::new();
        }
        connection.output.lend(&mut core.spare);
        if let Some(entry) = &mut connection.entry {
            entry.bytes += out.len() as u64;
        }
        connection.output.append(&out);
        out.clear();
        core.spare.push(out);
        core.flush_soon(id.slot());
        let full = core.in_exchange(id).is_some_and(|connection| {
            connection.exchange.wants_writable |= connection.output.pending() > HIGH_WATER;
            connection.exchange.wants_writable
        });
        Ok((result, if full { WriteState::Full } else { WriteState::Ready }))
    }

    /// Bytes that one message on a connection that has left HTTP may have, as configured.
    #[must_use]
    pub fn message_limit(&self) -> usize {
        self.core.borrow().config.message
    }

    /// End an upgraded connection: what is queued goes out, then our half is shut down.
    pub fn hang_up(&self, id: ExchangeId) {
        let mut core = self.core.borrow_mut();
        let now = core.now;
        let Some(connection) = core.in_exchange(id).filter(|c| c.phase == Phase::Upgraded) else { return };
        connection.phase = Phase::Closing;
        connection.lingers = !connection.exchange.disconnected;
        connection.progress = now;
        connection.exchange.response = Response::Complete;
        core.flush(id.slot());
    }
}

impl Core {
    /// Read on an upgraded connection.
    pub(crate) fn read_upgraded(&mut self, key: ConnectionKey) {
        let mut buffer = self.take_read_buffer();
        let connection = &mut self.connections[key.slot];
        let id = ExchangeId { slot: key.slot as u32, serial: connection.exchange.serial };
        match socket::receive(connection.fd.as_fd(), &mut buffer) {
            Ok(Io::WouldBlock) => {}
            Ok(Io::Done(0)) => {
                self.note_disconnect(key.slot);
                self.watch(key.slot);
            }
            Err(_) => self.close(key.slot),
            Ok(Io::Done(_)) => {
                connection.input.extend_from_slice(&buffer);
                self.todo.push_back(Todo::BodyReady(id));
                self.watch(key.slot);
            }
        }
        self.put_read_buffer(buffer);
    }
}
