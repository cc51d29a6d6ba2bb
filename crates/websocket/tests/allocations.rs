//! What the hot path allocates: nothing for a message that lies whole in the input, the message itself otherwise.

// A counting allocator cannot be had without implementing an unsafe trait.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use headrace_websocket::{Connection, Event, Limits};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes on to the system's allocator as it came. The counter is a `const` thread local without a
// destructor, so touching it neither allocates nor fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` by `alloc` or `realloc`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as for `dealloc`; the caller's promise about `size` is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// The frame of one text message of 256 bytes, as a client sends it.
fn frame() -> Vec<u8> {
    let mut out = Vec::new();
    let mut client = Connection::client(|| 0x3d21_fa37, Limits::default(), None);
    client.send_text(&"x".repeat(256), &mut out).expect("it is open");
    out
}

#[test]
fn an_echo_of_a_whole_message_allocates_nothing() {
    let mut input = frame();
    let mut out = Vec::with_capacity(512);
    let mut server = Connection::server(Limits::default(), None);
    let count = allocations(|| {
        let mut input = &mut input[..];
        while let Some(event) = server.receive(&mut input, &mut out) {
            let Event::Text(text) = event else { panic!("{event:?}") };
            server.send_text(&text, &mut out).expect("it is open");
        }
    });
    assert_eq!((count, out.len()), (0, 4 + 256));
}

#[test]
fn a_message_in_two_inputs_allocates_itself() {
    let mut input = frame();
    let mut out = Vec::new();
    let mut server = Connection::server(Limits::default(), None);
    let mut received = None;
    let count = allocations(|| {
        let (mut first, mut second) = input.split_at_mut(100);
        assert_eq!(server.receive(&mut first, &mut out), None);
        received = server.receive(&mut second, &mut out);
    });
    assert!(matches!(received, Some(Event::Text(text)) if text.len() == 256));
    assert_eq!(count, 1);
}

#[test]
fn an_idle_connection_allocates_nothing() {
    let count = allocations(|| {
        let server = Connection::server(Limits::default(), None);
        assert!(size_of_val(&server) <= 200, "{} bytes", size_of_val(&server));
    });
    assert_eq!(count, 0);
}
