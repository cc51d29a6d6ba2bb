//! Giving a connection away, and a body's limit of its own: what hosts of other protocols need.

use std::os::fd::OwnedFd;

use crate::connection::Phase;
use crate::exchange::ExchangeId;
use crate::server::Server;

impl Server {
    /// Give up the connection of a request that has not been answered: for a protocol that it is upgraded to.
    ///
    /// Returns its descriptor, non-blocking and no longer watched, and the bytes that were read from it and not
    /// used. `None` when the exchange is over, has an answer, is still being handed out, or its client has gone.
    #[must_use]
    pub fn detach(&self, id: ExchangeId) -> Option<(OwnedFd, Vec<u8>)> {
        let mut core = self.core.borrow_mut();
        let connection = core.in_exchange(id)?;
        if connection.phase != Phase::Exchange
            || connection.dispatching
            || connection.exchange.disconnected
            || !connection.exchange.is_replaceable()
            || !connection.output.is_empty()
        {
            return None;
        }
        core.release(id.slot())
    }

    /// Set the limit of this request's body, in bytes from its start, in place of the server's own.
    ///
    /// What has arrived already counts; the next byte above the limit is answered with 413.
    pub fn limit_body(&self, id: ExchangeId, limit: u64) {
        let mut core = self.core.borrow_mut();
        let before = core.config.body;
        if let Some(connection) = core.in_exchange(id) {
            let taken = before.saturating_sub(connection.exchange.allowance);
            connection.exchange.allowance = limit.saturating_sub(taken);
        }
    }
}
