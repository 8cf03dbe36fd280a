//! What the server's own settings and state mean for a lock.

use holdline_core::{Finding, Health, LockError};

use super::info::{Config, Info};

const SERVER: &str = "scripts, expiry and messages must work as we know them";
const ROLE: &str = "only a master takes writes, and a replica that takes over may lack the newest \
                    grants";
const EVICTION: &str = "a server that evicts keys drops held locks: they are just the keys that it \
                        evicts first";
const MEMORY: &str = "a full server refuses new locks; renewals and releases still work";
const PERSISTENCE: &str = "a server that restarts without its data grants again what is held; \
                           tokens go on growing by its clock";
const MESSAGES: &str = "those who wait are woken by messages; a connection that is cut off for its \
                        backlog waits for the next heartbeat instead";
const IDLE: &str = "a connection that is closed while idle is opened again by the next renewal, \
                    which costs time";
const UPTIME: &str = "a server that has just restarted may have forgotten leases that holders \
                      still believe";

/// Below this, a burst of wake-ups may cut a subscriber off.
const BACKLOG: u64 = 1 << 20;
/// No grant starts longer than this, so what a restart forgot is over by then.
const LONGEST_FIRST_LEASE: u64 = 30;

/// Judges what the server has told, or that it may not be asked.
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

/// The same for a server of a quorum, which stands for nothing alone: what it may forget, and
/// whether it has replicas, is for the quorum to judge.
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

/// The same for a master of a cluster: its role is for the cluster to judge.
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

/// A counter is drawn from and given its end by one command, which came with 6.2.
fn version_in_cluster(info: &Info) -> Finding {
    let (name, version) = name_and_version(info);
    let finding = Finding::ok("server", SERVER, format!("{name} {version}"));
    match is_older(info, (6, 2)) {
        true => finding.fail("use Redis 6.2 or newer: a counter and its end are one command there"),
        false => finding,
    }
}

/// Tells whether the server is older than this version; not known is not older.
pub(super) fn is_older(info: &Info, than: (u32, u32)) -> bool {
    let (_, version) = name_and_version(info);
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let major_minor = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    !version.is_empty() && major_minor < than
}

fn name_and_version(info: &Info) -> (&'static str, &str) {
    match info.text("valkey_version") {
        "" => ("Redis", info.text("redis_version")),
        version => ("Valkey", version),
    }
}

fn mute(error: &LockError) -> Finding {
    let found = format!("may not be asked: {error}");
    Finding::ok("server", SERVER, found).warn("allow INFO to this user")
}

fn connections(config: &Result<Config, LockError>) -> Vec<Finding> {
    match config {
        Ok(config) => vec![messages(config), idle(config)],
        Err(error) => {
            let text = format!("may not be asked: {error}");
            vec![Finding::ok("settings", MESSAGES, text).warn("allow CONFIG GET to this user")]
        }
    }
}

fn server(info: &Info) -> Finding {
    let (name, version) = name_and_version(info);
    let finding = Finding::ok("server", SERVER, format!("{name} {version}"));
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    match info.text("redis_mode") {
        "sentinel" => finding.fail("this is a Sentinel: name the server that it watches"),
        "cluster" => finding.fail("this is a node of a cluster: write `redis-cluster://`"),
        _ if info.number("loading") != 0 => finding.warn("wait until it has read its data"),
        _ if major < 6 => finding.warn("use Redis 6.2 or newer: nothing older is tested"),
        _ => finding,
    }
}

fn role(info: &Info, config: &Config) -> Finding {
    let role = info.text("role");
    if role != "master" {
        let fix = "name its master: a replica takes no writes";
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
        "set min-replicas-to-write {replicas}, so that a master that is cut off stops; and use \
         fencing tokens, for a failover may lose the newest grants"
    ))
}

fn eviction(info: &Info) -> Finding {
    let (policy, evicted) = (info.text("maxmemory_policy"), info.number("evicted_keys"));
    let finding = Finding::ok("eviction", EVICTION, format!("{policy}, {evicted} keys evicted"));
    if policy == "noeviction" || policy.is_empty() {
        return finding;
    }
    finding.fail("set maxmemory-policy noeviction, or give locks a server of their own")
}

fn memory(info: &Info) -> Finding {
    let (used, limit) = (info.number("used_memory"), info.number("maxmemory"));
    if limit == 0 {
        let found = format!("{} MiB, no limit", used >> 20);
        return Finding::ok("memory", MEMORY, found);
    }
    let percent = used.saturating_mul(100) / limit;
    let found = format!("{} of {} MiB ({percent} %)", used >> 20, limit >> 20);
    let finding = Finding::ok("memory", MEMORY, found);
    match percent {
        0..=80 => finding,
        81..=99 => finding.warn("raise maxmemory, or take other data elsewhere"),
        _ => finding.fail("raise maxmemory now: new locks are refused"),
    }
}

