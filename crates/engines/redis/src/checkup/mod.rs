//! What `doctor` checks on a Redis server.
//!
//! It only reads: no key is changed. A query that the user may not send is reported as such, and
//! never counts as a good result.
//!
//! Read next: `settings` for the server's own settings, `machine` for clock and round trip,
//! `failover` for the master term of one server, `group` for the sentinels, `replicas` for the
//! replicas that may be promoted, `cluster` for the masters of one, `rights` for the user's rights,
//! `inventory` for the keys under our names, `shared_keys` for those that other libraries share,
//! `redisson` for the counters of Redisson's dialect, `quorum` for the servers of a quorum.

mod cluster;
mod failover;
mod group;
mod info;
mod inventory;
mod machine;
mod merge;
mod quorum;
mod redisson;
mod replicas;
mod rights;
mod settings;
mod shared_keys;

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Checkup, Clock, Finding, LockError};

use crate::error::ENGINE;
use crate::link::{Link, Value};
use crate::options::{Dialect, RedisOptions};
use crate::sentinel;
use info::{Config, Info};

pub use quorum::quorum_checkup;

const REACHABLE: &str = "without an answer, no lock can be acquired, and held ones expire";

/// Checks the server of these options.
///
/// Takes a few round trips; a server that does not answer costs the time limits of the options.
///
/// # Errors
/// `Invalid`: an option is wrong. All else is a finding.
pub async fn checkup(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Checkup, LockError> {
    if options.is_of_cluster() {
        return cluster::checkup(options, clock).await;
    }
    let link = sentinel::link(&options.read_only(), clock.clone())?;
    let probe = Probe { link, limit: options.command_timeout() };
    let mut checkup = Checkup::new(ENGINE);
    let group = group::Sentinels::ask(options, &clock).await?;
    for finding in group.iter().flat_map(group::Sentinels::findings) {
        checkup.add(finding);
    }
    let trip = match machine::round_trip(&probe, clock.as_ref()).await {
        Ok(trip) => trip,
        Err(error) => {
            let finding = Finding::ok("reachable", REACHABLE, error.to_string());
            checkup.add(finding.fail("do what the error says; until then nothing can be locked"));
            return Ok(checkup);
        }
    };
    let found = format!("answers in {trip:?}");
    checkup.add(Finding::ok("reachable", REACHABLE, found));
    let info = probe.text(&["INFO"]).await.map(|text| Info::parse(&text));
    let config = Config::ask(&probe).await;
    for finding in settings::findings(&info, &config) {
        checkup.add(match &group {
            Some(group) if finding.check() == "role" => group.isolation(&info, &config),
            _ => finding,
        });
    }
    checkup.add(machine::clock(&probe).await);
    if group.is_none() {
        checkup.add(failover::finding(&probe, options, &info).await);
    }
    if let Some(group) = &group {
        let each = replicas::ask(options, &group.replicas_there(), &clock).await?;
        let offset = machine::offset(&probe).await;
        let shards = [replicas::Shard { info, config, offset, replicas: each }];
        checkup.add(replicas::alike(&shards));
        checkup.add(replicas::links(&shards));
        checkup.add(replicas::clocks(&shards, group.quarantine()));
    }
    for finding in rights::findings(&probe, options).await {
        checkup.add(finding);
    }
    checkup.add(inventory::finding(&probe, options).await);
    if options.dialect() == Dialect::Redisson {
        checkup.add(redisson::counters(&probe, options).await);
        checkup.add(redisson::notifications());
    }
    Ok(checkup)
}

/// Asks a server.
struct Probe {
    link: Link,
    limit: Duration,
}

impl Probe {
    async fn ask(&self, words: &[&str]) -> Result<Value, LockError> {
        self.ask_bytes(words.iter().map(|word| word.as_bytes().to_vec()).collect()).await
    }

    async fn ask_bytes(&self, words: Vec<Vec<u8>>) -> Result<Value, LockError> {
        self.link.command(words, None, self.limit).await
    }

    async fn text(&self, words: &[&str]) -> Result<String, LockError> {
        let value = self.ask(words).await?;
        Ok(value.as_text().unwrap_or_default().to_owned())
    }
}
