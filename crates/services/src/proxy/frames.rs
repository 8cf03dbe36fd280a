//! What a fault does, and which frames it hits.

use std::time::Duration;

/// The three kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// A command on its way to the server.
    Requests,
    /// The answer to a command.
    Replies,
    /// What the server sends unasked: messages, and the confirmations of (un)subscribing.
    Pushes,
}

/// What is done to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Arrives so much later; what comes behind it waits.
    Delay(Duration),
    /// Never arrives; the connection stays.
    Swallow,
    /// Never arrives, and the connection is reset on both sides.
    SwallowThenReset,
    /// Waits, with all that is behind it, until the proxy is thawed.
    Hold,
    /// Arrives byte by byte with a pause after each.
    Dribble(Duration),
}

/// Describes which frames a fault hits.
///
/// All of a kind, unless it is narrowed. A reply is matched by the request that it answers.
#[derive(Debug, Clone)]
pub struct Frames {
    traffic: Traffic,
    containing: Vec<u8>,
    connection: Option<u64>,
    spared: u64,
    times: u64,
}

impl Frames {
    fn of(traffic: Traffic) -> Self {
        Self { traffic, containing: Vec::new(), connection: None, spared: 0, times: u64::MAX }
    }

    /// Commands on their way to the server.
    #[must_use]
    pub fn requests() -> Self {
        Self::of(Traffic::Requests)
    }

    /// Answers to commands.
    #[must_use]
    pub fn replies() -> Self {
        Self::of(Traffic::Replies)
    }

    /// What the server sends unasked.
    #[must_use]
    pub fn pushes() -> Self {
        Self::of(Traffic::Pushes)
    }

    /// Only requests with these bytes, replies to such requests, and pushes with these bytes.
    #[must_use]
    pub fn containing(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.containing = bytes.as_ref().to_vec();
        self
    }

    /// Only on one connection, by its number in the log: the first one is 1.
    #[must_use]
    pub fn on_connection(mut self, number: u64) -> Self {
        self.connection = Some(number);
        self
    }

    /// Spares the first `count` of those that fit, counted from now.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.spared = count;
        self
    }

    /// Only `count` of those that fit.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.times = count;
        self
    }

    /// Only the k-th of those that fit, counted from 1.
    ///
    /// # Panics
    /// There is no zeroth frame.
    #[must_use]
    pub fn nth(self, k: u64) -> Self {
        let before = k.checked_sub(1).expect("frames are counted from 1");
        self.after(before).times(1)
    }

    fn fits(&self, connection: u64, seen: &Seen<'_>) -> bool {
        let matched = if self.traffic == Traffic::Replies { seen.request } else { seen.bytes };
        self.traffic == seen.traffic
            && self.connection.is_none_or(|number| number == connection)
            && holds(matched, &self.containing)
    }
}

/// Whether `part` stands in `whole`; nothing stands in everything.
fn holds(whole: &[u8], part: &[u8]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

/// A frame as rules see it.
pub(super) struct Seen<'a> {
    pub(super) traffic: Traffic,
    pub(super) bytes: &'a [u8],
    /// For a reply, the request that it answers.
    pub(super) request: &'a [u8],
}

/// A fault with what it still has to hit.
#[derive(Debug)]
pub(super) struct Rule {
    frames: Frames,
    fault: Fault,
}

impl Rule {
    pub(super) fn new(frames: Frames, fault: Fault) -> Self {
        Self { frames, fault }
    }

    pub(super) fn holds(&self) -> bool {
        self.fault == Fault::Hold
    }

    /// Counts a frame if it fits, and says what to do to it.
    pub(super) fn applies(&mut self, connection: u64, seen: &Seen<'_>) -> Option<Fault> {
        if !self.frames.fits(connection, seen) {
            return None;
        }
        if self.frames.spared > 0 {
            self.frames.spared -= 1;
            return None;
        }
        self.frames.times = self.frames.times.checked_sub(1)?;
        Some(self.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(frames: Frames, seen: &[(u64, Traffic, &str, &str)]) -> Vec<bool> {
        let mut rule = Rule::new(frames, Fault::Swallow);
        let hit = seen.iter().map(|(connection, traffic, bytes, request)| {
            let bytes = bytes.as_bytes();
            let request = request.as_bytes();
            rule.applies(*connection, &Seen { traffic: *traffic, bytes, request }).is_some()
        });
        hit.collect()
    }

    #[test]
    fn only_what_fits_is_hit_and_counted() {
        use Traffic::{Pushes, Replies, Requests};
        let seen = [
            (1, Requests, "SET a", ""),
            (1, Replies, "OK", "SET a"),
            (2, Requests, "GET a", ""),
            (1, Requests, "SET b", ""),
            (2, Replies, "a", "GET a"),
            (1, Pushes, "SET b", ""),
        ];
        let set = || Frames::requests().containing("SET");
        assert_eq!(hits(Frames::requests(), &seen), [true, false, true, true, false, false]);
        assert_eq!(hits(set(), &seen), [true, false, false, true, false, false]);
        assert_eq!(hits(set().nth(2), &seen), [false, false, false, true, false, false]);
        assert_eq!(hits(set().times(1), &seen), [true, false, false, false, false, false]);
        let second = Frames::requests().on_connection(2);
        assert_eq!(hits(second, &seen), [false, false, true, false, false, false]);
        let answer = Frames::replies().containing("GET");
        assert_eq!(hits(answer, &seen), [false, false, false, false, true, false]);
        let push = Frames::pushes().containing("b");
        assert_eq!(hits(push, &seen), [false, false, false, false, false, true]);
    }
}
