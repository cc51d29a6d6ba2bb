//! Masking (RFC 6455 section 5.3), eight bytes at a time.

/// XORs `bytes` with `mask` repeated, and returns the mask as the byte after the last one needs it, so that a payload
/// can be given in pieces.
pub(crate) fn apply(bytes: &mut [u8], mask: [u8; 4]) -> [u8; 4] {
    let narrow = u32::from_ne_bytes(mask);
    let wide = u64::from(narrow) << 32 | u64::from(narrow);
    // The compiler turns this loop into vector instructions; the tail is at most seven bytes.
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= key;
    }
    let mut rest = mask;
    rest.rotate_left(tail.len() % 4);
    rest
}

#[cfg(test)]
mod tests;
