//! What `doctor` checks of a cluster: the masters together, their replicas, then each master.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Checkup, Clock, Finding, LockError};

use super::info::{Config, Info};
use super::merge::merge;
use super::replicas::{Replica, Shard};
use super::{Probe, REACHABLE, inventory, machine, redisson, replicas, rights, settings};
use crate::cluster::{ClusterRouter, SLOTS, SlotTable};
use crate::error::ENGINE;
use crate::options::{Dialect, RedisOptions};
use crate::sentinel;

const STATE: &str = "a cluster that is down grants, renews and releases nothing";
const COVERED: &str = "a name belongs to a slot, and a slot without a master grants no locks";
const MASTERS: &str = "a majority of the masters decides who takes over when one is lost";
const REPLICAS: &str = "one takes over when its master is lost; it may lack the newest grants, so \
                        let resources check fencing tokens";
const TIMEOUT: &str = "for this long and a second or two, the names of a lost master are \
                       unavailable, and a partitioned master continues to grant";
const COVERAGE: &str = "whether a lost slot stops all other names too";
const MOVING: &str = "while a slot migrates, its names are neither granted nor handed off";

/// The longest node timeout for leases of half a minute, and the shortest that a busy machine
/// meets, in ms.
const LONGEST_TIMEOUT: u64 = 15_000;
const SHORTEST_TIMEOUT: u64 = 500;
/// With fewer, no majority survives a failure.
const FEWEST_MASTERS: usize = 3;

/// The report of one master about the cluster; `None` for what we may not query.
#[derive(Default)]
struct MasterReport {
    info: Option<Info>,
    timeout: Option<u64>,
    full_coverage: Option<String>,
    moving: Option<BTreeSet<String>>,
    known: Known,
}

/// Which field of a node's line is its first slot.
const SLOT: usize = 8;

/// The replicas that a node knows, also those that are down.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    count: usize,
    /// The addresses of those that it considers dead.
    dead: BTreeSet<String>,
}

/// The replicas of one master.
struct Standing {
    master: String,
    shard: Shard,
}

/// Checks a cluster, as a whole and master by master.
pub(super) async fn checkup(
    options: &RedisOptions,
    clock: Arc<dyn Clock>,
) -> Result<Checkup, LockError> {
    let mut checkup = Checkup::new(ENGINE);
    let router = ClusterRouter::new(options, clock.clone())?;
    let table = match router.ready().await {
        Ok(table) => table,
        Err(error) => {
            let finding = Finding::ok("reachable", REACHABLE, error.to_string());
            checkup.add(finding.fail("do what the error says; until then nothing can be locked"));
            return Ok(checkup);
        }
    };
    let mut reports = Vec::new();
    let mut each = Vec::new();
    let mut silent = Vec::new();
    let mut standing = Vec::new();
    let mut slowest = Duration::ZERO;
    for known in table.shards() {
        let (host, port) = &known.master;
        let master = options.at(host, *port);
        let link = sentinel::link(&master.read_only(), clock.clone())?;
        let probe = Probe { link, limit: options.command_timeout() };
        let address = master.address().to_string();
        let (info, config, offset) = match machine::round_trip(&probe, clock.as_ref()).await {
            Ok(trip) => {
                slowest = slowest.max(trip);
                reports.push(about_cluster(&probe).await);
                let info = probe.text(&["INFO"]).await.map(|text| Info::parse(&text));
                let config = Config::ask(&probe).await;
                each.push((address.clone(), alone(&probe, options, &info, &config).await));
                (info, config, machine::offset(&probe).await)
            }
            Err(error) => {
                silent.push(error.to_string());
                (Err(error.clone()), Err(error.clone()), Err(error))
            }
        };
        let replicas = replicas::ask(options, &known.replicas, &clock).await?;
        let shard = Shard { info, config, offset, replicas };
        standing.push(Standing { master: address, shard });
    }
    let mut findings = vec![reachable(table.masters().count(), &silent, slowest)];
    findings.extend(together(&table, &reports, standing));
    findings.extend(merge(&each));
    findings.into_iter().for_each(|finding| checkup.add(finding));
    Ok(checkup)
}

fn reachable(masters: usize, silent: &[String], slowest: Duration) -> Finding {
    let found = format!("{} of {masters} masters answer in {slowest:?}", masters - silent.len());
    let finding = Finding::ok("reachable", REACHABLE, found);
    match silent.first() {
        Some(error) => finding.fail(format!("check the one that does not answer: {error}")),
        None => finding,
    }
}

