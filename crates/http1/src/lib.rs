//! Sans-IO HTTP/1.x for both roles: parse heads, frame bodies, write heads (RFC 9110, RFC 9112).
//!
//! Three rules hold here:
//! 1. Bytes in, values out: no socket, no clock, no thread (`no_std` makes them unwritable).
//! 2. A request has one reading or none: what RFC 9112 lets a recipient repair is refused instead, because a
//!    proxy in front may repair it differently, and that is how requests are smuggled. An answer, which only the
//!    client's role reads, is repaired as the RFC allows. `docs/http1.md` lists every deviation with its clause.
//! 3. "Need more bytes" is a value ([`Option::None`], [`Piece`] without data), never an error; and the verdict
//!    on a message does not depend on how its bytes were cut on their way.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod body;
mod encode;
mod error;
mod field;
mod head;
mod request;
mod response;
mod target;

pub use body::{BodyDecoder, BodyLength, Piece};
pub use encode::{
    Framing, ResponseEncoder, ResponseOptions, chunk_head, continue_response, simple_response, trailer_field,
};
pub use error::{EncodeError, Reject};
pub use field::{is_field_value, is_token};
pub use head::{FieldSlots, Limits, Version, head_may_be_complete};
pub use httparse::Header as Field;
pub use request::{RequestHead, parse_request};
pub use response::{RequestContext, ResponseHead, parse_response};
pub use target::Target;
