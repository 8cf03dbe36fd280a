//! What `doctor` checks of the sentinels, and of the replicas that they know.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::moment::whole_millis;
use holdline_core::{Clock, ErrorKind, Finding, LockError};

use super::Probe;
use super::info::{Config, Info};
use super::settings::is_older;
use crate::link::{Link, Value};
use crate::options::RedisOptions;
use crate::sentinel::MasterView;

const SENTINELS: &str = "they agree on a failover and name the master: that needs a majority of \
                         them";
const REPLICAS: &str = "one of them takes over when the master is lost";
const ISOLATION: &str = "a partitioned master must stop, or two clients can hold one lock, there \
                         and on the new master";

const DOWN_AFTER: &str = "a master that is silent for this long is replaced: until then no lock \
                          is granted, and each failover costs a time without grants";
const RIGHTS: &str = "without one of these commands a master is not found, or found late";

/// The rights that the user needs at a sentinel, besides those that were used already.
const NEEDED: [&str; 2] = ["SENTINEL MASTERS", "SUBSCRIBE +switch-master"];
/// A master may be silent for less: machines freeze now and then.
const SHORTEST_MS: u64 = 1_000;
/// Clients should not wait longer for a dead master.
const LONGEST_MS: u64 = 60_000;
/// How much later than `min-replicas-max-lag` a partitioned master may still accept writes.
const NOTICED_MS: u64 = 2_000;
const USUAL_LAG_S: u64 = 10;

/// The reports of the sentinels.
pub(super) struct Sentinels {
    each: Vec<Result<SentinelReport, LockError>>,
    /// How long a replaced master may still accept writes, in ms.
    old_master: u64,
    /// How long no lock is granted after a promotion.
    quarantine: Duration,
}

/// The report of one sentinel.
struct SentinelReport {
    seen: MasterView,
    down_after: u64,
    /// What only `doctor` queries, for which a user may lack the rights.
    listed: Result<Listed, LockError>,
    /// The commands that we may not send there.
    lacks: Result<Vec<&'static str>, LockError>,
}

/// The servers that a sentinel can reach.
struct Listed {
    /// How many sentinels, including itself.
    living: u64,
    /// The replicas.
    there: Vec<(String, u16)>,
    /// How many of these follow the master.
    well: u64,
}

