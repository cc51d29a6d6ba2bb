//! Requests out, answers in: the hot path.

use super::Worker;
use crate::connection::State;
use crate::protocol::{Answer, Protocol, Step};
use crate::stats::{Fault, record};
use crate::wire::Received;

impl<P: Protocol> Worker<'_, P> {
    /// An open connection awaits nothing: give it requests, or let it wait for an arrival.
    pub(super) fn free(&mut self, index: usize, now: u64) {
        if self.arrivals.is_none() {
            return self.send(index, self.part.plan.pipeline, now, now);
        }
        if !self.connections[index].idle {
            self.connections[index].idle = true;
            self.idle.push_back(index);
        }
        self.send_due();
    }

    /// Send what is due by the schedule, as far as there are free connections. Says whether the timer was set
    /// anew for what is not due yet.
    pub(super) fn send_due(&mut self) -> bool {
        let Some(window) = self.window else { return false };
        while let Some(arrivals) = &mut self.arrivals
            && !self.idle.is_empty()
        {
            let (intended, now) = (arrivals.next(), self.part.shared.clock.now());
            if intended > now {
                let anew = self.armed != intended;
                if anew {
                    self.timer.set(intended - now);
                    self.armed = intended;
                }
                return anew;
            }
            if now >= window.end {
                return false;
            }
            let Some(index) = self.idle.pop_front() else { return false };
            let connection = &mut self.connections[index];
            connection.idle = false;
            if connection.state != State::Open || !connection.awaited.is_empty() {
                continue;
            }
            arrivals.advance();
            if window.counts(intended) {
                self.offered += 1;
                record(&mut self.stats.lag, now - intended);
            }
            self.send(index, 1, intended, now);
        }
        false
    }

    /// Send `count` requests that start at `start` on a connection that awaits nothing.
    fn send(&mut self, index: usize, count: usize, start: u64, now: u64) {
        let connection = &mut self.connections[index];
        let Some(wire) = &mut connection.wire else { return };
        let bytes = self.protocol.requests(&mut connection.protocol, count);
        connection.awaited.extend(std::iter::repeat_n(start, count));
        connection.sent = now;
        match wire.push(bytes) {
            Ok(sent) => {
                self.sent(now, sent);
                self.watch(index);
            }
            Err(error) => self.lose(index, Fault::Write, now, || error.to_string()),
        }
    }

    /// The kernel takes more of what is to be sent.
    pub(super) fn send_rest(&mut self, index: usize) {
        let now = self.now();
        let Some(wire) = &mut self.connections[index].wire else { return };
        if !wire.is_blocked() {
            return;
        }
        match wire.flush() {
            Ok(sent) => {
                self.sent(now, sent);
                self.watch(index);
            }
            Err(error) => self.lose(index, Fault::Write, now, || error.to_string()),
        }
    }

    /// The kernel took so many bytes.
    pub(super) fn sent(&mut self, now: u64, bytes: usize) {
        if self.window.is_some_and(|window| window.counts(now)) {
            self.stats.bytes_out += bytes as u64;
        }
    }

    /// Watch a socket for what it waits for, when that has changed.
    #[inline]
    pub(super) fn watch(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let token = connection.token(index);
        let Some(wire) = &mut connection.wire else { return };
        if let Some(interest) = wire.new_interest()
            && let Err(error) = self.poller.modify(&wire.socket, token, interest)
        {
            let now = self.now();
            self.lose(index, Fault::Write, now, || error.to_string());
        }
    }

    /// Take what the server sent.
    pub(super) fn receive(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(wire) = &mut connection.wire else { return };
        self.buffer.clear();
        self.records.clear();
        let received = wire.receive(&mut self.buffer, &mut self.records);
        let now = self.now();
        match received {
            Ok(Received::Nothing) => return,
            Ok(Received::End) => return self.ended(index, now),
            Ok(Received::Bytes(count)) => {
                if self.window.is_some_and(|window| window.counts(now)) {
                    self.stats.bytes_in += count as u64;
                }
            }
            Err(error) => return self.lose(index, Fault::Read, now, || error.to_string()),
        }
        if matches!(self.connections[index].state, State::Greeting(_)) {
            self.greet(index, now);
        }
        let mut at = 0;
        while at < self.buffer.len() {
            let connection = &mut self.connections[index];
            let (used, step) = self.protocol.receive(&mut connection.protocol, &mut self.buffer[at..]);
            at += used;
            match step {
                Step::More => break,
                Step::Ready => self.opened(index, now),
                Step::Fault(fault, why) => return self.lose(index, fault, now, || why),
                Step::Answer(answer) => {
                    let Some(start) = connection.awaited.pop_front() else {
                        let why = || "an answer that nobody asked for".to_owned();
                        return self.lose(index, Fault::Protocol, now, why);
                    };
                    connection.answered = true;
                    self.count(answer, start, now);
                    if answer.close {
                        return self.reopen(index, now);
                    }
                }
            }
        }
        let connection = &mut self.connections[index];
        if let (Some(replies), Some(wire)) =
            (self.protocol.replies(&mut connection.protocol), &mut connection.wire)
        {
            let pushed = wire.push(replies);
            replies.clear();
            match pushed {
                Ok(sent) => self.sent(now, sent),
                Err(error) => return self.lose(index, Fault::Write, now, || error.to_string()),
            }
            self.watch(index);
        }
        let connection = &self.connections[index];
        if connection.awaited.is_empty() && connection.state == State::Open && self.window.is_some() {
            self.free(index, now);
        }
    }

    /// The server has ended the stream.
    fn ended(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        if matches!(connection.state, State::Greeting(_)) {
            return self.lose(index, Fault::Connect, now, || {
                "the server closed the connection before it was ready".to_owned()
            });
        }
        let Some(start) = connection.awaited.front().copied() else {
            return self.reopen(index, now);
        };
        match self.protocol.end(&mut connection.protocol) {
            Step::Answer(answer) => {
                connection.awaited.pop_front();
                connection.answered = true;
                self.count(answer, start, now);
                self.reopen(index, now);
            }
            _ => self.lose(index, Fault::Read, now, || {
                "the server closed the connection before its answer was complete".to_owned()
            }),
        }
    }

    /// Whether an exchange counts: in a closed loop when it ends in the window, in an open loop when it was
    /// meant to start in it.
    #[inline]
    pub(super) fn counts(&self, start: u64, now: u64) -> bool {
        self.window.is_some_and(|window| window.counts(if self.arrivals.is_some() { start } else { now }))
    }

    /// Count an answer.
    #[inline]
    fn count(&mut self, answer: Answer, start: u64, now: u64) {
        if !self.counts(start, now) {
            return;
        }
        if let Some(count) = self.stats.status.get_mut(usize::from(answer.status)) {
            *count += 1;
        }
        match answer.fault {
            None => {
                self.stats.good(answer.kind, now - start);
                self.seconds.record(now - start);
            }
            Some(fault) => {
                self.stats.bad(answer.kind, fault);
                self.first_error.get_or_insert_with(|| (fault, self.protocol.blame(&answer)));
            }
        }
    }
}
