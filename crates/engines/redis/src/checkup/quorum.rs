//! What `doctor` checks on the servers of a quorum: first together, then each. Equal findings of
//! several servers are merged, with their addresses.

use std::fmt::Write as _;
use std::sync::Arc;

use holdline_core::quorum::majority;
use holdline_core::{Checkup, Clock, Finding, LockError};

use super::merge::merge;
use super::shared_keys::{self, EndBy};
use super::{Probe, machine, rights, settings};
use crate::checkup::info::{Config, Info};
use crate::options::{Dialect, RedisOptions};
use crate::quorum::{ENGINE, NodeState, NodeStatus, QuorumAdmin, QuorumOptions, QuorumStatus};
use crate::sentinel;

const SERVERS: &str = "a majority of independent servers must answer for each lock";
const SET: &str = "servers that are not one set, agreed by all of them, give no votes";
const MARGIN: &str = "fewer than half of the servers may be down at any time, including those \
                      that are down now";
const VOTES: &str = "a server that does not vote counts as down";
/// The check of a server that does not answer.
const SILENT: &str = "votes";
const CLOCKS: &str = "leases do not compare clocks; but fencing tokens follow the median, and \
                      depend on it when all servers have lost their data";
const PERSISTENCE: &str = "a server that has lost its data does not vote for the longest lease and \
                           a fourth more; if a majority loses it at once, no lock is granted \
                           for that long";
const REPLICA: &str = "a server that becomes a replica takes over older data in the same run; \
                       clients detect it within 5 s, and until then it may vote twice";
/// How far a server's clock may be from the median, in microseconds. A server follows a
/// proposed token no further ahead than this.
const FAR: u64 = 1_000_000;

/// Checks the servers of these options, together and each.
///
/// Takes some round trips to each; one that does not answer costs the time limits of the options.
///
/// # Errors
/// `Invalid`: an option is wrong. All else is a finding.
pub async fn quorum_checkup(
    options: &QuorumOptions,
    clock: Arc<dyn Clock>,
) -> Result<Checkup, LockError> {
    let mut checkup = Checkup::new(ENGINE);
    let mut each = Vec::new();
    if !options.is_set() {
        for node in options.nodes() {
            each.push((node.address().to_string(), alone(node, &clock).await?.findings));
        }
        let is_silent = |findings: &[Finding]| findings.iter().any(|one| one.check() == SILENT);
        let silent = each.iter().filter(|(_, findings)| is_silent(findings)).count();
        for finding in [vec![servers(each.len(), silent)], merge(&each)].concat() {
            checkup.add(finding);
        }
        return Ok(checkup);
    }
    let status = QuorumAdmin::new(options, clock.clone())?.status().await;
    for finding in together(&status) {
        checkup.add(finding);
    }
    let mut durable = Vec::new();
    for (node, one) in options.nodes().iter().zip(&status.nodes) {
        if one.state != NodeState::Down {
            let found = alone(node, &clock).await?;
            durable.extend(found.is_durable.map(|is_durable| (one.address.clone(), is_durable)));
            each.push((one.address.clone(), found.findings));
        }
    }
    checkup.add(persistence(&durable));
    for finding in merge(&each) {
        checkup.add(finding);
    }
    Ok(checkup)
}

/// The findings about the servers as a set.
fn together(status: &QuorumStatus) -> Vec<Finding> {
    let silent = status.nodes.iter().filter(|node| node.state == NodeState::Down).count();
    let mut findings = vec![servers(status.nodes.len(), silent), set(status), margin(status)];
    findings.extend(status.nodes.iter().filter_map(|node| vote(node, status)));
    findings.push(clocks(status));
    findings
}

fn servers(count: usize, silent: usize) -> Finding {
    let needed = majority(count);
    let found = format!("{} of {count} answer, {needed} must agree", count - silent);
    let finding = Finding::ok("servers", SERVERS, found);
    match count {
        _ if count - silent < needed => {
            finding.fail("start those that do not answer; until then nothing can be locked")
        }
        1 | 2 => finding.warn("name at least three servers: with fewer, none may fail"),
        _ if silent > 0 => finding.warn("check those that do not answer, named below"),
        _ if count.is_multiple_of(2) => {
            finding.warn("remove one or add one: an even number survives no more failures")
        }
        _ => finding,
    }
}

fn set(status: &QuorumStatus) -> Finding {
    if let Some(problem) = &status.problem {
        let fix = status.fix.as_deref().unwrap_or("see `holdline quorum status`");
        return Finding::ok("set", SET, problem).fail(fix);
    }
    let name = status.set.as_deref().unwrap_or("none");
    let epoch = status.epoch.unwrap_or(0);
    let longest = status.max_lease_ms.unwrap_or(0) / 1_000;
    Finding::ok("set", SET, format!("{name}, epoch {epoch}, longest lease {longest} s"))
}

