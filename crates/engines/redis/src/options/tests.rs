//! What URLs mean, and that no password is shown.

use std::time::Duration;

use super::*;
use std::path::Path;

const CANARY: &str = "canary-7f3a";

#[test]
fn urls_are_read() {
    for (url, address, user, password, db) in [
        ("redis://", "127.0.0.1:6379", None, None, 0),
        ("redis://h", "h:6379", None, None, 0),
        ("redis://h:1/3", "h:1", None, None, 3),
        ("redis://h:1?db=3", "h:1", None, None, 3),
        ("REDIS://h:1/3/", "h:1", None, None, 3),
        ("redis://:p@h", "h:6379", None, Some("p"), 0),
        ("redis://u:p%40%3a@h/2", "h:6379", Some("u"), Some("p@:"), 2),
        ("redis://u:p@q@h/2", "h:6379", Some("u"), Some("p@q"), 2),
        ("rediss://[::1]:7/", "[::1]:7", None, None, 0),
        ("redis+unix:///run/r%20s?db=4", "/run/r s", None, None, 4),
        ("redis+unix://u:p@/run/r", "/run/r", Some("u"), Some("p"), 0),
    ] {
        let options = RedisOptions::from_url(url).expect(url);
        assert_eq!(options.access.address.to_string(), address, "{url}");
        assert_eq!(options.access.user.as_deref(), user, "{url}");
        assert_eq!(options.access.password.last().as_deref(), password, "{url}");
        assert_eq!(options.access.db, db, "{url}");
    }
}

#[test]
fn urls_of_clusters_are_read_or_refused_with_the_fix() {
    for (url, address, password, at) in [
        ("redis-cluster://h", "h:6379", None, "x:1"),
        ("redis-cluster://u:p%40@a,b:7,[::1]:8/?prefix=x", "a:6379,b:7,[::1]:8", Some("p@"), "x:1"),
        ("rediss-cluster://:p@a", "a:6379", Some("p"), "x:1"),
    ] {
        let options = RedisOptions::from_url(url).expect(url);
        assert!(options.is_of_cluster());
        assert_eq!(options.access.address.to_string(), address, "{url}");
        assert_eq!(options.access.password.last().as_deref(), password, "{url}");
        let one = options.at("x", 1);
        assert!(
            matches!(one.address(), Address::Tcp { tls, .. } if *tls == url.contains("rediss"))
        );
        assert_eq!((one.address().to_string().as_str(), one.is_of_cluster()), (at, false));
    }
    let order = |url| RedisOptions::from_url(url).expect("good").address().in_order().to_string();
    assert_eq!(order("redis-cluster://b,a:1"), order("redis-cluster://a:1,b"));
    for (url, says) in [
        ("redis-cluster://", "names its nodes like"),
        ("redis-cluster://a,,b", "names its nodes like"),
        ("redis-cluster://a,a", "twice"),
        ("redis-cluster://a:x", "port"),
        ("redis-cluster://a/1", "a cluster has none"),
        ("redis-cluster://a?db=1", "a cluster has one database"),
        ("redis-cluster://a?dialect=plain", "must be `off` in the plain dialect on a cluster"),
        ("redis-cluster://a?dialect=plain&fencing=off&signal_template=s:{name}", "left out"),
        ("redis-cluster://a?dialect=plain&fencing=off&replicas=1", "cannot be set in this dialect"),
        ("redis-cluster://a?key_template={x}:{name}", "no `{` before `{name}`"),
        ("redis-cluster://a?prefix={x}", "no `{` in a cluster"),
        ("redis-cluster://a?key_template=holdline:fence:{name}", "leave out `fence:`"),
        ("redis-cluster://a?replicas=all", "must be a number"),
        ("redis-cluster://a?ca=/ca", "need TLS"),
        ("redis-cluster://u:canary-7f3a@a,v:canary-7f3a@b", "once, before the first node"),
        ("redis-clustre://a", "`redis-cluster://`"),
    ] {
        let message = RedisOptions::from_url(url).expect_err(url).to_string();
        assert!(message.contains(says) && !message.contains(CANARY), "{url}: {message}");
    }
}

