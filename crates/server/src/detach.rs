//! Giving a connection away, and a body's limit of its own: what hosts of other protocols need.

use std::os::fd::OwnedFd;

use headrace_http1::Reject;

use crate::connection::Phase;
use crate::exchange::ExchangeId;
use crate::server::Server;

/// The body's limit until the application has seen the head, where it may have a say in that.
pub(crate) const NO_LIMIT: u64 = u64::MAX;

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
        if let Some(entry) = &mut connection.entry {
            // What is handed over is a connection for another protocol.
            entry.status = 101;
        }
        core.release(id.slot())
    }

    /// Set the limit of this request's body, in bytes from its start, in place of the server's own.
    ///
    /// What has arrived already counts; the next byte above the limit is answered with 413.
    pub fn limit_body(&self, id: ExchangeId, limit: u64) {
        let mut core = self.core.borrow_mut();
        if let Some(connection) = core.in_exchange(id) {
            let exchange = &mut connection.exchange;
            let taken = exchange.body_limit.saturating_sub(exchange.allowance);
            exchange.body_limit = limit;
            exchange.allowance = limit.saturating_sub(taken);
            exchange.body_over = taken > limit;
        }
    }

    /// The application will read the body and has said what it allows: answer 413 to one that is longer, by its
    /// Content-Length or by what has come of it. Returns whether it was.
    pub fn refuse_long_body(&self, id: ExchangeId) -> bool {
        let limit = self.core.borrow().config.body;
        let limited =
            self.core.borrow_mut().in_exchange(id).is_some_and(|c| c.exchange.body_limit != NO_LIMIT);
        if !limited {
            self.limit_body(id, limit);
        }
        let mut core = self.core.borrow_mut();
        let Some(connection) = core.in_exchange(id) else { return false };
        let exchange = &connection.exchange;
        let too_long =
            exchange.body_over || exchange.is_plain() && exchange.decoder.missing() > exchange.allowance;
        if exchange.is_complete() || !too_long {
            return false;
        }
        core.refuse(id.slot(), Reject::with(413, "request body too large"));
        true
    }

    /// Close the connection after the answer that it is at.
    pub fn end_after_answer(&self, id: ExchangeId) {
        let mut core = self.core.borrow_mut();
        if let Some(connection) = core.in_exchange(id) {
            connection.exchange.keep_alive = false;
        }
    }

    /// Close the connection at once, whatever it is at.
    pub fn close(&self, id: ExchangeId) {
        let mut core = self.core.borrow_mut();
        if core.in_exchange(id).is_some() {
            core.close(id.slot());
        }
    }

    /// The connection's socket for looking at (its addresses and options): a duplicate, which the server does not
    /// wait for. `None` when the connection is gone.
    #[must_use]
    pub fn duplicate(&self, id: ExchangeId) -> Option<OwnedFd> {
        self.core.borrow_mut().in_exchange(id)?.fd.try_clone().ok()
    }
}
