//! What settings mean.

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
fn persistence_is_judged_by_what_a_crash_loses() {
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
        (Health::Ok, limits("normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60")),
        (Health::Ok, limits("normal 0 0 0 pubsub 0 0 0")),
        (Health::Warning, limits("pubsub 1024 1024 1")),
        (Health::Ok, limits("odd")),
        (Health::Warning, Config::of(&[("maxmemory-clients", "1048576")])),
    ] {
        assert_eq!(messages(&config).health(), expected, "{config:?}");
    }
    for (expected, timeout) in [(Health::Ok, "0"), (Health::Warning, "10"), (Health::Ok, "300")] {
        assert_eq!(idle(&Config::of(&[("timeout", timeout)])).health(), expected);
    }
}
