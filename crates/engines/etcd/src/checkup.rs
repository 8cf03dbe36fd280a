//! The checks of `doctor` for an etcd cluster.
//!
//! Nothing is written. The rights of the user are checked by a transaction whose condition is never
//! true: the servers check the rights of all its operations all the same.
//!
//! Read next: `space` for how full the databases are.

mod space;

use holdline_core::{Checkup, ErrorKind, Finding, LockError};

use crate::client::Client;
use crate::error::{ENGINE, RequestError};
use crate::keys::Layout;
use crate::ops::{absent, get, keys_of, present, put};
use crate::options::EtcdOptions;
use crate::proto::{RangeRequest, StatusResponse, TxnRequest};
use holdline_net::executor::Executor;
use space::Quota;

const REACHABLE: &str = "without an answer no lock can be acquired, and held leases expire";
const QUORUM: &str = "a lock needs more than half of the members; the others can be lost";
const VERSION: &str = "before 3.5.13 a leader that was stopped may answer keepalives for leases \
                       that are over; 3.5.0 to 3.5.2 may forget what they acknowledged when they \
                       crash";
/// Releases that save how far they are before they have saved what was done up to there: a crash
/// between the two loses an acknowledged write, and its revision is given again (etcd issue 13766).
const FORGETFUL: std::ops::RangeInclusive<[u32; 3]> = [3, 5, 0]..=[3, 5, 2];
const DATA: &str = "a member whose data differs from the others' may grant a name that is held";
const RIGHTS: &str = "a lock is keys under the prefix, which must be read and written";
const PASSWORD: &str = "anyone who reads the password can release every lock";

/// Checks the cluster of these options.
///
/// Takes a few round trips; a member that does not answer costs the time limits of the options.
///
/// # Errors
/// `Invalid`: an option is wrong. All else is a finding.
pub async fn checkup(options: &EtcdOptions) -> Result<Checkup, LockError> {
    options.validate()?;
    let options = options.clone();
    Executor::current(ENGINE)?.run(async move { check(&options).await }).await?
}

async fn check(options: &EtcdOptions) -> Result<Checkup, LockError> {
    let mut checkup = Checkup::new(ENGINE);
    let mut statuses = Vec::new();
    let mut silent = Vec::new();
    let mut quotas = Vec::new();
    for member in &options.cluster.members {
        match Client::new(&options.only(member))?.status().await {
            Ok(status) => {
                quotas.push(Quota::of(member, &status, options).await);
                statuses.push((member.to_string(), status));
            }
            Err(failure) => silent.push(failure.into_error().to_string()),
        }
    }
    checkup.add(reachable(&statuses, &silent));
    if statuses.is_empty() {
        return Ok(checkup);
    }
    let client = Client::new(options)?;
    checkup.add(quorum(&client, &statuses).await);
    checkup.add(version(&statuses));
    checkup.add(space::finding(&statuses, &quotas));
    checkup.add(data(&statuses));
    checkup.add(rights(&client, options).await);
    if options.exposes_password() {
        let finding = Finding::ok("password", PASSWORD, "travels without TLS");
        checkup.add(finding.warn("write `etcds://`"));
    }
    Ok(checkup)
}

fn reachable(statuses: &[(String, StatusResponse)], silent: &[String]) -> Finding {
    let count = statuses.len() + silent.len();
    let found = match silent {
        [] => format!("{count} of {count} named members answer"),
        silent => {
            format!("{} of {count} named members answer; {}", statuses.len(), silent.join("; "))
        }
    };
    let finding = Finding::ok("reachable", REACHABLE, found);
    match (statuses.is_empty(), silent.is_empty()) {
        (true, _) => finding.fail("do what the error says; until then nothing can be locked"),
        (false, false) => finding.warn("start those members, or leave them out of the URL"),
        (false, true) => finding,
    }
}

async fn quorum(client: &Client, statuses: &[(String, StatusResponse)]) -> Finding {
    if let Some((member, _)) = statuses.iter().find(|(_, status)| status.leader == 0) {
        let finding = Finding::ok("quorum", QUORUM, format!("{member} knows of no leader"));
        return finding.fail("start more members, or repair the network between them");
    }
    match client.member_list().await {
        Ok(messages) if messages.members.len() < 3 => {
            let found = format!("the cluster has {} member(s)", messages.members.len());
            let finding = Finding::ok("quorum", QUORUM, found);
            finding.warn("run three members, so that one may be lost")
        }
        Ok(messages) => {
            let names: Vec<&str> = messages.members.iter().map(|one| one.name.as_str()).collect();
            let found = format!("{} members: {}", names.len(), names.join(", "));
            Finding::ok("quorum", QUORUM, found)
        }
        Err(failure) => {
            Finding::ok("quorum", QUORUM, format!("not known: {}", failure.into_error()))
        }
    }
}

fn version(statuses: &[(String, StatusResponse)]) -> Finding {
    let mut versions: Vec<&str> = statuses.iter().map(|(_, one)| one.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    let finding = Finding::ok("version", VERSION, versions.join(", "));
    let read = |text: &&str| numbers(text);
    if versions.iter().filter_map(read).any(|version| FORGETFUL.contains(&version)) {
        return finding
            .fail("run 3.5.13 or newer: a crash of this one may lose locks and repeat tokens");
    }
    match versions.iter().map(read).min().flatten() {
        Some(oldest) if oldest < [3, 4, 0] => finding.fail("run 3.4 at least"),
        Some(oldest) if oldest < [3, 5, 13] => finding.warn(
            "run 3.5.13 or newer, and hand the fencing token to what must not be written twice",
        ),
        Some(_) => finding,
        None => finding.warn("find out which version it is: 3.5.13 or newer is meant"),
    }
}

fn numbers(version: &str) -> Option<[u32; 3]> {
    let plain = version.split('-').next()?;
    let mut parts = plain.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// Returns the alarms of the members that contain this word.
fn alarms<'a>(statuses: &'a [(String, StatusResponse)], word: &str) -> Vec<&'a str> {
    let messages = statuses.iter().flat_map(|(_, one)| one.errors.iter().map(|error| error.trim()));
    let mut messages: Vec<&str> = messages.filter(|error| error.contains(word)).collect();
    messages.sort_unstable();
    messages.dedup();
    messages
}

fn data(statuses: &[(String, StatusResponse)]) -> Finding {
    let alarms = alarms(statuses, "CORRUPT");
    if alarms.is_empty() {
        return Finding::ok("data", DATA, "no member reports a difference");
    }
    Finding::ok("data", DATA, alarms.join(", ")).fail(
        "remove the member that differs and add it again with an empty directory, then disarm the \
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
        Err(RequestError::Error(error)) if matches!(error.kind(), ErrorKind::Refused { .. }) => {
            let role = "etcdctl role grant-permission ROLE readwrite --prefix=true";
            let finding = Finding::ok("rights", RIGHTS, error.to_string());
            finding.fail(format!("{role} {}", options.prefix()))
        }
        Err(failure) => {
            let finding = Finding::ok("rights", RIGHTS, failure.into_error().to_string());
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
