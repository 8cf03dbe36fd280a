//! The membership of a set of nodes.
//!
//! Every node keeps the same configuration, and votes only for a request that names it. A node
//! draws its own id. A node that comes back without its data draws a new id, and counts as a new
//! node until the others have agreed to it.
//!
//! - G1: a configuration is identified by its set, its epoch and its content; the stamp has all
//!   three.
//! - G2: a slot says since which epoch its node has it. The node and that epoch together are one
//!   *tenure* of the slot: a node that is given a slot a second time has a second tenure. When two
//!   clients write different configurations of one epoch, the merge takes the latest tenure of each
//!   slot, so it keeps both changes. If they give one node two slots, there is no merge: one of the
//!   slots would return to its former node, and a majority of the merge could miss one that had won
//!   with the new node.
//! - G3: the quarantine is long enough for every lease that may be held from before. A set is
//!   founded with that of the longest lease that any set may have, because its servers may have
//!   been in use before. It is that of the set's own longest lease once a majority votes.
//!
//! Read next: [`super::node`], which keeps it, and [`super::membership`], which changes it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::lease_id::LeaseId;
use crate::moment::whole_millis;

/// The upper limit for the longest lease of a set.
pub const MAX_LEASE_CAP: Duration = Duration::from_secs(600);
/// A quarantine is longer than the lease by one part in so many. So it outlasts the lease also if a
/// client measures it with a clock that is too fast by the largest drift that may be set, 20 %:
/// 1.25 / 1.2 is more than 1.
const QUARANTINE_MARGIN: u32 = 4;
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
    /// The epoch in which the node was given the slot.
    pub since: u64,
    /// Where the node was when it was given the slot, as the client that gave it names the server.
    /// For people: two clients may see different servers under one address. It is no part of the
    /// agreement.
    pub address: String,
}

/// The members of a set, and its longest lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Configuration {
    set: SetId,
    epoch: u64,
    max_lease: Duration,
    quarantine: Duration,
    slots: Vec<MemberSlot>,
}

/// Returns how long a node gives no vote after it may have lost the record of a lease of this
/// length, by the clock of any client.
pub fn quarantine_of(longest_lease: Duration) -> Duration {
    longest_lease + longest_lease / QUARANTINE_MARGIN
}

impl NodeId {
    /// Makes an id from random bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> NodeId {
        NodeId(u128::from_be_bytes(bytes))
    }
}

