//! UTF-8 checked as it arrives (RFC 6455 section 8.1): a text message is refused at the first byte that cannot be part
//! of it, not at its end.

use alloc::string::String;
use core::str::from_utf8;

/// The bytes are no UTF-8, whatever may follow them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidUtf8;

/// Text whose last character may be cut off.
#[derive(Debug, Default)]
pub(crate) struct TextBuffer {
    text: String,
    /// The first bytes of a character whose others have not come yet; a proper prefix of some character's encoding.
    cut: [u8; 3],
    cut_length: u8,
}

impl TextBuffer {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { text: String::with_capacity(capacity), ..Self::default() }
    }

    /// Bytes pushed so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len() + usize::from(self.cut_length)
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), InvalidUtf8> {
        while self.cut_length > 0 {
            let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
            bytes = rest;
            self.push_to_cut(*first)?;
        }
        match from_utf8(bytes) {
            Ok(text) => self.text.push_str(text),
            Err(error) if error.error_len().is_some() => return Err(InvalidUtf8),
            Err(error) => {
                let (whole, cut) = bytes.split_at(error.valid_up_to());
                self.text.push_str(from_utf8(whole).map_err(|_| InvalidUtf8)?);
                self.cut[..cut.len()].copy_from_slice(cut);
                self.cut_length = cut.len() as u8;
            }
        }
        Ok(())
    }

    /// One more byte of the character that was cut off.
    fn push_to_cut(&mut self, byte: u8) -> Result<(), InvalidUtf8> {
        let mut character = [0; 4];
        let length = usize::from(self.cut_length);
        character[..length].copy_from_slice(&self.cut[..length]);
        character[length] = byte;
        match from_utf8(&character[..=length]) {
            Ok(text) => {
                self.text.push_str(text);
                self.cut_length = 0;
            }
            Err(error) if error.error_len().is_some() => return Err(InvalidUtf8),
            Err(_) => {
                self.cut[length] = byte;
                self.cut_length += 1;
            }
        }
        Ok(())
    }

    /// The text, unless it ends within a character.
    pub(crate) fn finish(self) -> Result<String, InvalidUtf8> {
        if self.cut_length == 0 { Ok(self.text) } else { Err(InvalidUtf8) }
    }
}

#[cfg(test)]
mod tests;
