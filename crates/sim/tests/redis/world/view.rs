//! What the server has under each name, as an operator with redis-cli would see it.

use holdline_sim::{ConnectionId, FakeRedis, Reply};

/// One holder or waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// 32 hex digits.
    pub(crate) id: String,
    /// `g` granted, `r` revoked, `f` a freeze, `q` queued.
    pub(crate) state: u8,
    pub(crate) client: String,
    pub(crate) inbox: String,
    pub(crate) token: u64,
    /// When it ends by time, in ms of the server's clock; for a waiter, its last heartbeat.
    pub(crate) at_ms: i64,
}

impl Record {
    fn read(bytes: &[u8]) -> Option<Record> {
        let text = std::str::from_utf8(bytes.get(..104)?).ok()?;
        Some(Record {
            id: text[..32].to_owned(),
            state: bytes[32],
            client: text[35..51].to_owned(),
            inbox: text[51..67].to_owned(),
            token: text[67..83].trim().parse().unwrap_or(0),
            at_ms: 0,
        })
    }

    pub(crate) fn short(&self) -> &str {
        &self.id[..8]
    }
}

/// All that is kept of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameView {
    pub(crate) holders: Vec<Record>,
    /// In the order of the line.
    pub(crate) queue: Vec<Record>,
}

impl NameView {
    pub(crate) fn holder(&self, id: &str) -> Option<&Record> {
        self.holders.iter().find(|record| record.id == id)
    }

    pub(crate) fn waiter(&self, id: &str) -> Option<&Record> {
        self.queue.iter().find(|record| record.id == id)
    }
}

fn bulk(reply: &Reply) -> Option<&[u8]> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

fn bulks(reply: &Reply) -> Vec<Vec<u8>> {
    match reply {
        Reply::Array(all) | Reply::Set(all) => {
            all.iter().filter_map(|one| bulk(one).map(<[u8]>::to_vec)).collect()
        }
        _ => Vec::new(),
    }
}

/// Asks as an operator.
pub(crate) struct Operator {
    pub(crate) id: ConnectionId,
}

impl Operator {
    pub(crate) fn ask(&self, server: &mut FakeRedis, words: &[&[u8]]) -> Reply {
        let mut replies = server.execute(self.id, words);
        if replies.is_empty() { Reply::Null } else { replies.remove(0) }
    }

    fn score(&self, server: &mut FakeRedis, key: &[u8], member: &[u8]) -> i64 {
        let reply = self.ask(server, &[b"ZSCORE", key, member]);
        if let Reply::Double(score) = reply {
            return score as i64;
        }
        let text = bulk(&reply).and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.and_then(|text| text.parse::<f64>().ok()).map_or(0, |score| score as i64)
    }

    /// Looks at a name.
    pub(crate) fn observe(&self, server: &mut FakeRedis, name: &str) -> NameView {
        let lock = format!("holdline:{{{name}}}");
        let (line, data) = (format!("{lock}:1q"), format!("{lock}:1d"));
        let (lock, line, data) = (lock.as_bytes(), line.as_bytes(), data.as_bytes());
        let now_ms = server.clock().now_us().div_euclid(1_000);
        let mut view = NameView::default();
        let value = self.ask(server, &[b"GET", lock]);
        if let Some(mut record) = bulk(&value).and_then(Record::read) {
            let Reply::Integer(left) = self.ask(server, &[b"PTTL", lock]) else { return view };
            record.at_ms = now_ms + left;
            view.holders.push(record);
        } else if matches!(value, Reply::Error(_)) {
            for id in bulks(&self.ask(server, &[b"ZRANGE", lock, b"0", b"-1"])) {
                let kept = self.ask(server, &[b"HGET", data, &id]);
                let Some(mut record) = bulk(&kept).and_then(Record::read) else { continue };
                record.at_ms = self.score(server, lock, &id);
                view.holders.push(record);
            }
        }
        for place in bulks(&self.ask(server, &[b"ZRANGE", line, b"0", b"-1"])) {
            let Some(id) = place.strip_prefix(b"p") else { continue };
            let kept = self.ask(server, &[b"HGET", data, id]);
            let Some(mut record) = bulk(&kept).and_then(Record::read) else { continue };
            record.at_ms = self.score(server, line, &[b"t", id].concat()).div_euclid(1_000);
            view.queue.push(record);
        }
        view
    }

    /// Returns whether an inbox has a subscriber.
    pub(crate) fn has_subscriber(&self, server: &mut FakeRedis, inbox: &str) -> bool {
        let channel = format!("holdline:inbox:{inbox}");
        match self.ask(server, &[b"PUBSUB", b"NUMSUB", channel.as_bytes()]) {
            Reply::Array(all) => all.last() == Some(&Reply::Integer(1)),
            Reply::Pairs(all) | Reply::Map(all) => {
                all.last().is_some_and(|(_, count)| *count == Reply::Integer(1))
            }
            _ => false,
        }
    }
}
