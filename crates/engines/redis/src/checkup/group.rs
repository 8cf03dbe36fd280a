//! What `doctor` looks at above a server: its sentinels, and the replicas that they know.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Clock, ErrorKind, Finding, LockError};

use super::Probe;
use super::info::{Config, Info};
use super::settings::is_older;
use crate::node::{Node, Value};
use crate::options::RedisOptions;
use crate::sentinel::MasterView;

const SENTINELS: &str = "they agree on a failover and tell where the master is: a majority of them \
                         must be there for it";
const REPLICAS: &str = "one of them takes over when the master is lost";
const ISOLATION: &str = "a master that is cut off must stop, or some clients hold there what \
                         others hold with the new one";

const DOWN_AFTER: &str = "a master that is silent for so long is replaced: until then nobody is \
                          granted anything, and each replacement costs a time without grants";
const RIGHTS: &str = "without one of these commands a master is not found, or found late";

/// What the user must be allowed at a sentinel, besides what was asked already.
const NEEDED: [&str; 2] = ["SENTINEL MASTERS", "SUBSCRIBE +switch-master"];
/// A master that is silent for less is well: machines stand still now and then.
const SHORTEST_MS: u64 = 1_000;
/// Nobody wants to wait longer for a master that is dead.
const LONGEST_MS: u64 = 60_000;
/// How much later than `min-replicas-max-lag` a master that is cut off may still take writes.
const NOTICED_MS: u64 = 2_000;
const USUAL_LAG_S: u64 = 10;

/// What the sentinels say, each by itself.
pub(super) struct Sentinels {
    each: Vec<Result<SentinelReport, LockError>>,
    /// How long a master that was replaced is allowed for, in ms.
    old_master: u64,
    /// For how long nothing is granted after a promotion.
    quarantine: Duration,
}

/// What one of them says.
struct SentinelReport {
    seen: MasterView,
    down_after: u64,
    /// What only `doctor` asks, and a user may lack the right to.
    listed: Result<Listed, LockError>,
    /// What we may not do there.
    lacks: Result<Vec<&'static str>, LockError>,
}

/// Whom a sentinel finds there.
struct Listed {
    /// How many sentinels, itself too.
    living: u64,
    /// The replicas.
    there: Vec<(String, u16)>,
    /// How many of these follow the master.
    well: u64,
}

