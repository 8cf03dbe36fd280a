//! A group of servers and its sentinels, and clients of it.

use std::time::Duration;

use holdline::{Client, ErrorKind, Guard, Keep, LockError, LockOptions, LostReason};
use holdline_services::{Raw, RedisServer, SentinelConfig, SentinelGroup};

use crate::support::{HASTY, LONG, client, lease, soon, until};

/// The longest lease of the group in ms: longer than a failover takes on a slow machine.
pub(super) const LONGEST: u64 = 10_000;

pub(super) struct Group(pub(super) SentinelGroup);

impl Group {
    /// Starts a group that has been used for long.
    pub(super) fn start() -> Group {
        Group::start_with(&SentinelConfig::default())
    }

    /// The same, set up otherwise.
    pub(super) fn start_with(config: &SentinelConfig) -> Group {
        let group = Group(SentinelGroup::start(config));
        group.0.settle(0);
        group
    }

    pub(super) fn url(&self, parameters: &str) -> String {
        self.url_up_to(LONGEST, parameters)
    }

    /// The URL of those who do not wait long for an answer.
    pub(super) fn hasty_url(&self) -> String {
        let (timeouts, longest) = (HASTY, LONGEST);
        format!("{}?{timeouts}&max_lease_duration_ms={longest}&old_master_ms=0", self.0.url())
    }

    /// The URL for leases of this many milliseconds at most.
    pub(super) fn url_up_to(&self, longest: u64, parameters: &str) -> String {
        self.url_by(&[0, 1, 2], longest, parameters)
    }

    /// The same for one that knows some of the sentinels only.
    pub(super) fn url_by(&self, sentinels: &[usize], longest: u64, parameters: &str) -> String {
        format!(
            "{}?command_timeout_ms=4000&connect_timeout_ms=10000\
             &max_lease_duration_ms={longest}&old_master_ms=0{parameters}",
            self.0.url_of(sentinels)
        )
    }

    pub(super) async fn client(&self, parameters: &str) -> Client {
        client(&self.url(parameters)).await
    }

    pub(super) fn server(&self, number: usize) -> &RedisServer {
        &self.0.servers()[number]
    }

    /// Kills the master while the replicas are held back, and lets one of them be promoted: it
    /// knows nothing of the requests that the master received meanwhile.
    pub(super) fn promote_who_missed_it(&self) -> usize {
        let master = self.0.master();
        self.server(master).kill();
        self.0.let_replicas_go(master);
        self.0.await_promotion(master)
    }
}

fn field(raw: &mut Raw, section: &str, name: &str) -> String {
    let info = raw.send(&["INFO", section]).expect("an answer").text().expect("text");
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    line.expect("the field").trim().to_owned()
}

/// Waits until a server has run for this many seconds.
pub(super) async fn await_uptime(server: &RedisServer, seconds: u64) {
    let mut raw = server.raw();
    until("it has run for long", || {
        field(&mut raw, "server", "uptime_in_seconds:").parse::<u64>().expect("a number") >= seconds
    })
    .await;
}

/// The lease of those who are renewed often.
pub(super) fn patient() -> LockOptions {
    lease(LONGEST).with_renew_interval(Duration::from_millis(300)).with_wait(LONG)
}

/// A lease that nobody renews: its holder learns nothing before its end.
pub(super) fn fixed() -> LockOptions {
    lease(LONGEST).with_keep(Keep::Fixed)
}

pub(super) async fn lost(guard: &Guard) -> LostReason {
    let reason = soon("the loss", guard.lost()).await;
    assert!(!guard.is_valid());
    reason
}

pub(super) fn quarantined(outcome: Result<Guard, LockError>) {
    let error = outcome.expect_err("nothing is granted");
    assert!(matches!(error.kind(), ErrorKind::Quarantined { .. }), "{error:?}");
}
