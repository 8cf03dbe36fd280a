//! The heads of names as rows.

use holdline_core::LockName;
use holdline_core::table::Head;

use crate::error::Fault;
use crate::keys;
use crate::rows::Rows;

const FORMAT: u8 = 1;

/// Decodes a head; without a row it is the head of an unused name.
pub(crate) fn decode(row: Option<&[u8]>) -> Result<Head, Fault> {
    let Some(row) = row else { return Ok(Head::default()) };
    let head = match row.split_first() {
        Some((&FORMAT, rest)) => postcard::take_from_bytes(rest).ok(),
        _ => None,
    };
    match head {
        Some((head, [])) => Ok(head),
        _ => Err(Fault::Foreign("the database's row of this name is not ours".into())),
    }
}

/// Writes a head back, if it has changed, and removes an idle name.
pub(crate) fn save(
    rows: Rows<'_>,
    name: &LockName,
    before: Option<&[u8]>,
    head: &Head,
) -> Result<(), Fault> {
    let key = keys::head(name);
    match before {
        None if head.is_idle() => Ok(()),
        None => rows.insert(key, &encode(head)?),
        Some(_) if head.is_idle() => rows.delete(key),
        Some(before) => {
            let row = encode(head)?;
            if row == before { Ok(()) } else { rows.update(key, &row) }
        }
    }
}

fn encode(head: &Head) -> Result<Vec<u8>, Fault> {
    let mut row = Vec::with_capacity(512);
    row.push(FORMAT);
    postcard::to_extend(head, row)
        .map_err(|error| Fault::protocol(format!("a head cannot be written down: {error}")))
}

/// Returns the first name whose key is at or after `from`, with its row.
pub(crate) fn first_from(
    rows: Rows<'_>,
    mut from: Vec<u8>,
) -> Result<Option<(LockName, Vec<u8>)>, Fault> {
    loop {
        let Some((key, row)) = rows.first_from(&from)? else { return Ok(None) };
        if let Some(name) = keys::name_of(&key) {
            return Ok(Some((name, row)));
        }
        // A key that is not a name of ours is skipped.
        from = key;
        from.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_rows_are_not_decoded() {
        let idle = encode(&Head::default()).expect("encoded");
        assert_eq!(decode(Some(&idle)).ok(), Some(Head::default()));
        assert_eq!(decode(None).ok(), Some(Head::default()));
        let mut newer = idle.clone();
        newer[0] = 9;
        let mut longer = idle.clone();
        longer.push(0);
        for bad in [&b""[..], b"hello", &newer, &longer, &idle[..idle.len() - 1]] {
            assert!(matches!(decode(Some(bad)), Err(Fault::Foreign(_))), "{bad:?}");
        }
    }
}
