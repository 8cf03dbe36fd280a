//! The table of slots: which master serves which.

use holdline_core::LockName;

use crate::keys::Layout;
use crate::link::{HostPort, Value};

/// How many slots a cluster has.
pub(crate) const SLOTS: usize = 16_384;
const UNASSIGNED: u16 = u16::MAX;

/// Returns the slot of a name's keys.
pub(crate) fn slot_of(name: &LockName) -> u16 {
    crc16(Layout::hash_tag(name).as_bytes()) % (SLOTS as u16)
}

/// Returns the slot of a key: that of its hash tag, if it has one.
pub(crate) fn key_slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let behind = &key[open + 1..];
        let length = behind.iter().position(|byte| *byte == b'}').filter(|length| *length > 0)?;
        Some(&behind[..length])
    });
    crc16(tag.unwrap_or(key)) % (SLOTS as u16)
}

/// The checksum of the slot algorithm: CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |mut sum, byte| {
        sum ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            let high = sum & 0x8000 != 0;
            sum <<= 1;
            if high {
                sum ^= 0x1021;
            }
        }
        sum
    })
}

/// A master and its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) master: HostPort,
    pub(crate) replicas: Vec<HostPort>,
}

/// Which master serves which slot, as one node reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotTable {
    shards: Vec<Shard>,
    owners: Vec<u16>,
    /// The node reports the state `ok`.
    pub(crate) is_ok: bool,
    /// The cluster's epoch: a larger one is newer.
    pub(crate) epoch: u64,
}

impl Default for SlotTable {
    fn default() -> SlotTable {
        SlotTable { shards: Vec::new(), owners: vec![UNASSIGNED; SLOTS], is_ok: false, epoch: 0 }
    }
}

impl SlotTable {
    /// Reads the replies to `CLUSTER SLOTS` from the node `source`, and to `CLUSTER INFO` if that
    /// is allowed; `None` when they are invalid.
    pub(crate) fn parse(
        slots: &Value,
        info: Option<&Value>,
        source: &HostPort,
    ) -> Option<SlotTable> {
        let mut table = SlotTable { is_ok: true, ..SlotTable::default() };
        for range in slots.as_array()? {
            let [first, last, master, replicas @ ..] = range.as_array()? else { return None };
            let slot = |value: &Value| usize::try_from(value.as_integer()?).ok();
            let first = slot(first)?;
            let last = slot(last)?;
            let master = host_port(master, source)?;
            let replicas = replicas.iter().filter_map(|one| host_port(one, source)).collect();
            let at = table.shard(Shard { master, replicas })?;
            table.owners.get_mut(first..=last)?.fill(at);
        }
        if let Some(info) = info.and_then(Value::as_text) {
            let field = |name: &str| {
                let mut lines = info.lines().filter_map(|line| line.trim_end().split_once(':'));
                lines.find(|(key, _)| *key == name).map(|(_, value)| value)
            };
            table.is_ok = field("cluster_state")? == "ok";
            table.epoch = field("cluster_current_epoch")?.parse().ok()?;
        }
        Some(table)
    }

    /// Returns the index of a shard, which is added if it is new.
    fn shard(&mut self, shard: Shard) -> Option<u16> {
        let known = self.shards.iter().position(|known| known.master == shard.master);
        let at = known.unwrap_or(self.shards.len());
        if known.is_none() {
            self.shards.push(shard);
        }
        u16::try_from(at).ok().filter(|at| *at < UNASSIGNED)
    }

    /// Returns the master of a slot, if one is known.
    pub(crate) fn owner(&self, slot: u16) -> Option<&HostPort> {
        let at = *self.owners.get(usize::from(slot))?;
        self.shards.get(usize::from(at)).map(|shard| &shard.master)
    }

    /// Returns all masters that serve slots, each with its replicas.
    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub(crate) fn masters(&self) -> impl Iterator<Item = &HostPort> {
        self.shards.iter().map(|shard| &shard.master)
    }

