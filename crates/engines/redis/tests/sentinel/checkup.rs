//! `doctor` on misconfigured groups, one fault at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_core::{Checkup, Finding, Health};
use holdline_redis::{RedisOptions, checkup};
use holdline_services::{RedisConfig, Reply, Sentinel, SentinelConfig, SentinelGroup};

use crate::support::url;

async fn run_checkup(group: &SentinelGroup) -> Checkup {
    run_checkup_at(&url(group, "&connect_timeout_ms=3000").replace("=10000", "=3000")).await
}

async fn run_checkup_at(url: &str) -> Checkup {
    let options = RedisOptions::from_url(url).expect("a good URL");
    checkup(&options, Arc::new(MachineClock)).await.expect("good options")
}

fn of<'a>(checkup: &'a Checkup, check: &str) -> &'a Finding {
    let found = checkup.findings().iter().find(|finding| finding.check() == check);
    found.unwrap_or_else(|| panic!("{check} is missing in {checkup:?}"))
}

async fn finds(group: &SentinelGroup, check: &str, health: Health, says: &str) {
    let found = run_checkup(group).await;
    let finding = of(&found, check);
    assert_eq!(finding.health(), health, "{found:?}");
    let fix = finding.fix().unwrap_or_default();
    assert!(fix.contains(says), "{fix}");
}

fn set(group: &SentinelGroup, what: &str, value: &str) {
    set_at(group.sentinels(), what, value);
}

