//! What `doctor` checks on the replicas of a master: any of them can be promoted.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Clock, Finding, LockError};

use super::Probe;
use super::info::{Config, Info};
use super::machine::{self, FAR, Offset, seconds};
use crate::options::RedisOptions;
use crate::sentinel;

const ALIKE: &str = "a promoted replica uses its own settings";
const LINKS: &str = "a replica that does not follow lacks the master's grants, and may still be \
                     promoted";
const CLOCKS: &str = "a promoted replica ends leases by its own clock, and continues fencing \
                      tokens from it if it lacks the newest";
/// How much of the replication stream may be in flight, in bytes.
const ON_ITS_WAY: u64 = 1 << 20;

/// The settings of a server that matter when it is the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings(Vec<(&'static str, Option<String>)>);

impl Settings {
    pub(super) fn of(
        info: &Result<Info, LockError>,
        config: &Result<Config, LockError>,
    ) -> Settings {
        let info_field = |field| info.as_ref().ok().map(|info| info.text(field).to_owned());
        let set = config.as_ref().ok().and_then(|config| config.text("min-replicas-to-write"));
        Settings(vec![
            ("maxmemory-policy", info_field("maxmemory_policy")),
            ("appendonly", info_field("aof_enabled")),
            ("min-replicas-to-write", set.map(str::to_owned)),
        ])
    }

    /// Returns the settings in which another server differs, as far as both are known.
    fn unlike(&self, other: &Settings) -> Vec<&'static str> {
        let both = self.0.iter().zip(&other.0);
        let differ = both.filter(|((_, one), (_, other))| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| one != other)
        });
        differ.map(|((name, _), _)| *name).collect()
    }
}

/// The report of a replica.
#[derive(Debug)]
pub(super) struct Replica {
    place: String,
    settings: Settings,
    info: Result<Info, LockError>,
    offset: Result<Option<Offset>, LockError>,
}

impl Replica {
    /// Returns its address.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Returns why it does not answer; `None` for one that does, even if it refuses the query.
    pub(super) fn silence(&self) -> Option<&LockError> {
        let is_silence = |error: &&LockError| error.is_unavailable();
        self.info.as_ref().err().filter(is_silence)
    }

    /// Returns why it may lack writes of its master.
    fn trouble(&self, written: u64) -> Option<String> {
        let place = &self.place;
        match &self.info {
            Ok(info) if info.text("role") == "master" => {
                Some(format!("{place} considers itself a master"))
            }
            Ok(info) if info.text("master_link_status") != "up" => {
                Some(format!("{place} does not reach its master"))
            }
            Ok(info) => {
                let behind = written.saturating_sub(info.number("slave_repl_offset"));
                (behind > ON_ITS_WAY).then(|| format!("{place} is {} KiB behind", behind >> 10))
            }
            Err(error) => match self.silence() {
                Some(error) => Some(format!("{place} does not answer: {error}")),
                None => Some(format!("{place} is not permitted: {error}")),
            },
        }
    }
}

/// The report of a master, and of its replicas.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) info: Result<Info, LockError>,
    pub(super) config: Result<Config, LockError>,
    pub(super) offset: Result<Option<Offset>, LockError>,
    pub(super) replicas: Vec<Replica>,
}