/// Queries a master about the cluster.
async fn about_cluster(probe: &Probe) -> MasterReport {
    let setting = async |name: &str| {
        let value = probe.ask(&["CONFIG", "GET", name]).await.ok()?;
        value.as_array()?.get(1)?.as_text().map(str::to_owned)
    };
    let nodes = probe.text(&["CLUSTER", "NODES"]).await.ok();
    MasterReport {
        info: probe.text(&["CLUSTER", "INFO"]).await.ok().map(|text| Info::parse(&text)),
        timeout: setting("cluster-node-timeout").await.and_then(|value| value.parse().ok()),
        full_coverage: setting("cluster-require-full-coverage").await,
        moving: nodes.as_deref().map(moving_slots),
        known: nodes.as_deref().map(known_replicas).unwrap_or_default(),
    }
}

/// Reads the replicas of masters that serve slots: `id host:port@bus flag,flag master ping pong
/// epoch link slot…`.
fn known_replicas(nodes: &str) -> Known {
    let words = |line: &'_ str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let nodes: Vec<Vec<String>> = nodes.lines().map(words).collect();
    let serves = |id: &String| nodes.iter().any(|words| words.len() > SLOT && words[0] == *id);
    let mut known = Known::default();
    for words in &nodes {
        let [_, place, flags, master, ..] = words.as_slice() else { continue };
        let mut flags = flags.split(',');
        if flags.clone().any(|flag| flag == "slave") && serves(master) {
            known.count += 1;
            if flags.any(|flag| flag == "fail") {
                let place = place.split_once('@').map_or(place.as_str(), |(place, _)| place);
                known.dead.insert(place.to_owned());
            }
        }
    }
    known
}

/// Reads the migrating slots from the node's own line: `[93->-id]` and `[93-<-id]`.
fn moving_slots(nodes: &str) -> BTreeSet<String> {
    let own = nodes.lines().filter(|line| line.contains("myself"));
    let marks = own.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix('['));
    marks.filter_map(|mark| mark.split_once('-').map(|(slot, _)| slot.to_owned())).collect()
}

/// The findings about one master.
async fn alone(
    probe: &Probe,
    options: &RedisOptions,
    info: &Result<Info, LockError>,
    config: &Result<Config, LockError>,
) -> Vec<Finding> {
    let mut findings = settings::of_master(info, config);
    findings.push(machine::clock(probe).await);
    findings.extend(rights::findings(probe, options).await);
    findings.push(inventory::finding(probe, options).await);
    if options.dialect() == Dialect::Redisson {
        findings.push(redisson::counters(probe, options).await);
        findings.push(redisson::notifications());
    }
    findings
}

/// The findings about the masters as a cluster, and about their replicas.
fn together(table: &SlotTable, reports: &[MasterReport], standing: Vec<Standing>) -> Vec<Finding> {
    let replicas = replicas(&standing, reports);
    let shards: Vec<Shard> = standing.into_iter().map(|one| one.shard).collect();
    vec![
        state(reports),
        covered(table, reports),
        masters(table),
        replicas,
        replicas::links(&shards),
        replicas::alike(&shards),
        replicas::clocks(&shards, fastest_failover(reports)),
        timeout(reports),
        coverage(reports),
        moving(reports),
    ]
}

/// A replica takes over no sooner than this, unless it is ordered to by an operator.
fn fastest_failover(reports: &[MasterReport]) -> Duration {
    let least = reports.iter().filter_map(|one| one.timeout).min();
    least.map_or(Duration::MAX, Duration::from_millis)
}

fn state(reports: &[MasterReport]) -> Finding {
    let known = reports.iter().filter_map(|one| one.info.as_ref());
    let down = known.clone().filter(|info| info.text("cluster_state") != "ok").count();
    if known.count() < reports.len() {
        let finding = Finding::ok("state", STATE, "is not permitted");
        return finding.warn("allow CLUSTER INFO to this user");
    }
    let found = match down {
        0 => "ok".to_owned(),
        down => format!("{down} of {} masters report it as down", reports.len()),
    };
    let finding = Finding::ok("state", STATE, found);
    match down {
        0 => finding,
        _ => finding.fail(
            "check slots without a master, and masters that are gone (redis-cli --cluster \
             check)",
        ),
    }
}

fn covered(table: &SlotTable, reports: &[MasterReport]) -> Finding {
    let ill = |info: &Info| info.number("cluster_slots_fail") + info.number("cluster_slots_pfail");
    let failing = reports.iter().filter_map(|one| one.info.as_ref()).map(ill).max().unwrap_or(0);
    let found = format!("{} of {SLOTS} served, {failing} by a failing node", table.covered());
    let finding = Finding::ok("slots", COVERED, found);
    match (table.covered() < SLOTS, failing) {
        (true, _) => finding.fail("give each slot to a master (redis-cli --cluster fix)"),
        (false, 0) => finding,
        (false, _) => finding.warn("check the failing node, or wait for its replica"),
    }
}

