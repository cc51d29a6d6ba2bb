//! Two readings of a request's head, one fast and one plain, agree on what is good and on what it means.
#![no_main]

use headrace_http1::Limits;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/http1/tests/support/oracle.rs"]
mod oracle;

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let limits = match choice & 1 {
        0 => Limits::default(),
        _ => Limits { head: 200, target: 20, fields: 3 },
    };
    oracle::compare(bytes, &limits);
});
