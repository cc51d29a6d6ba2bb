//! Socket addresses, as Python has them and as the kernel has them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString, PyTuple};
use rustix::net::{SocketAddrAny, SocketAddrUnix};

/// The address of a peer of any family that streams have, as `socket.accept` gives it.
pub(super) fn any_to_python<'py>(
    py: Python<'py>,
    peer: Option<SocketAddrAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(peer) = peer else { return Ok(py.None().into_bound(py)) };
    if let Ok(internet) = SocketAddr::try_from(peer.clone()) {
        return to_python(py, &internet);
    }
    let unix = SocketAddrUnix::try_from(peer).ok();
    // One without a name passes for an abstract one of no length.
    let name = unix.as_ref().and_then(SocketAddrUnix::abstract_name);
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        let name: Vec<u8> = std::iter::once(0).chain(name.iter().copied()).collect();
        return Ok(PyBytes::new(py, &name).into_any());
    }
    let path = unix.as_ref().and_then(SocketAddrUnix::path);
    let path = path.as_ref().map_or(&[][..], |path| path.to_bytes());
    Ok(std::ffi::OsStr::from_bytes(path).into_pyobject(py)?.into_any())
}

/// The address of a peer as Python's `socket` gives it.
pub(super) fn to_python<'py>(py: Python<'py>, peer: &SocketAddr) -> PyResult<Bound<'py, PyAny>> {
    Ok(match peer {
        SocketAddr::V4(v4) => (v4.ip().to_string(), v4.port()).into_pyobject(py)?.into_any(),
        SocketAddr::V6(v6) => {
            // The C library writes some addresses differently from Rust's.
            let socket = py.import("socket")?;
            let packed = PyBytes::new(py, &v6.ip().octets());
            let host = socket.call_method1("inet_ntop", (socket.getattr("AF_INET6")?, packed))?;
            // As the kernel has it; Python gives it in the host's order.
            let flow = u32::from_be(v6.flowinfo());
            (host, v6.port(), flow, v6.scope_id()).into_pyobject(py)?.into_any()
        }
    })
}

/// The address that a Python tuple stands for; `None` where a name would have to be looked up, where it is none,
/// and where it is not of the family (`v6`: `AF_INET6`).
pub(super) fn from_python(object: Borrowed<'_, '_, PyAny>, v6: bool) -> Option<SocketAddr> {
    let tuple = object.cast_exact::<PyTuple>().ok()?;
    let host = tuple.get_item(0).ok()?;
    let host = host.cast_exact::<PyString>().ok()?;
    let host = host.to_str().ok()?;
    let number = |index: usize| -> Option<u32> {
        let item = tuple.get_borrowed_item(index).ok()?;
        item.cast_exact::<PyInt>().ok()?.extract().ok()
    };
    let port = u16::try_from(number(1)?).ok()?;
    match (v6, tuple.len()) {
        (false, 2) => Some(SocketAddrV4::new(host.parse::<Ipv4Addr>().ok()?, port).into()),
        (true, 2) => Some(SocketAddrV6::new(host.parse::<Ipv6Addr>().ok()?, port, 0, 0).into()),
        (true, 4) => {
            // A flow of more than 20 bits is an error, which the plain method raises.
            let flow = number(2).filter(|flow| *flow <= 0xF_FFFF)?.to_be();
            Some(SocketAddrV6::new(host.parse::<Ipv6Addr>().ok()?, port, flow, number(3)?).into())
        }
        _ => None,
    }
}
