//! What `doctor` looks at on an etcd cluster.
//!
//! It only asks: nothing is written. What the user may write is asked by a transaction whose
//! condition cannot hold: the servers check the rights of all its parts all the same.
//!
//! Read next: `space` for how full the databases are.

mod space;

use holdline_core::{Checkup, ErrorKind, Finding, LockError};

use crate::client::Client;
use crate::error::{ENGINE, Trouble};
use crate::keys::Layout;
use crate::ops::{absent, get, keys_of, present, put};
use crate::options::EtcdOptions;
use crate::proto::{RangeRequest, StatusResponse, TxnRequest};
use holdline_net::workplace::Workplace;
use space::Quota;

const REACHABLE: &str = "without an answer no lock can be taken, and held ones run out";
const QUORUM: &str = "a lock needs more than half of the members; the others can be lost";
const VERSION: &str = "before 3.5.13 a leader that was stopped may answer keepalives for leases \
                       that are over; 3.5.0 to 3.5.2 may forget what they acknowledged when they \
                       crash";
/// Releases that save how far they are before they have saved what was done up to there: a crash
/// between the two loses an acknowledged write, and its revision is given again (etcd issue 13766).
const FORGETFUL: std::ops::RangeInclusive<(u32, u32, u32)> = (3, 5, 0)..=(3, 5, 2);
const DATA: &str = "a member whose data differs from the others' may grant a name that is held";
const RIGHTS: &str = "a lock is keys under the prefix, which must be read and written";
const PASSWORD: &str = "whoever reads the password can release every lock";

/// Looks how the cluster of these options stands.
///
/// Takes a few round trips; a member that does not answer costs the time limits of the options.
///
/// # Errors
/// `Invalid`: an option is wrong. All else is a finding.
pub async fn checkup(options: &EtcdOptions) -> Result<Checkup, LockError> {
    options.validate()?;
    let options = options.clone();
    Workplace::here(ENGINE)?.run(async move { look(&options).await }).await?
}

async fn look(options: &EtcdOptions) -> Result<Checkup, LockError> {
    let mut checkup = Checkup::new(ENGINE);
    let (mut stand, mut silent, mut quotas) = (Vec::new(), Vec::new(), Vec::new());
    for member in &options.cluster.members {
        match Client::new(&options.only(member))?.status().await {
            Ok(status) => {
                quotas.push(Quota::of(member, &status, options).await);
                stand.push((member.to_string(), status));
            }
            Err(trouble) => silent.push(trouble.into_error().to_string()),
        }
    }
    checkup.add(reachable(&stand, &silent));
    if stand.is_empty() {
        return Ok(checkup);
    }
    let client = Client::new(options)?;
    checkup.add(quorum(&client, &stand).await);
    checkup.add(version(&stand));
    checkup.add(space::finding(&stand, &quotas));
    checkup.add(data(&stand));
    checkup.add(rights(&client, options).await);
    if options.exposes_password() {
        let finding = Finding::ok("password", PASSWORD, "travels without TLS");
        checkup.add(finding.warn("write `etcds://`"));
    }
    Ok(checkup)
}

fn reachable(stand: &[(String, StatusResponse)], silent: &[String]) -> Finding {
    let count = stand.len() + silent.len();
    let found = match silent {
        [] => format!("{count} of {count} named members answer"),
        silent => format!("{} of {count} named members answer; {}", stand.len(), silent.join("; ")),
    };
    let finding = Finding::ok("reachable", REACHABLE, found);
    match (stand.is_empty(), silent.is_empty()) {
        (true, _) => finding.fail("do what the error says; until then nothing can be locked"),
        (false, false) => finding.warn("start those members, or leave them out of the URL"),
        (false, true) => finding,
    }
}

async fn quorum(client: &Client, stand: &[(String, StatusResponse)]) -> Finding {
    if let Some((member, _)) = stand.iter().find(|(_, status)| status.leader == 0) {
        let finding = Finding::ok("quorum", QUORUM, format!("{member} knows of no leader"));
        return finding.fail("start more members, or mend the network between them");
    }
    match client.member_list().await {
        Ok(reply) if reply.members.len() < 3 => {
            let found = format!("the cluster has {} member(s)", reply.members.len());
            let finding = Finding::ok("quorum", QUORUM, found);
            finding.warn("run three members, so that one may be lost")
        }
        Ok(reply) => {
            let names: Vec<&str> = reply.members.iter().map(|one| one.name.as_str()).collect();
            let found = format!("{} members: {}", names.len(), names.join(", "));
            Finding::ok("quorum", QUORUM, found)
        }
        Err(trouble) => {
            Finding::ok("quorum", QUORUM, format!("not known: {}", trouble.into_error()))
        }
    }
}

