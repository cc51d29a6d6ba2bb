//! What hosts need whose application answers outside of the server's own events: from other threads, from tasks.

use std::sync::Arc;
use std::time::Instant;

use crate::exchange::{BodyRead, ExchangeId};
use crate::held::HeldOutput;
use crate::server::Server;

impl Server {
    /// Tell what time it is, before an answer that comes long after the last event: its Date and its deadlines
    /// count from here.
    pub fn tell_time(&self, now: Instant) {
        self.core.borrow_mut().now = now;
    }

    /// What another thread is to watch, when the application may keep the thread that calls [`Server::expire`].
    #[must_use]
    pub fn held_output(&self) -> Arc<HeldOutput> {
        Arc::clone(&self.core.borrow().held_output)
    }

    /// Send what is held back, if no one has the server. What else there is to do stays for [`Server::expire`].
    pub fn flush_held(&self, now: Instant) {
        if let Ok(mut core) = self.core.try_borrow_mut() {
            core.now = now;
            core.flush_held();
        }
    }

    /// The request's body, if all of it has arrived and none of it was read. What was not asked for is left
    /// alone: a client that waits for "100 Continue" is not told to go on.
    pub fn whole_body<T>(&self, id: ExchangeId, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if !self.core.borrow_mut().in_exchange(id)?.exchange.decoder.is_done() {
            return None;
        }
        match self.read_body(id, read) {
            BodyRead::Data { data, .. } => Some(data),
            BodyRead::Pending | BodyRead::Finished | BodyRead::Disconnected => None,
        }
    }
}
