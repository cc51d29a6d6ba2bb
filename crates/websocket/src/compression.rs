//! permessage-deflate's transformation of messages (RFC 7692 section 7.2).
//!
//! By zlib-rs: of the deflate implementations in Rust it is the one that compresses with a chosen window (miniz_oxide
//! and what builds on it always uses 32 KB, which breaks `server_max_window_bits`), has raw deflate and the sync flush
//! that a message ends with, and is at work behind flate2 and in zlib's place in browsers and servers. flate2 itself
//! would add only `std::io`.
//!
//! Memory, for each connection that has used it: 47 KB to inflate, and to deflate 150 KB with a window of 9 bits, 165 KB
//! with 12, 280 KB with 15 (128 KB of it is a hash table of fixed size). Both are made at the first compressed message,
//! and given back after each one where the peers agreed on "no context takeover", which then costs some 10 us a message.

use alloc::vec::Vec;

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

use crate::close::Fault;
use crate::message::Message;

/// The window of zlib's raw deflate has at least nine bits, though RFC 7692 knows eight.
pub(crate) const MIN_OWN_WINDOW_BITS: u8 = 9;

/// The end of a sync flush, which is cut off a message and put back (RFC 7692 section 7.2.1).
const FLUSH_END: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// Below this many bytes, compression costs more than it saves on the wire; as the `ws` library has it.
const DEFAULT_THRESHOLD: usize = 1024;

/// Output of one call to inflate, so that a bomb is noticed before it is unpacked.
const INFLATE_STEP: usize = 8 * 1024;

/// Room for deflate's pending output; 8 is zlib's default, 5 is that of the `websockets` library, and saves 100 KB.
const MEM_LEVEL: i32 = 5;

const BAD_DEFLATE: Fault = Fault::InvalidPayload("data does not inflate");

/// What this end asks for, and grants, when permessage-deflate is negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeflateOptions {
    /// Effort, 1 (fastest) to 9. Default 1: on JSON of 2.6 KB it costs a third of what zlib's default, 6, does, for
    /// one and a half times the bytes.
    pub level: u8,
    /// Shorter messages go uncompressed, in bytes. Default 1024.
    pub threshold: usize,
    /// The largest window this end compresses with, 9 to 15 bits. Default 12 (4 KB).
    pub own_window_bits: u8,
    /// The largest window the peer should compress with, 8 to 15 bits; a peer that cannot be told so uses 15. It saves
    /// the peer's memory, not this end's: zlib-rs always has room for 15. Default 15.
    pub peer_window_bits: u8,
    /// Compress each message by itself: worse compression, no memory between messages. Default false.
    pub own_no_context_takeover: bool,
    /// Ask the same of the peer. Default false.
    pub peer_no_context_takeover: bool,
}

impl Default for DeflateOptions {
    fn default() -> Self {
        Self {
            level: 1,
            threshold: DEFAULT_THRESHOLD,
            own_window_bits: 12,
            peer_window_bits: 15,
            own_no_context_takeover: false,
            peer_no_context_takeover: false,
        }
    }
}

impl DeflateOptions {
    /// The same, with each number brought into its range.
    pub(crate) fn clamped(self) -> Self {
        Self {
            level: self.level.clamp(1, 9),
            own_window_bits: self.own_window_bits.clamp(MIN_OWN_WINDOW_BITS, 15),
            peer_window_bits: self.peer_window_bits.clamp(8, 15),
            ..self
        }
    }
}

/// What both ends agreed on. It comes from the opening handshake, and goes into the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    pub(crate) level: u8,
    pub(crate) threshold: usize,
    /// 8 to 15; with 8, messages are sent uncompressed ([`MIN_OWN_WINDOW_BITS`]).
    pub(crate) own_window_bits: u8,
    pub(crate) peer_window_bits: u8,
    pub(crate) own_no_context_takeover: bool,
    pub(crate) peer_no_context_takeover: bool,
}

/// The two streams of one connection, each made when it is first needed.
pub(crate) struct Codec {
    compression: Compression,
    deflate: Option<Deflate>,
    inflate: Option<Inflate>,
}