    /// Returns how many slots have a master.
    pub(crate) fn covered(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != UNASSIGNED).count()
    }

    /// Returns the table with one slot moved, as its former master has reported.
    pub(crate) fn with_moved(&self, slot: u16, to: HostPort) -> SlotTable {
        let mut table = self.clone();
        let at = table.shard(Shard { master: to, replicas: Vec::new() });
        if let (Some(at), Some(owner)) = (at, table.owners.get_mut(usize::from(slot))) {
            *owner = at;
        }
        table
    }
}

/// Reads a node of `CLUSTER SLOTS`. A node that does not know its own host has that of the source.
fn host_port(node: &Value, source: &HostPort) -> Option<HostPort> {
    let [host, port, ..] = node.as_array()? else { return None };
    let host = host.as_text().filter(|host| !matches!(*host, "" | "?"));
    let host = host.unwrap_or(&source.0).to_owned();
    Some((host, u16::try_from(port.as_integer()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
    }

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![text(host), Value::Integer(port), text("an id"), Value::Array(vec![])])
    }

    fn range(first: i64, last: i64, nodes: &[Value]) -> Value {
        let mut parts = vec![Value::Integer(first), Value::Integer(last)];
        parts.extend_from_slice(nodes);
        Value::Array(parts)
    }

    fn at(host: &str, port: u16) -> HostPort {
        (host.to_owned(), port)
    }

    #[test]
    fn slots_are_those_of_the_server() {
        // The replies of `CLUSTER KEYSLOT`.
        for (key, slot) in [("123456789", 12_739), ("foo", 12_182), ("a", 15_495)] {
            assert_eq!(slot_of(&LockName::new(key).expect("a good name")), slot, "{key}");
        }
        for (key, like) in [("x{foo}y{a}", "foo"), ("{}foo", "{}foo"), ("a{foo", "a{foo")] {
            assert_eq!(key_slot(key.as_bytes()), crc16(like.as_bytes()) % 16_384, "{key}");
        }
        let braces = LockName::new("{foo}x").expect("a good name");
        assert_ne!(slot_of(&braces), 12_182, "a name's own braces make no slot");
    }

    #[test]
    fn a_table_names_the_master_of_each_slot() {
        let slots = Value::Array(vec![
            range(0, 5, &[node("10.0.0.1", 1), node("10.0.0.2", 2)]),
            range(6, 16_383, &[node("", 3)]),
            range(3, 3, &[node("10.0.0.1", 1)]),
        ]);
        let info = text("cluster_state:ok\r\ncluster_current_epoch:7\r\n");
        let table = SlotTable::parse(&slots, Some(&info), &at("here", 9)).expect("a table");
        assert_eq!(table.owner(5), Some(&at("10.0.0.1", 1)));
        assert_eq!(table.owner(6), Some(&at("here", 3)), "it does not know its own host");
        assert_eq!(table.owner(16_384), None);
        assert_eq!((table.covered(), table.epoch, table.is_ok), (SLOTS, 7, true));
        assert_eq!(table.shards()[0].replicas, [at("10.0.0.2", 2)]);
        let moved = table.with_moved(6, at("10.0.0.2", 2));
        assert_eq!(moved.owner(6), Some(&at("10.0.0.2", 2)));
        assert_eq!(moved.owner(7), table.owner(7));
        assert_eq!(moved.masters().count(), 3);
    }

    #[test]
    fn an_invalid_table_is_rejected() {
        let source = at("here", 9);
        let invalid =
            |slots: &[Value]| SlotTable::parse(&Value::Array(slots.to_vec()), None, &source);
        assert_eq!(invalid(&[]).map(|table| table.covered()), Some(0));
        for bad in [
            Value::Nil,
            range(0, 16_384, &[node("a", 1)]),
            range(5, -1, &[node("a", 1)]),
            range(0, 1, &[]),
            range(0, 1, &[node("a", 70_000)]),
        ] {
            assert_eq!(invalid(&[bad]), None);
        }
        assert_eq!(SlotTable::parse(&Value::Nil, None, &source), None);
        let fails = text("cluster_state:fail\r\ncluster_current_epoch:1\r\n");
        let slots = Value::Array(vec![]);
        let table = SlotTable::parse(&slots, Some(&fails), &source).expect("a table");
        assert!(!table.is_ok);
        assert_eq!(SlotTable::parse(&slots, Some(&text("odd")), &source), None);
    }
}
