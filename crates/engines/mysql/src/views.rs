//! Reads the state of names: one statement, which sees all tables at one moment.

use std::fmt::Write;

use holdline_core::LockName;
use holdline_net::sql::engine::NameRange;

use crate::keys::{Names, literal};

const NOW: &str = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";

/// Asks how some names stand: a row of the part `name` for each that is not free, then its holders
/// and its queue, at most `most` of each.
pub(crate) fn inspect(names: &Names, wanted: &[LockName], most: usize) -> String {
    let [heads, holders, waiters] = ["heads", "holders", "waiters"].map(|table| names.table(table));
    let literals: Vec<String> =
        wanted.iter().map(|name| literal(name.as_str().as_bytes())).collect();
    let mut text = format!(
        "select 'name' as part, h.name as name, null as id, null as mode, null as permits, \
            h.permits_of as total, h.freeze_token as token, null as passed, \
            greatest(0, h.freeze_until - {NOW}) as rest, null as state, \
            if(h.freeze_until is null, null, 'f') as kind, h.freeze_reason as note, \
            null as metadata, h.held as holders, h.queued as queued \
         from {heads} h where h.name in ({}) \
            and (h.held > 0 or h.queued > 0 or h.freeze_until is not null)",
        literals.join(",")
    );
    for name in literals {
        let _ = write!(
            text,
            " union all (select 'holder', x.name, substr(x.lease_id, 1, 4), x.mode, x.permits, \
                x.total, x.token, greatest(0, {NOW} - x.since), \
                greatest(0, x.deadline - {NOW}), \
                if(x.revoked is not null, 'r', 'g'), x.kind, x.revoked, \
                x.metadata, null, null \
             from {holders} x where x.name = {name} and x.lease_id is not null \
             order by x.token limit {most}) \
             union all (select 'holder', f.name, substr(f.lease_id, 1, 4), 'x', 0, 0, f.fence, \
                greatest(0, {NOW} - f.since), greatest(0, f.ends - {NOW}), 'g', f.kind, null, \
                f.metadata, null, null \
             from {heads} f where f.name = {name} and f.lease_id is not null) \
             union all (select 'waiter', w.name, substr(w.lease_id, 1, 4), w.mode, w.permits, \
                w.total, null, greatest(0, {NOW} - w.queued_at), null, null, w.kind, null, \
                w.metadata, null, null \
             from {waiters} w where w.name = {name} \
                and w.place >= (select h.first_place from {heads} h where h.name = {name}) \
                and w.place < (select h.next_place from {heads} h where h.name = {name}) \
             order by w.place limit {most})"
        );
    }
    text
}

/// Asks for the names of a range, in the order of their bytes, that may be in use.
pub(crate) fn list(names: &Names, range: &NameRange<'_>) -> String {
    let heads = names.table("heads");
    let mut text = format!("select h.name as name from {heads} h where h.name >= ");
    text.push_str(&literal(range.prefix));
    if let Some(after) = range.after {
        let _ = write!(text, " and h.name > {}", literal(after));
    }
    if let Some(before) = &range.before {
        let _ = write!(text, " and h.name < {}", literal(before));
    }
    let _ = write!(
        text,
        " and (h.held > 0 or h.queued > 0 or h.freeze_until is not null) \
         order by h.name limit {}",
        range.limit
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_on_behind_a_name() {
        let after = Some(&b"ab"[..]);
        let before = Some(b"b".to_vec());
        let range = NameRange { prefix: b"a", after, before, limit: 7 };
        let text = list(&Names::new("p_"), &range);
        assert!(text.contains(">= x'61' and h.name > x'6162' and h.name < x'62'"), "{text}");
        assert!(text.ends_with("limit 7"), "{text}");
    }
}
