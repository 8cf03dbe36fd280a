//! The membership of a set of nodes.
//!
//! Every node keeps the same configuration, and votes only for a request that names it. A node
//! draws its own id. A node that comes back without its data draws a new id, and counts as a new
//! node until the others have agreed to it.
//!
//! - G1: a configuration is identified by its set, its epoch and its content; the stamp has all
//!   three.
//! - G2: a slot is only ever given to a newer generation. So when two clients write different
//!   configurations of one epoch, the merge keeps both changes.
//!
//! Read next: [`super::node`], which keeps it, and [`super::membership`], which changes it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::lease_id::LeaseId;

/// The upper limit for the longest lease of a set.
pub const MAX_LEASE_CAP: Duration = Duration::from_secs(600);
/// The longest lease of a set, unless configured.
pub const DEFAULT_MAX_LEASE: Duration = Duration::from_secs(60);
/// The largest number of nodes in a set.
pub const MAX_NODES: usize = 15;

/// The id of a node: 128 random bits, drawn anew each time that it has lost its data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u128);

/// The id of a set: a digest of the ids of its first nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(u128);

/// Identifies one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The set.
    pub set: SetId,
    /// The epoch: each change of the membership increments it.
    pub epoch: u64,
    /// A digest of the content.
    pub digest: u64,
}

/// The position of one member in a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberSlot {
    /// The node that has the slot.
    pub id: NodeId,
    /// How often the slot was given to another node.
    pub generation: u64,
    /// Where the node was last seen. A hint: it finds the slot of a node that came back without its
    /// data. It is no part of the agreement.
    pub address: String,
}

/// The members of a set, and its longest lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Configuration {
    set: SetId,
    epoch: u64,
    max_lease: Duration,
    slots: Vec<MemberSlot>,
}

impl NodeId {
    /// Makes an id from random bytes.
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
    /// Makes the initial configuration of these nodes. It depends on the nodes alone, so all
    /// clients make the same.
    pub fn initial(nodes: &[(NodeId, &str)], max_lease: Duration) -> Configuration {
        let slot = |(id, address): &(NodeId, &str)| MemberSlot {
            id: *id,
            generation: 0,
            address: (*address).to_owned(),
        };
        let mut slots: Vec<MemberSlot> = nodes.iter().map(slot).collect();
        slots.sort_unstable();
        let ids = slots.iter().flat_map(|slot| slot.id.0.to_be_bytes());
        let [high, low] = [0, 1].map(|salt| u128::from(digest(ids.clone().chain([salt]))));
        Configuration { set: SetId(high << 64 | low), epoch: 1, max_lease, slots }
    }

    /// Returns this configuration with a later epoch of a set, in place of proposals that were not
    /// agreed on.
    #[must_use]
    pub fn after(self, set: SetId, epoch: u64) -> Configuration {
        Configuration { set, epoch: epoch + 1, ..self }
    }

    /// Returns the next configuration, with slots given to other nodes: `(old, new, address)` each.
    #[must_use]
    pub fn successor(&self, replaced: &[(NodeId, NodeId, &str)]) -> Configuration {
        let mut next = self.clone();
        next.epoch += 1;
        for slot in &mut next.slots {
            let given = replaced.iter().find(|(old, ..)| *old == slot.id);
            if let Some((_, new, address)) = given {
                let generation = slot.generation + 1;
                *slot = MemberSlot { id: *new, generation, address: (*address).to_owned() };
            }
        }
        next
    }

    /// Merges configurations of one set and one epoch: takes the newest generation of each slot.
    /// Returns `None` for an empty list, and if sets, epochs or sizes differ.
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

    /// Returns the set.
    pub fn set(&self) -> SetId {
        self.set
    }

    /// Returns the epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the longest lease.
    pub fn max_lease(&self) -> Duration {
        self.max_lease
    }

    /// Returns the slots, in an order that does not change.
    pub fn slots(&self) -> &[MemberSlot] {
        &self.slots
    }

    /// Returns whether a node is a member.
    pub fn has(&self, id: NodeId) -> bool {
        self.slots.iter().any(|slot| slot.id == id)
    }

    /// Returns the stamp that identifies this configuration.
    pub fn stamp(&self) -> Stamp {
        let max_lease = u64::try_from(self.max_lease.as_millis()).unwrap_or(u64::MAX);
        let slots = self.slots.iter().flat_map(|slot| {
            slot.id.0.to_be_bytes().into_iter().chain(slot.generation.to_be_bytes())
        });
        let digest = digest(max_lease.to_be_bytes().into_iter().chain(slots));
        Stamp { set: self.set, epoch: self.epoch, digest }
    }
}

/// FNV-1a with 64 bits: not resistant to contents that were chosen to collide.
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
            type Err = ParseConfigurationError;

            fn from_str(text: &str) -> Result<$type, ParseConfigurationError> {
                let id: LeaseId = text.parse().map_err(|_| ParseConfigurationError)?;
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

/// The form in which nodes keep it: `1 SET EPOCH MAX_LEASE_MS ID/GENERATION@ADDRESS …`.
impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1 {} {} {}", self.set, self.epoch, self.max_lease.as_millis())?;
        let mut slots = self.slots.iter();
        slots.try_for_each(|slot| write!(f, " {}/{}@{}", slot.id, slot.generation, slot.address))
    }
}

/// The text is not a configuration of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a configuration that this version knows")]
pub struct ParseConfigurationError;

impl FromStr for Configuration {
    type Err = ParseConfigurationError;

    fn from_str(text: &str) -> Result<Configuration, ParseConfigurationError> {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(ParseConfigurationError);
        if word()? != "1" {
            return Err(ParseConfigurationError);
        }
        let set = word()?.parse()?;
        let epoch = number(word()?)?;
        let max_lease = Duration::from_millis(number(word()?)?);
        let slots =
            words.map(slot).collect::<Result<Vec<MemberSlot>, ParseConfigurationError>>()?;
        if slots.is_empty() || slots.len() > MAX_NODES || max_lease > MAX_LEASE_CAP {
            return Err(ParseConfigurationError);
        }
        Ok(Configuration { set, epoch, max_lease, slots })
    }
}

fn slot(text: &str) -> Result<MemberSlot, ParseConfigurationError> {
    let (id, rest) = text.split_once('/').ok_or(ParseConfigurationError)?;
    let (generation, address) = rest.split_once('@').ok_or(ParseConfigurationError)?;
    let (id, generation) = (id.parse()?, number(generation)?);
    Ok(MemberSlot { id, generation, address: address.to_owned() })
}

/// Reads a number that can still be incremented.
fn number(text: &str) -> Result<u64, ParseConfigurationError> {
    let number: u64 = text.parse().map_err(|_| ParseConfigurationError)?;
    if number > 1 << 53 { Err(ParseConfigurationError) } else { Ok(number) }
}
