//! The commands that are checked are those that are sent.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_command_of_a_script_is_checked() {
    let scripts = concat!(
        include_str!("../../../scripts/acquire_fast.lua"),
        include_str!("../../../scripts/acquire.lua"),
        include_str!("../../../scripts/common.lua"),
        include_str!("../../../scripts/draw.lua"),
        include_str!("../../../scripts/head.lua"),
        include_str!("../../../scripts/inspect.lua"),
        include_str!("../../../scripts/operate.lua"),
        include_str!("../../../scripts/raise.lua"),
        include_str!("../../../scripts/release_fast.lua"),
        include_str!("../../../scripts/release.lua"),
        include_str!("../../../scripts/renew_fast.lua"),
        include_str!("../../../scripts/renew.lua"),
    );
    assert_eq!(called(scripts), asked(&NEEDED));
    let scripts = concat!(
        include_str!("../../../scripts/head.lua"),
        include_str!("../../../scripts/quorum_acquire.lua"),
        include_str!("../../../scripts/quorum_acquire_fast.lua"),
        include_str!("../../../scripts/quorum_common.lua"),
        include_str!("../../../scripts/quorum_handshake.lua"),
        include_str!("../../../scripts/quorum_heal.lua"),
        include_str!("../../../scripts/quorum_inspect.lua"),
        include_str!("../../../scripts/quorum_node.lua"),
        include_str!("../../../scripts/quorum_plain.lua"),
        include_str!("../../../scripts/quorum_raise.lua"),
        include_str!("../../../scripts/quorum_record.lua"),
        include_str!("../../../scripts/quorum_release.lua"),
        include_str!("../../../scripts/quorum_release_fast.lua"),
        include_str!("../../../scripts/quorum_renew.lua"),
        include_str!("../../../scripts/quorum_undo.lua"),
        include_str!("../../../scripts/quorum_renew_each.lua"),
        include_str!("../../../scripts/renew_fast.lua"),
        include_str!("../../../scripts/quorum_revoke.lua"),
        include_str!("../../../scripts/quorum_command.lua"),
        include_str!("../../../scripts/quorum_write_back.lua"),
    );
    assert_eq!(called(scripts), asked(&NEEDED_QUORUM));
    let handshake = called(include_str!("../../../scripts/master_term.lua"));
    let known: BTreeSet<_> = asked(&NEEDED).into_iter().chain(["INFO"]).collect();
    assert!(handshake.is_subset(&known), "{handshake:?}");
}

#[test]
fn the_plain_dialect_needs_no_counter_in_a_cluster_and_the_master_term_behind_sentinels() {
    let forms = |url| needed(&RedisOptions::from_url(url).expect("a good URL")).forms;
    let cluster = forms("redis-cluster://a?dialect=plain&fencing=off");
    let counts = cluster.iter().any(|form| form.contains(" C "));
    assert!(cluster.contains(&"CLUSTER SLOTS") && !counts, "{cluster:?}");
    let group = forms("redis+sentinel://a/m?dialect=plain");
    assert!(NEEDED_GROUP.iter().all(|form| group.contains(form)), "{group:?}");
}

#[test]
fn every_command_of_a_script_in_a_cluster_is_checked() {
    let options = RedisOptions::from_url("redis-cluster://a,b").expect("a good URL");
    let scripts = crate::native::CLUSTER.texts();
    // It stands beside its form for a cluster, which runs instead.
    let called: BTreeSet<_> = called(&scripts).into_iter().filter(|one| *one != "GETSET").collect();
    assert_eq!(called, asked(&needed(&options).forms));
}

fn called(scripts: &str) -> BTreeSet<&str> {
    scripts.split("call('").skip(1).filter_map(|rest| rest.split('\'').next()).collect()
}

/// The commands of scripts, without those that we send ourselves.
fn asked(forms: &[&'static str]) -> BTreeSet<&'static str> {
    let ours = ["ASKING", "CLUSTER", "EVAL", "EVALSHA", "INFO", "PING", "SUBSCRIBE"];
    let commands = forms.iter().filter_map(|form| form.split(' ').next());
    commands.filter(|command| !ours.contains(command)).collect()
}

#[test]
fn addresses_on_this_machine_are_recognized() {
    let tcp = |host: &str, tls| Address::Tcp { host: host.to_owned(), port: 1, tls };
    let cluster = |hosts: &[&str]| {
        let seeds = hosts.iter().map(|host| ((*host).to_owned(), 1)).collect();
        Address::Cluster { seeds, tls: false }
    };
    for (address, expected) in [
        (tcp("127.0.0.1", false), ("on this machine, unencrypted", true)),
        (tcp("::1", true), ("on this machine, encrypted", true)),
        (tcp("example.org", true), ("over the network, encrypted", false)),
        (tcp("10.0.0.1", false), ("over the network, unencrypted", false)),
        (cluster(&["::1", "localhost"]), ("on this machine, unencrypted", true)),
        (cluster(&["127.0.0.1", "h"]), ("over the network, unencrypted", false)),
    ] {
        let (way, is_near) = way(&address);
        assert_eq!((way.as_str(), is_near), expected);
    }
}
