//! OpenSSL's functions, called on the objects that CPython's `_ssl` has made.
//!
//! `_ssl` releases the interpreter lock around each call, parses its arguments and makes objects of what comes out;
//! for a message of 1 KB all that costs more than the cipher. Here the lock is held: a record takes microseconds.
//! Whatever is not plain success or "want read" is left to `_ssl`'s own method, called again: OpenSSL repeats a
//! failure, and its error queue is untouched, so the exception is the same.
#![allow(unsafe_code, reason = "calls C functions by address, on pointers read out of CPython's objects")]

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

/// `SSL_ERROR_WANT_READ`.
const WANT_READ: c_int = 2;

/// The functions used, of the very library that `_ssl` is linked to.
struct Library {
    ssl_read: unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int,
    ssl_write: unsafe extern "C" fn(*mut c_void, *const c_void, c_int) -> c_int,
    ssl_pending: unsafe extern "C" fn(*const c_void) -> c_int,
    ssl_get_error: unsafe extern "C" fn(*const c_void, c_int) -> c_int,
    ssl_get_rbio: unsafe extern "C" fn(*const c_void) -> *mut c_void,
    ssl_get_wbio: unsafe extern "C" fn(*const c_void) -> *mut c_void,
    bio_read: unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int,
    bio_write: unsafe extern "C" fn(*mut c_void, *const c_void, c_int) -> c_int,
    bio_ctrl_pending: unsafe extern "C" fn(*mut c_void) -> usize,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// What [`load`] takes the addresses of, in this order.
pub(crate) const FUNCTIONS: [&str; 9] = [
    "SSL_read",
    "SSL_write",
    "SSL_pending",
    "SSL_get_error",
    "SSL_get_rbio",
    "SSL_get_wbio",
    "BIO_read",
    "BIO_write",
    "BIO_ctrl_pending",
];

/// Use the functions at `addresses`, which are those of [`FUNCTIONS`] in the library that `_ssl` is linked to.
pub(crate) fn load(addresses: [usize; FUNCTIONS.len()]) {
    if addresses.contains(&0) {
        return;
    }
    let [read, write, pending, error, rbio, wbio, bio_read, bio_write, bio_pending] = addresses;
    // SAFETY: the caller found the addresses by these functions' names in that library, which is never unloaded;
    // their signatures are OpenSSL's since 1.1.0, and an address that is not 0 is a valid function pointer.
    let library = unsafe {
        Library {
            ssl_read: transmute::<usize, unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int>(
                read,
            ),
            ssl_write: transmute::<usize, unsafe extern "C" fn(*mut c_void, *const c_void, c_int) -> c_int>(
                write,
            ),
            ssl_pending: transmute::<usize, unsafe extern "C" fn(*const c_void) -> c_int>(pending),
            ssl_get_error: transmute::<usize, unsafe extern "C" fn(*const c_void, c_int) -> c_int>(error),
            ssl_get_rbio: transmute::<usize, unsafe extern "C" fn(*const c_void) -> *mut c_void>(rbio),
            ssl_get_wbio: transmute::<usize, unsafe extern "C" fn(*const c_void) -> *mut c_void>(wbio),
            bio_read: transmute::<usize, unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int>(
                bio_read,
            ),
            bio_write: transmute::<usize, unsafe extern "C" fn(*mut c_void, *const c_void, c_int) -> c_int>(
                bio_write,
            ),
            bio_ctrl_pending: transmute::<usize, unsafe extern "C" fn(*mut c_void) -> usize>(bio_pending),
        }
    };
    let _ = LIBRARY.set(library);
}

/// What a call gave.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Done(usize),
    /// It takes more from the peer.
    WantRead,
    /// Something else: `_ssl`'s own method says what.
    Other,
}

/// OpenSSL's objects of one connection. Whoever holds it holds the Python objects too.
pub(crate) struct Connection {
    library: &'static Library,
    ssl: *mut c_void,
    incoming: *mut c_void,
    outgoing: *mut c_void,
}