fn set_at(sentinels: &[Sentinel], what: &str, value: &str) {
    for sentinel in sentinels {
        let words = ["SENTINEL", "SET", SentinelGroup::SERVICE, what, value];
        sentinel.say(&words).expect("set");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_weakness_of_a_group_is_reported_with_its_fix() {
    let config = SentinelConfig::default().with_down_after(Duration::from_secs(600));
    let group = SentinelGroup::start(&config);
    let say = |line: &str| {
        let reply = group.servers()[0].raw().say(line).expect("an answer");
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    };
    finds(&group, "isolation", Health::Warning, "nothing stops a partitioned").await;
    say("CONFIG SET min-replicas-to-write 2");
    finds(&group, "isolation", Health::Warning, "a failover does not help").await;
    say("CONFIG SET min-replicas-to-write 3");
    finds(&group, "isolation", Health::Error, "it takes no writes").await;
    say("CONFIG SET min-replicas-to-write 1");
    say("CONFIG SET min-replicas-max-lag 20");
    finds(&group, "isolation", Health::Warning, "old_master_ms=22000").await;
    say("CONFIG SET min-replicas-max-lag 10");
    finds(&group, "persistence", Health::Warning, "appendonly yes").await;
    say("CONFIG SET appendonly yes");
    say("CONFIG SET appendfsync always");
    finds(&group, "alike", Health::Warning, "use the same value").await;
    for replica in &group.servers()[1..] {
        replica.raw().say("CONFIG SET appendonly yes").expect("an answer");
        replica.raw().say("CONFIG SET min-replicas-to-write 1").expect("an answer");
    }
    finds(&group, "down_after", Health::Warning, "at most 60000").await;
    set(&group, "down-after-milliseconds", "500");
    finds(&group, "down_after", Health::Warning, "at least 1000").await;
    set(&group, "down-after-milliseconds", "60000");
    let found = run_checkup(&group).await;
    for check in [
        "reachable",
        "sentinels",
        "replicas",
        "down_after",
        "sentinel_rights",
        "isolation",
        "persistence",
        "alike",
        "links",
        "clocks",
        "rights",
    ] {
        assert_eq!(of(&found, check).health(), Health::Ok, "{found:?}");
    }
    assert!(!found.findings().iter().any(|finding| finding.check() == "role"));
    set(&group, "quorum", "4");
    finds(&group, "sentinels", Health::Error, "it exceeds the number of sentinels").await;
    set(&group, "quorum", "1");
    finds(&group, "sentinels", Health::Warning, "fewer may be wrong").await;
    set(&group, "quorum", "2");
    group.sentinels()[2].stop();
    finds(&group, "sentinels", Health::Warning, "does not answer").await;
    group.sentinels()[2].cont();
    let kept = group.servers()[0].raw().say("EXISTS holdline:reign:1").expect("an answer");
    assert_eq!(kept.integer(), Some(0), "nothing is written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_replicas_and_sentinels_are_reported() {
    let group = SentinelGroup::start(&SentinelConfig::default());
    group.servers()[2].kill();
    group.await_known(1);
    finds(&group, "replicas", Health::Warning, "SENTINEL RESET").await;
    group.servers()[1].kill();
    group.await_known(0);
    finds(&group, "replicas", Health::Error, "give the master a replica").await;
    group.sentinels().iter().for_each(holdline_services::Sentinel::kill);
    let found = run_checkup(&group).await;
    assert_eq!(of(&found, "sentinels").health(), Health::Error, "{found:?}");
    assert_eq!(of(&found, "reachable").health(), Health::Error, "{found:?}");
}

/// Missing rights of a sentinel and a replica, and a replica without a master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_links_and_rights_of_a_group_are_reported() {
    let few = "few on >CANARY ~holdline:* &holdline:* +@all -role -wait -hset";
    let servers = RedisConfig::default().with_clock().with_user(few);
    let config = SentinelConfig::default()
        .with_servers(servers)
        .with_down_after(Duration::from_secs(60))
        .with_sentinel_line("user deaf on >CANARY resetchannels -@all +@all")
        .with_sentinel_line("user mute on >CANARY -@all +@all -sentinel|sentinels");
    let group = SentinelGroup::start(&config);
    group.settle(0);
    let url = url(&group, "&connect_timeout_ms=3000").replace("=10000", "=3000");
    let clock = group.servers()[2].clock();
    clock.step_back(Duration::from_secs(20));
    group.servers()[2].await_clock();
    let found = run_checkup_at(&url).await;
    assert_eq!(of(&found, "clocks").health(), Health::Warning, "{found:?}");
    clock.step_back(Duration::from_secs(3_600));
    group.servers()[2].await_clock();
    let found = run_checkup_at(&url).await;
    assert_eq!(of(&found, "clocks").health(), Health::Error, "{found:?}");
    clock.step_forward(Duration::from_secs(3_620));
    group.servers()[1].raw().say("REPLICAOF 127.0.0.1 1").expect("an answer");
    let found = run_checkup_at(&url).await;
    let links = of(&found, "links");
    assert_eq!(links.health(), Health::Warning, "{found:?}");
    let cut = group.servers()[1].address().to_string();
    assert!(links.found().contains(&format!("{cut} does not reach its master")), "{links:?}");
    // A user with all rights at the sentinels except to subscribe.
    let file = std::env::temp_dir().join(format!("holdline-checkup-{}", std::process::id()));
    std::fs::write(&file, "CANARY").expect("written");
    let deaf = format!("{url}&sentinel_user=deaf&sentinel_password_file={}", file.display());
    let found = run_checkup_at(&deaf).await;
    let rights = of(&found, "sentinel_rights");
    assert_eq!(rights.health(), Health::Warning, "{found:?}");
    assert!(rights.found().contains("SUBSCRIBE +switch-master"), "{rights:?}");
    let found = run_checkup_at(&deaf.replace("deaf", "mute")).await;
    let sentinels = of(&found, "sentinels");
    assert_eq!(sentinels.health(), Health::Warning, "{found:?}");
    assert!(sentinels.fix().is_some_and(|fix| fix.contains("docs/redis.md")), "{sentinels:?}");
    let replicas = of(&found, "replicas");
    assert!(replicas.fix().is_some_and(|fix| fix.contains("docs/redis.md")), "{replicas:?}");
    // The checks that it may run still run.
    assert!(of(&found, "isolation").found().ends_with("of 2"), "{found:?}");
    std::fs::remove_file(&file).expect("removed");
    // A user that lacks a right for the handshake is rejected, and the message names the command.
    let few = url.replace("redis+sentinel://", "redis+sentinel://few:CANARY@");
    let found = run_checkup_at(&few).await;
    let reachable = of(&found, "reachable");
    assert_eq!(reachable.health(), Health::Error, "{found:?}");
    assert!(reachable.found().contains("+role"), "{reachable:?}");
    group.servers()[0].raw().send(&["ACL", "SETUSER", "few", "+role"]).expect("an answer");
    let found = run_checkup_at(&format!("{few}&replicas=all")).await;
    let rights = of(&found, "rights");
    assert_eq!(rights.health(), Health::Error, "{found:?}");
    for lacks in ["HSET", "WAIT"] {
        assert!(rights.found().contains(lacks), "{rights:?}");
    }
}

/// Sentinels that monitor another master, and know too few others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_do_not_belong_together_are_reported() {
    let (group, other) = (
        SentinelGroup::start(&SentinelConfig::default()),
        SentinelGroup::start(&SentinelConfig::default()),
    );
    let stranger = other.sentinels()[0].address();
    let url = url(&group, "").replace("/locks", &format!(",{stranger}/locks"));
    let found = run_checkup_at(&url).await;
    let sentinels = of(&found, "sentinels");
    assert_eq!(sentinels.health(), Health::Warning, "{found:?}");
    assert!(sentinels.fix().is_some_and(|fix| fix.contains("another master")), "{sentinels:?}");
}

/// Repeats the checkup until it finds something: sentinels detect changes with a delay.
async fn until_found(url: &str, check: &str, so: impl Fn(&Finding) -> bool) -> Checkup {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let found = run_checkup_at(url).await;
        if so(of(&found, check)) {
            return found;
        }
        assert!(Instant::now() < end, "{found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await; // event: looked for until found
    }
}

/// The sentinels of the URL answer, and others that a majority needs do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_sentinels_are_reported_even_if_the_url_does_not_name_them() {
    let group = SentinelGroup::start(&SentinelConfig::default());
    let url = |sentinels: &[usize]| {
        format!("{}?connect_timeout_ms=3000&command_timeout_ms=3000", group.url_of(sentinels))
    };
    let left = |count: usize| {
        let says = format!("of which {count} are up");
        move |sentinels: &Finding| sentinels.found().contains(&says)
    };
    let found = until_found(&url(&[0, 1]), "sentinels", left(3)).await;
    assert_eq!(of(&found, "sentinels").health(), Health::Ok, "{found:?}");
    // Fewer than three: none may fail any more.
    group.sentinels()[2].kill();
    let found = until_found(&url(&[0, 1]), "sentinels", left(2)).await;
    let sentinels = of(&found, "sentinels");
    assert_eq!(sentinels.health(), Health::Warning, "{found:?}");
    assert!(sentinels.fix().is_some_and(|fix| fix.contains("start those that are down")));
    // Fewer than the quorum.
    set_at(&group.sentinels()[..2], "quorum", "3");
    let found = run_checkup_at(&url(&[0, 1])).await;
    let sentinels = of(&found, "sentinels");
    assert_eq!(sentinels.health(), Health::Error, "{found:?}");
    assert!(sentinels.fix().is_some_and(|fix| fix.contains("2 of 3 agree on no failover")));
    // Fewer than a majority, which every failover needs.
    set_at(&group.sentinels()[..2], "quorum", "1");
    group.sentinels()[1].kill();
    let found = until_found(&url(&[0]), "sentinels", left(1)).await;
    let sentinels = of(&found, "sentinels");
    assert_eq!(sentinels.health(), Health::Error, "{found:?}");
    assert!(sentinels.fix().is_some_and(|fix| fix.contains("1 of 3 agree on no failover")));
}

