//! The libraries, and the configuration of our side for each.

/// The runtime of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    Python,
    Node,
    Rust,
}

/// A library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) runtime: Runtime,
    pub(crate) template: &'static str,
    /// The list on which its waiters block.
    pub(crate) signal: Option<&'static str>,
}

const fn peer(name: &'static str, runtime: Runtime, template: &'static str) -> Peer {
    Peer { name, runtime, template, signal: None }
}

const PEERS: [Peer; 9] = [
    peer("redis-py", Runtime::Python, "{name}"),
    Peer {
        signal: Some("lock-signal:{name}"),
        ..peer("python-redis-lock", Runtime::Python, "lock:{name}")
    },
    peer("pottery", Runtime::Python, "redlock:{name}"),
    peer("redlock4", Runtime::Node, "{name}"),
    peer("redlock5", Runtime::Node, "{name}"),
    peer("redlock-universal", Runtime::Node, "{name}"),
    peer("redis-semaphore", Runtime::Node, "mutex:{name}"),
    peer("rslock", Runtime::Rust, "{name}"),
    peer("redlock", Runtime::Rust, "{name}"),
];

/// A library with our dialect, with tokens or without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) peer: Peer,
    pub(crate) fencing: bool,
}

/// Returns all of them, with their positions in the table.
pub(crate) fn rows() -> Vec<(usize, Row)> {
    let both = |peer| [true, false].map(|fencing| Row { peer, fencing });
    PEERS.into_iter().flat_map(both).enumerate().collect()
}

/// Returns those that lock over several servers.
pub(crate) fn over_several() -> Vec<(usize, Row)> {
    let several = ["pottery", "redlock4", "redlock5", "redlock-universal", "rslock"];
    let rows = rows().into_iter();
    rows.filter(|(_, row)| several.contains(&row.peer.name)).collect()
}

impl Row {
    pub(crate) fn title(&self, version: &str) -> String {
        let tokens = if self.fencing { "" } else { ", fencing=off" };
        format!("{} {version}{tokens}", self.peer.name)
    }

    /// Returns the parameters of our URL.
    pub(crate) fn parameters(&self) -> String {
        let Peer { template, signal, .. } = self.peer;
        let mut text = format!("dialect=plain&key_template={template}");
        if let Some(signal) = signal {
            text += &format!("&signal_template={signal}");
        }
        if !self.fencing {
            text += "&fencing=off";
        }
        text
    }

    /// Returns a name that only this row uses.
    pub(crate) fn name(&self, case: &str) -> String {
        let tokens = if self.fencing { "tokens" } else { "bare" };
        format!("{}/{tokens}/{case}", self.peer.name)
    }

    pub(crate) fn key(&self, name: &str) -> String {
        self.peer.template.replace("{name}", name)
    }
}
