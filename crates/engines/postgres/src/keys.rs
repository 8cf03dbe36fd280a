//! The names of functions in the database.

use std::fmt::Write;

/// Quotes a name for a statement.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the channel of an inbox, as `notify_1` in `rules.sql` forms it.
pub(crate) fn channel(inbox: u64) -> String {
    format!("holdline_{inbox:016x}")
}

/// The statements of one schema, one for each verb.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) acquire: String,
    pub(crate) grant_free: String,
    pub(crate) renew: String,
    pub(crate) release: String,
    pub(crate) release_alone: String,
    pub(crate) inspect: String,
    pub(crate) list: String,
    pub(crate) revoke: String,
    pub(crate) remove_waiter: String,
    pub(crate) freeze: String,
    pub(crate) unfreeze: String,
    pub(crate) raise: String,
    pub(crate) sweep: String,
    pub(crate) audit_append: String,
    pub(crate) audit_read: String,
}

impl Statements {
    pub(crate) fn of(schema: &str) -> Statements {
        let schema = quoted(schema);
        let call = |verb: &str, arguments: usize| {
            let mut text = format!("select * from {schema}.{verb}_1(");
            for number in 1..=arguments {
                let comma = if number == 1 { "" } else { ", " };
                let _ = write!(text, "{comma}${number}");
            }
            text + ")"
        };
        // As a column, a number needs no table function.
        let number = |verb: &str, arguments: usize| {
            call(verb, arguments).replacen("select * from", "select", 1)
        };
        Statements {
            acquire: call("acquire", 14),
            grant_free: number("grant_free", 7),
            renew: call("renew", 6),
            release: call("release", 3),
            release_alone: number("release_alone", 2),
            inspect: call("inspect", 2),
            list: call("list", 4),
            revoke: call("revoke", 4),
            remove_waiter: call("remove_waiter", 3),
            freeze: call("freeze", 3),
            unfreeze: call("unfreeze", 1),
            raise: call("raise", 1),
            sweep: call("sweep", 2),
            audit_append: call("audit_append", 1),
            audit_read: call("audit_read", 3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_quotes() {
        assert_eq!(quoted(r#"a"; drop table b"#), r#""a""; drop table b""#);
    }

    #[test]
    fn statements_name_their_schema_and_arguments() {
        let statements = Statements::of("my locks");
        assert_eq!(statements.release, "select * from \"my locks\".release_1($1, $2, $3)");
        assert_eq!(channel(0xab), "holdline_00000000000000ab");
    }
}
