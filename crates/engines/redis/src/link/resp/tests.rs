//! What is encoded, what is decoded, and what is invalid.

use super::*;
use crate::args::digits;

fn bytes(text: &str) -> Value {
    Value::Bytes(text.into())
}

fn list(parts: &[Value]) -> Value {
    Value::Array(parts.to_vec())
}

#[test]
fn commands_are_encoded_argument_by_argument() {
    let mut out = Vec::new();
    write(&mut out, &[b"SET", b"", b"a\r\nb"]);
    assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
    for (number, text) in [(0, "0"), (9, "9"), (10, "10"), (u64::MAX, "18446744073709551615")] {
        assert_eq!(digits(number, &mut [0; 20]), text.as_bytes());
    }
}

fn read(bytes: &[u8]) -> Result<Option<(Frame, usize)>, InvalidFrame> {
    super::read(bytes, &mut FrameScanner::default())
}

/// Each complete reply is decoded, and no prefix of one is.
#[test]
fn replies_of_both_versions_are_decoded() {
    let nothing = Value::Nil;
    for (text, value) in [
        ("+OK\r\n", Value::Status("OK".to_owned())),
        (":-9223372036854775808\r\n", Value::Integer(i64::MIN)),
        (":9223372036854775807\r\n", Value::Integer(i64::MAX)),
        ("$-1\r\n", nothing.clone()),
        ("*-1\r\n", nothing.clone()),
        ("_\r\n", nothing),
        ("$0\r\n\r\n", bytes("")),
        ("$4\r\na\r\nb\r\n", bytes("a\r\nb")),
        ("=7\r\ntxt:a\nb\r\n", bytes("a\nb")),
        ("*0\r\n", list(&[])),
        ("*2\r\n:1\r\n*1\r\n$1\r\na\r\n", list(&[Value::Integer(1), list(&[bytes("a")])])),
        ("~1\r\n#t\r\n", list(&[Value::Integer(1)])),
        ("%1\r\n+k\r\n,1.5\r\n", list(&[Value::Status("k".to_owned()), bytes("1.5")])),
        ("|1\r\n+k\r\n:1\r\n#f\r\n", Value::Integer(0)),
        ("(123456789012345678901\r\n", bytes("123456789012345678901")),
    ] {
        let frame = Frame::Reply(Ok(value));
        assert_eq!(read(text.as_bytes()), Ok(Some((frame, text.len()))), "{text:?}");
        let mut scanner = FrameScanner::default();
        for end in 0..text.len() {
            let beginning = &text.as_bytes()[..end];
            assert_eq!(read(beginning), Ok(None), "{:?}", &text[..end]);
            assert_eq!(super::read(beginning, &mut scanner), Ok(None), "{:?}", &text[..end]);
        }
        assert_eq!(super::read(text.as_bytes(), &mut scanner), read(text.as_bytes()), "{text:?}");
    }
}

/// What was scanned once is not scanned again, however many pieces come.
#[test]
fn a_long_array_is_scanned_once() {
    let mut scanner = FrameScanner::default();
    let mut text = b"*1000\r\n".to_vec();
    for part in 0..1_000 {
        assert_eq!(super::read(&text, &mut scanner), Ok(None));
        assert_eq!((scanner.at, scanner.left), (text.len(), 1_000 - part));
        text.extend(b"*1\r\n$1\r\nx\r\n");
    }
    let (_, length) = super::read(&text, &mut scanner).expect("sense").expect("whole");
    assert_eq!((length, scanner.left), (text.len(), 0));
}

#[test]
fn a_frame_ends_where_the_next_begins() {
    let text = b">3\r\n+message\r\n$1\r\nc\r\n$1\r\nm\r\n:1\r\n";
    let (frame, length) = read(text).expect("sense").expect("whole");
    let parts = vec![Value::Status("message".to_owned()), bytes("c"), bytes("m")];
    assert_eq!((frame, &text[length..]), (Frame::Push(parts), &b":1\r\n"[..]));
}

#[test]
fn error_replies_are_split_and_what_follows_one_is_read() {
    let frame = |text: &str| match read(text.as_bytes()) {
        Ok(Some((Frame::Reply(Err(error_reply)), length))) if length == text.len() => error_reply,
        other => panic!("{text:?}: {other:?}"),
    };
    assert_eq!(frame("-NOSCRIPT no such\r\n"), ServerError::new("NOSCRIPT", "no such"));
    assert_eq!(frame("-ODD\r\n"), ServerError::new("ODD", ""));
    assert_eq!(frame("!8\r\nERR a\r\nb\r\n"), ServerError::new("ERR", "a\r\nb"));
    assert_eq!(frame("*3\r\n-ERR a\r\n-ERR b\r\n:1\r\n"), ServerError::new("ERR", "a"));
}

#[test]
fn invalid_and_incomplete_frames_are_distinguished() {
    let deep = "*1\r\n".repeat(40);
    let long = format!("+{}", "x".repeat(MAX_LINE));
    for text in [
        "H",
        "!!!x\r\n",
        ":\r\n",
        ":-\r\n",
        ":1x\r\n",
        "$-2\r\n",
        "$1\r\nab\r\n",
        "+a\n",
        ":9223372036854775808\r\n",
        "$536870913\r\n",
        "_x\r\n",
        "=3\r\ntxt\r\n",
        "%-1\r\n",
        &deep,
        &long,
    ] {
        assert_eq!(read(text.as_bytes()), Err(InvalidFrame), "{text:?}");
    }
    assert_eq!(read(b"$536870912\r\na few bytes"), Ok(None));
    assert_eq!(read(b"*536870912\r\n:1\r\n"), Ok(None));
}
