//! What the server's own settings and state mean for a lock.

use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{Finding, Health, LockError};

use super::info::{Config, Info};

const SERVER: &str = "scripts, expiry and messages must work as we know them";
const ROLE: &str = "only a master accepts writes, and a promoted replica may lack the newest \
                    grants";
const EVICTION: &str = "a server that evicts keys drops held locks: keys with an expiry are the \
                        first to be evicted";
const MEMORY: &str = "a full server refuses new locks; renewals and releases still work";
const PERSISTENCE: &str = "a server that restarts without its data grants held locks again; \
                           tokens still grow, by its clock, but in Redisson's dialect they \
                           begin at 1 again";
const MESSAGES: &str = "waiters are woken by messages; a subscriber that is disconnected for its \
                        backlog waits for its next heartbeat instead";
const IDLE: &str = "a connection that is closed while idle is opened again by the next renewal, \
                    which costs time";
const UPTIME: &str = "a server that has just restarted may have lost leases on which holders \
                      still rely";

/// Below this, a burst of notifications may disconnect a subscriber.
const BACKLOG: u64 = 1 << 20;

/// Judges the server's reports, or that they are not permitted.
pub(super) fn findings(
    info: &Result<Info, LockError>,
    config: &Result<Config, LockError>,
) -> Vec<Finding> {
    let info = match info {
        Ok(info) => info,
        Err(error) => return vec![mute(error)],
    };
    let nothing = Config::default();
    let known = config.as_ref().unwrap_or(&nothing);
    let mut found = vec![
        server(info),
        role(info, known),
        eviction(info),
        memory(info),
        persistence(info, known),
        uptime(info),
    ];
    found.extend(connections(config));
    found
}

/// The same for a server of a quorum: its persistence and its replicas are judged with the quorum.
pub(super) fn of_member(
    info: &Result<Info, LockError>,
    config: &Result<Config, LockError>,
) -> Vec<Finding> {
    let info = match info {
        Ok(info) => info,
        Err(error) => return vec![mute(error)],
    };
    let mut found = vec![server(info), eviction(info), memory(info)];
    let disk = persistence(info, config.as_ref().unwrap_or(&Config::default()));
    found.extend(Some(disk).filter(|disk| disk.health() == Health::Error));
    found.extend(connections(config));
    found
}

/// The same for a master of a cluster: its role is judged with the cluster.
pub(super) fn of_master(
    info: &Result<Info, LockError>,
    config: &Result<Config, LockError>,
) -> Vec<Finding> {
    let info = match info {
        Ok(info) => info,
        Err(error) => return vec![mute(error)],
    };
    let disk = persistence(info, config.as_ref().unwrap_or(&Config::default()));
    let mut found = vec![version_in_cluster(info), eviction(info), memory(info), disk];
    found.push(uptime(info));
    found.extend(connections(config));
    found
}

/// One command draws from a counter and sets its expiry; Redis has it since 6.2.
fn version_in_cluster(info: &Info) -> Finding {
    let (name, version) = name_and_version(info);
    let finding = Finding::ok("server", SERVER, format!("{name} {version}"));
    if is_older(info, 6, 2) {
        finding.fail("use Redis 6.2 or newer: older ones lack SET with PX and GET")
    } else {
        finding
    }
}

/// Returns whether the server is known to be older than this version.
pub(super) fn is_older(info: &Info, major: u32, minor: u32) -> bool {
    let (_, version) = name_and_version(info);
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let own_major = parts.next().unwrap_or(0);
    let own_minor = parts.next().unwrap_or(0);
    !version.is_empty() && (own_major, own_minor) < (major, minor)
}

fn name_and_version(info: &Info) -> (&'static str, &str) {
    match info.text("valkey_version") {
        "" => ("Redis", info.text("redis_version")),
        version => ("Valkey", version),
    }
}

fn mute(error: &LockError) -> Finding {
    let found = format!("is not permitted: {error}");
    Finding::ok("server", SERVER, found).warn("allow INFO to this user")
}

fn connections(config: &Result<Config, LockError>) -> Vec<Finding> {
    match config {
        Ok(config) => vec![messages(config), idle(config)],
        Err(error) => {
            let text = format!("is not permitted: {error}");
            vec![Finding::ok("settings", MESSAGES, text).warn("allow CONFIG GET to this user")]
        }
    }
}

fn server(info: &Info) -> Finding {
    let (name, version) = name_and_version(info);
    let finding = Finding::ok("server", SERVER, format!("{name} {version}"));
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    match info.text("redis_mode") {
        "sentinel" => finding.fail("this is a Sentinel: name the server that it monitors"),
        "cluster" => finding.fail("this is a node of a cluster: write `redis-cluster://`"),
        _ if info.number("loading") != 0 => finding.warn("wait until it has read its data"),
        _ if major < 6 => finding.warn("use Redis 6.2 or newer: nothing older is tested"),
        _ => finding,
    }
}

