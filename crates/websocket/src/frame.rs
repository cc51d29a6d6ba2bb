//! Frame heads (RFC 6455 section 5.2).
//!
//! ```text
//! byte 0     FIN RSV1 RSV2 RSV3 opcode(4)
//! byte 1     MASK length(7)         126: two more bytes of length; 127: eight
//! then       0, 2 or 8 bytes of length, most significant first; 0 or 4 bytes of mask
//! ```

use alloc::vec::Vec;

use crate::close::Fault;
use crate::mask;

/// The longest head: two bytes, eight of length, four of mask.
pub(crate) const MAX_HEAD: usize = 14;

/// The most payload a control frame may have (RFC 6455 section 5.5).
pub(crate) const MAX_CONTROL_PAYLOAD: usize = 125;

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RSV2_RSV3: u8 = 0x30;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    pub(crate) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// What a frame must fit to be right at its place in the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    /// Whether the peer's frames must be masked; if not, they must not be.
    pub(crate) peer_masks: bool,
    /// Whether RSV1 has a meaning: it marks a compressed message (RFC 7692 section 6).
    pub(crate) compression: bool,
    /// Whether a fragmented message waits for its continuation.
    pub(crate) in_message: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) opcode: Opcode,
    /// Last frame of its message.
    pub(crate) fin: bool,
    /// RSV1: the message that this frame begins is compressed.
    pub(crate) compressed: bool,
    pub(crate) length: u64,
    /// All zero where the frame is not masked.
    pub(crate) mask: [u8; 4],
}

impl FrameHead {
    /// Reads a head off the front of `bytes`: the head and its length in bytes, or `None` if more bytes are needed.
    /// The verdict on a prefix is that on the whole, so it does not depend on how the bytes were cut.
    pub(crate) fn parse(bytes: &[u8], context: Context) -> Result<Option<(Self, usize)>, Fault> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let (opcode, fin, compressed) = check_first(first, context)?;
        let Some(&second) = bytes.get(1) else { return Ok(None) };
        let masked = second & MASKED != 0;
        if masked != context.peer_masks {
            return Err(Fault::Protocol(if masked { "masked frame" } else { "unmasked frame" }));
        }
        let short = second & LENGTH;
        if opcode.is_control() && usize::from(short) > MAX_CONTROL_PAYLOAD {
            return Err(Fault::Protocol("control frame too long"));
        }
        let rest = &bytes[2..];
        let (length, rest) = match short {
            LENGTH_16 => {
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
                (u64::from(u16::from_be_bytes(*length)), rest)
            }
            LENGTH_64 => {
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
                (u64::from_be_bytes(*length), rest)
            }
            _ => (u64::from(short), rest),
        };
        let shortest = match short {
            LENGTH_16 => u64::from(LENGTH_16),
            LENGTH_64 => u64::from(u16::MAX) + 1,
            _ => 0,
        };
        if length < shortest || length > i64::MAX as u64 {
            return Err(Fault::Protocol("frame length not in its shortest form"));
        }
        let (mask, rest) = if masked {
            let Some((mask, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (*mask, rest)
        } else {
            ([0; 4], rest)
        };
        Ok(Some((Self { opcode, fin, compressed, length, mask }, bytes.len() - rest.len())))
    }

    /// Writes the head into `bytes`; returns its length.
    fn write(
        opcode: Opcode,
        compressed: bool,
        length: usize,
        mask: Option<[u8; 4]>,
        bytes: &mut [u8; MAX_HEAD],
    ) -> usize {
        bytes[0] = FIN | if compressed { RSV1 } else { 0 } | opcode.bits();
        let mut end = if length < usize::from(LENGTH_16) {
            bytes[1] = length as u8;
            2
        } else if let Ok(length) = u16::try_from(length) {
            bytes[1] = LENGTH_16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            4
        } else {
            bytes[1] = LENGTH_64;
            bytes[2..10].copy_from_slice(&(length as u64).to_be_bytes());
            10
        };
        if let Some(mask) = mask {
            bytes[1] |= MASKED;
            bytes[end..end + 4].copy_from_slice(&mask);
            end += 4;
        }
        end
    }
}

fn check_first(first: u8, context: Context) -> Result<(Opcode, bool, bool), Fault> {
    let opcode = Opcode::from_bits(first & OPCODE).ok_or(Fault::Protocol("reserved opcode"))?;
    let fin = first & FIN != 0;
    let compressed = first & RSV1 != 0;
    let begins_message = matches!(opcode, Opcode::Text | Opcode::Binary);
    if first & RSV2_RSV3 != 0 || (compressed && !(context.compression && begins_message)) {
        return Err(Fault::Protocol("reserved bit set"));
    }
    if opcode.is_control() && !fin {
        return Err(Fault::Protocol("fragmented control frame"));
    }
    if begins_message && context.in_message {
        return Err(Fault::Protocol("new message within a fragmented one"));
    }
    if opcode == Opcode::Continuation && !context.in_message {
        return Err(Fault::Protocol("continuation of no message"));
    }
    Ok((opcode, fin, compressed))
}

/// Appends one whole, unfragmented frame to `out`.
pub(crate) fn write_frame(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let mut head = [0; MAX_HEAD];
    let length = FrameHead::write(opcode, false, payload.len(), mask, &mut head);
    out.reserve(length + payload.len());
    out.extend_from_slice(&head[..length]);
    out.extend_from_slice(payload);
    if let Some(key) = mask {
        let start = out.len() - payload.len();
        mask::apply(&mut out[start..], key);
    }
}

/// Makes a frame of what stands in `out` from `start + MAX_HEAD` on: the head goes before it, and the room that is left
/// over is closed. For a payload whose length is known only when it is written.
pub(crate) fn finish_compressed_frame(opcode: Opcode, start: usize, key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let payload_start = start + MAX_HEAD;
    if let Some(key) = key {
        mask::apply(&mut out[payload_start..], key);
    }
    let mut head = [0; MAX_HEAD];
    let length = FrameHead::write(opcode, true, out.len() - payload_start, key, &mut head);
    out[start..start + length].copy_from_slice(&head[..length]);
    out.copy_within(payload_start.., start + length);
    out.truncate(out.len() - (MAX_HEAD - length));
}

#[cfg(test)]
mod tests;