/// A replica that the master rejects, and one that is far behind although it is connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_do_not_follow_are_reported_until_they_do() {
    let config = SentinelConfig::default().with_down_after(Duration::from_secs(60));
    let group = SentinelGroup::start(&config);
    let url = url(&group, "&connect_timeout_ms=3000").replace("=10000", "=3000");
    let say = |server: usize, line: &str| {
        let reply = group.servers()[server].raw().say(line).expect("an answer");
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    };
    let [behind, cut] = [1, 2].map(|at| group.servers()[at].address().to_string());
    // It receives the stream, and applies none of it.
    say(1, "CLIENT PAUSE 600000 WRITE");
    let fill = "for i = 1, 30 do redis.call('SET', 'fill', string.rep('x', 100000)) end";
    group.servers()[0].raw().send(&["EVAL", fill, "0"]).expect("an answer");
    let found = run_checkup_at(&url).await;
    let links = of(&found, "links");
    assert_eq!(links.health(), Health::Warning, "{found:?}");
    assert!(links.found().starts_with(&format!("{behind} is ")), "{links:?}");
    assert!(links.found().ends_with("KiB behind"), "{links:?}");
    say(1, "CLIENT UNPAUSE");
    until_found(&url, "links", |links| links.health() == Health::Ok).await;
    say(2, "CONFIG SET masteruser nobody");
    say(2, "CONFIG SET masterauth wrong");
    say(0, "CLIENT KILL TYPE replica");
    // The sentinels know it by then.
    let found = until_found(&url, "replicas", |found| found.found().contains("1 follow")).await;
    let replicas = of(&found, "replicas");
    assert_eq!(replicas.health(), Health::Warning, "{found:?}");
    assert!(replicas.fix().is_some_and(|fix| fix.contains("do not follow")), "{replicas:?}");
    let links = of(&found, "links");
    assert_eq!(links.health(), Health::Warning, "{found:?}");
    assert_eq!(links.found(), format!("{cut} does not reach its master"));
    assert!(links.fix().is_some_and(|fix| fix.contains("masterauth")), "{links:?}");
}
