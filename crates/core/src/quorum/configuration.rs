//! Who belongs to a set of nodes.
//!
//! Every node keeps the same configuration, and gives a vote only to who names it. Nodes are told
//! apart by ids that they make themselves: a node that comes back without its memory has a new one,
//! and is a newcomer until the others have agreed to it.
//!
//! - G1: a configuration is one of its set, its epoch and its content; the stamp tells all three.
//! - G2: a slot is only ever given to a newer generation. So whatever two writers of the same epoch
//!   meant, what comes of both forgets neither change.
//!
//! Read next: [`super::node`], which keeps it, and [`super::membership`], which changes it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::lease_id::LeaseId;

/// The longest lease that a set may be made for.
pub const MAX_LEASE_CAP: Duration = Duration::from_secs(600);
/// The longest lease of a set, unless somebody says otherwise.
pub const DEFAULT_MAX_LEASE: Duration = Duration::from_secs(60);
/// The most nodes of a set.
pub const MOST_NODES: usize = 15;

/// What a node calls itself: 128 random bits, drawn anew each time that it has lost its memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u128);

/// What a set of nodes is called: made of the ids of its first nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(u128);

/// Tells one configuration from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Which set.
    pub set: SetId,
    /// Which of its configurations: each change counts one up.
    pub epoch: u64,
    /// A digest of the rest.
    pub digest: u64,
}

/// One place of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Who has it.
    pub id: NodeId,
    /// How often it went to somebody else.
    pub generation: u64,
    /// Where its node was last seen. A hint that tells which slot is free when a node came back
    /// without its memory; no part of what is agreed on.
    pub address: String,
}

/// Who belongs to a set, and for how long its locks may be leased.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Configuration {
    set: SetId,
    epoch: u64,
    max_lease: Duration,
    slots: Vec<Slot>,
}

impl NodeId {
    /// Makes an id of random bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> NodeId {
        NodeId(u128::from_be_bytes(bytes))
    }
}

impl SetId {
    /// Returns the first eight digits, for people.
    pub fn short(self) -> String {
        let mut text = self.to_string();
        text.truncate(8);
        text
    }
}

impl Configuration {
    /// Makes the first configuration of these nodes. Whoever makes one of the same nodes makes the
    /// same.
    pub fn founded(nodes: &[(NodeId, &str)], max_lease: Duration) -> Configuration {
        let slot = |(id, address): &(NodeId, &str)| Slot {
            id: *id,
            generation: 0,
            address: (*address).to_owned(),
        };
        let mut slots: Vec<Slot> = nodes.iter().map(slot).collect();
        slots.sort_unstable();
        let ids = slots.iter().flat_map(|slot| slot.id.0.to_be_bytes());
        let [high, low] = [0, 1].map(|salt| u128::from(digest(ids.clone().chain([salt]))));
        Configuration { set: SetId(high << 64 | low), epoch: 1, max_lease, slots }
    }

    /// Returns the same as a later configuration of a set, in place of proposals that could not be
    /// agreed on.
    #[must_use]
    pub fn after(self, set: SetId, epoch: u64) -> Configuration {
        Configuration { set, epoch: epoch + 1, ..self }
    }

    /// Returns what comes next: slots are given away, `(old, new, address)` each.
    #[must_use]
    pub fn successor(&self, replaced: &[(NodeId, NodeId, &str)]) -> Configuration {
        let mut next = self.clone();
        next.epoch += 1;
        for slot in &mut next.slots {
            let given = replaced.iter().find(|(old, ..)| *old == slot.id);
            if let Some((_, new, address)) = given {
                let generation = slot.generation + 1;
                *slot = Slot { id: *new, generation, address: (*address).to_owned() };
            }
        }
        next
    }