fn version(stand: &[(String, StatusResponse)]) -> Finding {
    let mut versions: Vec<&str> = stand.iter().map(|(_, one)| one.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    let finding = Finding::ok("version", VERSION, versions.join(", "));
    let read = |text: &&str| numbers(text);
    if versions.iter().filter_map(read).any(|version| FORGETFUL.contains(&version)) {
        return finding
            .fail("run 3.5.13 or newer: a crash of this one may lose locks and repeat tokens");
    }
    match versions.iter().map(read).min().flatten() {
        Some(oldest) if oldest < (3, 4, 0) => finding.fail("run 3.4 at least"),
        Some(oldest) if oldest < (3, 5, 13) => finding.warn(
            "run 3.5.13 or newer, and hand the fencing token to what must not be written twice",
        ),
        Some(_) => finding,
        None => finding.warn("find out which version it is: 3.5.13 or newer is meant"),
    }
}

fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let plain = version.split('-').next()?;
    let mut parts = plain.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

/// What members tell with this word of what is wrong with the cluster.
fn alarms<'a>(stand: &'a [(String, StatusResponse)], word: &str) -> Vec<&'a str> {
    let told = stand.iter().flat_map(|(_, one)| one.errors.iter().map(|error| error.trim()));
    let mut told: Vec<&str> = told.filter(|error| error.contains(word)).collect();
    told.sort_unstable();
    told.dedup();
    told
}

fn data(stand: &[(String, StatusResponse)]) -> Finding {
    let alarms = alarms(stand, "CORRUPT");
    if alarms.is_empty() {
        return Finding::ok("data", DATA, "no member is told to differ");
    }
    Finding::ok("data", DATA, alarms.join(", ")).fail(
        "remove the member that differs and add it anew with an empty directory, then disarm the \
         alarm; hand the fencing token to what must not be written twice",
    )
}

async fn rights(client: &Client, options: &EtcdOptions) -> Finding {
    let layout = Layout::new(options.prefix());
    let key = format!("{}/doctor", options.prefix()).into_bytes();
    // There is no key that is both there and not there.
    let compare = vec![absent(key.clone()), present(key.clone())];
    let success = vec![put(key, Vec::new(), 0)];
    let failure = vec![get(RangeRequest { limit: 1, ..keys_of(layout.names("")) })];
    let txn = TxnRequest { compare, success, failure };
    let asked = client.txn(txn).await;
    let found = format!("may read and write under `{}`", options.prefix());
    match asked {
        Ok(_) => Finding::ok("rights", RIGHTS, found),
        Err(Trouble::Error(error)) if matches!(error.kind(), ErrorKind::Refused { .. }) => {
            let role = "etcdctl role grant-permission ROLE readwrite --prefix=true";
            let finding = Finding::ok("rights", RIGHTS, error.to_string());
            finding.fail(format!("{role} {}", options.prefix()))
        }
        Err(trouble) => {
            let finding = Finding::ok("rights", RIGHTS, trouble.into_error().to_string());
            finding.warn("ask again when the cluster answers")
        }
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    fn health(versions: &[&str]) -> Health {
        let status = |version: &&str| {
            let version = (*version).to_owned();
            (String::new(), StatusResponse { version, ..StatusResponse::default() })
        };
        version(&versions.iter().map(status).collect::<Vec<_>>()).health()
    }

    #[test]
    fn the_oldest_member_counts() {
        for (versions, expected) in [
            (&["3.5.13"][..], Health::Ok),
            (&["3.6.0-rc.1", "3.5.21"], Health::Ok),
            (&["3.6.0", "3.5.9"], Health::Warning),
            (&["3.4.23"], Health::Warning),
            (&["3.3.9", "3.5.20"], Health::Error),
            (&["3.4.23", "3.5.1"], Health::Error),
            (&["3.5.3"], Health::Warning),
            (&["what"], Health::Warning),
        ] {
            assert_eq!(health(versions), expected, "{versions:?}");
        }
    }
}
