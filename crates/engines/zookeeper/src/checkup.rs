//! The checks of `doctor` for a ZooKeeper ensemble.
//!
//! Nothing is written. The rights of the user are checked by a transaction whose last operation
//! must fail: the servers check the rights of the operations before it all the same.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{Checkup, Clock, ErrorKind, Finding, LockError};

use crate::error::{ENGINE, RequestError};
use crate::options::ZooKeeperOptions;
use crate::probe::{self, Limits};
use crate::sessions::ZooKeeperSessions;
use holdline_net::executor::Executor;

const REACHABLE: &str = "without an answer no lock can be acquired, and held leases expire";
const SESSIONS: &str = "a lease is a session, so it can be as short and as long as one";
const QUORUM: &str = "a lock needs more than half of the members; the others can be lost";
const VERSION: &str = "the node of a queue is a container, which servers know from 3.5.3 on";
const TICKS: &str = "the leader ends sessions by ticks, and waits for a member that lags so many";
const RIGHTS: &str = "a lock is a node below the chroot, which must be made and deleted";
const PASSWORD: &str = "anyone who reads the password can release every lock";
const WORDS: &str = "allow them: `4lw.commands.whitelist=srvr,conf`";
/// The answer of a member that has no quorum.
const IDLE: &str = "not currently serving requests";
/// The oldest version that knows containers.
const OLDEST: ServerVersion = ServerVersion { major: 3, minor: 5, patch: 3 };
/// The shortest session that a server allows by default.
const SHORT: Duration = Duration::from_secs(4);

/// What a member reports.
struct Member {
    name: String,
    limits: Limits,
    server: Option<String>,
    settings: Option<String>,
}

/// Checks the ensemble of these options.
///
/// Takes a few round trips; a member that does not answer costs the time limits of the options.
///
/// # Errors
/// `Invalid`: an option is wrong. Every other fault is a finding.
pub async fn checkup(
    options: &ZooKeeperOptions,
    clock: Arc<dyn Clock>,
) -> Result<Checkup, LockError> {
    options.validate()?;
    let options = options.clone();
    Executor::process_wide(ENGINE)?.run(async move { check(&options, clock).await }).await
}

async fn check(options: &ZooKeeperOptions, clock: Arc<dyn Clock>) -> Checkup {
    let mut checkup = Checkup::new(ENGINE);
    let mut members = Vec::new();
    let mut idle = Vec::new();
    let mut silent = Vec::new();
    let limit = options.connect_timeout();
    for member in &options.cluster.members {
        match probe::limits(member, options.tls(), limit).await {
            Ok(limits) => members.push(Member {
                name: member.to_string(),
                limits,
                server: probe::word(member, options.tls(), "srvr", limit).await,
                settings: probe::word(member, options.tls(), "conf", limit).await,
            }),
            Err(error) => match probe::word(member, options.tls(), "srvr", limit).await {
                Some(said) if said.contains(IDLE) => idle.push(member.to_string()),
                _ => silent.push(probe::reason(&error)),
            },
        }
    }
    checkup.add(reachable(members.len() + idle.len(), &silent));
    if !(members.is_empty() && idle.is_empty()) {
        checkup.add(quorum(&members, &idle));
    }
    let Some(first) = members.first() else { return checkup };
    let longest = first.limits.longest;
    checkup.add(sessions(&members));
    checkup.add(version(&members));
    checkup.add(ticks(&members));
    checkup.add(rights(options, longest, clock).await);
    if options.exposes_password() {
        let finding = Finding::ok("password", PASSWORD, "travels without TLS");
        checkup.add(finding.warn("write `zks://`, with a secureClientPort of the servers"));
    }
    checkup
}

fn reachable(count: usize, silent: &[String]) -> Finding {
    let all = count + silent.len();
    let found = match silent {
        [] => format!("{all} of {all} named members answer"),
        silent => format!("{count} of {all} named members answer; {}", silent.join("; ")),
    };
    let finding = Finding::ok("reachable", REACHABLE, found);
    match (count, silent.is_empty()) {
        (0, _) => finding.fail("do what the error says; until then nothing can be locked"),
        (_, false) => finding.warn("start those members, or leave them out of the URL"),
        (_, true) => finding,
    }
}

