//! Whom to believe, when sentinels are asked who the master is.
//!
//! - Invariant A1: the newest configuration wins: each failover has a larger epoch.
//! - Invariant A2: nobody goes back to an older one, unless a majority of the sentinels that we
//!   were told of says so (they were set up anew). A minority that is cut off with the old master
//!   would lead us to it.

use holdline_core::LockError;

use crate::node::Value;

/// What a sentinel says about a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Grows with each failover.
    pub(crate) epoch: u64,
    /// How many replicas it knows, also those that are away.
    pub(crate) replicas: u64,
    /// How many sentinels it knows, itself too.
    pub(crate) sentinels: u64,
    /// How many of them must find the master dead.
    pub(crate) quorum: u64,
}

impl Seen {
    /// Reads the answers to `GET-MASTER-ADDR-BY-NAME` and `MASTER`.
    pub(crate) fn read(address: &Value, fields: &Value) -> Option<Seen> {
        let [host, port] = address.as_array()? else { return None };
        let (pairs, []) = fields.as_array()?.as_chunks::<2>() else { return None };
        let field = |name: &str| {
            let found = pairs.iter().find(|[key, _]| key.as_text() == Some(name));
            found.and_then(|[_, value]| u64::try_from(value.as_integer()?).ok())
        };
        Some(Seen {
            host: host.as_text()?.to_owned(),
            port: u16::try_from(port.as_integer()?).ok()?,
            epoch: field("config-epoch")?,
            replicas: field("num-slaves")?,
            sentinels: field("num-other-sentinels")? + 1,
            quorum: field("quorum")?,
        })
    }

    /// Tells whether it is about the same server.
    pub(crate) fn is_at(&self, host: &str, port: u16) -> bool {
        self.host == host && self.port == port
    }
}

/// What came of asking one sentinel.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Knows(Seen),
    /// It watches others, by these names.
    KnowsOthers(Vec<String>),
    Failed(LockError),
}

/// Chooses among the answers; `None` when none is to be believed.
pub(super) fn choose(answers: &[Answer], asked: usize, known: Option<&Seen>) -> Option<Seen> {
    let seen = || {
        answers.iter().filter_map(|answer| match answer {
            Answer::Knows(seen) => Some(seen),
            _ => None,
        })
    };
    let best = seen().max_by_key(|seen| seen.epoch)?;
    let agreeing = seen().filter(|seen| seen.is_at(&best.host, best.port)).count();
    let older = known.is_some_and(|known| best.epoch < known.epoch);
    if older && 2 * agreeing <= asked {
        return None;
    }
    // Each sentinel finds replicas and others by itself, and some later than others.
    let most = |of: fn(&Seen) -> u64| seen().map(of).max().unwrap_or_default();
    let (replicas, sentinels) = (most(|seen| seen.replicas), most(|seen| seen.sentinels));
    Some(Seen { replicas, sentinels, ..best.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(port: u16, epoch: u64, replicas: u64) -> Answer {
        let host = "h".to_owned();
        Answer::Knows(Seen { host, port, epoch, replicas, sentinels: 3, quorum: 2 })
    }

    fn chosen(answers: &[Answer], known: Option<u64>) -> Option<(u16, u64)> {
        let known = known.map(|epoch| Seen { epoch, ..Seen::default() });
        choose(answers, 3, known.as_ref()).map(|seen| (seen.port, seen.replicas))
    }

    #[test]
    fn the_newest_configuration_wins_and_nobody_goes_back() {
        for (answers, known, expected) in [
            (vec![], None, None),
            (vec![Answer::KnowsOthers(vec![])], None, None),
            (vec![says(1, 0, 2)], None, Some((1, 2))),
            (vec![says(1, 0, 2), says(2, 1, 1), says(1, 0, 0)], None, Some((2, 2))),
            (vec![says(1, 4, 2)], Some(4), Some((1, 2))),
            (vec![says(1, 3, 2)], Some(4), None),
            (vec![says(1, 0, 2), says(1, 0, 2)], Some(4), Some((1, 2))),
            (vec![says(1, 0, 2), says(2, 0, 2)], Some(4), None),
        ] {
            assert_eq!(chosen(&answers, known), expected, "{answers:?} {known:?}");
        }
    }

    #[test]
    fn answers_are_read_and_rubbish_is_not() {
        let text = |text: &&str| Value::Bytes(text.as_bytes().to_vec());
        let list = |parts: &[&str]| Value::Array(parts.iter().map(text).collect());
        let address = list(&["::1", "7000"]);
        let fields = [
            "name",
            "x",
            "config-epoch",
            "4",
            "num-slaves",
            "2",
            "num-other-sentinels",
            "2",
            "quorum",
            "2",
        ];
        let seen = Seen::read(&address, &list(&fields)).expect("good");
        assert!(seen.is_at("::1", 7000));
        assert_eq!((seen.epoch, seen.replicas, seen.sentinels, seen.quorum), (4, 2, 3, 2));
        assert_eq!(Seen::read(&address, &list(&fields[..4])), None);
        assert_eq!(Seen::read(&address, &list(&fields[..9])), None);
        assert_eq!(Seen::read(&list(&["h", "70000"]), &list(&fields)), None);
        assert_eq!(Seen::read(&Value::Nil, &list(&fields)), None);
    }
}