impl Sentinels {
    /// Queries all sentinels that the options name; `None` where they name none.
    pub(super) async fn ask(
        options: &RedisOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Sentinels>, LockError> {
        let Some(group) = options.group() else { return Ok(None) };
        let mut each = Vec::new();
        for sentinel in options.sentinels() {
            let link = Link::new(&sentinel, clock.clone())?;
            let probe = Probe { link, limit: options.command_timeout() };
            each.push(report_of(&probe, group.service()).await);
        }
        let rules = options.failover();
        let old_master = whole_millis(rules.old_master());
        let quarantine = rules.max_lease().saturating_add(rules.old_master());
        Ok(Some(Sentinels { each, old_master, quarantine }))
    }

    pub(super) fn quarantine(&self) -> Duration {
        self.quarantine
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut found = vec![self.sentinels(), self.replicas()];
        if self.answered().next().is_some() {
            found.extend([self.down_after(), self.rights()]);
        }
        found
    }

    /// Returns the replicas that every answering sentinel can reach.
    pub(super) fn replicas_there(&self) -> Vec<(String, u16)> {
        let all = |place: &(String, u16)| self.listed().all(|listed| listed.there.contains(place));
        let first = self.listed().next().map_or(&[][..], |listed| &listed.there);
        first.iter().filter(|place| all(place)).cloned().collect()
    }

    fn answered(&self) -> impl Iterator<Item = &SentinelReport> {
        self.each.iter().flatten()
    }

    fn listed(&self) -> impl Iterator<Item = &Listed> {
        self.answered().filter_map(|report| report.listed.as_ref().ok())
    }

    /// Returns why an answering sentinel does not list the servers.
    fn unlisted(&self) -> Option<&LockError> {
        self.answered().find_map(|report| report.listed.as_ref().err())
    }

    fn most(&self, of: impl Fn(&SentinelReport) -> u64) -> u64 {
        self.answered().map(of).max().unwrap_or(0)
    }

    fn sentinels(&self) -> Finding {
        let named = self.each.len();
        let answer = self.answered().count();
        let known = self.most(|report| report.seen.sentinels);
        let quorum = self.most(|report| report.seen.quorum);
        // A partitioned sentinel reaches few of them.
        let living = self.listed().map(|listed| listed.living).max();
        let there = living.map_or("an unknown number".to_owned(), |count| count.to_string());
        let living = living.unwrap_or(known);
        let found = format!(
            "{answer} of {named} answer, {known} are known, of which {there} are up, quorum \
             {quorum}"
        );
        let finding = Finding::ok("sentinels", SENTINELS, found);
        let silent = self.each.iter().find_map(|one| one.as_ref().err());
        match silent {
            Some(error) if answer == 0 => finding.fail(match error.kind() {
                ErrorKind::Refused { .. } => {
                    format!("allow this user the commands that docs/redis.md lists: {error}")
                }
                _ => format!("start or name sentinels: {error}"),
            }),
            _ if quorum > known => {
                finding.fail("set the quorum to a majority: it exceeds the number of sentinels")
            }
            _ if living < quorum || 2 * living <= known => finding.fail(format!(
                "start those that are down: {living} of {known} agree on no failover"
            )),
            _ if !self.agree() => finding.warn(
                "have them monitor the same servers: some name another master (partitioned, or \
                 configured differently)",
            ),
            _ if known < 3 => finding.warn("run three sentinels: with fewer, none may fail"),
            _ if 2 * quorum <= known => {
                finding.warn("set the quorum to a majority: fewer may be wrong about the master")
            }
            Some(error) => finding.warn(format!("check the one that does not answer: {error}")),
            None if self.unlisted().is_some() => finding.warn(self.let_us_ask()),
            None if living < known => finding.warn(
                "start those that are down, or have the others forget them (SENTINEL RESET): they \
                 count for the majority",
            ),
            None => finding,
        }
    }

    fn let_us_ask(&self) -> String {
        let why = self.unlisted().map_or_else(String::new, |error| format!(": {error}"));
        format!("allow this user the commands at the sentinels that docs/redis.md lists{why}")
    }

    fn agree(&self) -> bool {
        let mut places = self.answered().map(|report| (&report.seen.host, report.seen.port));
        let first = places.next();
        places.all(|place| Some(place) == first)
    }

    fn down_after(&self) -> Finding {
        let all = || self.answered().map(|report| report.down_after);
        let least = all().min().unwrap_or(0);
        let most = all().max().unwrap_or(0);
        let found =
            if least == most { format!("{least} ms") } else { format!("{least} to {most} ms") };
        let finding = Finding::ok("down_after", DOWN_AFTER, found);
        if least < SHORTEST_MS {
            return finding.warn(
                "set down-after-milliseconds to at least 1000: a machine that freezes for a \
                 moment is not dead",
            );
        }
        if most > LONGEST_MS {
            return finding.warn("set down-after-milliseconds to at most 60000");
        }
        finding
    }

    fn rights(&self) -> Finding {
        let lacks: Vec<&str> = self
            .answered()
            .filter_map(|report| report.lacks.as_ref().ok())
            .flatten()
            .copied()
            .collect();
        let unknown = self.answered().find_map(|report| report.lacks.as_ref().err());
        let finding = |found: String| Finding::ok("sentinel_rights", RIGHTS, found);
        match (lacks.first(), unknown) {
            (Some(_), _) => finding(format!("not permitted: {}", lacks.join(", "))).warn(
                "give the sentinels' user the rights that docs/redis.md lists: without them, a \
                 failover is noticed late",
            ),
            (None, Some(error)) => finding(format!("is not permitted: {error}"))
                .warn("allow ACL WHOAMI and ACL DRYRUN to the sentinels' user"),
            (None, None) => finding("all that is needed".to_owned()),
        }
    }

    fn replicas(&self) -> Finding {
        let known = self.most(|report| report.seen.replicas);
        let Some(well) = self.listed().map(|listed| listed.well).max() else {
            let found = format!("{known}; their state is unknown");
            let finding = Finding::ok("replicas", REPLICAS, found);
            return match self.answered().next() {
                Some(_) => finding.warn(self.let_us_ask()),
                None => finding.warn("start or name sentinels: no other knows the replicas"),
            };
        };
        let finding = Finding::ok("replicas", REPLICAS, format!("{known}, of which {well} follow"));
        match (known, well) {
            (_, 0) => finding.fail("give the master a replica: without one nothing takes over"),
            _ if well < known => finding.warn(
                "check those that are down or do not follow, or have the sentinels forget them \
                 (SENTINEL RESET): with `replicas=all`, no lock is granted while one is missing",
            ),
            _ => finding,
        }
    }

    /// Checks whether a partitioned master stops. Before 7.0, Redis let scripts write with too few
    /// replicas (pull request 10160), and all our writes are in scripts.
    pub(super) fn isolation(
        &self,
        info: &Result<Info, LockError>,
        config: &Result<Config, LockError>,
    ) -> Finding {
        let known = self.most(|report| report.seen.replicas);
        let set = match config {
            Ok(config) => config.number("min-replicas-to-write").unwrap_or(0),
            Err(error) => {
                let finding =
                    Finding::ok("isolation", ISOLATION, format!("is not permitted: {error}"));
                return finding.warn("allow CONFIG GET to this user");
            }
        };
        if self.answered().next().is_none() {
            let found = format!("min-replicas-to-write {set}, of an unknown number");
            let finding = Finding::ok("isolation", ISOLATION, found);
            return finding.warn("start or name sentinels: no other knows the replicas");
        }
        let lag = config.as_ref().ok().and_then(|config| config.number("min-replicas-max-lag"));
        let stops_within = lag.unwrap_or(USUAL_LAG_S).saturating_mul(1_000) + NOTICED_MS;
        let found = format!("min-replicas-to-write {set} of {known}");
        let finding = Finding::ok("isolation", ISOLATION, found);
        // With the master that is a majority of the servers, and of sentinels on their machines.
        let enough = known.div_ceil(2);
        match set {
            _ if set > known => finding.fail(format!(
                "set min-replicas-to-write {enough}: with fewer replicas it takes no writes"
            )),
            _ if info.as_ref().is_ok_and(|info| is_older(info, 7, 0)) => finding.warn(
                "use Redis 7.0 or newer: an older one does not stop scripts, so a partitioned \
                 master continues, whatever min-replicas-to-write says",
            ),
            0 => finding.warn(format!(
                "set min-replicas-to-write {enough}: nothing stops a partitioned master"
            )),
            _ if set < enough => finding.warn(format!(
                "set min-replicas-to-write {enough}: a master partitioned together with {set} \
                 replicas continues"
            )),
            _ if set == known => finding.warn(format!(
                "a failover does not help: the next master has one replica fewer, and accepts no \
                 writes until the lost server is back. Run at least two replicas and set \
                 min-replicas-to-write to half of them, rounded up ({enough} of {known}), with \
                 the sentinels on the machines of the servers"
            )),
            _ if stops_within > self.old_master => finding.warn(format!(
                "set old_master_ms={stops_within} in the URL of all clients: for so long a master \
                 that is cut off may take writes (min-replicas-max-lag and 2 s)"
            )),
            _ => finding,
        }
    }
}

/// Queries one sentinel.
async fn report_of(probe: &Probe, service: &str) -> Result<SentinelReport, LockError> {
    let address = probe.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]).await?;
    let fields = probe.ask(&["SENTINEL", "MASTER", service]).await?;
    let seen = MasterView::parse(&address, &fields)
        .ok_or_else(|| crate::error::protocol("invalid reply of a sentinel"))?;
    let down_after = field(&fields, "down-after-milliseconds").and_then(|text| text.parse().ok());
    let down_after = down_after.unwrap_or(0);
    let listed = listed(probe, service).await;
    let lacks = lacks(probe).await;
    Ok(SentinelReport { seen, down_after, listed, lacks })
}