fn persistence(info: &Info, config: &Config) -> Finding {
    let appends = info.number("aof_enabled") != 0;
    let fsync = config.text("appendfsync").unwrap_or("unknown");
    let found = match appends {
        true => format!("appendonly, fsync {fsync}"),
        false => "no appendonly file".to_owned(),
    };
    let finding = Finding::ok("persistence", PERSISTENCE, found);
    let failed = |field| info.text(field) == "err";
    let stops = config.text("stop-writes-on-bgsave-error") != Some("no");
    if appends && failed("aof_last_write_status") || stops && failed("rdb_last_bgsave_status") {
        return finding.fail("it cannot write to its disk and refuses commands: see its log");
    }
    match (appends, fsync) {
        (true, "always") => finding,
        (true, _) => finding.warn("a power cut may take the last seconds back: appendfsync always"),
        (false, _) => finding.warn(
            "set appendonly yes and appendfsync always where a restart must not free held locks; \
             otherwise let the resources check fencing tokens",
        ),
    }
}

fn uptime(info: &Info) -> Finding {
    let seconds = info.number("uptime_in_seconds");
    let finding = Finding::ok("uptime", UPTIME, format!("{seconds} s"));
    match seconds < LONGEST_FIRST_LEASE && info.number("aof_enabled") == 0 {
        true => finding.warn("wait for one lease before you rely on exclusion"),
        false => finding,
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
        _ if clients > 0 => finding.warn("maxmemory-clients may cut subscribers off: set it to 0"),
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
mod tests {
    use super::*;

    fn info(lines: &[&str]) -> Info {
        Info::parse(&lines.join("\r\n"))
    }

    #[test]
    fn every_setting_is_judged() {
        let none = Config::of(&[]);
        let of = |finding: Finding| finding.health();
        for (expected, version) in
            [(Health::Ok, "redis_version:7.0.15"), (Health::Warning, "redis_version:5.0.1")]
        {
            assert_eq!(of(server(&info(&[version]))), expected);
        }
        for (expected, version) in
            [(Health::Ok, "redis_version:6.2.0"), (Health::Error, "redis_version:6.0.16")]
        {
            assert_eq!(of(version_in_cluster(&info(&[version]))), expected);
        }
        let valkey = server(&info(&["redis_version:7.2.4", "valkey_version:9.1.0"]));
        assert_eq!(valkey.found(), "Valkey 9.1.0");
        for (expected, lines) in [
            (Health::Error, ["redis_version:7.0.1", "redis_mode:sentinel"]),
            (Health::Error, ["redis_version:7.0.1", "redis_mode:cluster"]),
            (Health::Warning, ["redis_version:7.0.1", "loading:1"]),
        ] {
            assert_eq!(of(server(&info(&lines))), expected, "{lines:?}");
        }
        for (expected, policy) in [
            (Health::Ok, "maxmemory_policy:noeviction"),
            (Health::Error, "maxmemory_policy:volatile-lru"),
            (Health::Error, "maxmemory_policy:allkeys-lru"),
        ] {
            assert_eq!(of(eviction(&info(&[policy]))), expected, "{policy}");
        }
        for (expected, used) in [
            (Health::Ok, "used_memory:80"),
            (Health::Warning, "used_memory:81"),
            (Health::Error, "used_memory:100"),
        ] {
            assert_eq!(of(memory(&info(&["maxmemory:100", used]))), expected, "{used}");
        }
        for (expected, lines) in [
            (Health::Error, ["role:slave", ""]),
            (Health::Ok, ["role:master", "connected_slaves:0"]),
            (Health::Warning, ["role:master", "connected_slaves:1"]),
        ] {
            assert_eq!(of(role(&info(&lines), &none)), expected, "{lines:?}");
        }
    }

    #[test]
    fn persistence_is_judged_by_what_a_crash_takes_back() {
        let fsync = |how| Config::of(&[("appendfsync", how)]);
        for (expected, lines, config) in [
            (Health::Warning, ["aof_enabled:0", ""], fsync("always")),
            (Health::Warning, ["aof_enabled:1", ""], fsync("everysec")),
            (Health::Ok, ["aof_enabled:1", "aof_last_write_status:ok"], fsync("always")),
            (Health::Error, ["aof_enabled:1", "aof_last_write_status:err"], fsync("always")),
            (Health::Error, ["aof_enabled:0", "rdb_last_bgsave_status:err"], Config::of(&[])),
            (
                Health::Warning,
                ["aof_enabled:0", "rdb_last_bgsave_status:err"],
                Config::of(&[("stop-writes-on-bgsave-error", "no")]),
            ),
        ] {
            let finding = persistence(&info(&lines), &config);
            assert_eq!(finding.health(), expected, "{lines:?} {config:?}");
        }
        assert_eq!(uptime(&info(&["uptime_in_seconds:3"])).health(), Health::Warning);
        assert_eq!(uptime(&info(&["uptime_in_seconds:30"])).health(), Health::Ok);
    }

    #[test]
    fn connections_are_judged() {
        let limits = |text| Config::of(&[("client-output-buffer-limit", text)]);
        for (expected, config) in [
            (
                Health::Ok,
                limits("normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
            ),
            (Health::Ok, limits("normal 0 0 0 pubsub 0 0 0")),
            (Health::Warning, limits("pubsub 1024 1024 1")),
            (Health::Ok, limits("odd")),
            (Health::Warning, Config::of(&[("maxmemory-clients", "1048576")])),
        ] {
            assert_eq!(messages(&config).health(), expected, "{config:?}");
        }
        for (expected, timeout) in [(Health::Ok, "0"), (Health::Warning, "10"), (Health::Ok, "300")]
        {
            assert_eq!(idle(&Config::of(&[("timeout", timeout)])).health(), expected);
        }
    }
}