#[test]
fn parameters_are_read() {
    let url = "rediss://h?dialect=plain&fencing=off&key_template=app:{name}&prefix=app:&\
               max_waiters=7&connect_timeout_ms=250&command_timeout_ms=125&protocol=resp2&\
               client_name=me&ca=/ca&cert=/cert&key=/key";
    let options = RedisOptions::from_url(url).expect("read");
    assert_eq!(options.layout.dialect, Dialect::Plain);
    assert!(!options.layout.fencing && !options.access.resp3);
    assert_eq!((options.key_template(), options.prefix()), ("app:{name}", "app:"));
    assert_eq!(options.limits.max_waiters, 7);
    assert_eq!(options.limits.connect_timeout, Duration::from_millis(250));
    assert_eq!(options.limits.command_timeout, Duration::from_millis(125));
    assert_eq!(options.client_name(), Some("me"));
    assert_eq!(options.signal_template(), None);
    let files = [&options.access.tls.ca, &options.access.tls.cert, &options.access.tls.key];
    let files = files.map(|file| file.as_deref().and_then(Path::to_str));
    assert_eq!(files, [Some("/ca"), Some("/cert"), Some("/key")]);
}

#[test]
fn settings_of_the_plain_dialect_are_read() {
    for url in [
        "redis+sentinel://one/locks?dialect=plain&signal_template=s:{name}",
        "redis-cluster://a?dialect=plain&fencing=off&key_template={x}:{name}&prefix={x}",
    ] {
        assert!(RedisOptions::from_url(url).is_ok(), "{url}");
    }
    let url = "redis://h?dialect=plain&key_template=lock:{name}&signal_template=s:{name}";
    let options = RedisOptions::from_url(url).expect("read");
    assert_eq!(options.signal_template(), Some("s:{name}"));
    let native = RedisOptions::default();
    assert!(native.must_be(Dialect::Native).is_ok());
    let message = native.must_be(Dialect::Plain).expect_err("native").to_string();
    assert!(message.contains("make a `RedisEngine` of it"), "{message}");
    assert!(native.with_dialect(Dialect::Plain).must_be(Dialect::Plain).is_ok());
}

#[test]
fn errors_in_a_url_do_not_show_the_password() {
    for (rest, says) in [
        ("h?dialct=plain", "did you mean `dialect`?"),
        ("h?connect-timeout-ms=3", "did you mean `connect_timeout_ms`?"),
        ("h?nonsense=1", "known are ca,"),
        ("h?dialect=redlock", "must be `native` or `plain` or `redisson`"),
        ("h?fencing=off", "`dialect=plain`, `dialect=redisson`"),
        ("h?dialect=redisson&signal_template=s:{name}", "plain dialect only"),
        ("h?dialect=redisson&publish=sharded", "must be `auto` or `plain`"),
        ("h?publish=plain", "Redisson dialect only"),
        ("h?signal_template=s:{name}", "plain dialect only"),
        ("h?dialect=plain&signal_template=s", "contain `{name}` once"),
        ("h?dialect=plain&key_template=s:{name}&signal_template=s:{name}", "must differ"),
        ("h?max_waiters=0", "must be from 1 to"),
        ("h?max_waiters=many", "whole number"),
        ("h?command_timeout_ms=1", "must be from 10ms"),
        ("h?connect_timeout_ms=18446744073709551615", "must be from 10ms"),
        ("h?key_template=app", "contain `{name}` once"),
        ("h?ca=/x", "write `rediss://`"),
        ("h?db=1&db=2", "twice"),
        ("h/1?db=2", "twice"),
        ("h/one", "no database number"),
        ("h:port", "no number from 1 to 65535"),
        ("::1", "in brackets"),
        ("[::1", "without its `]`"),
        ("h?prefix=%z", "hex digits"),
        ("h?prefix=%ff", "not UTF-8"),
        ("h?password_file=/nowhere/at/all", "/nowhere/at/all"),
        ("h?password_env=HOLDLINE_NO_SUCH", "HOLDLINE_NO_SUCH"),
    ] {
        let url = format!("redis://user:{CANARY}@{rest}");
        let message = format!("{:?}", RedisOptions::from_url(&url).expect_err(&url));
        assert!(message.contains(says), "{url}: {message}");
        assert!(!message.contains(CANARY), "{message}");
    }
    for (url, says) in [
        ("redis:h", "must begin with"),
        ("redis://a,b", "`redis-cluster://` if they are nodes"),
        ("rediss://u:canary-7f3a@a:1,b:2/0", "`redlock://` if they are"),
        ("redis://a\n", "line feed"),
        ("redis://u:canary-7f3a?b&c@a", "%3F"),
        ("redis://u:canary-7f3a?x=1&y=@a", "%3F"),
        ("valkey://h", "must begin with"),
        ("redis+unix://run/r", "absolute path"),
        ("rediss://h?cert=/c", "both `cert` and `key`"),
        ("redis://user@h", "with `nopass`, any password"),
    ] {
        let message = RedisOptions::from_url(url).expect_err(url).to_string();
        assert!(message.contains(says), "{url}: {message}");
    }
}

