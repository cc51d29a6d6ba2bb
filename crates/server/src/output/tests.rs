//! Order and completeness of what goes out, to a reader that is slower than the writer.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::*;

fn file(name: &str, bytes: &[u8]) -> File {
    let path = std::env::temp_dir().join(format!("headrace-output-{}-{name}", std::process::id()));
    let mut file =
        File::options().create(true).truncate(true).read(true).write(true).open(&path).expect("open");
    std::fs::remove_file(&path).expect("remove");
    file.write_all(bytes).expect("write");
    file
}

fn span(file: &File, offset: u64, count: Option<u64>) -> FileSpan {
    FileSpan::new(file.try_clone().expect("clone").into(), offset, count).expect("a regular file")
}

/// Flush until nothing is pending, and read each time the other side takes no more.
fn drain(output: &mut Output) -> Vec<u8> {
    let (writer, mut reader) = UnixStream::pair().expect("pair");
    writer.set_nonblocking(true).expect("non-blocking");
    reader.set_nonblocking(true).expect("non-blocking");
    let mut received = Vec::new();
    loop {
        let done = output.flush(&writer).expect("flush");
        // Ends with WouldBlock once nothing is left in the socket.
        let _ = reader.read_to_end(&mut received);
        if done {
            return received;
        }
    }
}

#[test]
fn files_and_bytes_go_out_in_order() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let file = file("order", &content);
    let mut output = Output::default();
    output.append(b"head ");
    output.push(Piece::File(span(&file, 10, Some(1_500_000))));
    output.append(b" between ");
    output.push(Piece::Bytes(Box::new(vec![b'x'; 300_000])));
    output.push(Piece::File(span(&file, 2_999_990, None)));
    output.append(b" tail");
    let mut expected = b"head ".to_vec();
    expected.extend_from_slice(&content[10..1_500_010]);
    expected.extend_from_slice(b" between ");
    expected.extend_from_slice(&vec![b'x'; 300_000]);
    expected.extend_from_slice(&content[2_999_990..]);
    expected.extend_from_slice(b" tail");
    assert_eq!(output.pending(), expected.len());
    assert!(drain(&mut output) == expected);
    assert!(output.is_empty());
}

#[test]
fn one_flush_sends_no_more_of_files_than_a_turn() {
    let file = file("turn", &vec![7; 4 * TURN]);
    let mut output = Output::default();
    output.push(Piece::File(span(&file, 0, None)));
    let (writer, mut reader) = UnixStream::pair().expect("pair");
    writer.set_nonblocking(true).expect("non-blocking");
    let thread = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let mut flushes = 0;
    while !output.flush(&writer).expect("flush") {
        flushes += 1;
        std::thread::yield_now();
    }
    drop(writer);
    assert_eq!(thread.join().expect("join").expect("read"), 4 * TURN as u64);
    assert!(flushes >= 3, "{flushes}");
}

#[test]
fn a_file_that_became_shorter_is_an_error() {
    let file = file("shorter", &[1; 100]);
    let mut output = Output::default();
    output.append(b"head");
    output.push(Piece::File(span(&file, 0, None)));
    file.set_len(40).expect("truncate");
    let (writer, _reader) = UnixStream::pair().expect("pair");
    let error = output.flush(&writer).expect_err("the end of the file");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(output.pending(), 60);
}

#[test]
fn a_span_is_bounded_by_its_file() {
    let file = file("bounded", &[1; 100]);
    assert_eq!(span(&file, 90, Some(20)).length(), 10);
    assert_eq!(span(&file, 200, None).length(), 0);
    let (socket, _other) = UnixStream::pair().expect("pair");
    let refused = FileSpan::new(socket.into(), 0, Some(1)).expect_err("no regular file");
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_file_of_which_the_kernel_cannot_send_is_read() {
    let content: Vec<u8> = (0..500_000_u32).map(|n| (n % 241) as u8).collect();
    let file = file("copied", &content);
    let span = span(&file, 0, None);
    span.copy();
    let mut output = Output::default();
    output.append(b"head");
    output.push(Piece::File(span));
    output.append(b"tail");
    assert!(drain(&mut output) == [b"head", &content[..], b"tail"].concat());
}