/// Queries each of the replicas.
pub(super) async fn ask(
    options: &RedisOptions,
    places: &[(String, u16)],
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Replica>, LockError> {
    let mut each = Vec::with_capacity(places.len());
    for (host, port) in places {
        let options = options.at(host, *port).read_only();
        let link = sentinel::link(&options, clock.clone())?;
        let probe = Probe { link, limit: options.command_timeout() };
        let info = probe.text(&["INFO"]).await.map(|text| Info::parse(&text));
        let config = match &info {
            Ok(_) => Config::ask(&probe).await,
            Err(error) => Err(error.clone()),
        };
        let offset = match &info {
            Ok(_) => machine::offset(&probe).await,
            Err(error) => Err(error.clone()),
        };
        let settings = Settings::of(&info, &config);
        each.push(Replica { place: options.address().to_string(), settings, info, offset });
    }
    Ok(each)
}

/// Checks whether all have the settings of their master.
pub(super) fn alike(shards: &[Shard]) -> Finding {
    let unlike = shards.iter().flat_map(|shard| {
        let master = Settings::of(&shard.info, &shard.config);
        shard.replicas.iter().filter_map(move |replica| {
            let differ = master.unlike(&replica.settings);
            let place = &replica.place;
            (!differ.is_empty()).then(|| format!("{place} differs in {}", differ.join(", ")))
        })
    });
    let unlike: Vec<String> = unlike.collect();
    let count = shards.iter().map(|shard| shard.replicas.len()).sum::<usize>();
    if unlike.is_empty() {
        Finding::ok("alike", ALIKE, format!("{count} have the settings of the master"))
    } else {
        Finding::ok("alike", ALIKE, unlike.join("; "))
            .warn("use the same value on the master and on the replica")
    }
}

/// Checks whether all follow. A master was queried before its replicas.
pub(super) fn links(shards: &[Shard]) -> Finding {
    let mut troubles = Vec::new();
    for shard in shards {
        let written = shard.info.as_ref().map_or(0, |info| info.number("master_repl_offset"));
        troubles.extend(shard.replicas.iter().filter_map(|replica| replica.trouble(written)));
    }
    let count = shards.iter().map(|shard| shard.replicas.len()).sum::<usize>();
    if troubles.is_empty() {
        Finding::ok("links", LINKS, format!("{count} follow"))
    } else {
        Finding::ok("links", LINKS, troubles.join("; "))
            .warn("check its link: `masterauth`, the network, its log")
    }
}

/// Checks whether all clocks agree. If they differ by more than `safe`, tokens may decrease at a
/// failover.
pub(super) fn clocks(shards: &[Shard], safe: Duration) -> Finding {
    let of = |shard: &Shard| {
        let replicas = shard.replicas.iter().map(|replica| &replica.offset);
        let offsets = replicas.chain([&shard.offset]);
        offsets.map(|offset| offset.as_ref().ok().copied().flatten()).collect::<Vec<_>>()
    };
    let all: Vec<Option<Offset>> = shards.iter().flat_map(of).collect();
    let known: Vec<Offset> = all.iter().copied().flatten().collect();
    let apart = apart(&known);
    let found = format!("{} of {} servers, {:.3} s apart", known.len(), all.len(), seconds(apart));
    let finding = Finding::ok("clocks", CLOCKS, found);
    match apart {
        apart if apart > i128::try_from(safe.as_micros()).unwrap_or(i128::MAX) => finding.fail(
            "synchronize all clocks (NTP) at once: at a failover, fencing tokens may \
             decrease",
        ),
        apart if apart > FAR => {
            finding.warn("synchronize all clocks (NTP), slewed and not stepped")
        }
        _ => finding,
    }
}

/// Returns the least possible difference between the clocks.
fn apart(clocks: &[Offset]) -> i128 {
    let earliest = clocks.iter().map(|clock| clock.ahead + clock.error).min();
    let latest = clocks.iter().map(|clock| clock.ahead - clock.error).max();
    earliest.zip(latest).map_or(0, |(earliest, latest)| (latest - earliest).max(0))
}

#[cfg(test)]
mod tests {
    use holdline_core::{Certainty, Health};

    use super::*;
    use crate::error::{protocol, unavailable};

    fn replica(lines: &[&str], ahead: i128) -> Replica {
        let info = Ok(Info::parse(&lines.join("\n")));
        let config = Ok(Config::of(&[("min-replicas-to-write", "1")]));
        let settings = Settings::of(&info, &config);
        let offset = Ok(Some(Offset { ahead, error: 1_000 }));
        Replica { place: "h:1".to_owned(), settings, info, offset }
    }

    fn shard(info: &Result<Info, LockError>, replicas: Vec<Replica>) -> Shard {
        let config = Ok(Config::of(&[("min-replicas-to-write", "1")]));
        let offset = Ok(Some(Offset { ahead: 0, error: 1_000 }));
        Shard { info: info.clone(), config, offset, replicas }
    }

    #[test]
    fn a_replica_that_does_not_follow_is_reported() {
        let up = "role:slave";
        let master = Ok(Info::parse("master_repl_offset:9000000"));
        let follows = "master_link_status:up";
        let newest = "slave_repl_offset:8999000";
        for (expected, lines) in [
            (Health::Ok, vec![up, follows, newest]),
            (Health::Warning, vec![up, "master_link_status:down"]),
            (Health::Warning, vec!["role:master"]),
            (Health::Warning, vec![up, follows, "slave_repl_offset:7000000"]),
        ] {
            let found = links(&[shard(&master, vec![replica(&lines, 0)])]);
            assert_eq!(found.health(), expected, "{lines:?}");
            // One that is ill among others.
            let each = vec![replica(&[up, follows, newest], 0), replica(&lines, 0)];
            let found = links(&[shard(&master, vec![]), shard(&master, each)]);
            assert_eq!(found.health(), expected, "{lines:?}");
        }
        for (error, says) in [
            (unavailable("no", Certainty::NotApplied), "does not answer"),
            (protocol("no"), "is not permitted"),
        ] {
            let mute = Replica { info: Err(error), ..replica(&[], 0) };
            let found = links(&[shard(&master, vec![mute])]);
            assert_eq!(found.health(), Health::Warning);
            assert!(found.found().contains(says), "{found:?}");
        }
        assert_eq!(links(&[shard(&master, vec![])]).health(), Health::Ok);
    }

    #[test]
    fn settings_that_differ_are_named_and_unknown_ones_are_not() {
        let as_is = ["maxmemory_policy:noeviction", "aof_enabled:1"];
        let info = Ok(Info::parse(&as_is.join("\n")));
        assert_eq!(alike(&[shard(&info, vec![replica(&as_is, 0)])]).health(), Health::Ok);
        let other = replica(&["maxmemory_policy:allkeys-lru"], 0);
        let other = alike(&[shard(&info, vec![replica(&as_is, 0), other])]);
        assert_eq!(other.health(), Health::Warning);
        assert_eq!(other.found(), "h:1 differs in maxmemory-policy, appendonly");
        let mute = || Err(unavailable("no", Certainty::NotApplied));
        let unknown = Settings::of(&mute(), &Err(unavailable("no", Certainty::NotApplied)));
        assert!(replica(&as_is, 0).settings.unlike(&unknown).is_empty());
    }

    #[test]
    fn clocks_are_judged_by_how_far_apart_they_may_be() {
        let second = 1_000_000;
        let of = |ahead: i128| {
            let info = Ok(Info::default());
            let shards = [shard(&info, vec![]), shard(&info, vec![replica(&[], ahead)])];
            clocks(&shards, Duration::from_secs(6)).health()
        };
        assert_eq!(of(second), Health::Ok);
        assert_eq!(of(-2 * second), Health::Warning);
        assert_eq!(of(6 * second), Health::Warning);
        assert_eq!(of(7 * second), Health::Error);
        assert_eq!(of(-7 * second), Health::Error);
    }
}