fn sessions(members: &[Member]) -> Finding {
    let shortest = members.iter().map(|one| one.limits.shortest).max().unwrap_or_default();
    let longest = members.iter().map(|one| one.limits.longest).min().unwrap_or_default();
    let finding = Finding::ok("sessions", SESSIONS, format!("from {shortest:?} to {longest:?}"));
    if members.iter().any(|one| one.limits != members[0].limits) {
        return finding.fail("set minSessionTimeout and maxSessionTimeout alike on all members");
    }
    match (shortest > MAX_FIRST_LEASE, shortest > SHORT, longest < MAX_FIRST_LEASE) {
        (true, ..) => finding.fail(format!(
            "lower minSessionTimeout: no lease starts with more than {} s",
            MAX_FIRST_LEASE.as_secs_f64()
        )),
        (_, true, _) => finding.warn("lower minSessionTimeout, or ask for leases that are longer"),
        (_, _, true) => finding.warn(format!(
            "raise maxSessionTimeout to {}, or ask for shorter leases",
            MAX_FIRST_LEASE.as_millis()
        )),
        _ => finding,
    }
}

/// `idle`: members that answer and allow no session.
fn quorum(members: &[Member], idle: &[String]) -> Finding {
    if !idle.is_empty() {
        let found = format!("not serving: {}", idle.join(", "));
        let finding = Finding::ok("quorum", QUORUM, found);
        return if members.is_empty() {
            finding.fail("start more members, or repair the network between them")
        } else {
            finding.warn("repair the network between those and the others")
        };
    }
    let mut modes = Vec::new();
    for member in members {
        let server = member.server.as_deref().unwrap_or_default();
        let Some(mode) = server.lines().find_map(|line| line.strip_prefix("Mode: ")) else {
            let found = format!("not known: {} does not answer `srvr`", member.name);
            return Finding::ok("quorum", QUORUM, found).warn(WORDS);
        };
        modes.push((&member.name, mode));
    }
    let shown: Vec<String> = modes.iter().map(|(name, mode)| format!("{name} {mode}")).collect();
    let finding = Finding::ok("quorum", QUORUM, shown.join(", "));
    if modes.iter().any(|(_, mode)| *mode == "standalone") {
        finding.warn("run three members, so that one may be lost")
    } else {
        finding
    }
}

fn version(members: &[Member]) -> Finding {
    let said = members.iter().filter_map(|member| {
        let server = member.server.as_deref()?;
        let version = server.lines().find_map(|line| line.strip_prefix("Zookeeper version: "))?;
        version.split(['-', ',']).next()
    });
    let mut versions: Vec<&str> = said.collect();
    versions.sort_unstable();
    versions.dedup();
    let finding = Finding::ok("version", VERSION, versions.join(", "));
    match versions.iter().map(|text| ServerVersion::parse(text)).min() {
        Some(Some(oldest)) if oldest < OLDEST => finding.fail("run 3.5.3 or newer"),
        Some(Some(_)) => finding,
        Some(None) | None => finding.warn(WORDS),
    }
}

/// A version of the server. Versions compare by their fields in this order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ServerVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

impl ServerVersion {
    fn parse(text: &str) -> Option<ServerVersion> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let major = parts.next()??;
        let minor = parts.next()??;
        let patch = parts.next()??;
        Some(ServerVersion { major, minor, patch })
    }
}

/// Returns a setting from the answer to `conf`.
fn setting(settings: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix('=')?.trim().parse().ok();
    settings.lines().find_map(value)
}