    /// Puts configurations of one set and one epoch together: of each slot the newest generation.
    /// `None` without any, or if they do not belong together.
    pub fn merged(mut parts: Vec<Configuration>) -> Option<Configuration> {
        let mut whole = parts.pop()?;
        for part in parts {
            let alike = part.slots.len() == whole.slots.len() && part.set == whole.set;
            if !alike || part.epoch != whole.epoch {
                return None;
            }
            whole.max_lease = whole.max_lease.max(part.max_lease);
            for (mine, other) in whole.slots.iter_mut().zip(part.slots) {
                if (other.generation, other.id) > (mine.generation, mine.id) {
                    *mine = other;
                }
            }
        }
        Some(whole)
    }

    /// Returns which set it is of.
    pub fn set(&self) -> SetId {
        self.set
    }

    /// Returns which configuration of the set it is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the longest lease.
    pub fn max_lease(&self) -> Duration {
        self.max_lease
    }

    /// Returns the slots, in an order that does not change.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Tells whether a node belongs to it.
    pub fn has(&self, id: NodeId) -> bool {
        self.slots.iter().any(|slot| slot.id == id)
    }

    /// Returns what tells it from all others.
    pub fn stamp(&self) -> Stamp {
        let max_lease = u64::try_from(self.max_lease.as_millis()).unwrap_or(u64::MAX);
        let slots = self.slots.iter().flat_map(|slot| {
            slot.id.0.to_be_bytes().into_iter().chain(slot.generation.to_be_bytes())
        });
        let digest = digest(max_lease.to_be_bytes().into_iter().chain(slots));
        Stamp { set: self.set, epoch: self.epoch, digest }
    }
}

/// FNV-1a, by 64 bits: tells contents apart that nobody chose on purpose to be alike.
fn digest(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

macro_rules! written_in_hex {
    ($type:ident) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:032x})", stringify!($type), self.0)
            }
        }

        impl FromStr for $type {
            type Err = NoConfiguration;

            fn from_str(text: &str) -> Result<$type, NoConfiguration> {
                let id: LeaseId = text.parse().map_err(|_| NoConfiguration)?;
                Ok($type(u128::from_be_bytes(*id.as_bytes())))
            }
        }
    };
}

written_in_hex!(NodeId);
written_in_hex!(SetId);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:016x}", self.set, self.epoch, self.digest)
    }
}

/// As nodes keep it: `1 SET EPOCH MAX_LEASE_MS ID/GENERATION@ADDRESS …`.
impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1 {} {} {}", self.set, self.epoch, self.max_lease.as_millis())?;
        let mut slots = self.slots.iter();
        slots.try_for_each(|slot| write!(f, " {}/{}@{}", slot.id, slot.generation, slot.address))
    }
}

/// The text is no configuration of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a configuration that this version knows")]
pub struct NoConfiguration;

impl FromStr for Configuration {
    type Err = NoConfiguration;

    fn from_str(text: &str) -> Result<Configuration, NoConfiguration> {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(NoConfiguration);
        if word()? != "1" {
            return Err(NoConfiguration);
        }
        let set = word()?.parse()?;
        let epoch = number(word()?)?;
        let max_lease = Duration::from_millis(number(word()?)?);
        let slots = words.map(slot).collect::<Result<Vec<Slot>, NoConfiguration>>()?;
        if slots.is_empty() || slots.len() > MOST_NODES || max_lease > MAX_LEASE_CAP {
            return Err(NoConfiguration);
        }
        Ok(Configuration { set, epoch, max_lease, slots })
    }
}

fn slot(text: &str) -> Result<Slot, NoConfiguration> {
    let (id, rest) = text.split_once('/').ok_or(NoConfiguration)?;
    let (generation, address) = rest.split_once('@').ok_or(NoConfiguration)?;
    let (id, generation) = (id.parse()?, number(generation)?);
    Ok(Slot { id, generation, address: address.to_owned() })
}

/// Reads a number that can still be counted up.
fn number(text: &str) -> Result<u64, NoConfiguration> {
    let number: u64 = text.parse().map_err(|_| NoConfiguration)?;
    if number > 1 << 53 { Err(NoConfiguration) } else { Ok(number) }
}
