//! Who masks (RFC 6455 section 5.1): a client masks every frame, a server none.

/// The side of the connection that this end is.
pub trait Role {
    /// Whether the peer's frames must be masked; if not, they must not be.
    const PEER_MASKS: bool;

    /// The mask for the next frame of this side, `None` where it does not mask.
    fn mask(&mut self) -> Option<[u8; 4]>;
}

/// The server's side.
#[derive(Debug, Clone, Copy)]
pub struct Server;

impl Role for Server {
    const PEER_MASKS: bool = true;

    #[inline]
    fn mask(&mut self) -> Option<[u8; 4]> {
        None
    }
}

/// The client's side. `F` gives a fresh mask for every frame. RFC 6455 section 10.3 wants masks that whoever chose the
/// payload cannot predict: they protect intermediaries from payloads that look like HTTP.
#[derive(Debug, Clone)]
pub struct Client<F>(pub(crate) F);

impl<F: FnMut() -> u32> Role for Client<F> {
    const PEER_MASKS: bool = false;

    #[inline]
    fn mask(&mut self) -> Option<[u8; 4]> {
        Some((self.0)().to_ne_bytes())
    }
}
