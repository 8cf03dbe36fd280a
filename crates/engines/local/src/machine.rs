//! This machine: its boot, its clock, its time namespace.
//!
//! Deadlines use the monotonic clock, which all processes of one boot share. A time namespace may
//! shift it for some of them: such a process would measure leases by another clock, so it is
//! refused.

use std::time::Duration;

use holdline_core::Moment;
use rustix::time::{ClockId, clock_gettime};

use crate::error::Fault;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const OFFSETS: &str = "/proc/self/timens_offsets";

/// The id of a boot of the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BootId(pub(crate) [u8; 16]);

impl BootId {
    /// No boot: the value of a database before its first use.
    pub(crate) const NONE: BootId = BootId([0; 16]);

    fn parse(text: &str) -> Option<BootId> {
        let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
        if digits.len() != 32 {
            return None;
        }
        let number = u128::from_str_radix(&digits, 16).ok()?;
        Some(BootId(number.to_be_bytes()))
    }
}

impl std::fmt::Display for BootId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl std::fmt::Debug for BootId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BootId({self})")
    }
}

/// Reads the boot id, and refuses a time namespace that shifts the clock.
pub(crate) fn boot_id() -> Result<BootId, Fault> {
    // A kernel without time namespaces has no such file.
    let offsets = std::fs::read_to_string(OFFSETS).unwrap_or_default();
    if !offsets_are_zero(&offsets) {
        return Err(Fault::refused(
            "this process lives in a time namespace whose clock is shifted, so it would judge \
             leases by another clock than the rest of the machine: run it outside, or use a \
             server engine",
        ));
    }
    let text = std::fs::read_to_string(BOOT_ID)
        .map_err(|error| Fault::file(format_args!("reading {BOOT_ID}"), error))?;
    BootId::parse(&text)
        .ok_or_else(|| Fault::protocol(format!("{BOOT_ID} does not hold a boot id")))
}

/// Returns whether every line, such as `monotonic 0 0`, has offsets of zero.
fn offsets_are_zero(text: &str) -> bool {
    text.lines().all(|line| line.split_whitespace().skip(1).all(|offset| offset == "0"))
}

/// Reads the clock that all processes of this boot share.
pub(crate) fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    // The monotonic clock starts at zero with the boot, so neither part is ever negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Moment::ORIGIN.after(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_boot_ids_are_parsed() {
        let text = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\n";
        let id = BootId::parse(text).expect("a boot id");
        assert_eq!(id.to_string(), "0f1e2d3c4b5a69788796a5b4c3d2e1f0");
        for bad in ["", "0f1e", "zz1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", &"0".repeat(33)] {
            assert_eq!(BootId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_shifted_clock_is_detected() {
        assert!(offsets_are_zero(""));
        assert!(offsets_are_zero(
            "monotonic           0         0\nboottime            0         0\n"
        ));
        assert!(!offsets_are_zero("monotonic 0 0\nboottime -86400 0\n"));
        assert!(!offsets_are_zero("monotonic 0 1\n"));
    }

    #[test]
    fn the_clock_moves_forward() {
        let first = now();
        let second = now();
        assert!(first > Moment::ORIGIN && first <= second);
    }
}
