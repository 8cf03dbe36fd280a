//! A group of servers and its sentinels, and URLs for it.

use holdline_services::{RedisServer, SentinelGroup};

/// The URL of the group with these parameters, `&` and all.
pub(crate) fn url(group: &SentinelGroup, parameters: &str) -> String {
    let hosts: Vec<String> =
        group.sentinels().iter().map(|sentinel| sentinel.address().to_string()).collect();
    let service = SentinelGroup::SERVICE;
    format!("redis+sentinel://{}/{service}?command_timeout_ms=10000{parameters}", hosts.join(","))
}

/// Leaves at a master what somebody has left there who knew it for long: it may grant at once.
pub(crate) fn settle(master: &RedisServer) {
    let mut raw = master.raw();
    let field = |section: &str, name: &str, raw: &mut holdline_services::Raw| {
        let info = raw.send(&["INFO", section]).expect("an answer").text().expect("text");
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the field").trim().to_owned()
    };
    let run = field("server", "run_id:", &mut raw);
    let followed = field("replication", "master_replid2:", &mut raw);
    let words =
        ["HSET", "holdline:reign:1", "m", &run, "f", &followed, "l", "60000", "q", "0", "w", "1"];
    raw.send(&words).expect("written");
}
