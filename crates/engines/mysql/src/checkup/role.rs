//! Whether the server is the one whose commits count, or repeats those of another.
//!
//! A replica is told by `read_only`, and refused. Where that was forgotten it takes writes, and
//! locks that are taken there are seen by nobody else. Every account may ask whether commits of
//! another are repeated just now; whose they are, and whether some were to be, takes a right.

use holdline_core::{Finding, LockError};

use crate::link::Link;
use crate::replies::Row;

const ROLE: &str = "locks that are taken on a replica are seen by nobody else";
const STATUS: &str =
    "show global status where variable_name in ('Slaves_running', 'Slaves_connected')";

/// What the server tells of whom it repeats.
struct Told {
    /// So many are repeated just now.
    repeated: u64,
    /// So many servers repeat this one.
    followers: u64,
    /// Whom it was told to repeat, if we may ask.
    sources: Option<Vec<String>>,
    /// It was told to repeat some of their databases or tables only.
    filtered: bool,
}

/// What leaves out or names databases and tables, in what a replica tells of itself.
const FILTERS: [&str; 6] = [
    "Replicate_Do_DB",
    "Replicate_Ignore_DB",
    "Replicate_Do_Table",
    "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table",
    "Replicate_Wild_Ignore_Table",
];

pub(super) async fn finding(link: &Link) -> Finding {
    match ask(link).await {
        Ok(told) => judge(&told),
        Err(error) => Finding::ok("role", ROLE, error.to_string()).warn("do what the error says"),
    }
}

async fn ask(link: &Link) -> Result<Told, LockError> {
    let told = link.ask(STATUS).await?;
    let mut known = Told { repeated: 0, followers: 0, sources: None, filtered: false };
    for set in &told {
        for row in &set.rows {
            let row = Row::of(set, row);
            let count = u64::try_from(row.sure::<i64>("Value")?).unwrap_or(0);
            match row.sure("Variable_name")? {
                "Slaves_running" => known.repeated = count,
                _ => known.followers = count,
            }
        }
    }
    // Refused without the right, and unknown to other servers.
    known.sources = match link.ask("show all replicas status").await {
        Ok(told) => {
            let rows = || told.iter().flat_map(|set| set.rows.iter().map(|row| Row::of(set, row)));
            let set =
                |row: &Row<'_>, filter| row.sure(filter).is_ok_and(|what: &str| !what.is_empty());
            known.filtered = rows().any(|row| FILTERS.iter().any(|filter| set(&row, filter)));
            let source = |row: Row<'_>| {
                let (host, port): (&str, &str) =
                    (row.sure("Master_Host")?, row.sure("Master_Port")?);
                Ok(format!("{host}:{port}"))
            };
            Some(rows().map(source).collect::<Result<Vec<String>, LockError>>()?)
        }
        Err(_) => None,
    };
    Ok(known)
}

fn judge(told: &Told) -> Finding {
    let sources = told.sources.as_deref().map(|all| all.join(" and "));
    let of = sources.clone().unwrap_or_else(|| "another server".to_owned());
    let finding = |found: String| Finding::ok("role", ROLE, found);
    match (told.repeated, told.followers, sources.as_deref()) {
        (0, _, Some("")) => finding("it repeats nobody's commits".to_owned()),
        (0, _, None) => finding(
            "it repeats nobody's commits now; whether it was told to, this account may \
             not ask (REPLICA MONITOR)"
                .to_owned(),
        ),
        (0, _, Some(_)) => {
            finding(format!("it is to repeat the commits of {of}, and does not now")).warn(
                "name that server, if it is the primary; if this one has taken its place, have it \
                 forget the other (RESET REPLICA ALL)",
            )
        }
        (_, 0, _) if told.filtered => finding(format!(
            "it repeats some of the commits of {of}, and takes writes as well"
        ))
        .warn(
            "see whether it is the primary of the database of the locks; if not, name that one, \
             and set read_only here",
        ),
        (_, 0, _) => finding(format!("it repeats the commits of {of}, and takes writes as well"))
            .fail(
                "name that server, the primary, and set read_only on this one; a server that \
                 repeats other databases only is well",
            ),
        (..) => finding(format!(
            "it repeats the commits of {of}, and takes writes that others repeat"
        ))
        .warn(
            "name the primary and set read_only on all others; where two repeat each other, let \
             all clients name the same one, and rely on fencing tokens when the other takes over",
        ),
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn who_repeats_another_is_told_as_far_as_it_is_known() {
        let other = || Some(vec!["db:3306".to_owned()]);
        for (repeated, followers, sources, health, says) in [
            (0, 0, Some(Vec::new()), Health::Ok, "nobody's commits"),
            (0, 3, Some(Vec::new()), Health::Ok, "nobody's commits"),
            (0, 0, None, Health::Ok, "may not ask"),
            (0, 0, other(), Health::Warning, "of db:3306, and does not"),
            (1, 0, None, Health::Error, "of another server, and takes writes"),
            (1, 0, other(), Health::Error, "of db:3306, and takes writes"),
            (1, 1, other(), Health::Warning, "that others repeat"),
        ] {
            let told = judge(&Told { repeated, followers, sources, filtered: false });
            assert_eq!(told.health(), health, "{told:?}");
            assert!(told.found().contains(says), "{told:?}");
        }
        let some = Told { repeated: 1, followers: 0, sources: other(), filtered: true };
        assert_eq!(judge(&some).health(), Health::Warning);
    }
}
