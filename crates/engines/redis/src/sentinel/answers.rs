//! How the sentinels' views of the master are combined.
//!
//! - Invariant A1: the newest configuration wins: each failover has a larger epoch.
//! - Invariant A2: an older configuration is accepted only from a majority of the configured
//!   sentinels (they were set up again). A minority that is partitioned together with the old
//!   master would lead us back to it.

use holdline_core::LockError;

use crate::link::Value;

/// A sentinel's view of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MasterView {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Grows with each failover.
    pub(crate) epoch: u64,
    /// How many replicas it knows, also those that are down.
    pub(crate) replicas: u64,
    /// How many sentinels it knows, including itself.
    pub(crate) sentinels: u64,
    /// How many of them must consider the master down.
    pub(crate) quorum: u64,
}

impl MasterView {
    /// Reads the replies to `GET-MASTER-ADDR-BY-NAME` and `MASTER`.
    pub(crate) fn parse(address: &Value, fields: &Value) -> Option<MasterView> {
        let [host, port] = address.as_array()? else { return None };
        let (pairs, []) = fields.as_array()?.as_chunks::<2>() else { return None };
        let field = |name: &str| {
            let found = pairs.iter().find(|[key, _]| key.as_text() == Some(name));
            found.and_then(|[_, value]| u64::try_from(value.as_integer()?).ok())
        };
        Some(MasterView {
            host: host.as_text()?.to_owned(),
            port: u16::try_from(port.as_integer()?).ok()?,
            epoch: field("config-epoch")?,
            replicas: field("num-slaves")?,
            sentinels: field("num-other-sentinels")? + 1,
            quorum: field("quorum")?,
        })
    }

    /// Returns whether it is about the same server.
    pub(crate) fn is_at(&self, host: &str, port: u16) -> bool {
        self.host == host && self.port == port
    }
}

/// The result of querying one sentinel.
#[derive(Clone, Debug)]
pub(super) enum SentinelAnswer {
    View(MasterView),
    /// It monitors other services, by these names.
    OtherServices(Vec<String>),
    Failed(LockError),
}

/// Chooses among the views; `None` when none is acceptable.
pub(super) fn choose(
    answers: &[SentinelAnswer],
    queried: usize,
    known: Option<&MasterView>,
) -> Option<MasterView> {
    let view = || {
        answers.iter().filter_map(|answer| match answer {
            SentinelAnswer::View(view) => Some(view),
            _ => None,
        })
    };
    let best = view().max_by_key(|view| view.epoch)?;
    let agreeing = view().filter(|view| view.is_at(&best.host, best.port)).count();
    let older = known.is_some_and(|known| best.epoch < known.epoch);
    if older && 2 * agreeing <= queried {
        return None;
    }
    // Each sentinel discovers replicas and other sentinels by itself, some later than others.
    let most = |of: fn(&MasterView) -> u64| view().map(of).max().unwrap_or_default();
    let replicas = most(|view| view.replicas);
    let sentinels = most(|view| view.sentinels);
    Some(MasterView { replicas, sentinels, ..best.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view_of(port: u16, epoch: u64, replicas: u64) -> SentinelAnswer {
        let host = "h".to_owned();
        SentinelAnswer::View(MasterView { host, port, epoch, replicas, sentinels: 3, quorum: 2 })
    }

    fn chosen(answers: &[SentinelAnswer], known: Option<u64>) -> Option<(u16, u64)> {
        let known = known.map(|epoch| MasterView { epoch, ..MasterView::default() });
        choose(answers, 3, known.as_ref()).map(|view| (view.port, view.replicas))
    }

    #[test]
    fn the_newest_configuration_wins_and_none_returns_to_an_older_one() {
        for (answers, known, expected) in [
            (vec![], None, None),
            (vec![SentinelAnswer::OtherServices(vec![])], None, None),
            (vec![view_of(1, 0, 2)], None, Some((1, 2))),
            (vec![view_of(1, 0, 2), view_of(2, 1, 1), view_of(1, 0, 0)], None, Some((2, 2))),
            (vec![view_of(1, 4, 2)], Some(4), Some((1, 2))),
            (vec![view_of(1, 3, 2)], Some(4), None),
            (vec![view_of(1, 0, 2), view_of(1, 0, 2)], Some(4), Some((1, 2))),
            (vec![view_of(1, 0, 2), view_of(2, 0, 2)], Some(4), None),
        ] {
            assert_eq!(chosen(&answers, known), expected, "{answers:?} {known:?}");
        }
    }

    #[test]
    fn views_are_parsed_and_invalid_replies_are_not() {
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
        let view = MasterView::parse(&address, &list(&fields)).expect("good");
        assert!(view.is_at("::1", 7000));
        assert_eq!((view.epoch, view.replicas, view.sentinels, view.quorum), (4, 2, 3, 2));
        assert_eq!(MasterView::parse(&address, &list(&fields[..4])), None);
        assert_eq!(MasterView::parse(&address, &list(&fields[..9])), None);
        assert_eq!(MasterView::parse(&list(&["h", "70000"]), &list(&fields)), None);
        assert_eq!(MasterView::parse(&Value::Nil, &list(&fields)), None);
    }
}