impl Configuration {
    /// Makes the initial configuration of these nodes. It depends on the nodes and the longest
    /// lease alone, so all clients make the same.
    pub fn initial(nodes: &[(NodeId, &str)], max_lease: Duration) -> Configuration {
        let slot = |(id, address): &(NodeId, &str)| MemberSlot {
            id: *id,
            since: 1,
            address: (*address).to_owned(),
        };
        let mut slots: Vec<MemberSlot> = nodes.iter().map(slot).collect();
        slots.sort_unstable();
        let ids = slots.iter().flat_map(|slot| slot.id.0.to_be_bytes());
        let [high, low] = [0, 1].map(|salt| u128::from(digest(ids.clone().chain([salt]))));
        Configuration {
            set: SetId(high << 64 | low),
            epoch: 1,
            max_lease,
            quarantine: quarantine_of(MAX_LEASE_CAP),
            slots,
        }
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
                let address = (*address).to_owned();
                *slot = MemberSlot { id: *new, since: next.epoch, address };
            }
        }
        next
    }

    /// Returns this configuration with the quarantine of a set in use: no lease of an earlier set
    /// on these servers is held any more (G3).
    #[must_use]
    pub fn founded(self) -> Configuration {
        Configuration { quarantine: quarantine_of(self.max_lease), ..self }
    }

    /// Returns whether leases of an earlier set may still be held on these servers (G3).
    pub fn is_new(&self) -> bool {
        self.quarantine > quarantine_of(self.max_lease)
    }

    /// Merges configurations of one set and one epoch: takes the latest tenure of each slot.
    /// Returns `None` for an empty list, if sets, epochs or sizes differ, and if they give one node
    /// two slots (G2).
    pub fn merged(mut parts: Vec<Configuration>) -> Option<Configuration> {
        let mut whole = parts.pop()?;
        for part in parts {
            let alike = part.slots.len() == whole.slots.len() && part.set == whole.set;
            if !alike || part.epoch != whole.epoch {
                return None;
            }
            whole.max_lease = whole.max_lease.max(part.max_lease);
            whole.quarantine = whole.quarantine.max(part.quarantine);
            for (at, other) in part.slots.into_iter().enumerate() {
                let mine = &whole.slots[at];
                if (other.since, other.id) > (mine.since, mine.id) {
                    whole.slots[at] = other;
                }
            }
        }
        let ids: BTreeSet<NodeId> = whole.slots.iter().map(|slot| slot.id).collect();
        (ids.len() == whole.slots.len()).then_some(whole)
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

    /// Returns how long a node gives no vote that may have lost its data.
    pub fn quarantine(&self) -> Duration {
        self.quarantine
    }

    /// Returns the slots, in an order that does not change.
    pub fn slots(&self) -> &[MemberSlot] {
        &self.slots
    }

    /// Returns whether a node is a member.
    pub fn has(&self, id: NodeId) -> bool {
        self.slots.iter().any(|slot| slot.id == id)
    }

    /// Returns since which epoch a node is a member: together with the id, its tenure.
    pub fn member_since(&self, id: NodeId) -> Option<u64> {
        self.slots.iter().find(|slot| slot.id == id).map(|slot| slot.since)
    }

    /// Returns the stamp that identifies this configuration.
    pub fn stamp(&self) -> Stamp {
        let times = [whole_millis(self.max_lease), whole_millis(self.quarantine)];
        let times = times.into_iter().flat_map(u64::to_be_bytes);
        let slots = self
            .slots
            .iter()
            .flat_map(|slot| slot.id.0.to_be_bytes().into_iter().chain(slot.since.to_be_bytes()));
        Stamp { set: self.set, epoch: self.epoch, digest: digest(times.chain(slots)) }
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
        impl $type {
            /// Returns the first eight digits, for people.
            pub fn short(self) -> String {
                let mut text = self.to_string();
                text.truncate(8);
                text
            }
        }

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

/// The form in which nodes keep it: `2 SET EPOCH MAX_LEASE_MS QUARANTINE_MS ID/SINCE@ADDRESS …`.
impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Configuration { set, epoch, max_lease, quarantine, slots } = self;
        write!(f, "2 {set} {epoch} {} {}", max_lease.as_millis(), quarantine.as_millis())?;
        let mut slots = slots.iter();
        slots.try_for_each(|slot| write!(f, " {}/{}@{}", slot.id, slot.since, slot.address))
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
        if word()? != "2" {
            return Err(ParseConfigurationError);
        }
        let set = word()?.parse()?;
        let epoch = number(word()?)?;
        let max_lease = Duration::from_millis(number(word()?)?);
        let quarantine = Duration::from_millis(number(word()?)?);
        let slots =
            words.map(slot).collect::<Result<Vec<MemberSlot>, ParseConfigurationError>>()?;
        let is_within = max_lease <= MAX_LEASE_CAP && quarantine <= quarantine_of(MAX_LEASE_CAP);
        if slots.is_empty() || slots.len() > MAX_NODES || !is_within {
            return Err(ParseConfigurationError);
        }
        Ok(Configuration { set, epoch, max_lease, quarantine, slots })
    }
}

fn slot(text: &str) -> Result<MemberSlot, ParseConfigurationError> {
    let (id, rest) = text.split_once('/').ok_or(ParseConfigurationError)?;
    let (since, address) = rest.split_once('@').ok_or(ParseConfigurationError)?;
    Ok(MemberSlot { id: id.parse()?, since: number(since)?, address: address.to_owned() })
}

/// Reads a number that can still be incremented.
fn number(text: &str) -> Result<u64, ParseConfigurationError> {
    let number: u64 = text.parse().map_err(|_| ParseConfigurationError)?;
    if number > 1 << 53 { Err(ParseConfigurationError) } else { Ok(number) }
}
