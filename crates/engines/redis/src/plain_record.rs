//! What a value says about its holder, without the secret part of the lease id.
//!
//! A client that knows the value of a lock can release it, ours or another library's. So only its
//! first characters leave this module.

use std::time::Duration;

use holdline_core::{
    FencingToken, GrantState, HolderFields, HolderSummary, HolderView, LeaseId, Metadata, Mode,
    ShortLeaseId,
};

/// The program of a holder that is not ours.
const FOREIGN: &str = "a foreign client";

/// Who holds a lock.
#[derive(Debug)]
pub(crate) struct Record {
    id: LeaseId,
    token: Option<FencingToken>,
    since_us: Option<u64>,
    detached: bool,
    metadata: Metadata,
}

impl Record {
    /// Reads a value. Without fencing our values are bare lease ids, and 32 hex digits may also
    /// be another library's.
    pub(crate) fn read(value: &[u8], fencing: bool) -> Record {
        if let Some(record) = Record::fenced(value) {
            return record;
        }
        let bare = lease_id(value).filter(|_| !fencing);
        match bare {
            Some(id) => Record::without_token(id, Metadata::default()),
            None => Record::of_other_library(value),
        }
    }

    /// Describes a holder that is not ours, by the value or its first eight bytes.
    pub(crate) fn of_other_library(value: &[u8]) -> Record {
        let fields = HolderFields { program: FOREIGN.into(), ..HolderFields::default() };
        Record::without_token(beginning(value), Metadata::new(&fields).unwrap_or_default())
    }

    fn without_token(id: LeaseId, metadata: Metadata) -> Record {
        Record { id, token: None, since_us: None, detached: false, metadata }
    }

    fn fenced(value: &[u8]) -> Option<Record> {
        let text = std::str::from_utf8(value).ok()?;
        let mut fields = text.splitn(5, ':');
        let id = lease_id(fields.next()?.as_bytes())?;
        let token = fields.next()?.parse().ok()?;
        let since_us = fields.next()?.parse().ok()?;
        let detached = fields.next()?.starts_with('d');
        // Metadata that is too long is not ours.
        let metadata = Metadata::from_encoded(fields.next()?).unwrap_or_default();
        Some(Record { id, token: Some(token), since_us: Some(since_us), detached, metadata })
    }

    /// Returns the lease of a grant that has this token.
    pub(crate) fn lease_of(&self, token: FencingToken) -> Option<LeaseId> {
        (self.token == Some(token)).then_some(self.id)
    }

    /// Returns the id that is shown of the holder.
    pub(crate) fn short_id(&self) -> ShortLeaseId {
        self.id.short()
    }

    /// Returns the token of a grant of ours.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Returns the holder at `now_us` of the server's clock; `left` is `None` if it has no expiry.
    pub(crate) fn summary(&self, now_us: u64, left: Option<Duration>) -> HolderSummary {
        HolderSummary {
            lease_id: self.id.short(),
            token: self.token,
            mode: Mode::Exclusive,
            held_for: self
                .since_us
                .map(|since| Duration::from_micros(now_us.saturating_sub(since))),
            left,
            no_expiry: left.is_none(),
            metadata: self.metadata.clone(),
        }
    }

    /// Returns all data of the holder.
    pub(crate) fn view(&self, now_us: u64, left: Option<Duration>) -> HolderView {
        HolderView {
            summary: self.summary(now_us, left),
            state: GrantState::Held,
            detached: self.detached,
            live: false,
            pids: Vec::new(),
        }
    }
}

/// Parses a lease id as we write it: 32 lower-case hex digits.
fn lease_id(value: &[u8]) -> Option<LeaseId> {
    let text = std::str::from_utf8(value).ok()?;
    let id: LeaseId = text.parse().ok()?;
    (id.to_hex() == text).then_some(id)
}

/// Returns the first four bytes of another library's value, so that people can distinguish holders.
/// Of a hex value, these are its first digits.
fn beginning(value: &[u8]) -> LeaseId {
    let hex: Vec<u8> = value.iter().copied().filter(|digit| *digit != b'-').take(8).collect();
    let padded = format!("{:0<32}", String::from_utf8_lossy(&hex));
    padded.parse().unwrap_or_else(|_| {
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(value.iter().take(4)).for_each(|(to, from)| *to = *from);
        LeaseId::from_bytes(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123abcd0123abcd0123abcd0123abcd";

    fn read(value: &str, fencing: bool) -> HolderSummary {
        Record::read(value.as_bytes(), fencing).summary(1_100, None)
    }

    #[test]
    fn a_value_of_ours_is_read_field_by_field() {
        let value = format!("{HEX}:0000000000000042:0000000000000100:dl750:{{\"pid\":7}}");
        let record = Record::read(value.as_bytes(), true);
        let view = record.view(1_100, Some(Duration::from_millis(5)));
        assert_eq!(view.summary.lease_id.to_string(), "0123abcd");
        assert_eq!(view.summary.token, FencingToken::new(42).ok());
        assert_eq!(view.summary.held_for, Some(Duration::from_millis(1)));
        assert_eq!(view.summary.metadata.fields().pid, Some(7));
        assert!(view.detached);
        let token = FencingToken::new(42).expect("a token");
        assert_eq!(record.lease_of(token), HEX.parse().ok());
        assert_eq!(record.lease_of(FencingToken::MIN), None);
    }

    #[test]
    fn other_values_are_foreign_and_only_their_first_bytes_are_shown() {
        for (value, shown) in [
            (HEX, "0123abcd"),
            ("d46dae87-1f34-4c5e-9f5d-0123456789ab", "d46dae87"),
            ("qWxy+/==", "71577879"),
            ("1", "10000000"),
            ("", "00000000"),
        ] {
            let summary = read(value, true);
            assert_eq!((summary.token, summary.held_for), (None, None), "{value}");
            assert_eq!(summary.metadata.fields().program, FOREIGN, "{value}");
            assert_eq!(summary.lease_id.to_string(), shown, "{value}");
        }
        let raw = Record::read(&[0xff; 20], true).summary(0, None);
        assert_eq!(raw.lease_id.to_string(), "ffffffff");
    }

    #[test]
    fn without_tokens_a_bare_lease_may_be_ours() {
        let fields = |summary: HolderSummary| summary.metadata.fields().program;
        assert_eq!(fields(read(HEX, false)), "");
        for other in ["another", &HEX[1..], &HEX.to_uppercase()] {
            assert_eq!(fields(read(other, false)), FOREIGN, "{other}");
        }
    }
}