fn masters(table: &SlotTable) -> Finding {
    let count = table.masters().count();
    let finding = Finding::ok("masters", MASTERS, count.to_string());
    if count < FEWEST_MASTERS {
        finding.warn(
            "distribute the slots over three masters: with fewer, no majority survives a failure",
        )
    } else {
        finding
    }
}

fn replicas(standing: &[Standing], reports: &[MasterReport]) -> Finding {
    let living = |one: &Standing| {
        let there = |replica: &&Replica| replica.silence().is_none();
        one.shard.replicas.iter().filter(there).count()
    };
    let counts: Vec<String> = standing.iter().map(|one| living(one).to_string()).collect();
    let finding = Finding::ok("replicas", REPLICAS, counts.join(", "));
    let bare = standing.iter().filter(|one| living(one) == 0);
    let bare: Vec<&str> = bare.map(|one| one.master.as_str()).collect();
    if !bare.is_empty() {
        let bare = bare.join(", ");
        return finding
            .warn(format!("give {bare} a working replica: without one, nothing takes over"));
    }
    let all = || standing.iter().flat_map(|one| &one.shard.replicas);
    let silent = all().filter(|replica| replica.silence().is_some()).map(Replica::place);
    let dead = reports.iter().flat_map(|one| &one.known.dead).map(String::as_str);
    let away: BTreeSet<&str> = silent.chain(dead).collect();
    let known = reports.iter().map(|one| one.known.count).max().unwrap_or(0);
    let away = match away.is_empty() {
        false => away.into_iter().collect::<Vec<_>>().join(", "),
        // Replicas that have never followed are known, and listed nowhere.
        true if all().count() < known => format!("{} of {known}", known - all().count()),
        true => return finding,
    };
    finding.warn(format!(
        "check replicas that are down, or have all nodes forget them (CLUSTER FORGET): {away}"
    ))
}

fn timeout(reports: &[MasterReport]) -> Finding {
    let known: BTreeSet<u64> = reports.iter().filter_map(|one| one.timeout).collect();
    let (Some(least), Some(most)) = (known.first(), known.last()) else {
        let finding = Finding::ok("node-timeout", TIMEOUT, "is not permitted");
        return finding.warn("allow CONFIG GET to this user");
    };
    let found = if least == most { format!("{most} ms") } else { format!("{least} to {most} ms") };
    let finding = Finding::ok("node-timeout", TIMEOUT, found);
    match (*least, *most) {
        (least, most) if least != most => {
            finding.warn("set the same cluster-node-timeout on all nodes")
        }
        (_, most) if most > LONGEST_TIMEOUT => finding.warn(format!(
            "set cluster-node-timeout {LONGEST_TIMEOUT} or less: leases expire before a replica \
             has taken over"
        )),
        (..SHORTEST_TIMEOUT, _) => finding.warn(format!(
            "set cluster-node-timeout {SHORTEST_TIMEOUT} or more: a busy machine would count as \
             dead, and each failover may lose the newest grants"
        )),
        _ => finding,
    }
}

fn coverage(reports: &[MasterReport]) -> Finding {
    let known: BTreeSet<&str> =
        reports.iter().filter_map(|one| one.full_coverage.as_deref()).collect();
    let found: Vec<&str> = known.iter().copied().collect();
    let finding = Finding::ok("full-coverage", COVERAGE, found.join(" and "));
    if known.contains("yes") {
        return finding.warn(
            "set cluster-require-full-coverage no: a lost master then stops its own names only, \
             and a minority still stops",
        );
    }
    if known.is_empty() { finding.warn("allow CONFIG GET to this user") } else { finding }
}

fn moving(reports: &[MasterReport]) -> Finding {
    if reports.iter().any(|one| one.moving.is_none()) {
        let finding = Finding::ok("moving", MOVING, "is not permitted");
        return finding.warn("allow CLUSTER NODES to this user");
    }
    let slots: BTreeSet<&str> =
        reports.iter().flat_map(|one| &one.moving).flatten().map(String::as_str).collect();
    let found = match slots.len() {
        0 => "no slot".to_owned(),
        count => format!("{count}, for example {}", slots.first().unwrap_or(&"none")),
    };
    let finding = Finding::ok("moving", MOVING, found);
    if slots.is_empty() {
        finding
    } else {
        finding.warn("let the migration end, or complete it: redis-cli --cluster fix")
    }
}

#[cfg(test)]
mod tests;
