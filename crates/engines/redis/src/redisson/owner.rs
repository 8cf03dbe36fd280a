//! How a lease id is written as an owner of Redisson's: `uuid:id`.
//!
//! Redisson draws a UUID for each client and adds the number of the thread. An owner of ours has
//! all 128 bits of the lease id: a UUID of version 4 has 122 of them, and the id has the other six.
//! So the text determines the lease id, and any client that knows the lease id finds the owner.

use holdline_core::LeaseId;

/// The byte of a UUID whose upper four bits are the version.
const VERSION_AT: usize = 6;
/// The byte whose upper two bits are the variant.
const VARIANT_AT: usize = 8;
/// The lengths of the groups of a UUID, in digits.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// Writes a lease id as an owner.
pub(crate) fn owner_of(lease_id: LeaseId) -> String {
    let mut bytes = *lease_id.as_bytes();
    let id = 1 + (bytes[VERSION_AT] >> 4 << 2 | bytes[VARIANT_AT] >> 6);
    bytes[VERSION_AT] = bytes[VERSION_AT] & 0x0f | 0x40;
    bytes[VARIANT_AT] = bytes[VARIANT_AT] & 0x3f | 0x80;
    let digits = LeaseId::from_bytes(bytes).to_hex();
    let mut rest = digits.as_str();
    let groups = GROUPS.map(|length| {
        let (group, behind) = rest.split_at(length);
        rest = behind;
        group
    });
    format!("{}:{id}", groups.join("-"))
}

/// Reads the lease id of an owner of ours; `None` for text that [`owner_of`] would not write.
pub(crate) fn lease_of(owner: &str) -> Option<LeaseId> {
    let (uuid, id) = owner.split_once(':')?;
    let mut bytes = *uuid.replace('-', "").parse::<LeaseId>().ok()?.as_bytes();
    let id = id.parse::<u8>().ok()?.checked_sub(1).filter(|id| *id < 64)?;
    bytes[VERSION_AT] = bytes[VERSION_AT] & 0x0f | id >> 2 << 4;
    bytes[VARIANT_AT] = bytes[VARIANT_AT] & 0x3f | id << 6;
    let lease_id = LeaseId::from_bytes(bytes);
    (owner_of(lease_id) == owner).then_some(lease_id)
}

/// An owner of a Redisson client, in parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JavaOwner<'a> {
    /// The client's id.
    pub(crate) uuid: &'a str,
    /// The thread's id, or the one that the caller passed.
    pub(crate) thread: &'a str,
}

impl<'a> JavaOwner<'a> {
    /// Reads the field of a holder: behind the thread may be the id of a transaction, or `:write`.
    pub(crate) fn parse(field: &'a str) -> Option<JavaOwner<'a>> {
        let (uuid, rest) = field.split_once(':')?;
        let thread = rest.split(':').next()?;
        Some(JavaOwner { uuid, thread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_redissons_form_and_determines_the_lease_id() {
        for byte in 0..=255u8 {
            let bytes = std::array::from_fn(|at| byte.wrapping_mul(2 * at as u8 + 1));
            let lease_id = LeaseId::from_bytes(bytes);
            let owner = owner_of(lease_id);
            let (uuid, id) = owner.split_once(':').expect("two parts");
            assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"), "{owner}");
            assert!("89ab".contains(&uuid[19..20]), "{owner}");
            assert!((1..=64).contains(&id.parse::<i64>().expect("a number")), "{owner}");
            assert_eq!(lease_of(&owner), Some(lease_id), "{owner}");
            assert!(owner.starts_with(&lease_id.short().to_string()), "{owner}");
        }
    }

    #[test]
    fn other_owners_are_not_ours() {
        let owner = owner_of(LeaseId::from_bytes([0xab; 16]));
        let (uuid, _) = owner.split_once(':').expect("two parts");
        for bad in [
            uuid.to_owned(),
            format!("{uuid}:0"),
            format!("{uuid}:65"),
            format!("{uuid}:047"),
            format!("{uuid}:-1"),
            format!("{}:1", uuid.to_uppercase()),
            format!("{}:1", uuid.replace('-', "")),
            format!("{owner}:write"),
        ] {
            assert_eq!(lease_of(&bad), None, "{bad}");
        }
        let java = JavaOwner::parse("b983c153-7421-469a-addb-44fb92259a1b:-7:write");
        let uuid = "b983c153-7421-469a-addb-44fb92259a1b";
        assert_eq!(java, Some(JavaOwner { uuid, thread: "-7" }));
    }
}
