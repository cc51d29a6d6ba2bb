use alloc::vec;

use super::*;

#[test]
fn a_promise_is_not_believed() {
    for opcode in [Opcode::Text, Opcode::Binary] {
        let capacity = match Message::new(opcode, false, u64::MAX).finish().expect("it is empty") {
            Event::Text(Cow::Owned(text)) => text.capacity(),
            Event::Binary(Cow::Owned(bytes)) => bytes.capacity(),
            other => panic!("{other:?}"),
        };
        assert_eq!(capacity as u64, MAX_CAPACITY_ON_PROMISE);
    }
}

#[test]
fn the_limit_is_exact() {
    for opcode in [Opcode::Text, Opcode::Binary] {
        let mut message = Message::new(opcode, false, 0);
        assert_eq!(message.push(b"12345", 8), Ok(()));
        assert_eq!(message.push(b"678", 8), Ok(()));
        assert_eq!(message.len(), 8);
        assert_eq!(message.push(b"9", 8), Err(Fault::TooBig));
    }
}

#[test]
fn text_is_checked_and_bytes_are_not() {
    let mut text = Message::new(Opcode::Text, false, 0);
    // A character that is cut counts for the limit.
    assert_eq!(text.push(b"\xf0\x9f\x92", 3), Ok(()));
    assert_eq!(text.len(), 3);
    assert_eq!(text.push(b"\xa7", 3), Err(Fault::TooBig));
    assert_eq!(text.push(b"x", 9), Err(NOT_UTF8));
    assert_eq!(text.finish(), Err(NOT_UTF8));
    // What is bad before the limit is told before it, in one piece as in two.
    assert_eq!(Message::new(Opcode::Text, true, 0).push(b"a\xffbc", 3), Err(NOT_UTF8));
    assert_eq!(Message::new(Opcode::Text, true, 0).push(b"abc\xff", 3), Err(Fault::TooBig));

    let mut binary = Message::new(Opcode::Binary, false, 0);
    assert_eq!(binary.push(b"\xf0\x9f", 9), Ok(()));
    assert_eq!(binary.finish(), Ok(Event::Binary(vec![0xf0, 0x9f].into())));
}