async fn listed(probe: &Probe, service: &str) -> Result<Listed, LockError> {
    let replicas = probe.ask(&["SENTINEL", "REPLICAS", service]).await?;
    let others = probe.ask(&["SENTINEL", "SENTINELS", service]).await?;
    let others = others.as_array().unwrap_or_default().iter();
    let living = 1 + others.filter(|other| is_there(other, "sentinel")).count() as u64;
    let replicas = replicas.as_array().unwrap_or_default();
    let replicas: Vec<&Value> = replicas.iter().filter(|one| is_there(one, "slave")).collect();
    let well = replicas.iter().filter(|one| field(one, "master-link-status") == Some("ok"));
    let well = well.count() as u64;
    let there = replicas.iter().filter_map(|one| place(one)).collect();
    Ok(Listed { living, there, well })
}

fn field<'a>(fields: &'a Value, name: &str) -> Option<&'a str> {
    let (pairs, _) = fields.as_array()?.as_chunks::<2>();
    let found = pairs.iter().find(|[key, _]| key.as_text() == Some(name));
    found.and_then(|[_, value]| value.as_text())
}

/// Returns whether a sentinel reaches a server of this kind: one that is down has more flags.
fn is_there(server: &Value, kind: &str) -> bool {
    field(server, "flags") == Some(kind)
}

fn place(server: &Value) -> Option<(String, u16)> {
    Some((field(server, "ip")?.to_owned(), field(server, "port")?.parse().ok()?))
}

/// Asks a sentinel which of the needed commands we may not send.
async fn lacks(probe: &Probe) -> Result<Vec<&'static str>, LockError> {
    let user = probe.text(&["ACL", "WHOAMI"]).await?;
    let mut lacks = Vec::new();
    for form in NEEDED {
        let asked: Vec<&str> =
            ["ACL", "DRYRUN", &user].into_iter().chain(form.split(' ')).collect();
        if probe.text(&asked).await? != "OK" {
            lacks.push(form);
        }
    }
    Ok(lacks)
}

#[cfg(test)]
mod tests;
