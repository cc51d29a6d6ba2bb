//! `Sec-WebSocket-Key` and `Sec-WebSocket-Accept` (RFC 6455 section 4.2.2).

use sha1_smol::Sha1;

/// RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 of 16 bytes, of which RFC 6455 has the nonce.
pub(super) type Key = [u8; 24];
/// Base64 of a SHA-1.
pub(super) type Accept = [u8; 28];

pub(super) fn key(nonce: [u8; 16]) -> Key {
    base64(&nonce)
}

pub(super) fn accept(key: &Key) -> Accept {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(GUID);
    base64(&hash.digest().bytes())
}

/// The key, if `value` is base64 of 16 bytes. The four bits that it has to spare may be anything: peers differ there.
pub(super) fn parse_key(value: &[u8]) -> Option<Key> {
    let key: Key = value.try_into().ok()?;
    let (digits, padding) = key.split_at(22);
    (padding == b"==" && digits.iter().all(|digit| ALPHABET.contains(digit))).then_some(key)
}

/// RFC 4648 section 4; `N` must be the length that `bytes` has in base64.
fn base64<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut text = [b'='; N];
    for (group, digits) in bytes.chunks(3).zip(text.chunks_mut(4)) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for (index, digit) in digits.iter_mut().enumerate().take(group.len() + 1) {
            *digit = ALPHABET[(bits >> (18 - 6 * index)) as usize & 63];
        }
    }
    text
}