impl core::fmt::Debug for Codec {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("Codec").field(&self.compression).finish()
    }
}

impl Codec {
    pub(crate) fn new(compression: Compression) -> Self {
        Self { compression, deflate: None, inflate: None }
    }

    /// Whether a message of `length` bytes is sent compressed.
    pub(crate) fn compresses(&self, length: usize) -> bool {
        length >= self.compression.threshold && self.compression.own_window_bits >= MIN_OWN_WINDOW_BITS
    }

    /// Appends the payload of a whole message to `out`.
    pub(crate) fn deflate(&mut self, mut payload: &[u8], out: &mut Vec<u8>) {
        let compression = &self.compression;
        let deflate = self.deflate.get_or_insert_with(|| {
            Deflate::new_with_config(DeflateConfig {
                level: i32::from(compression.level),
                window_bits: -i32::from(compression.own_window_bits),
                mem_level: MEM_LEVEL,
                ..DeflateConfig::default()
            })
        });
        let start = out.len();
        // Enough for nearly every message in one step: what does not shrink grows by five bytes a block.
        let mut step = payload.len() + payload.len() / 64 + 64;
        loop {
            let end = out.len();
            out.resize(end + step, 0);
            let (in_before, out_before) = (deflate.total_in(), deflate.total_out());
            // The only errors are of use: a bad configuration, which is clamped, and a stream that was finished.
            let status = deflate.compress(payload, &mut out[end..], DeflateFlush::SyncFlush);
            payload = &payload[(deflate.total_in() - in_before) as usize..];
            let written = (deflate.total_out() - out_before) as usize;
            out.truncate(end + written);
            // Room left over is how zlib says that the flush is complete.
            if written < step || status.is_err() {
                break;
            }
            step = 1024;
        }
        if out[start..].ends_with(&FLUSH_END) {
            out.truncate(out.len() - FLUSH_END.len());
        }
        if out.len() == start {
            // Nothing to flush: an empty message is an empty stored block's first byte (RFC 7692 section 7.2.3.6).
            out.push(0);
        }
        if compression.own_no_context_takeover {
            self.deflate = None;
        }
    }

    /// Inflates a piece of a message's payload to the end of `message`; `last` says that no other follows.
    pub(crate) fn inflate(
        &mut self,
        payload: &[u8],
        last: bool,
        message: &mut Message,
        limit: usize,
    ) -> Result<(), Fault> {
        // What calls itself eight bits is nine in most peers' zlib.
        let window_bits = self.compression.peer_window_bits.max(MIN_OWN_WINDOW_BITS);
        let inflate = self.inflate.get_or_insert_with(|| Inflate::new(false, window_bits));
        inflate_piece(inflate, payload, message, limit)?;
        if last {
            // A stream that its sender ended has no flush to complete.
            if inflate.total_in() > 0 {
                inflate_piece(inflate, &FLUSH_END, message, limit)?;
            }
            if self.compression.peer_no_context_takeover {
                self.inflate = None;
            }
        }
        Ok(())
    }
}

fn inflate_piece(
    inflate: &mut Inflate,
    mut piece: &[u8],
    message: &mut Message,
    limit: usize,
) -> Result<(), Fault> {
    let mut step = [0; INFLATE_STEP];
    loop {
        let (in_before, out_before) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(piece, &mut step, InflateFlush::SyncFlush);
        let taken = (inflate.total_in() - in_before) as usize;
        let made = (inflate.total_out() - out_before) as usize;
        piece = &piece[taken..];
        message.push(&step[..made], limit)?;
        // Only now: what was made before the fault may hold one of its own, which then comes first.
        match status.map_err(|_| BAD_DEFLATE)? {
            // A block with BFINAL may end a message too (RFC 7692 section 7.2.3.4). Who ends its stream so begins a new
            // one, without the window of the old.
            Status::StreamEnd => inflate.reset(false),
            Status::Ok | Status::BufError if made == step.len() => continue,
            Status::Ok | Status::BufError if taken == 0 && !piece.is_empty() => return Err(BAD_DEFLATE),
            Status::Ok | Status::BufError => {}
        }
        if piece.is_empty() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