#[test]
fn a_password_with_a_question_mark_of_its_own_is_not_shown() {
    for url in [
        format!("redis://user:1?{CANARY}@h"),
        format!("redis://user:1?dialect={CANARY}@h"),
        format!("redis://user:1?max_waiters={CANARY}@h"),
        format!("redis://user:1?{CANARY}@h&{CANARY}@h"),
        format!("redis://user:x?{CANARY}@h"),
        format!("redis+unix:///run/{CANARY}?{CANARY}@h"),
    ] {
        let message = format!("{:?}", RedisOptions::from_url(&url).expect_err(&url));
        assert!(!message.contains(CANARY), "{url}: {message}");
    }
    let good = RedisOptions::from_url("redis://u:a%3Fb/c@h?key_template=a@{name}").expect("read");
    assert_eq!(good.access.password.last().as_deref(), Some("a?b/c"));
}

#[test]
fn the_password_is_shown_nowhere() {
    let options = RedisOptions::from_url(&format!("redis://u:{CANARY}@h")).expect("read");
    let shown = format!("{options:?} {:#?} {}", options, options.access.address);
    assert!(!shown.contains(CANARY), "{shown}");
    assert!(shown.contains("(set)"), "{shown}");
}

#[test]
fn a_password_may_stand_in_a_file_or_in_the_environment() {
    // A variable that every process of a test has.
    let url = "redis://h?password_env=CARGO_MANIFEST_DIR";
    let options = RedisOptions::from_url(url).expect("read");
    assert_eq!(options.access.password.last().as_deref(), Some(env!("CARGO_MANIFEST_DIR")));
    let file = std::env::temp_dir().join(format!("holdline-password-{}", std::process::id()));
    std::fs::write(&file, format!("{CANARY}\nmore\n")).expect("written");
    let url = format!("redis://u@h?password_file={}", file.display());
    let options = RedisOptions::from_url(&url);
    std::fs::write(&file, "").expect("written");
    let empty = RedisOptions::from_url(&url);
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(options.expect("read").access.password.last().as_deref(), Some(CANARY));
    assert!(empty.expect_err("empty").to_string().contains("is empty"));
}

#[test]
fn a_password_on_an_open_network_is_noticed() {
    for (url, exposed) in [
        ("redis://:p@h", true),
        ("redis://:p@10.0.0.1", true),
        ("redis://h", false),
        ("rediss://:p@h", false),
        ("redis://:p@127.0.0.1", false),
        ("redis://:p@[::1]", false),
        ("redis://:p@localhost", false),
        ("redis+unix://:p@/run/r", false),
    ] {
        assert_eq!(RedisOptions::from_url(url).expect(url).exposes_password(), exposed, "{url}");
    }
}