fn ticks(members: &[Member]) -> Finding {
    let reported = members.iter().find_map(|member| {
        let settings = member.settings.as_deref()?;
        let tick = setting(settings, "tickTime")?;
        // A standalone server has no other member to wait for.
        let lag = setting(settings, "syncLimit").unwrap_or(0).saturating_mul(tick);
        Some((Duration::from_millis(tick), Duration::from_millis(lag), member.limits.shortest))
    });
    let Some((tick, lag, shortest)) = reported else {
        let finding = Finding::ok("ticks", TICKS, "not known: no member answers `conf`");
        return finding.warn(WORDS);
    };
    let found = if lag.is_zero() {
        format!("a tick is {tick:?}; the server is standalone")
    } else {
        format!("a tick is {tick:?}; a member may lag {lag:?}")
    };
    let finding = Finding::ok("ticks", TICKS, found);
    match (shortest < tick * 2, lag > MAX_FIRST_LEASE) {
        (true, _) => finding.warn("raise minSessionTimeout to two ticks: sessions end by ticks"),
        (_, true) => finding.warn("lower syncLimit: a member that lags so long vouches for leases"),
        (false, false) => finding,
    }
}

async fn rights(options: &ZooKeeperOptions, longest: Duration, clock: Arc<dyn Clock>) -> Finding {
    // No lease belongs to this session, so its exact timing does not matter.
    let sessions = ZooKeeperSessions::new(options.clone(), Duration::ZERO, clock);
    let found = format!("may make nodes below `{}`", options.chroot());
    let asked = async {
        let session = sessions.open(longest.min(MAX_FIRST_LEASE)).await?;
        session.connection()?.may_write().await
    };
    match asked.await {
        Ok(()) => Finding::ok("rights", RIGHTS, found),
        Err(RequestError::Error(error)) if matches!(error.kind(), ErrorKind::Refused { .. }) => {
            let way = format!("setAcl -R {} auth:USER:PASSWORD:cdrwa", options.chroot());
            Finding::ok("rights", RIGHTS, error.to_string()).fail(way)
        }
        Err(failure) => {
            let finding = Finding::ok("rights", RIGHTS, failure.into_error().to_string());
            finding.warn("ask again when the ensemble answers")
        }
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    fn member(server: Option<&str>, settings: &str, limits: (u64, u64)) -> Member {
        let shortest = Duration::from_millis(limits.0);
        let longest = Duration::from_millis(limits.1);
        Member {
            name: "a:2181".into(),
            limits: Limits { shortest, longest },
            server: server.map(str::to_owned),
            settings: Some(settings.to_owned()).filter(|text| !text.is_empty()),
        }
    }

    fn said(version: &str) -> String {
        format!("Zookeeper version: {version}-11+deb12u2, built on 2025\nMode: follower\n")
    }

    #[test]
    fn each_finding_names_the_wrong_setting() {
        use Health::{Error, Ok, Warning};
        let usual = (4_000, 40_000);
        let of = |version: &str| [member(Some(&said(version)), "", usual)];
        for (outcome, expected) in [("3.8.0", Ok), ("3.4.13", Error), ("what", Warning)] {
            assert_eq!(version(&of(outcome)).health(), expected, "{outcome}");
        }
        assert_eq!(quorum(&of("3.8.0"), &[]).health(), Ok);
        let alone = [member(Some("Mode: standalone\n"), "", usual)];
        assert_eq!(quorum(&alone, &[]).health(), Warning);
        let idle = ["b:2181".to_owned()];
        assert_eq!(quorum(&[], &idle).health(), Error);
        assert_eq!(quorum(&of("3.8.0"), &idle).health(), Warning);
        assert_eq!(quorum(&[member(None, "", usual)], &[]).health(), Warning);
        for (limits, expected) in [
            (usual, Ok),
            ((6_000, 40_000), Warning),
            ((400, 20_000), Warning),
            ((31_000, 90_000), Error),
        ] {
            assert_eq!(sessions(&[member(None, "", limits)]).health(), expected, "{limits:?}");
        }
        let unlike = [member(None, "", usual), member(None, "", (2_000, 40_000))];
        assert_eq!(sessions(&unlike).health(), Error);
        for (settings, expected) in [
            ("tickTime=2000\nsyncLimit=5\n", Ok),
            ("tickTime=2000\n", Ok),
            ("tickTime=3000\nsyncLimit=5\n", Warning),
            ("tickTime=2000\nsyncLimit=50\n", Warning),
            ("", Warning),
        ] {
            assert_eq!(ticks(&[member(None, settings, usual)]).health(), expected, "{settings}");
        }
    }
}