impl Connection {
    /// Those of an `_ssl._SSLSocket` and its two `ssl.MemoryBIO`s, which must be of these very types.
    ///
    /// `None` where they cannot be reached: no library loaded, or a CPython whose objects look otherwise.
    pub(crate) fn of(
        connection: &Bound<'_, PyAny>,
        incoming: &Bound<'_, PyAny>,
        outgoing: &Bound<'_, PyAny>,
    ) -> Option<Self> {
        let library = LIBRARY.get()?;
        // CPython 3.11 to 3.14, Modules/_ssl.c: PySSLMemoryBIO is { PyObject_HEAD; BIO *bio; … }, and PySSLSocket
        // { PyObject_HEAD; PyObject *Socket; SSL *ssl; … }. `headrace.tls` loads no library for other versions.
        let first = size_of::<ffi::PyObject>();
        let word = size_of::<*mut c_void>();
        // SAFETY: attached; the objects are of the types named, whose structures begin as said, so the words are
        // inside them. `ssl` is what SSL_new gave, whose BIOs may be asked for.
        unsafe {
            let field = |object: &Bound<'_, PyAny>, offset: usize| {
                *object.as_ptr().cast::<u8>().add(offset).cast::<*mut c_void>()
            };
            let (ssl, rbio, wbio) =
                (field(connection, first + word), field(incoming, first), field(outgoing, first));
            if ssl.is_null() || rbio.is_null() || wbio.is_null() {
                return None;
            }
            let belong = (library.ssl_get_rbio)(ssl) == rbio && (library.ssl_get_wbio)(ssl) == wbio;
            belong.then_some(Self { library, ssl, incoming: rbio, outgoing: wbio })
        }
    }

    fn answer(&self, result: c_int) -> Answer {
        match usize::try_from(result) {
            Ok(count @ 1..) => Answer::Done(count),
            // SAFETY: `ssl` is alive, and this is the result of the call on it just made, on this thread.
            _ if unsafe { (self.library.ssl_get_error)(self.ssl, result) } == WANT_READ => Answer::WantRead,
            _ => Answer::Other,
        }
    }

    /// Decrypt into `space`: up to a record.
    pub(crate) fn read(&self, _: Python<'_>, space: &mut [MaybeUninit<u8>]) -> Answer {
        let length = c_int::try_from(space.len()).unwrap_or(c_int::MAX);
        // SAFETY: `ssl` is alive (see the type) and, the lock being held, used by no other thread; OpenSSL writes
        // at most `length` bytes.
        self.answer(unsafe { (self.library.ssl_read)(self.ssl, space.as_mut_ptr().cast(), length) })
    }

    /// Encrypt `data`.
    pub(crate) fn write(&self, _: Python<'_>, data: &[u8]) -> Answer {
        let Ok(length) = c_int::try_from(data.len()) else { return Answer::Other };
        // SAFETY: as for `read`; OpenSSL reads `length` bytes.
        self.answer(unsafe { (self.library.ssl_write)(self.ssl, data.as_ptr().cast(), length) })
    }

    /// Bytes decrypted and not read yet.
    pub(crate) fn decrypted(&self, _: Python<'_>) -> usize {
        // SAFETY: `ssl` is alive.
        usize::try_from(unsafe { (self.library.ssl_pending)(self.ssl) }).unwrap_or(0)
    }

    /// Bytes received that OpenSSL has not taken.
    pub(crate) fn unread(&self, _: Python<'_>) -> usize {
        // SAFETY: the BIO is alive.
        unsafe { (self.library.bio_ctrl_pending)(self.incoming) }
    }

    /// Bytes to be sent.
    pub(crate) fn unsent(&self, _: Python<'_>) -> usize {
        // SAFETY: the BIO is alive.
        unsafe { (self.library.bio_ctrl_pending)(self.outgoing) }
    }

    /// Give OpenSSL what was received; `false` where it has no memory.
    pub(crate) fn receive(&self, _: Python<'_>, data: &[u8]) -> bool {
        let Ok(length) = c_int::try_from(data.len()) else { return false };
        // SAFETY: the BIO is alive; OpenSSL reads `length` bytes.
        unsafe { (self.library.bio_write)(self.incoming, data.as_ptr().cast(), length) == length }
    }

    /// Take up to `space` of what is to be sent; how much it was.
    pub(crate) fn take(&self, _: Python<'_>, space: &mut [MaybeUninit<u8>]) -> usize {
        let length = c_int::try_from(space.len()).unwrap_or(c_int::MAX);
        // SAFETY: the BIO is alive; OpenSSL writes at most `length` bytes.
        let count = unsafe { (self.library.bio_read)(self.outgoing, space.as_mut_ptr().cast(), length) };
        usize::try_from(count).unwrap_or(0)
    }
}