#[cfg(unix)]
#[test]
fn a_password_file_without_an_end_is_refused() {
    let endless = RedisOptions::from_url("redis://u@h?password_file=/dev/zero");
    let message = endless.expect_err("endless").to_string();
    assert!(message.contains("longer than 65536 bytes"), "{message}");
}

#[test]
fn a_url_names_sentinels_and_a_service() {
    let url = "rediss+sentinel://u:p@one,two:7000,[::1]/locks/3?sentinel_user=s&replicas=majority&\
               max_lease_duration_ms=5000&old_master_ms=0&prefix=x:&ca=/ca";
    let without = RedisOptions::from_url(url).expect_err("a user without a password").to_string();
    assert!(without.contains("sentinel_password_file"), "{without}");
    let options = RedisOptions::from_url(&url.replace("sentinel_user=s&", "")).expect("read");
    let group = options.group().expect("a group");
    assert_eq!((group.service(), options.db(), options.prefix()), ("locks", 3, "x:"));
    let rules = options.failover();
    assert_eq!((rules.max_lease(), rules.old_master()), (Duration::from_secs(5), Duration::ZERO));
    assert_eq!(options.address().to_string(), "the master of `locks`");
    let sentinels = options.sentinels();
    let addresses: Vec<String> = sentinels.iter().map(|one| one.address().to_string()).collect();
    assert_eq!(addresses, ["one:26379", "two:7000", "[::1]:26379"]);
    assert!(sentinels.iter().all(|one| one.db() == 0 && one.password().last().is_none()));
    let master = options.at("h", 1);
    assert_eq!((master.address().to_string(), master.db()), ("h:1".to_owned(), 3));
    assert_eq!(master.password().last().as_deref(), Some("p"));
    for (wanted, known, expected) in [
        (Replicas::None, 0, Some(0)),
        (Replicas::All, 0, None),
        (Replicas::All, 2, Some(2)),
        (Replicas::Majority, 1, Some(1)),
        (Replicas::Majority, 2, Some(1)),
        (Replicas::Majority, 3, Some(2)),
        (Replicas::Majority, 4, Some(2)),
        (Replicas::Count(2), 1, None),
        (Replicas::Count(2), 3, Some(2)),
    ] {
        assert_eq!(wanted.of(known), expected, "{wanted:?} {known}");
    }
}

#[test]
fn errors_in_the_url_of_sentinels_are_named() {
    for (url, says) in [
        ("redis+sentinel://one,two", "names no service"),
        ("redis+sentinel://one,two/", "sentinels and a service"),
        ("redis+sentinel:///locks", "sentinels and a service"),
        ("redis+sentinel://one,,two/locks", "one,two:26380,three"),
        ("redis+sentinel://one,one/locks", "`one` twice"),
        ("redis+sentinel://one:x/locks", "port"),
        ("redis+sentinel://one/locks/x", "no database number"),
        ("redis+sentinel://one/locks?replicas=0", "`all`, `majority`"),
        ("redis+sentinel://one/locks?replicas=some", "`all`, `majority`"),
        ("redis+sentinel://one/locks?max_lease_duration_ms=1", "100ms to 24h"),
        ("redis+sentinel://one/locks?old_master_ms=99999999", "at most an hour"),
        ("redis+sentinel://one/locks?dialect=plain&replicas=all", "cannot be set in the plain"),
        ("redis+sentinel://one/locks?ca=/ca", "need TLS"),
        ("redis+sentinel://one/locks?quarantine=off", "lower `max_lease_duration_ms`"),
        ("redis://one?replicas=all", "must be a number without Sentinels"),
        ("redis://one?quarantine=maybe", "quarantine"),
        ("redis://one?sentinel_user=u", "write `redis+sentinel://`"),
        ("redis-cluster://one?replicas=majority", "must be a number without Sentinels"),
        ("redis-cluster://one?quarantine=off", "has no quarantine"),
    ] {
        let message = RedisOptions::from_url(url).expect_err(url).to_string();
        assert!(message.contains(says), "{url}: {message}");
    }
}
