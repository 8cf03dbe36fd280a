//! The names of tables and procedures in the database, and the text of a call.

use std::fmt::Write;

use holdline_core::ContractTimes;
use holdline_core::audit::{MAX_RECORD_BYTES, MAX_RECORDS};
use holdline_core::operation::{LARGEST_FENCE, MAX_FREEZE};

/// The revision of the procedures in [`RULES`] and [`VERBS`]; each change of them increments it.
/// The procedures' names end with it, so that two versions can work on the same tables.
pub(crate) const REVISION: u32 = 11;
/// The format that this version reads and writes, stored in `about`.
pub(crate) const FORMAT: i64 = 3;

const TABLES: &str = include_str!("../sql/tables.sql");
const RULES: &str = include_str!("../sql/rules.sql");
const VERBS: &str = include_str!("../sql/verbs.sql");
const AUDIT: &str = include_str!("../sql/audit.sql");
const FAST: &str = include_str!("../sql/fast.sql");

/// The names of the tables, without the prefix.
/// A store without the audit trail is one of an earlier version.
pub(crate) const TABLE_NAMES: [&str; 5] = ["about", "heads", "holders", "marks", "waiters"];
/// The table of the audit trail, without the prefix. It is made with the procedures.
pub(crate) const TRAIL: &str = "audit";
/// The names of the procedures, without prefix and revision.
pub(crate) const PROCEDURES: [&str; 28] = [
    "add_mark",
    "recount",
    "clear_holder",
    "expire",
    "grant",
    "admits",
    "hand_over",
    "move_fast_holder",
    "settle",
    "lock_name",
    "ahead",
    "next_look",
    "wake",
    "acquire",
    "fresh",
    "answer",
    "renew",
    "release",
    "revoke",
    "remove_waiter",
    "freeze",
    "unfreeze",
    "raise",
    "refresh",
    "sweep",
    "listen",
    "audit_append",
    "audit_read",
];

/// The longest prefix that leaves room for the longest name.
pub(crate) const LONGEST_PREFIX: usize = 32;

/// A value of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Bytes(&'a [u8]),
    Number(i64),
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Value<'a> {
        Value::Bytes(bytes)
    }
}

/// The names of one set of tables.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    /// The prefix is letters, digits and `_`: it needs no quotes.
    pub(crate) fn new(prefix: &str) -> Names {
        Names { prefix: prefix.to_owned() }
    }

    pub(crate) fn table(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn procedure(&self, name: &str) -> String {
        format!("{}{name}_{REVISION}", self.prefix)
    }

    /// Writes the call of a procedure. Bytes are sent in hex, so that nothing has to be quoted.
    pub(crate) fn call(&self, verb: &str, values: &[Value<'_>]) -> String {
        let mut text = format!("call {}(", self.procedure(verb));
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            match value {
                Value::Bytes(bytes) => push_bytes(&mut text, bytes),
                Value::Number(number) => {
                    let _ = write!(text, "{number}");
                }
            }
        }
        text.push(')');
        text
    }

    /// Returns the statements that create the tables, in their order.
    pub(crate) fn tables(&self) -> Vec<String> {
        self.statements(TABLES)
    }

    /// Returns the statements that create the table of the audit trail and the procedures.
    pub(crate) fn procedures(&self) -> Vec<String> {
        self.procedures_with(&ContractTimes::DEFAULT)
    }

    /// Returns the statements of the fast path: acquire, and release.
    pub(crate) fn fast(&self) -> Vec<String> {
        self.statements(FAST)
    }

    fn procedures_with(&self, times: &ContractTimes) -> Vec<String> {
        let parts = [RULES, VERBS, AUDIT].map(|part| times.fill_micros(part));
        parts.iter().flat_map(|part| self.statements(part)).collect()
    }

    fn statements(&self, part: &str) -> Vec<String> {
        let filled = part
            .replace("@p@", &self.prefix)
            .replace("@r@", &REVISION.to_string())
            .replace("@format@", &FORMAT.to_string())
            .replace("@largest_fence@", &LARGEST_FENCE.to_string())
            .replace("@max_freeze@", &MAX_FREEZE.as_micros().to_string())
            .replace("@records@", &MAX_RECORDS.to_string())
            .replace("@record_bytes@", &MAX_RECORD_BYTES.to_string());
        filled.split("\n$$\n").map(str::to_owned).collect()
    }
}

/// Writes bytes as a literal.
pub(crate) fn push_bytes(text: &mut String, bytes: &[u8]) {
    text.push_str("x'");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
}

/// Bytes as a literal.
pub(crate) fn literal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len() + 3);
    push_bytes(&mut text, bytes);
    text
}

/// Returns the name of the lock that the sleeper of an inbox holds, as `wake` in `rules.sql` forms
/// it.
pub(crate) fn inbox_lock(inbox: u64) -> String {
    format!("holdline_{inbox:016x}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sha2::{Digest, Sha256};

    use super::*;

    /// Without a new revision, a database that has the procedures would keep the old ones.
    #[test]
    fn procedures_that_change_have_a_new_revision() {
        let digest = Sha256::digest(ContractTimes::DEFAULT.fill_micros(&[RULES, VERBS].concat()));
        let digest = literal(&digest[..8]);
        let known = (11, "x'03068b3a180257f4'");
        let reply = "increment REVISION, and put the new pair here";
        assert_eq!((REVISION, digest.as_str()), known, "{reply}");
    }

    #[test]
    fn the_procedures_have_the_times_of_the_contract() {
        let text_with = |times| Names::new("my_").procedures_with(&times).concat();
        let usual = text_with(ContractTimes::DEFAULT);
        let seconds = Duration::from_secs;
        let default = ContractTimes::DEFAULT;
        for (times, old, new) in [
            (ContractTimes { queue_silence: seconds(17), ..default }, "4000000", "17000000"),
            (ContractTimes { queue_heartbeat: seconds(18), ..default }, "1000000", "18000000"),
            (ContractTimes { min_tombstone: seconds(19), ..default }, "30000000", "19000000"),
        ] {
            let text = text_with(times);
            let places = usual.matches(old).count();
            assert!(places > 0 && !usual.contains(new), "{old}");
            assert_eq!((text.matches(old).count(), text.matches(new).count()), (0, places));
        }
        assert!(!usual.contains('@'), "{usual}");
    }

    #[test]
    fn all_procedures_are_looked_for() {
        let names = Names::new("my_");
        let made = names.procedures();
        let mut reply: Vec<&str> = made
            .iter()
            .filter_map(|text| text.split("create procedure my_").nth(1)?.split("_11(").next())
            .collect();
        let mut known = PROCEDURES.to_vec();
        reply.sort_unstable();
        known.sort_unstable();
        let tables = made.iter().filter(|text| text.contains("create table")).count();
        assert_eq!((reply.len() + tables, reply), (made.len(), known));
    }

    #[test]
    fn a_call_needs_no_quotes() {
        let text = Names::new("p_").call("release", &[Value::Bytes(b"a'b"), Value::Number(-1)]);
        assert_eq!(text, "call p_release_11(x'612762',-1)");
        assert_eq!(inbox_lock(0xab), "holdline_00000000000000ab");
    }
}
