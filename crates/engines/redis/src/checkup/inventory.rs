//! Counts the keys under our names, by a bounded `SCAN`.

use std::time::Duration;

use holdline_core::lease::MAX_LEASE;
use holdline_core::{FencingToken, Finding, LockError};

use super::Probe;
use super::shared_keys::{self, EndBy};
use crate::keys::Layout;
use crate::options::{Dialect, RedisOptions};

const KEYS: &str = "a key without an expiry is never freed, and a key that is not ours blocks \
                    its name";
/// How many `SCAN`s one checkup sends: it must not slow a large server down.
const MAX_STEPS: usize = 50;
const STEP: &str = "1000";
/// How many of our keys are inspected.
const MAX_OURS: usize = 500;
/// By how much keys outlast their lease.
const MARGIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default, PartialEq, Eq)]
struct Inventory {
    seen: usize,
    endless: usize,
    too_long: usize,
    foreign: usize,
    /// There are more keys than were inspected.
    more: bool,
}

/// Inspects the keys that match the template.
pub(super) async fn finding(probe: &Probe, options: &RedisOptions) -> Finding {
    match options.dialect() {
        Dialect::Native => {}
        Dialect::Plain | Dialect::Redisson => {
            return shared_keys::finding(probe, options, EndBy::Revoke).await;
        }
    }
    let layout = Layout::of(options);
    let looked =
        async { Ok::<_, LockError>((counts(probe, &layout).await?, take(probe, &layout).await?)) };
    match looked.await {
        Ok((true, inventory)) => judge(&inventory),
        Ok((false, _)) => {
            let found = "the counter of fencing tokens has an invalid value";
            Finding::ok("keys", KEYS, found).fail(
                "no lock can be taken: find out who wrote to the counter, DEL it, and then run \
                 `holdline fence bump` if its tokens were ahead of the server's clock",
            )
        }
        Err(error) => Finding::ok("keys", KEYS, format!("is not permitted: {error}"))
            .warn("allow SCAN, TYPE and PTTL to this user, or use another user"),
    }
}

/// Returns whether the next token can be drawn from the counter, or there is none yet.
async fn counts(probe: &Probe, layout: &Layout) -> Result<bool, LockError> {
    if layout.has_counters() {
        // An invalid counter blocks its own name only, and is reported there.
        return Ok(true);
    }
    let ask = |command: &str| vec![command.as_bytes().to_vec(), layout.counter()];
    match probe.ask_bytes(ask("TYPE")).await?.as_text() {
        Some("none") => Ok(true),
        Some("string") => {
            let last = probe.ask_bytes(ask("GET")).await?;
            let last = last.as_text().and_then(|last| last.parse::<u64>().ok());
            Ok(last.is_some_and(|last| last < FencingToken::MAX.get()))
        }
        _ => Ok(false),
    }
}

async fn take(probe: &Probe, layout: &Layout) -> Result<Inventory, LockError> {
    let mut inventory = Inventory::default();
    let mut cursor = b"0".to_vec();
    let pattern = layout.names_beginning("");
    for _ in 0..MAX_STEPS {
        let words = [b"SCAN", &cursor[..], b"MATCH", &pattern, b"COUNT", STEP.as_bytes()];
        let page = probe.ask_bytes(words.iter().map(|word| word.to_vec()).collect()).await?;
        let Some([next, keys]) = page.as_array() else { break };
        for key in keys.as_array().unwrap_or_default() {
            if inventory.seen == MAX_OURS {
                inventory.more = true;
                return Ok(inventory);
            }
            if let Some(key) = key.as_bytes() {
                look(probe, layout, key, &mut inventory).await?;
            }
        }
        cursor = next.as_bytes().unwrap_or(b"0").to_vec();
        if cursor == b"0" {
            return Ok(inventory);
        }
    }
    inventory.more = true;
    Ok(inventory)
}

async fn look(
    probe: &Probe,
    layout: &Layout,
    key: &[u8],
    inventory: &mut Inventory,
) -> Result<(), LockError> {
    inventory.seen += 1;
    let ask = |command: &str| vec![command.as_bytes().to_vec(), key.to_vec()];
    if layout.is_latch(key) {
        // It lasts until it is counted down. `latch:` is what its value begins with.
        let is_ours = match probe.ask_bytes(ask("TYPE")).await?.as_text() {
            Some("string") => {
                let range = ["0", "5"].map(|place| place.as_bytes().to_vec());
                let words = ask("GETRANGE").into_iter().chain(range).collect();
                probe.ask_bytes(words).await?.as_bytes() == Some(b"latch:")
            }
            Some("none") => true,
            _ => false,
        };
        inventory.foreign += usize::from(!is_ours);
        return Ok(());
    }
    let left = probe.ask_bytes(ask("PTTL")).await?.as_integer().unwrap_or(-2);
    inventory.endless += usize::from(left == -1);
    let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
    inventory.too_long += usize::from(left > MAX_LEASE + MARGIN);
    let Some(name) = layout.name_of(key) else { return Ok(()) };
    if layout.keys_of(&name).lock != key {
        return Ok(());
    }
    let kind = probe.ask_bytes(ask("TYPE")).await?;
    let is_ours = match kind.as_text() {
        // A record of ours begins with a lease id in hex and has its fields at fixed places.
        Some("string") => {
            let range = ["104", "104"].map(|place| place.as_bytes().to_vec());
            let words = ask("GETRANGE").into_iter().chain(range).collect();
            probe.ask_bytes(words).await?.as_bytes().is_some_and(|byte| !byte.is_empty())
        }
        Some("zset" | "none") => true,
        _ => false,
    };
    inventory.foreign += usize::from(!is_ours);
    Ok(())
}

fn judge(inventory: &Inventory) -> Finding {
    let Inventory { seen, endless, too_long, foreign, more } = inventory;
    let more = if *more { ", and more that were not looked at" } else { "" };
    let found = format!(
        "{seen} keys{more}: {endless} without an end, {too_long} that end after more than a day, \
         {foreign} not ours"
    );
    let finding = Finding::ok("keys", KEYS, found);
    match (endless + too_long, *foreign) {
        (0, 0) => finding,
        (0, _) => finding.warn(
            "find out who else uses these keys, or choose another key_template; locks of other \
             libraries are kept out by ours, and we by theirs",
        ),
        _ => finding.warn("nothing of ours lasts that long: find out who made it, then DEL it"),
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn unexpected_keys_are_reported() {
        let well = || Inventory { seen: 3, more: true, ..Inventory::default() };
        assert_eq!(judge(&well()).health(), Health::Ok);
        assert!(judge(&well()).found().contains("and more"));
        for ill in [
            Inventory { endless: 1, ..well() },
            Inventory { too_long: 1, ..well() },
            Inventory { foreign: 1, ..well() },
        ] {
            assert_eq!(judge(&ill).health(), Health::Warning, "{ill:?}");
        }
    }
}
