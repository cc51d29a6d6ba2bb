use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

#[test]
fn codes_that_may_be_sent() {
    let valid: Vec<u16> = (0..=u16::MAX).filter(|code| CloseCode::new(*code).is_some()).collect();
    let expected: Vec<u16> =
        [1000, 1001, 1002, 1003].into_iter().chain(1007..=1014).chain(3000..=4999).collect();
    assert_eq!(valid, expected);
    assert_eq!(CloseCode::NO_STATUS.get(), 1005);
    assert_eq!(CloseCode::ABNORMAL.get(), 1006);
}

#[test]
fn codes_that_may_not_be_sent_give_an_empty_payload() {
    assert_eq!(ClosePayload::new(CloseCode::NO_STATUS, "reason").as_bytes(), b"");
    assert_eq!(ClosePayload::new(CloseCode::ABNORMAL, "reason").as_bytes(), b"");
}

#[test]
fn faults_have_their_codes() {
    assert_eq!(Fault::Protocol("x").code().get(), 1002);
    assert_eq!(Fault::InvalidPayload("x").code().get(), 1007);
    assert_eq!(Fault::TooBig.code().get(), 1009);
}

#[test]
fn a_lent_reason_is_lent_on() {
    let close = Close::parse(Cow::Borrowed(b"\x03\xe8bye")).expect("it is right");
    assert!(matches!(close, Close { code: CloseCode::NORMAL, reason: Cow::Borrowed("bye") }));
}

proptest! {
    #[test]
    fn what_is_written_is_read(code in prop_oneof![1000..=1003_u16, 1007..=1014_u16, 3000..=4999_u16], reason: String) {
        let code = CloseCode::new(code).expect("it is in the ranges");
        let payload = ClosePayload::new(code, &reason);
        prop_assert!(payload.as_bytes().len() <= 125);
        for payload in [Cow::Borrowed(payload.as_bytes()), Cow::Owned(payload.as_bytes().to_vec())] {
            let close = Close::parse(payload).expect("it is right");
            prop_assert_eq!(close.code, code);
            // All of it, or so much that the next character would not have fitted.
            prop_assert!(reason.starts_with(&*close.reason));
            prop_assert!(close.reason.len() == reason.len() || close.reason.len() > 123 - 4);
        }
    }
}