fn role(info: &Info, config: &Config) -> Finding {
    let role = info.text("role");
    if role != "master" {
        let fix = "name its master, or the primary endpoint, as the host in the URL: a replica \
                   accepts no writes";
        return Finding::ok("role", ROLE, role).fail(fix);
    }
    let replicas = info.number("connected_slaves");
    let finding = Finding::ok("role", ROLE, format!("master, {replicas} replicas"));
    if replicas == 0 {
        return finding;
    }
    let set = config.number("min-replicas-to-write").unwrap_or(0);
    if set >= replicas {
        return finding.warn(
            "a failover may still lose the newest grants: for locks that must not be held twice, \
             use fencing tokens, or Redlock over servers without replicas",
        );
    }
    finding.warn(format!(
        "set min-replicas-to-write {replicas}, so that a partitioned master stops; and use \
         fencing tokens, as a failover may lose the newest grants"
    ))
}

fn eviction(info: &Info) -> Finding {
    let policy = info.text("maxmemory_policy");
    let evicted = info.number("evicted_keys");
    let finding = Finding::ok("eviction", EVICTION, format!("{policy}, {evicted} keys evicted"));
    if policy == "noeviction" || policy.is_empty() {
        return finding;
    }
    finding.fail("set maxmemory-policy noeviction, or give locks a server of their own")
}

fn memory(info: &Info) -> Finding {
    let used = info.number("used_memory");
    let limit = info.number("maxmemory");
    if limit == 0 {
        let found = format!("{} MiB, no limit", used >> 20);
        return Finding::ok("memory", MEMORY, found);
    }
    let percent = used.saturating_mul(100) / limit;
    let found = format!("{} of {} MiB ({percent} %)", used >> 20, limit >> 20);
    let finding = Finding::ok("memory", MEMORY, found);
    match percent {
        0..=80 => finding,
        81..=99 => finding.warn("raise maxmemory, or move other data elsewhere"),
        _ => finding.fail("raise maxmemory now: new locks are refused"),
    }
}

fn persistence(info: &Info, config: &Config) -> Finding {
    let appends = info.number("aof_enabled") != 0;
    let fsync = config.text("appendfsync").unwrap_or("unknown");
    let found = if appends {
        format!("appendonly, fsync {fsync}")
    } else {
        "no appendonly file".to_owned()
    };
    let finding = Finding::ok("persistence", PERSISTENCE, found);
    let failed = |field| info.text(field) == "err";
    let stops = config.text("stop-writes-on-bgsave-error") != Some("no");
    if appends && failed("aof_last_write_status") || stops && failed("rdb_last_bgsave_status") {
        return finding.fail("it cannot write to its disk and refuses commands: see its log");
    }
    match (appends, fsync) {
        (true, "always") => finding,
        (true, _) => {
            finding.warn("a power failure may lose the last seconds: set appendfsync always")
        }
        (false, _) => finding.warn(
            "set appendonly yes and appendfsync always where a restart must not free held locks; \
             otherwise let the resources check fencing tokens",
        ),
    }
}

fn uptime(info: &Info) -> Finding {
    let seconds = info.number("uptime_in_seconds");
    let finding = Finding::ok("uptime", UPTIME, format!("{seconds} s"));
    // No grant starts with a longer lease: those that a restart has lost have expired by then.
    if seconds < MAX_FIRST_LEASE.as_secs() && info.number("aof_enabled") == 0 {
        finding.warn("wait for one lease before you rely on exclusion")
    } else {
        finding
    }
}

fn messages(config: &Config) -> Finding {
    let limit = config.text("client-output-buffer-limit").and_then(hard_limit_of_subscribers);
    let clients = config.number("maxmemory-clients").unwrap_or(0);
    let found = match limit {
        None | Some(0) => "no limit of a subscriber's backlog".to_owned(),
        Some(limit) => format!("a subscriber's backlog may have {} KiB", limit >> 10),
    };
    let finding = Finding::ok("messages", MESSAGES, found);
    match limit {
        Some(1..BACKLOG) => {
            finding.warn("raise client-output-buffer-limit pubsub to the default, 32mb 8mb 60")
        }
        _ if clients > 0 => {
            finding.warn("maxmemory-clients may disconnect subscribers: set it to 0")
        }
        _ => finding,
    }
}

/// Reads `normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60`.
fn hard_limit_of_subscribers(setting: &str) -> Option<u64> {
    let mut words = setting.split_whitespace().skip_while(|word| *word != "pubsub");
    words.nth(1)?.parse().ok()
}

fn idle(config: &Config) -> Finding {
    let seconds = config.number("timeout").unwrap_or(0);
    let found = match seconds {
        0 => "never closed".to_owned(),
        seconds => format!("closed after {seconds} s"),
    };
    let finding = Finding::ok("idle", IDLE, found);
    match seconds {
        1..=60 => finding.warn("set timeout 0, or to more than the longest renewal interval"),
        _ => finding,
    }
}

#[cfg(test)]
mod tests;
