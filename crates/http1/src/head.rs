//! What heads have in common in both roles: bounds, room for fields, and where a head ends.

use core::mem::MaybeUninit;

use crate::Field;

/// Bounds on a head.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the whole head. Node and gunicorn stop at 16 KB and 8 KB a field; browsers send up to 64 KB
    /// of cookies.
    pub head: usize,
    /// Bytes of the request target; gunicorn 4 KB, nginx 8 KB a line. Not used for answers.
    pub target: usize,
    /// Number of fields, at most [`FieldSlots::MAX`]; gunicorn and Apache allow 100.
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head: 64 * 1024, target: 16 * 1024, fields: 100 }
    }
}

impl Limits {
    /// The part of `bytes` in which a head has to end. Nothing behind it is looked at, so that the verdict on
    /// an over-long head does not depend on how much of it has arrived.
    pub(crate) fn window<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[..bytes.len().min(self.head)]
    }
}

/// Room for a head's fields, on the stack of whoever parses.
#[derive(Debug)]
pub struct FieldSlots<'b>([MaybeUninit<Field<'b>>; MAX_FIELDS]);

const MAX_FIELDS: usize = 256;

impl<'b> FieldSlots<'b> {
    /// The most fields a head can have, whatever the limits say.
    pub const MAX: usize = MAX_FIELDS;

    /// Empty room; costs nothing, as it is not cleared.
    #[must_use]
    pub const fn new() -> Self {
        Self([MaybeUninit::uninit(); MAX_FIELDS])
    }

    /// As many slots as the limits allow.
    pub(crate) fn room(&mut self, limits: &Limits) -> &mut [MaybeUninit<Field<'b>>] {
        &mut self.0[..limits.fields.min(MAX_FIELDS)]
    }
}

impl Default for FieldSlots<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Protocol version: the two that there are in HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

impl Version {
    /// From `httparse`'s minor version.
    pub(crate) fn from_minor(minor: u8) -> Self {
        if minor == 0 { Self::Http10 } else { Self::Http11 }
    }
}

/// Whether the bytes that came after the first `seen` could complete a head of which the first `seen` did not.
///
/// Spares a head that arrives byte by byte from being parsed anew at each of them: only the new bytes are looked
/// at. It knows no limits: a head that never ends must also be parsed, once, when as many bytes are there as
/// [`Limits::head`] allows, to be refused.
#[must_use]
pub fn head_may_be_complete(bytes: &[u8], seen: usize) -> bool {
    // The end is an empty line: LF, perhaps CR, LF. It may have begun up to two bytes before the new ones.
    let from = seen.saturating_sub(2).min(bytes.len());
    memchr::memchr_iter(b'\n', &bytes[from..]).any(|at| {
        let rest = &bytes[from + at + 1..];
        rest.starts_with(b"\n") || rest.starts_with(b"\r\n")
    })
}
