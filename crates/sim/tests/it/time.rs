//! Time on a fake server: its own clock decides, and it can be wrong.

use std::sync::Arc;
use std::time::Duration;

use holdline::clock::ManualClock;
use holdline_sim::{ConnectionId, FakeRedis, RedisOptions, Reply};

pub(crate) struct TestServer {
    pub(crate) clock: ManualClock,
    pub(crate) server: FakeRedis,
    pub(crate) id: ConnectionId,
}

impl TestServer {
    pub(crate) fn new() -> TestServer {
        TestServer::with(RedisOptions::default())
    }

    pub(crate) fn with(options: RedisOptions) -> TestServer {
        let clock = ManualClock::new();
        let mut server = FakeRedis::new(Arc::new(clock.clone()), options);
        let id = server.connect().expect("it is up");
        TestServer { clock, server, id }
    }

    /// Runs a command and shows its first reply as RESP3 bytes.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        let id = self.id;
        self.ask_on(id, line)
    }

    pub(crate) fn ask_on(&mut self, id: ConnectionId, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let replies = self.server.execute(id, &words);
        replies.first().map_or(String::new(), resp3_text)
    }
}

pub(crate) fn resp3_text(reply: &Reply) -> String {
    let bytes = reply.to_bytes(holdline_sim::Protocol::Resp3);
    String::from_utf8_lossy(&bytes).trim_end().replace("\r\n", " ")
}

const fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

#[test]
fn a_key_exists_through_its_last_millisecond() {
    let mut server = TestServer::new();
    assert_eq!(server.ask("set k v px 100"), "+OK");
    server.clock.advance(ms(100));
    assert_eq!(server.ask("pttl k"), ":0");
    assert_eq!(server.ask("exists k"), ":1");
    server.clock.advance(ms(1));
    assert_eq!(server.ask("pttl k"), ":-2");
    assert_eq!(server.ask("set k w nx"), "+OK");
    assert_eq!(server.server.key_count(0), 1);
}

#[test]
fn expiry_follows_the_servers_clock_and_not_the_worlds() {
    let mut server = TestServer::new();
    server.ask("set k v px 10000");
    server.server.clock().step_back(Duration::from_secs(3600));
    assert_eq!(server.ask("pttl k"), ":3610000");
    server.server.clock().step_forward(Duration::from_secs(3605));
    assert_eq!(server.ask("pttl k"), ":5000");
    server.server.clock().set_skew_ppm(1_000_000);
    server.clock.advance(ms(2000));
    assert_eq!(server.ask("pttl k"), ":1000");
    server.clock.advance(ms(501));
    assert_eq!(server.ask("exists k"), ":0");
}

#[test]
fn a_script_sees_one_time() {
    let mut server = TestServer::new();
    server.ask("set k v px 1");
    let script = b"local a = redis.call('time') for i = 1, 10000 do end \
        local b = redis.call('time') return {a[1] == b[1], a[2] == b[2], redis.call('get', 'k')}";
    let id = server.id;
    let reply = server.server.execute(id, &[b"eval", script, b"0"]).remove(0);
    assert_eq!(resp3_text(&reply), "*3 :1 :1 $1 v");
}
