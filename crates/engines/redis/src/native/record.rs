//! A record as the scripts return it: a holder or a waiter, without the secret part of its lease
//! id.

use std::borrow::Cow;
use std::time::Duration;

use holdline_core::{
    FencingToken, GrantState, HolderFields, HolderSummary, HolderView, LeaseId, Metadata, Mode,
    ShortLeaseId, WaiterView,
};

/// Where the fields of a record are, as `scripts/head.lua` lists them. Of the lease id the scripts
/// return the first eight digits only.
mod field {
    use std::ops::Range;

    pub(super) const SHORT_ID: Range<usize> = 0..8;
    pub(super) const STATE: usize = 8;
    pub(super) const HOLD: usize = 10;
    pub(super) const TOKEN: Range<usize> = 43..59;
    pub(super) const SINCE: Range<usize> = 59..75;
    pub(super) const TERMS: usize = 80;
}

/// A holder, a waiter, or a freeze.
#[derive(Debug)]
pub(super) struct Record {
    short_id: ShortLeaseId,
    state: u8,
    detached: bool,
    token: Option<FencingToken>,
    since_us: u64,
    mode: Mode,
    metadata_text: String,
}

impl Record {
    /// Parses a record; `None` when it is invalid.
    pub(super) fn parse(shown: &[u8]) -> Option<Record> {
        let text = std::str::from_utf8(shown).ok()?;
        let (head, tail) = text.split_at_checked(field::TERMS)?;
        let (terms, metadata_text) = tail.split_once(';')?;
        Some(Record {
            short_id: short_id(head.get(field::SHORT_ID)?)?,
            state: *head.as_bytes().get(field::STATE)?,
            detached: head.as_bytes().get(field::HOLD) == Some(&b'd'),
            token: head.get(field::TOKEN)?.parse().ok(),
            since_us: head.get(field::SINCE)?.parse().ok()?,
            mode: mode(terms.split(' ').next()?)?,
            metadata_text: metadata_text.to_owned(),
        })
    }

    /// Returns the holder at `now_us` of the server's clock, with the time that it has left.
    pub(super) fn summary(&self, now_us: u64, left: Duration) -> HolderSummary {
        if self.state == b'f' {
            return freeze_summary(self.token, &self.metadata_text, left);
        }
        HolderSummary {
            lease_id: self.short_id,
            token: self.token,
            mode: self.mode,
            held_for: Some(self.age(now_us)),
            left: Some(left),
            no_expiry: false,
            metadata: self.metadata(),
        }
    }

    /// Returns all data of a holder; `revoked` is the operator's reason, if it was revoked.
    pub(super) fn holder(&self, now_us: u64, left: Duration, revoked: String) -> HolderView {
        let state = match self.state {
            b'r' => GrantState::Revoked(revoked),
            _ => GrantState::Held,
        };
        HolderView {
            summary: self.summary(now_us, left),
            state,
            detached: self.detached,
            live: false,
            pids: Vec::new(),
        }
    }

    pub(super) fn waiter(&self, now_us: u64) -> WaiterView {
        WaiterView {
            lease_id: self.short_id,
            mode: self.mode,
            waited: Some(self.age(now_us)),
            metadata: self.metadata(),
        }
    }

    fn age(&self, now_us: u64) -> Duration {
        Duration::from_micros(now_us.saturating_sub(self.since_us))
    }

    fn metadata(&self) -> Metadata {
        // Metadata that is too long is not ours.
        Metadata::from_encoded(&self.metadata_text).unwrap_or_default()
    }
}

fn freeze_summary(token: Option<FencingToken>, reason: &str, left: Duration) -> HolderSummary {
    let fields = HolderFields {
        program: "an operator's freeze".into(),
        reason: reason.to_owned(),
        ..HolderFields::default()
    };
    HolderSummary {
        lease_id: LeaseId::from_bytes([0; 16]).short(),
        token,
        mode: Mode::Exclusive,
        held_for: None,
        left: Some(left),
        no_expiry: false,
        // A reason with many escapes may not fit; then the freeze is shown without it.
        metadata: Metadata::new(&fields).unwrap_or_default(),
    }
}

fn short_id(hex: &str) -> Option<ShortLeaseId> {
    let whole: LeaseId = format!("{hex:0<32}").parse().ok()?;
    Some(whole.short())
}

/// Formats a mode as in the terms.
pub(crate) fn mode_text(mode: Mode) -> Cow<'static, str> {
    match mode {
        Mode::Exclusive => Cow::Borrowed("x"),
        Mode::Shared => Cow::Borrowed("s"),
        Mode::Permits { count, of } => Cow::Owned(format!("p{count}/{of}")),
    }
}

fn mode(text: &str) -> Option<Mode> {
    match text {
        "x" => Some(Mode::Exclusive),
        "s" => Some(Mode::Shared),
        // The terms of a freeze are empty but for the mode.
        permits => {
            let (count, of) = permits.strip_prefix('p')?.split_once('/')?;
            Mode::permits(count.parse().ok()?, of.parse().ok()?).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "0123abcdgwd00000000000000070000000000000009\
                         00000000000000420000000000000100\
                         00000p2/3 d750;{\"pid\":7}";

    #[test]
    fn a_record_is_parsed_field_by_field() {
        let record = Record::parse(SHOWN.as_bytes()).expect("a record");
        let view = record.holder(1_100, Duration::from_millis(5), String::new());
        assert_eq!(view.summary.lease_id.to_string(), "0123abcd");
        assert_eq!(view.summary.token, FencingToken::new(42).ok());
        assert_eq!(view.summary.mode, Mode::Permits { count: 2, of: 3 });
        assert_eq!(view.summary.held_for, Some(Duration::from_millis(1)));
        assert_eq!(view.summary.metadata.fields().pid, Some(7));
        assert!(view.detached && view.state == GrantState::Held);
    }

    #[test]
    fn an_invalid_record_is_rejected() {
        for bad in ["", "lock", &SHOWN[..79], &SHOWN.replace(';', ":"), &SHOWN.replace("p2/3", "q")]
        {
            assert!(Record::parse(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(Record::parse(&[0xff; 200]).is_none());
    }
}