impl Sentinels {
    /// Asks all sentinels that the options name; `None` where they name none.
    pub(super) async fn ask(
        options: &RedisOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Sentinels>, LockError> {
        let Some(group) = options.group() else { return Ok(None) };
        let mut each = Vec::new();
        for sentinel in options.sentinels() {
            let node = Node::new(&sentinel, clock.clone())?;
            let probe = Probe { node, limit: options.command_timeout() };
            each.push(told(&probe, group.service()).await);
        }
        let old_master = u64::try_from(group.old_master().as_millis()).unwrap_or(u64::MAX);
        let quarantine = group.max_lease().saturating_add(group.old_master());
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

    /// The replicas that all who answer find there.
    pub(super) fn replicas_there(&self) -> Vec<(String, u16)> {
        let all = |place: &(String, u16)| self.listed().all(|listed| listed.there.contains(place));
        let first = self.listed().next().map_or(&[][..], |listed| &listed.there);
        first.iter().filter(|place| all(place)).cloned().collect()
    }

    fn answered(&self) -> impl Iterator<Item = &SentinelReport> {
        self.each.iter().flatten()
    }

    fn listed(&self) -> impl Iterator<Item = &Listed> {
        self.answered().filter_map(|told| told.listed.as_ref().ok())
    }

    /// Why one that answers does not say whom it finds there.
    fn unlisted(&self) -> Option<&LockError> {
        self.answered().find_map(|told| told.listed.as_ref().err())
    }

    fn most(&self, of: impl Fn(&SentinelReport) -> u64) -> u64 {
        self.answered().map(of).max().unwrap_or(0)
    }

    fn sentinels(&self) -> Finding {
        let (named, answer) = (self.each.len(), self.answered().count());
        let known = self.most(|told| told.seen.sentinels);
        let quorum = self.most(|told| told.seen.quorum);
        // Whoever is cut off sees few of them.
        let living = self.listed().map(|listed| listed.living).max();
        let there = living.map_or("nobody tells how many".to_owned(), |count| count.to_string());
        let living = living.unwrap_or(known);
        let found = format!(
            "{answer} of {named} answer, {known} are known, of which {there} are there, quorum \
             {quorum}"
        );
        let finding = Finding::ok("sentinels", SENTINELS, found);
        let silent = self.each.iter().find_map(|one| one.as_ref().err());
        match silent {
            Some(error) if answer == 0 => finding.fail(match error.kind() {
                ErrorKind::Refused { .. } => {
                    format!("let this user ask them as docs/redis.md says: {error}")
                }
                _ => format!("start or name sentinels: {error}"),
            }),
            _ if quorum > known => {
                finding.fail("set the quorum to a majority: so many sentinels there are not")
            }
            _ if living < quorum || 2 * living <= known => finding.fail(format!(
                "start those that are away: {living} of {known} agree on no failover"
            )),
            _ if !self.agree() => finding.warn(
                "let them watch the same servers: some name another master (cut off, or set up \
                 for themselves)",
            ),
            _ if known < 3 => finding.warn("run three sentinels: of these none may be lost"),
            _ if 2 * quorum <= known => {
                finding.warn("set the quorum to a majority: so few may be wrong about the master")
            }
            Some(error) => finding.warn(format!("see to the one that does not answer: {error}")),
            None if self.unlisted().is_some() => finding.warn(self.let_us_ask()),
            None if living < known => finding.warn(
                "start those that are away, or have the others forget them (SENTINEL RESET): they \
                 count for the majority",
            ),
            None => finding,
        }
    }

    fn let_us_ask(&self) -> String {
        let why = self.unlisted().map_or_else(String::new, |error| format!(": {error}"));
        format!("let this user ask the sentinels what `doctor` asks, as docs/redis.md says{why}")
    }

    fn agree(&self) -> bool {
        let mut places = self.answered().map(|told| (&told.seen.host, told.seen.port));
        let first = places.next();
        places.all(|place| Some(place) == first)
    }

    fn down_after(&self) -> Finding {
        let all = || self.answered().map(|told| told.down_after);
        let (least, most) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
        let found = match least == most {
            true => format!("{least} ms"),
            false => format!("{least} to {most} ms"),
        };
        let finding = Finding::ok("down_after", DOWN_AFTER, found);
        if least < SHORTEST_MS {
            return finding.warn(
                "set down-after-milliseconds to at least 1000: a machine that stands still for a \
                 moment is no dead one",
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
            .filter_map(|told| told.lacks.as_ref().ok())
            .flatten()
            .copied()
            .collect();
        let unknown = self.answered().find_map(|told| told.lacks.as_ref().err());
        let finding = |found: String| Finding::ok("sentinel_rights", RIGHTS, found);
        match (lacks.first(), unknown) {
            (Some(_), _) => finding(format!("we may not: {}", lacks.join(", "))).warn(
                "give the sentinels' user the rights that docs/redis.md lists: a failover is \
                 noticed late without them",
            ),
            (None, Some(error)) => finding(format!("may not be asked: {error}"))
                .warn("allow ACL WHOAMI and ACL DRYRUN to the sentinels' user"),
            (None, None) => finding("all that is needed".to_owned()),
        }
    }

    fn replicas(&self) -> Finding {
        let known = self.most(|told| told.seen.replicas);
        let Some(well) = self.listed().map(|listed| listed.well).max() else {
            let found = format!("{known}; whether they are well is not known");
            let finding = Finding::ok("replicas", REPLICAS, found);
            return match self.answered().next() {
                Some(_) => finding.warn(self.let_us_ask()),
                None => finding.warn("start or name sentinels: no other knows the replicas"),
            };
        };
        let finding =
            Finding::ok("replicas", REPLICAS, format!("{known}, of which {well} are well"));
        match (known, well) {
            (_, 0) => finding.fail("give the master a replica: without one nothing takes over"),
            _ if well < known => finding.warn(
                "see to those that are away or do not follow, or have the sentinels forget them \
                 (SENTINEL RESET): with `replicas=all` nothing is granted while they are missed",
            ),
            _ => finding,
        }
    }

    /// Whether a master that is cut off stops. Before 7.0 Redis let scripts write on one that has
    /// too few replicas (pull request 10160), and all that we write is by scripts.
    pub(super) fn isolation(
        &self,
        info: &Result<Info, LockError>,
        config: &Result<Config, LockError>,
    ) -> Finding {
        let known = self.most(|told| told.seen.replicas);
        let set = match config {
            Ok(config) => config.number("min-replicas-to-write").unwrap_or(0),
            Err(error) => {
                let finding = Finding::ok("isolation", ISOLATION, format!("not told: {error}"));
                return finding.warn("allow CONFIG GET to this user");
            }
        };
        if self.answered().next().is_none() {
            let found = format!("min-replicas-to-write {set}, of how many is not known");
            let finding = Finding::ok("isolation", ISOLATION, found);
            return finding.warn("start or name sentinels: no other knows the replicas");
        }
        let lag = config.as_ref().ok().and_then(|config| config.number("min-replicas-max-lag"));
        let stops_within = lag.unwrap_or(USUAL_LAG_S).saturating_mul(1_000) + NOTICED_MS;
        let found = format!("min-replicas-to-write {set} of {known}");
        let finding = Finding::ok("isolation", ISOLATION, found);
        // With it a majority of the servers, and so of sentinels that stand beside them.
        let enough = known.div_ceil(2);
        match set {
            _ if set > known => finding.fail(format!(
                "set min-replicas-to-write {enough}: with fewer replicas it takes no writes"
            )),
            _ if info.as_ref().is_ok_and(|info| is_older(info, (7, 0))) => finding.warn(
                "use Redis 7.0 or newer: an older one stops no scripts, so a master that is cut \
                 off goes on, whatever min-replicas-to-write says",
            ),
            0 => finding.warn(format!(
                "set min-replicas-to-write {enough}: nothing stops a master that is cut off"
            )),
            _ if set < enough => finding.warn(format!(
                "set min-replicas-to-write {enough}: a master that is cut off together with {set} \
                 replicas goes on"
            )),
            _ if set == known => finding.warn(format!(
                "a failover brings nothing: the next master has a replica less, and takes no \
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

async fn told(probe: &Probe, service: &str) -> Result<SentinelReport, LockError> {
    let address = probe.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]).await?;
    let fields = probe.ask(&["SENTINEL", "MASTER", service]).await?;
    let seen = MasterView::parse(&address, &fields)
        .ok_or_else(|| crate::error::protocol("what came is no answer of a sentinel"))?;
    let down_after = field(&fields, "down-after-milliseconds").and_then(|told| told.parse().ok());
    let down_after = down_after.unwrap_or(0);
    let (listed, lacks) = (listed(probe, service).await, lacks(probe).await);
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

/// Tells whether a sentinel finds a server of this kind there: of one that is away it says more.
fn is_there(server: &Value, kind: &str) -> bool {
    field(server, "flags") == Some(kind)
}

fn place(server: &Value) -> Option<(String, u16)> {
    Some((field(server, "ip")?.to_owned(), field(server, "port")?.parse().ok()?))
}

/// Asks a sentinel what we may not do there.
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
mod tests {
    use holdline_core::{Certainty, Health};

    use super::*;

    fn told(sentinels: u64, quorum: u64, replicas: u64, well: u16) -> SentinelReport {
        let host = "h".to_owned();
        let seen =
            MasterView { host, port: 1, sentinels, quorum, replicas, ..MasterView::default() };
        let there = (0..well).map(|port| ("h".to_owned(), port)).collect();
        let (living, well) = (sentinels, u64::from(well));
        let listed = Ok(Listed { living, there, well });
        SentinelReport { seen, down_after: 5_000, listed, lacks: Ok(Vec::new()) }
    }

    fn group(sentinels: u64, quorum: u64, replicas: u64, well: u16, silent: usize) -> Sentinels {
        let one = || told(sentinels, quorum, replicas, well);
        let error = || crate::error::unavailable("away", Certainty::NotApplied);
        let each = (0..3).map(|at| if at < silent { Err(error()) } else { Ok(one()) });
        Sentinels { each: each.collect(), old_master: 12_000, quarantine: Duration::ZERO }
    }

    #[test]
    fn what_one_says_otherwise_is_told() {
        let changed = |change: fn(&mut SentinelReport)| {
            let mut group = group(3, 2, 2, 2, 0);
            group.each.last_mut().and_then(|one| one.as_mut().ok()).map(change).expect("one");
            group
        };
        let other = changed(|told| told.seen.port = 2).sentinels();
        assert_eq!(other.health(), Health::Warning, "{other:?}");
        for (expected, millis) in [
            (Health::Ok, 1_000),
            (Health::Ok, 60_000),
            (Health::Warning, 999),
            (Health::Warning, 60_001),
        ] {
            let mut group = group(3, 2, 2, 2, 0);
            let Some(Ok(told)) = group.each.first_mut() else { panic!("one") };
            told.down_after = millis;
            assert_eq!(group.down_after().health(), expected, "{millis}");
        }
        let lacking = changed(|told| told.lacks = Ok(vec![NEEDED[1]])).rights();
        assert_eq!(lacking.health(), Health::Warning, "{lacking:?}");
        assert!(lacking.found().contains("SUBSCRIBE"), "{lacking:?}");
        let no = || crate::error::unavailable("no", Certainty::NotApplied);
        let mut mute = group(3, 2, 2, 2, 0);
        mute.each[0] = Ok(SentinelReport { lacks: Err(no()), ..told(3, 2, 2, 2) });
        assert_eq!(mute.rights().health(), Health::Warning);
        let away = changed(|told| {
            told.listed.iter_mut().for_each(|listed| listed.there.truncate(1));
        });
        assert_eq!(away.replicas_there(), [("h".to_owned(), 0)]);
        // What one does not tell the others do.
        let unasked = |told: &mut SentinelReport| {
            told.listed = Err(crate::error::unavailable("no", Certainty::NotApplied));
        };
        let some = changed(unasked);
        assert_eq!(some.replicas_there().len(), 2);
        assert_eq!(some.replicas().health(), Health::Ok);
        let mut all = group(3, 2, 2, 2, 0);
        all.each.iter_mut().flatten().for_each(unasked);
        for group in [all, group(3, 2, 2, 2, 3)] {
            let config = Ok(Config::of(&[("min-replicas-to-write", "1")]));
            let isolation = group.isolation(&Ok(Info::parse("redis_version:7.0.15")), &config);
            assert_ne!(group.sentinels().health(), Health::Ok);
            assert_eq!(group.replicas().health(), Health::Warning);
            assert!(isolation.fix().is_none_or(|fix| !fix.contains("write 0")), "{isolation:?}");
        }
    }

    #[test]
    fn sentinels_and_replicas_are_judged() {
        for (expected, sentinels, quorum, silent) in [
            (Health::Ok, 3, 2, 0),
            (Health::Ok, 5, 3, 0),
            (Health::Warning, 3, 2, 1),
            (Health::Error, 3, 2, 3),
            (Health::Error, 3, 4, 0),
            (Health::Warning, 3, 1, 0),
            (Health::Warning, 2, 2, 0),
        ] {
            let found = group(sentinels, quorum, 2, 2, silent).sentinels();
            assert_eq!(found.health(), expected, "{found:?}");
        }
        for (expected, known, quorum, living) in [
            (Health::Ok, 3, 2, 3),
            (Health::Warning, 3, 2, 2),
            (Health::Error, 3, 2, 1),
            (Health::Warning, 5, 2, 3),
            (Health::Error, 5, 2, 2),
            (Health::Error, 5, 4, 3),
        ] {
            let mut group = group(known, quorum, 2, 2, 0);
            let listed = |told: &mut SentinelReport| {
                told.listed.iter_mut().for_each(|listed| listed.living = living);
            };
            group.each.iter_mut().flatten().for_each(listed);
            let found = group.sentinels();
            assert_eq!(found.health(), expected, "{found:?}");
        }
        for (expected, known, well) in [
            (Health::Ok, 2, 2),
            (Health::Warning, 2, 1),
            (Health::Error, 2, 0),
            (Health::Error, 0, 0),
        ] {
            let found = group(3, 2, known, well, 0).replicas();
            assert_eq!(found.health(), expected, "{found:?}");
        }
    }

    #[test]
    fn a_master_must_stop_when_it_is_cut_off() {
        let of = |known: u64, set: &str, lag: &str| {
            let config =
                Ok(Config::of(&[("min-replicas-to-write", set), ("min-replicas-max-lag", lag)]));
            group(3, 2, known, 2, 0).isolation(&Ok(Info::parse("redis_version:7.0.15")), &config)
        };
        for (expected, known, set, lag) in [
            (Health::Warning, 2, "0", "10"),
            (Health::Ok, 2, "1", "10"),
            (Health::Warning, 2, "1", "11"),
            (Health::Warning, 2, "2", "10"),
            (Health::Error, 2, "3", "10"),
            (Health::Warning, 4, "1", "10"),
            (Health::Ok, 4, "2", "10"),
            (Health::Ok, 4, "3", "10"),
            (Health::Warning, 1, "1", "10"),
        ] {
            assert_eq!(of(known, set, lag).health(), expected, "{set} of {known}, {lag} s");
        }
        let (good, old) = (Info::parse("redis_version:7.0.0"), Info::parse("redis_version:6.2.14"));
        let mute = Err(crate::error::unavailable("no", Certainty::NotApplied));
        assert_eq!(group(3, 2, 2, 2, 0).isolation(&Ok(good), &mute).health(), Health::Warning);
        // It would be well, if the server kept to it in scripts.
        let set = Config::of(&[("min-replicas-to-write", "1"), ("min-replicas-max-lag", "10")]);
        let found = group(3, 2, 2, 2, 0).isolation(&Ok(old), &Ok(set));
        assert_eq!(found.health(), Health::Warning, "{found:?}");
    }
}
