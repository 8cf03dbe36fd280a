//! What `doctor` looks at above a server: its sentinels, and the replicas that they know.

use std::sync::Arc;

use holdline_core::{Clock, Finding, LockError};

use super::Probe;
use super::info::Config;
use crate::node::{Node, Value};
use crate::options::RedisOptions;
use crate::sentinel::Seen;

const SENTINELS: &str = "they agree on a failover and tell where the master is: a majority of them \
                         must be there for it";
const REPLICAS: &str = "one of them takes over when the master is lost";
const ISOLATION: &str = "a master that is cut off must stop, or some clients hold there what \
                         others hold with the new one";

/// What the sentinels say, each by itself.
pub(super) struct Group {
    each: Vec<Result<Told, LockError>>,
}

/// What one of them says.
struct Told {
    seen: Seen,
    /// How many of the replicas that it knows are well.
    well: u64,
}

impl Group {
    /// Asks all sentinels that the options name; `None` where they name none.
    pub(super) async fn ask(
        options: &RedisOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Group>, LockError> {
        let Some(group) = options.group() else { return Ok(None) };
        let mut each = Vec::new();
        for sentinel in options.sentinels() {
            let node = Node::new(&sentinel, clock.clone())?;
            let probe = Probe { node, limit: options.command_timeout() };
            each.push(told(&probe, group.service()).await);
        }
        Ok(Some(Group { each }))
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        vec![self.sentinels(), self.replicas()]
    }

    fn answered(&self) -> impl Iterator<Item = &Told> {
        self.each.iter().flatten()
    }

    fn most(&self, of: impl Fn(&Told) -> u64) -> u64 {
        self.answered().map(of).max().unwrap_or(0)
    }

    fn sentinels(&self) -> Finding {
        let (named, answer) = (self.each.len(), self.answered().count());
        let known = self.most(|told| told.seen.sentinels);
        let quorum = self.most(|told| told.seen.quorum);
        let found = format!("{answer} of {named} answer, {known} are known, quorum {quorum}");
        let finding = Finding::ok("sentinels", SENTINELS, found);
        let silent = self.each.iter().find_map(|one| one.as_ref().err());
        match silent {
            Some(error) if answer == 0 => finding.fail(format!("start or name sentinels: {error}")),
            _ if quorum > known => {
                finding.fail("set the quorum to a majority: so many sentinels there are not")
            }
            _ if known < 3 => finding.warn("run three sentinels: of these none may be lost"),
            _ if 2 * quorum <= known => {
                finding.warn("set the quorum to a majority: so few may be wrong about the master")
            }
            Some(error) => finding.warn(format!("see to the one that does not answer: {error}")),
            None => finding,
        }
    }

    fn replicas(&self) -> Finding {
        let known = self.most(|told| told.seen.replicas);
        let well = self.most(|told| told.well);
        let finding =
            Finding::ok("replicas", REPLICAS, format!("{known}, of which {well} are well"));
        match (known, well) {
            (_, 0) => finding.fail("give the master a replica: without one nothing takes over"),
            _ if well < known => finding.warn(
                "see to those that are away, or have the sentinels forget them (SENTINEL RESET): \
                 with `replicas=all` nothing is granted while they are missed",
            ),
            _ => finding,
        }
    }

    /// Whether a master that is cut off stops.
    pub(super) fn isolation(&self, config: &Result<Config, LockError>) -> Finding {
        let known = self.most(|told| told.seen.replicas);
        let set = match config {
            Ok(config) => config.number("min-replicas-to-write").unwrap_or(0),
            Err(error) => {
                let finding = Finding::ok("isolation", ISOLATION, format!("not told: {error}"));
                return finding.warn("allow CONFIG GET to this user");
            }
        };
        let finding = Finding::ok("isolation", ISOLATION, format!("min-replicas-to-write {set}"));
        match set {
            0 => finding.warn(format!(
                "set min-replicas-to-write {known}: nothing stops a master that is cut off"
            )),
            set if set < known => finding.warn(format!(
                "set min-replicas-to-write {known}: a master that is cut off together with {set} \
                 replicas goes on"
            )),
            set if set > known => finding.fail(format!(
                "set min-replicas-to-write {known}: with fewer replicas it takes no writes"
            )),
            _ => finding,
        }
    }
}

async fn told(probe: &Probe, service: &str) -> Result<Told, LockError> {
    let address = probe.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]).await?;
    let fields = probe.ask(&["SENTINEL", "MASTER", service]).await?;
    let replicas = probe.ask(&["SENTINEL", "REPLICAS", service]).await?;
    let seen = Seen::read(&address, &fields)
        .ok_or_else(|| crate::error::protocol("what came is no answer of a sentinel"))?;
    let is_well = |replica: &&Value| {
        let (pairs, _) = replica.as_array().unwrap_or_default().as_chunks::<2>();
        let flags = pairs.iter().find(|[key, _]| key.as_text() == Some("flags"));
        flags.is_some_and(|[_, flags]| flags.as_text() == Some("slave"))
    };
    let well = replicas.as_array().unwrap_or_default().iter().filter(is_well).count();
    Ok(Told { seen, well: well as u64 })
}

#[cfg(test)]
mod tests {
    use holdline_core::{Certainty, Health};

    use super::*;

    fn group(sentinels: u64, quorum: u64, replicas: u64, well: u64, silent: usize) -> Group {
        let one = || Told { seen: Seen { sentinels, quorum, replicas, ..Seen::default() }, well };
        let error = || crate::error::unavailable("away", Certainty::NotApplied);
        let each = (0..3).map(|at| if at < silent { Err(error()) } else { Ok(one()) });
        Group { each: each.collect() }
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
        for (expected, set) in [
            (Health::Warning, "0"),
            (Health::Warning, "1"),
            (Health::Ok, "2"),
            (Health::Error, "3"),
        ] {
            let config = Ok(Config::of(&[("min-replicas-to-write", set)]));
            assert_eq!(group(3, 2, 2, 2, 0).isolation(&config).health(), expected, "{set}");
        }
        let mute = Err(crate::error::unavailable("no", Certainty::NotApplied));
        assert_eq!(group(3, 2, 2, 2, 0).isolation(&mute).health(), Health::Warning);
    }
}
