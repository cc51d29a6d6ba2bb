//! Grammar of field names and values (RFC 9110 sections 5.1, 5.5 and 5.6.2).

/// tchar: "!" / "#" / "$" / "%" / "&" / "'" / "*" / "+" / "-" / "." / "^" / "_" / "`" / "|" / "~" / DIGIT / ALPHA
pub(crate) const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
};

/// Whether `bytes` is a token: a method or a field name.
#[must_use]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| TOKEN[*byte as usize])
}

/// Whether `bytes` can stand as a field's value: visible characters, spaces, tabs and obs-text; no line break,
/// no NUL and no other control character (which some recipients take for a line break).
#[must_use]
pub fn is_field_value(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\t')
}

/// The members of a comma-separated list, without the white space around them; empty ones included.
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(trim)
}

/// Without optional white space (space and tab, nothing else) at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// 1*DIGIT, and nothing that `parse` would forgive: no sign, no underscore, no space.
pub(crate) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |number, byte| {
        if !byte.is_ascii_digit() {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn tokens() {
        assert!(is_token(b"!#$%&'*+-.^_`|~09azAZ"));
        assert!(!is_token(b""));
        for byte in 0..=u8::MAX {
            let expected = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            assert_eq!(is_token(&[byte]), expected, "{byte:#x}");
        }
    }

    #[test]
    fn field_values() {
        assert!(is_field_value(b""));
        for byte in 0..=u8::MAX {
            let expected = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
            assert_eq!(is_field_value(&[byte]), expected, "{byte:#x}");
        }
    }

    #[test]
    fn lists() {
        let split = |value| members(value).collect::<Vec<_>>();
        assert_eq!(split(b" a,\tb c ,,d"), [&b"a"[..], b"b c", b"", b"d"]);
        assert_eq!(split(b""), [b""]);
        assert_eq!(trim(b" \t\xa0a\x0b\t "), b"\xa0a\x0b");
    }

    #[test]
    fn decimals() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"0018446744073709551615"), Some(u64::MAX));
        for bad in ["", "18446744073709551616", "+1", "-1", "1_0", " 1", "1 ", "0x1", "1.0", "\u{0661}"] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
        }
    }
}
