//! What a proxy saw, for tests that wait for it.

use super::{Fault, Traffic};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

/// How many events are kept, and how many bytes of frames.
const CAPACITY: usize = 65_536;
const BYTES: usize = 64 * 1024 * 1024;
/// How many are shown when a wait was in vain, and how many bytes of each.
const SHOWN: usize = 40;
const BYTES_SHOWN: usize = 100;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A client was joined with the server.
    Opened,
    /// A client was cut off because the server does not accept.
    Unreachable,
    /// A frame arrived; its event has its bytes and its fate.
    Frame(Traffic),
    /// The connection was reset, by the proxy or by an end.
    Reset,
    /// Both ends closed.
    Closed,
}

/// One thing that a proxy saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The connection's number; the first one is 1.
    pub connection: u64,
    /// What happened.
    pub what: What,
    /// What was done to the frame; none if it passed.
    pub fault: Option<Fault>,
    /// The frame.
    pub bytes: Vec<u8>,
}

impl Event {
    /// Whether this is a frame of that kind with these bytes in it.
    #[must_use]
    pub fn is_frame(&self, traffic: Traffic, containing: &str) -> bool {
        let part = containing.as_bytes();
        let holds = part.is_empty() || self.bytes.windows(part.len()).any(|w| w == part);
        self.what == What::Frame(traffic) && holds
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<Event>,
    /// Of all frames in `events`.
    bytes: usize,
    counts: HashMap<(u64, Traffic), u64>,
}

impl Log {
    pub(super) fn add(&mut self, event: Event) {
        if let What::Frame(traffic) = event.what {
            *self.counts.entry((event.connection, traffic)).or_default() += 1;
        }
        self.bytes += event.bytes.len();
        self.events.push_back(event);
        // The latest event stays, however large it is.
        while self.events.len() > CAPACITY || (self.bytes > BYTES && self.events.len() > 1) {
            let oldest = self.events.pop_front();
            self.bytes -= oldest.map_or(0, |event| event.bytes.len());
        }
    }

    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(super) fn seen(&self, traffic: Traffic) -> u64 {
        self.counts.iter().filter(|((_, kind), _)| *kind == traffic).map(|(_, count)| count).sum()
    }

    pub(super) fn seen_on(&self, connection: u64, traffic: Traffic) -> u64 {
        self.counts.get(&(connection, traffic)).copied().unwrap_or(0)
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.events.iter().cloned().collect()
    }

    pub(super) fn find(&self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        self.events.iter().find(|event| wanted(event)).cloned()
    }

    /// The latest events, a line each.
    pub(super) fn shown(&self) -> String {
        let mut text = String::new();
        for event in self.events.iter().skip(self.events.len().saturating_sub(SHOWN)) {
            let Event { connection, what, fault, bytes } = event;
            let bytes = &bytes[..bytes.len().min(BYTES_SHOWN)];
            let fate = fault.map(|fault| format!("{fault:?} ")).unwrap_or_default();
            let _ = writeln!(text, "  {connection}: {what:?} {fate}{}", bytes.escape_ascii());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize) -> Event {
        let what = What::Frame(Traffic::Requests);
        Event { connection: 1, what, fault: None, bytes: vec![b'x'; length] }
    }

    #[test]
    fn the_log_is_bounded_and_counts_go_on() {
        let mut log = Log::default();
        for _ in 0..CAPACITY + 10 {
            log.add(frame(0));
        }
        assert_eq!(log.events.len(), CAPACITY);
        log.add(frame(BYTES / 2));
        log.add(frame(BYTES / 2));
        log.add(frame(BYTES + 1));
        assert_eq!((log.events.len(), log.bytes), (1, BYTES + 1));
        assert_eq!(log.seen(Traffic::Requests), CAPACITY as u64 + 13);
        log.forget();
        assert_eq!((log.seen(Traffic::Requests), log.bytes), (0, 0));
    }
}
