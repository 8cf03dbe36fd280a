//! Checks that the server is the primary and not a replica.
//!
//! A replica is recognised by `read_only`, and refused. Without that setting it takes writes, and
//! the primary does not see locks that are taken there. Every account may ask whether the server is
//! replicating now; the sources, and the filters, need a privilege.

use holdline_core::{Finding, LockError};

use crate::link::Link;
use crate::rows::Row;

const ROLE: &str = "the primary does not see locks that are taken on a replica";
const STATUS: &str =
    "show global status where variable_name in ('Slaves_running', 'Slaves_connected')";

/// What the server reports about replication.
struct ReplicationStatus {
    /// How many sources it replicates now.
    replicated: u64,
    /// How many replicas it has.
    followers: u64,
    /// Its configured sources, if the account may read them.
    sources: Option<Vec<String>>,
    /// Whether replication filters are set.
    filtered: bool,
}

/// The filters in the status of a replica.
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
        Ok(reply) => judge(&reply),
        Err(error) => Finding::ok("role", ROLE, error.to_string()).warn("do what the error says"),
    }
}

async fn ask(link: &Link) -> Result<ReplicationStatus, LockError> {
    let reply = link.ask(STATUS).await?;
    let mut known =
        ReplicationStatus { replicated: 0, followers: 0, sources: None, filtered: false };
    for set in reply.iter() {
        for row in &set.rows {
            let row = Row::of(set, row);
            let count = u64::try_from(row.sure::<i64>("Value")?).unwrap_or(0);
            match row.sure("Variable_name")? {
                "Slaves_running" => known.replicated = count,
                _ => known.followers = count,
            }
        }
    }
    // Refused without the privilege, and unknown to other servers.
    known.sources = match link.ask("show all replicas status").await {
        Ok(reply) => {
            let rows = || reply.iter().flat_map(|set| set.rows.iter().map(|row| Row::of(set, row)));
            let set =
                |row: &Row<'_>, filter| row.sure(filter).is_ok_and(|what: &str| !what.is_empty());
            known.filtered = rows().any(|row| FILTERS.iter().any(|filter| set(&row, filter)));
            let source = |row: Row<'_>| {
                let host: &str = row.sure("Master_Host")?;
                let port: &str = row.sure("Master_Port")?;
                Ok(format!("{host}:{port}"))
            };
            Some(rows().map(source).collect::<Result<Vec<String>, LockError>>()?)
        }
        Err(_) => None,
    };
    Ok(known)
}

fn judge(reply: &ReplicationStatus) -> Finding {
    let sources = reply.sources.as_deref().map(|all| all.join(" and "));
    let of = sources.clone().unwrap_or_else(|| "another server".to_owned());
    let finding = |found: String| Finding::ok("role", ROLE, found);
    match (reply.replicated, reply.followers, sources.as_deref()) {
        (0, _, Some("")) => finding("it is not a replica".to_owned()),
        (0, _, None) => finding(
            "it is not replicating now; whether it is configured to, this account may \
             not ask (REPLICA MONITOR)"
                .to_owned(),
        ),
        (0, _, Some(_)) => {
            finding(format!("it is configured to replicate from {of}, and does not now")).warn(
                "name that server, if it is the primary; if this one has taken its place, have it \
                 forget the other (RESET REPLICA ALL)",
            )
        }
        (_, 0, _) if reply.filtered => finding(format!(
            "it replicates a part of {of}, and takes writes as well"
        ))
        .warn(
            "see whether it is the primary of the database of the locks; if not, name that one, \
             and set read_only here",
        ),
        (_, 0, _) => finding(format!("it replicates from {of}, and takes writes as well"))
            .fail(
                "name that server, the primary, and set read_only on this one; a server that \
                 replicates other databases only is fine",
            ),
        (..) => finding(format!(
            "it replicates from {of}, and takes writes that others replicate"
        ))
        .warn(
            "name the primary and set read_only on all others; where two replicate each other, let \
             all clients name the same one, and rely on fencing tokens when the other takes over",
        ),
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn a_replica_is_reported_as_far_as_it_is_known() {
        let other = || Some(vec!["db:3306".to_owned()]);
        for (replicated, followers, sources, health, says) in [
            (0, 0, Some(Vec::new()), Health::Ok, "it is not a replica"),
            (0, 3, Some(Vec::new()), Health::Ok, "it is not a replica"),
            (0, 0, None, Health::Ok, "may not ask"),
            (0, 0, other(), Health::Warning, "from db:3306, and does not"),
            (1, 0, None, Health::Error, "from another server, and takes writes"),
            (1, 0, other(), Health::Error, "from db:3306, and takes writes"),
            (1, 1, other(), Health::Warning, "that others replicate"),
        ] {
            let finding =
                judge(&ReplicationStatus { replicated, followers, sources, filtered: false });
            assert_eq!(finding.health(), health, "{finding:?}");
            assert!(finding.found().contains(says), "{finding:?}");
        }
        let some =
            ReplicationStatus { replicated: 1, followers: 0, sources: other(), filtered: true };
        assert_eq!(judge(&some).health(), Health::Warning);
    }
}
