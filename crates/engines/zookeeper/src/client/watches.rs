//! One-shot watches: each fires once, by an event of the servers or by the end of a connection.
//!
//! - W1: a watch is registered when the reply to its request is handled. The servers send the event
//!   after that reply, so none is missed.
//! - W2: all watches fire when the connection breaks. Their owners read again, and so see what has
//!   changed meanwhile. No watch is set again by the client.
//! - W3: a watch that is dropped is forgotten. Its event is then ignored.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::messages::Event;

/// What a watch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watched {
    Data,
    Children,
}

type Key = (Watched, String);

/// The watches of one client.
#[derive(Default)]
pub(super) struct WatchTable(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    next: u64,
    watches: HashMap<Key, Vec<(u64, oneshot::Sender<Event>)>>,
}

/// A watch.
pub(crate) struct Watch {
    fired: oneshot::Receiver<Event>,
    table: Arc<WatchTable>,
    key: Key,
    number: u64,
}

impl Watch {
    /// Waits until the watch fires.
    pub(crate) async fn event(mut self) -> Event {
        // The sender is dropped only with the client's task.
        (&mut self.fired).await.unwrap_or(Event::Disconnected)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut registered = self.table.0.lock();
        if let Some(watches) = registered.watches.get_mut(&self.key) {
            watches.retain(|(number, _)| *number != self.number);
            if watches.is_empty() {
                registered.watches.remove(&self.key);
            }
        }
    }
}

impl WatchTable {
    /// Registers a watch (W1).
    pub(super) fn register(self: &Arc<Self>, watched: Watched, path: String) -> Watch {
        let (fire, fired) = oneshot::channel();
        let key = (watched, path);
        let mut registered = self.0.lock();
        let number = registered.next;
        registered.next += 1;
        registered.watches.entry(key.clone()).or_default().push((number, fire));
        Watch { fired, table: self.clone(), key, number }
    }

    /// Fires the watches that an event of the servers is for.
    pub(super) fn fire(&self, event: Event, path: &str) {
        let kinds: &[Watched] = match event {
            Event::Created | Event::DataChanged => &[Watched::Data],
            Event::ChildrenChanged => &[Watched::Children],
            Event::Deleted | Event::Disconnected => &[Watched::Data, Watched::Children],
        };
        for kind in kinds {
            let fired = self.0.lock().watches.remove(&(*kind, path.to_owned()));
            send_all(fired.unwrap_or_default(), event);
        }
    }

    /// Fires all watches, since their connection broke (W2).
    pub(super) fn fire_all(&self) {
        let fired = std::mem::take(&mut self.0.lock().watches);
        for watches in fired.into_values() {
            send_all(watches, Event::Disconnected);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().watches.len()
    }
}

fn send_all(watches: Vec<(u64, oneshot::Sender<Event>)>, event: Event) {
    for (_, fire) in watches {
        // Its owner may have dropped it just now.
        let _ = fire.send(event);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_watch_fires_once_for_its_events_and_a_dropped_one_leaves_nothing() {
        let table = Arc::new(WatchTable::default());
        let register = |watched| table.register(watched, "/a".to_owned());
        let data = register(Watched::Data);
        let children = register(Watched::Children);
        let dropped = register(Watched::Data);
        drop(dropped);
        table.fire(Event::ChildrenChanged, "/b");
        table.fire(Event::ChildrenChanged, "/a");
        assert_eq!(children.event().now_or_never(), Some(Event::ChildrenChanged));
        let mut data = Box::pin(data.event());
        assert_eq!(data.as_mut().now_or_never(), None);
        let again = register(Watched::Children);
        table.fire(Event::Deleted, "/a");
        assert_eq!(data.now_or_never(), Some(Event::Deleted));
        assert_eq!(again.event().now_or_never(), Some(Event::Deleted));
        assert_eq!(table.len(), 0);
        let last = register(Watched::Data);
        table.fire_all();
        assert_eq!(last.event().now_or_never(), Some(Event::Disconnected));
        drop(register(Watched::Data));
        assert_eq!(table.len(), 0);
    }
}
