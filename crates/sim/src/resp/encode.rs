//! Encoding of replies.

use std::io::Write;

use super::{Protocol, Reply};

/// Appends `reply` to `out`.
pub(crate) fn encode(reply: &Reply, protocol: Protocol, out: &mut Vec<u8>) {
    let new = protocol == Protocol::Resp3;
    match reply {
        Reply::Status(text) => line(b'+', text, out),
        Reply::Error(text) => line(b'-', text, out),
        Reply::Integer(number) => header(b':', *number, out),
        Reply::Bulk(bytes) => bulk(b'$', bytes, out),
        Reply::Null | Reply::NullArray if new => out.extend_from_slice(b"_\r\n"),
        Reply::Null => out.extend_from_slice(b"$-1\r\n"),
        Reply::NullArray => out.extend_from_slice(b"*-1\r\n"),
        Reply::Array(items) => all(b'*', items, protocol, out),
        Reply::Set(items) => all(if new { b'~' } else { b'*' }, items, protocol, out),
        Reply::Push(items) => all(if new { b'>' } else { b'*' }, items, protocol, out),
        Reply::Map(pairs) => {
            let length = if new { pairs.len() } else { pairs.len() * 2 };
            length_header(if new { b'%' } else { b'*' }, length, out);
            for (key, value) in pairs {
                encode(key, protocol, out);
                encode(value, protocol, out);
            }
        }
        Reply::Pairs(pairs) => {
            length_header(b'*', if new { pairs.len() } else { pairs.len() * 2 }, out);
            for (key, value) in pairs {
                if new {
                    out.extend_from_slice(b"*2\r\n");
                }
                encode(key, protocol, out);
                encode(value, protocol, out);
            }
        }
        Reply::Double(number) if new => line(b',', float_text(*number).as_bytes(), out),
        Reply::Double(number) => bulk(b'$', float_text(*number).as_bytes(), out),
        Reply::Boolean(yes) if new => line(b'#', if *yes { b"t" } else { b"f" }, out),
        Reply::Boolean(yes) => header(b':', i64::from(*yes), out),
        Reply::BigNumber(digits) if new => line(b'(', digits, out),
        Reply::BigNumber(digits) => bulk(b'$', digits, out),
        Reply::Verbatim(format, text) if new => {
            let mut whole = format.to_vec();
            whole.push(b':');
            whole.extend_from_slice(text);
            bulk(b'=', &whole, out);
        }
        Reply::Verbatim(_, text) => bulk(b'$', text, out),
    }
}

fn line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn header(kind: u8, number: i64, out: &mut Vec<u8>) {
    out.push(kind);
    // Writing into memory cannot fail.
    let _ = write!(out, "{number}\r\n");
}

fn length_header(kind: u8, length: usize, out: &mut Vec<u8>) {
    header(kind, i64::try_from(length).unwrap_or(i64::MAX), out);
}

fn bulk(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    length_header(kind, bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn all(kind: u8, items: &[Reply], protocol: Protocol, out: &mut Vec<u8>) {
    length_header(kind, items.len(), out);
    for item in items {
        encode(item, protocol, out);
    }
}

/// Formats a number like C's `%.17g`.
pub(crate) fn float_text(number: f64) -> String {
    general(number, 17)
}

/// Formats a number like C's `%.<digits>g`.
pub(crate) fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit = i32::try_from(digits).unwrap_or(17);
    if exponent < -4 || exponent >= limit {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(limit - 1 - exponent).unwrap_or(0);
    without_zeros(&format!("{number:.decimals$}")).to_owned()
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_in_c() {
        let table: &[(f64, &str)] = &[
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-1.5, "-1.5"),
            (0.1, "0.10000000000000001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1e21, "1e+21"),
            (1.5e-7, "1.4999999999999999e-07"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in table {
            assert_eq!(float_text(*number), *text);
        }
        assert_eq!(general(1_234_567_890_123_456.0, 14), "1.2345678901235e+15");
    }

    #[test]
    fn each_protocol_has_its_own_shape() {
        let map = Reply::Map(vec![(Reply::bulk(b"a"), Reply::Double(1.5))]);
        assert_eq!(map.to_bytes(Protocol::Resp2), b"*2\r\n$1\r\na\r\n$3\r\n1.5\r\n");
        assert_eq!(map.to_bytes(Protocol::Resp3), b"%1\r\n$1\r\na\r\n,1.5\r\n");
        let pairs = Reply::Pairs(vec![(Reply::bulk(b"a"), Reply::Integer(1))]);
        assert_eq!(pairs.to_bytes(Protocol::Resp2), b"*2\r\n$1\r\na\r\n:1\r\n");
        assert_eq!(pairs.to_bytes(Protocol::Resp3), b"*1\r\n*2\r\n$1\r\na\r\n:1\r\n");
        assert_eq!(Reply::NullArray.to_bytes(Protocol::Resp2), b"*-1\r\n");
        assert_eq!(Reply::NullArray.to_bytes(Protocol::Resp3), b"_\r\n");
        let text = Reply::Verbatim(*b"txt", b"hi".to_vec());
        assert_eq!(text.to_bytes(Protocol::Resp3), b"=6\r\ntxt:hi\r\n");
        assert_eq!(text.to_bytes(Protocol::Resp2), b"$2\r\nhi\r\n");
    }
}
