//! Checks whether an old transaction keeps the server from purging deleted rows.
//!
//! Every account may ask how much waits to be purged; finding the oldest transaction needs a
//! privilege.

use std::time::Duration;

use holdline_core::{Finding, LockError};

use crate::link::Link;
use crate::rows::Row;

const SNAPSHOTS: &str = "what was deleted stays readable for the oldest transaction: tables grow, \
    and searches read more";
const HISTORY: &str = "show global status where variable_name = 'Innodb_history_list_length'";
const OLDEST: &str = "select t.trx_mysql_thread_id as id, \
        timestampdiff(second, t.trx_started, now()) as age \
    from information_schema.innodb_trx t order by t.trx_started limit 1";
/// A dump of a large table may take this long.
const LONG: Duration = Duration::from_secs(300);
/// A server that keeps up has a few thousand.
const MANY: u64 = 500_000;

/// What the server reports about open transactions.
#[derive(Default)]
struct Known {
    /// How many changes are kept for them.
    history: Option<u64>,
    /// The connection with the oldest one that we are shown, and its age.
    oldest: Option<(i64, Duration)>,
}

pub(super) async fn finding(link: &Link) -> Finding {
    match ask(link).await {
        Ok(known) => judge(&known),
        Err(error) => {
            Finding::ok("snapshots", SNAPSHOTS, error.to_string()).warn("do what the error says")
        }
    }
}

async fn ask(link: &Link) -> Result<Known, LockError> {
    let mut known = Known::default();
    for set in link.ask(HISTORY).await?.iter() {
        for row in &set.rows {
            known.history = u64::try_from(Row::of(set, row).sure::<i64>("Value")?).ok();
        }
    }
    // Without the privilege `PROCESS` it is refused, or returns no rows.
    for set in link.ask(OLDEST).await.unwrap_or_default().iter() {
        for row in &set.rows {
            let row = Row::of(set, row);
            let age = u64::try_from(row.sure::<i64>("age")?).unwrap_or(0);
            known.oldest = Some((row.sure("id")?, Duration::from_secs(age)));
        }
    }
    Ok(known)
}

fn judge(known: &Known) -> Finding {
    let history = known.history.map_or("unknown".to_owned(), |length| length.to_string());
    let oldest = match known.oldest {
        None => "no open transaction is shown to this account (PROCESS shows all)".to_owned(),
        Some((id, age)) => format!("the oldest transaction is connection {id}'s, open for {age:?}"),
    };
    let finding =
        Finding::ok("snapshots", SNAPSHOTS, format!("history list length {history}; {oldest}"));
    match (known.oldest, known.history) {
        (Some((id, age)), _) if age >= LONG => finding
            .warn(format!("end the transaction of connection {id} (KILL {id}) if nobody needs it")),
        (_, Some(MANY..)) => finding.warn(
            "look for a transaction that is open for a long time (information_schema.innodb_trx), \
             and end it",
        ),
        _ => finding,
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn an_old_transaction_or_a_long_history_is_reported() {
        let oldest = |secs| Some((7, Duration::from_secs(secs)));
        for (history, oldest, health) in [
            (Some(0), None, Health::Ok),
            (Some(MANY - 1), oldest(299), Health::Ok),
            (Some(0), oldest(300), Health::Warning),
            (Some(MANY), None, Health::Warning),
            (None, None, Health::Ok),
        ] {
            let finding = judge(&Known { history, oldest });
            assert_eq!(finding.health(), health, "{}", finding.found());
        }
    }
}