fn margin(status: &QuorumStatus) -> Finding {
    let QuorumStatus { votes, may_lose, nodes, .. } = status;
    let found = format!("{votes} of {} vote, {may_lose} more may fail", nodes.len());
    let finding = Finding::ok("margin", MARGIN, found);
    match may_lose {
        _ if !status.works() => finding.fail("check the servers that do not vote, named below"),
        0 if nodes.len() > 2 => finding.warn("check the servers that do not vote, named below"),
        _ => finding,
    }
}

/// What keeps a server from voting.
fn vote(node: &NodeStatus, status: &QuorumStatus) -> Option<Finding> {
    let problem = node.problem.as_deref()?;
    let mut found = format!("{}: {problem}", node.address);
    if let Some(left) = node.quarantine_left_ms {
        let _ = write!(found, "; its quarantine ends in {} s", left.div_ceil(1_000));
    }
    let fix = match (node.state, &node.fix) {
        (_, Some(fix)) => fix.clone(),
        (NodeState::Blank, None) => "`holdline quorum init` sets all of them up".to_owned(),
        _ => "start it, or correct its address, user and password".to_owned(),
    };
    let finding = Finding::ok("votes", VOTES, found);
    Some(if status.works() { finding.warn(fix) } else { finding.fail(fix) })
}

fn clocks(status: &QuorumStatus) -> Finding {
    let nodes = status.nodes.iter();
    let offsets = nodes.filter_map(|node| Some((node.clock_offset_us?, &node.address)));
    let Some((furthest, address)) = offsets.max_by_key(|(offset, _)| offset.unsigned_abs()) else {
        return Finding::ok("clocks", CLOCKS, "no clock is known");
    };
    let found = format!("at most {} ms from the median", furthest.unsigned_abs() / 1_000);
    let finding = Finding::ok("clocks", CLOCKS, found);
    if furthest.unsigned_abs() <= FAR {
        return finding;
    }
    finding.warn(format!("set the clock of {address} right (NTP), slewed and not stepped"))
}

/// Servers without persistence are supported; one among others that have it is an oversight.
fn persistence(servers: &[(String, bool)]) -> Finding {
    let forgetful = servers.iter().filter(|(_, is_durable)| !is_durable);
    let forget: Vec<&str> = forgetful.map(|(address, _)| address.as_str()).collect();
    let all = servers.len();
    let keep = all - forget.len();
    let found = format!("{keep} of {all} persist every reply (appendfsync always)");
    let finding = Finding::ok("persistence", PERSISTENCE, found);
    match (keep, forget.as_slice()) {
        (0, _) | (_, []) => finding,
        (_, forget) => finding.warn(format!(
            "set appendonly yes and appendfsync always as on the others: {}",
            forget.join(", ")
        )),
    }
}

/// What is found on one server, whichever set it belongs to.
struct ServerFindings {
    findings: Vec<Finding>,
    /// Whether it keeps every acknowledged write across restarts; `None` without the right to ask.
    is_durable: Option<bool>,
}

async fn alone(
    options: &RedisOptions,
    clock: &Arc<dyn Clock>,
) -> Result<ServerFindings, LockError> {
    let link = sentinel::link(&options.read_only(), clock.clone())?;
    let probe = Probe { link, limit: options.command_timeout() };
    if let Err(error) = machine::round_trip(&probe, clock.as_ref()).await {
        let finding = Finding::ok(SILENT, VOTES, error.to_string());
        let findings = vec![finding.warn("do what the error says")];
        return Ok(ServerFindings { findings, is_durable: None });
    }
    let info = probe.text(&["INFO"]).await.map(|text| Info::parse(&text));
    let config = Config::ask(&probe).await;
    let mut findings = settings::of_member(&info, &config);
    findings.extend(rights::of_member(&probe, options).await);
    findings.extend(info.iter().filter_map(former_replica));
    let is_revoked = options.dialect() == Dialect::Plain && !options.fencing();
    let end_by = if is_revoked { EndBy::Revoke } else { EndBy::Hand };
    if options.dialect() != Dialect::Native {
        findings.push(shared_keys::finding(&probe, options, end_by).await);
    }
    let is_durable = config.ok().map(|config| {
        // With the last setting on, `always` does not hold while the file is rewritten.
        config.text("appendonly") == Some("yes")
            && config.text("appendfsync") == Some("always")
            && config.text("no-appendfsync-on-rewrite") != Some("yes")
    });
    Ok(ServerFindings { findings, is_durable })
}

/// Reports a server that was a replica in this run. It has the data of its former master, and gives
/// no vote before a quarantine.
fn former_replica(info: &Info) -> Option<Finding> {
    let was_replica = info.text("master_replid2").contains(|digit| digit != '0');
    let found = "it was a replica since it started, and may have lost data then";
    was_replica.then(|| {
        let finding = Finding::ok("former-replica", REPLICA, found);
        finding.warn("keep it independent: no `REPLICAOF`, no replicas, no Sentinel")
    })
}
