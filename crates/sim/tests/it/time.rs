//! Time on a fake server: its own clock decides, and it can be wrong.

use std::sync::Arc;
use std::time::Duration;

use holdline::ManualClock;
use holdline_sim::{ConnectionId, FakeRedis, RedisOptions, Reply};

pub(crate) struct Bench {
    pub(crate) clock: ManualClock,
    pub(crate) server: FakeRedis,
    pub(crate) id: ConnectionId,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(RedisOptions::default())
    }

    pub(crate) fn with(options: RedisOptions) -> Bench {
        let clock = ManualClock::new();
        let mut server = FakeRedis::new(Arc::new(clock.clone()), options);
        let id = server.connect().expect("it is up");
        Bench { clock, server, id }
    }

    /// Runs a command and shows its first reply as RESP3 bytes.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        let id = self.id;
        self.ask_on(id, line)
    }

    pub(crate) fn ask_on(&mut self, id: ConnectionId, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let replies = self.server.execute(id, &words);
        replies.first().map_or(String::new(), shown)
    }
}

pub(crate) fn shown(reply: &Reply) -> String {
    let bytes = reply.to_bytes(holdline_sim::Protocol::Resp3);
    String::from_utf8_lossy(&bytes).trim_end().replace("\r\n", " ")
}

const fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

#[test]
fn a_key_is_there_through_its_last_millisecond() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask("set k v px 100"), "+OK");
    bench.clock.advance(ms(100));
    assert_eq!(bench.ask("pttl k"), ":0");
    assert_eq!(bench.ask("exists k"), ":1");
    bench.clock.advance(ms(1));
    assert_eq!(bench.ask("pttl k"), ":-2");
    assert_eq!(bench.ask("set k w nx"), "+OK");
    assert_eq!(bench.server.key_count(0), 1);
}

#[test]
fn an_end_follows_the_servers_clock_and_not_the_worlds() {
    let mut bench = Bench::new();
    bench.ask("set k v px 10000");
    bench.server.clock().step_back(Duration::from_secs(3600));
    assert_eq!(bench.ask("pttl k"), ":3610000");
    bench.server.clock().step_forward(Duration::from_secs(3605));
    assert_eq!(bench.ask("pttl k"), ":5000");
    bench.server.clock().set_skew_ppm(1_000_000);
    bench.clock.advance(ms(2000));
    assert_eq!(bench.ask("pttl k"), ":1000");
    bench.clock.advance(ms(501));
    assert_eq!(bench.ask("exists k"), ":0");
}

#[test]
fn a_script_sees_one_time() {
    let mut bench = Bench::new();
    bench.ask("set k v px 1");
    let script = b"local a = redis.call('time') for i = 1, 10000 do end \
        local b = redis.call('time') return {a[1] == b[1], a[2] == b[2], redis.call('get', 'k')}";
    let id = bench.id;
    let reply = bench.server.execute(id, &[b"eval", script, b"0"]).remove(0);
    assert_eq!(shown(&reply), "*3 :1 :1 $1 v");
}

#[test]
fn a_watched_key_that_ends_breaks_the_transaction() {
    let mut bench = Bench::new();
    bench.ask("set k v px 100");
    assert_eq!(bench.ask("watch k"), "+OK");
    bench.clock.advance(ms(101));
    assert_eq!(bench.ask("multi"), "+OK");
    assert_eq!(bench.ask("set k w"), "+QUEUED");
    assert_eq!(bench.ask("exec"), "_");
    assert_eq!(bench.ask("exists k"), ":0");
}
