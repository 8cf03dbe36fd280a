//! What `doctor` finds on a group that is set up wrong, in one way after another.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Checkup, Finding, Health};
use holdline_redis::{RedisOptions, checkup};
use holdline_services::{Reply, SentinelConfig, SentinelGroup};

use crate::support::url;

async fn look(group: &SentinelGroup) -> Checkup {
    let url = url(group, "&connect_timeout_ms=3000").replace("=10000", "=3000");
    let options = RedisOptions::from_url(&url).expect("a good URL");
    checkup(&options, Arc::new(MachineClock)).await.expect("good options")
}

fn of<'a>(checkup: &'a Checkup, check: &str) -> &'a Finding {
    let found = checkup.findings().iter().find(|finding| finding.check() == check);
    found.unwrap_or_else(|| panic!("{check} is missing in {checkup:?}"))
}

async fn finds(group: &SentinelGroup, check: &str, health: Health, says: &str) {
    let found = look(group).await;
    let finding = of(&found, check);
    assert_eq!(finding.health(), health, "{found:?}");
    let fix = finding.fix().unwrap_or_default();
    assert!(fix.contains(says), "{fix}");
}

fn set_quorum(group: &SentinelGroup, quorum: &str) {
    for sentinel in group.sentinels() {
        let words = ["SENTINEL", "SET", SentinelGroup::SERVICE, "quorum", quorum];
        sentinel.say(&words).expect("set");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_weakness_of_a_group_is_told_with_its_fix() {
    let config = SentinelConfig::default().with_down_after(std::time::Duration::from_secs(600));
    let group = SentinelGroup::start(&config);
    let say = |line: &str| {
        let reply = group.servers()[0].raw().say(line).expect("an answer");
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    };
    finds(&group, "isolation", Health::Warning, "nothing stops a master").await;
    say("CONFIG SET min-replicas-to-write 1");
    finds(&group, "isolation", Health::Warning, "together with 1 replicas").await;
    say("CONFIG SET min-replicas-to-write 2");
    finds(&group, "persistence", Health::Warning, "appendonly yes").await;
    say("CONFIG SET appendonly yes");
    say("CONFIG SET appendfsync always");
    let found = look(&group).await;
    for check in ["reachable", "sentinels", "replicas", "isolation", "persistence"] {
        assert_eq!(of(&found, check).health(), Health::Ok, "{found:?}");
    }
    assert!(!found.findings().iter().any(|finding| finding.check() == "role"));
    set_quorum(&group, "4");
    finds(&group, "sentinels", Health::Error, "so many sentinels there are not").await;
    set_quorum(&group, "1");
    finds(&group, "sentinels", Health::Warning, "so few may be wrong").await;
    set_quorum(&group, "2");
    group.sentinels()[2].stop();
    finds(&group, "sentinels", Health::Warning, "does not answer").await;
    group.sentinels()[2].cont();
    let kept = group.servers()[0].raw().say("EXISTS holdline:reign:1").expect("an answer");
    assert_eq!(kept.integer(), Some(0), "nothing is written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_away_and_sentinels_that_are_gone_are_told() {
    let group = SentinelGroup::start(&SentinelConfig::default());
    group.servers()[2].kill();
    group.await_known(1);
    finds(&group, "replicas", Health::Warning, "SENTINEL RESET").await;
    group.servers()[1].kill();
    group.await_known(0);
    finds(&group, "replicas", Health::Error, "give the master a replica").await;
    group.sentinels().iter().for_each(holdline_services::Sentinel::kill);
    let found = look(&group).await;
    assert_eq!(of(&found, "sentinels").health(), Health::Error, "{found:?}");
    assert_eq!(of(&found, "reachable").health(), Health::Error, "{found:?}");
}
