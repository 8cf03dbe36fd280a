//! Random commands: mostly sensible, sometimes of the wrong type, count or case.

use crate::scripts::SCRIPTS;

/// Numbers that look random, and are the same for the same seed.
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> SeededRng {
        SeededRng(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() % limit as u64).unwrap_or(0)
    }

    fn pick<'a>(&mut self, among: &[&'a str]) -> &'a str {
        among[self.below(among.len())]
    }
}

/// Words in capitals are drawn: K key, V value, I number, N score, M member, F field, G pattern,
/// B bound of scores, L bound of bytes, T far time, O old time, C channel, S script, R duration.
pub(crate) const STRINGS: &[&str] = &[
    "set K V",
    "set K V nx",
    "set K V xx get",
    "set K V px R",
    "set K V ex 1000",
    "set K V pxat T",
    "set K V exat 99999999999 nx get",
    "set K V keepttl",
    "set K V keepttl px 1000000",
    "set K V nx xx",
    "set K V get nx",
    "set K V foo",
    "get K",
    "getset K V",
    "setrange K I V",
    "getrange K I I",
    "incr K",
    "mget K K K",
];

pub(crate) const KEYS: &[&str] = &[
    "del K K",
    "exists K K K",
    "type K",
    "dbsize",
    "flushall foo",
    "keys G",
    "scan 0 count 1000",
    "scan 0 count 1000 match G",
    "scan 0 type hash count 1000",
    "scan x",
    "scan 0 count 0",
    "scan 0 foo",
    "pexpire K 9223372036854775807",
    "pttl none",
];

pub(crate) const HASHES: &[&str] = &[
    "hset K F V",
    "hset K F V F V",
    "hset K F",
    "hsetnx K F V",
    "hget K F",
    "hmget K F F F",
    "hgetall K",
    "hdel K F F",
    "hlen K",
];

pub(crate) const LISTS: &[&str] = &["lpush K V V", "llen K", "lrange K I I", "lrange K 0 -1"];

pub(crate) const SORTED_SETS: &[&str] = &[
    "zadd K N M",
    "zadd K N M N M N M",
    "zadd K N",
    "zrem K M M",
    "zcard K",
    "zscore K M",
    "zrank K M",
    "zcount K B B",
    "zrange K I I",
    "zrange K 0 -1 withscores",
    "zrange K 0 1 limit 0 1",
    "zrange K 0 1 foo",
    "zrangebyscore K B B",
    "zrangebyscore K -inf +inf withscores limit 1 2",
];

pub(crate) const CONNECTION: &[&str] = &[
    "ping",
    "ping V",
    "ping a b",
    "echo V",
    "select 0",
    "select 99",
    "select x",
    "client getname",
    "client setname abc",
    "client foo",
    "client",
    "client setinfo lib-name x",
    "client pause x",
    "client reply foo",
    "client no-evict foo",
    "config get maxmemory-policy",
    "config get foo",
    "config get",
    "config set foo bar",
    "config foo",
    "hello 4",
    "hello x",
    "hello 2 foo",
    "auth x",
    "auth default x",
    "auth foo x",
    "nosuch V V",
    "wait x 0",
    "set K V pxat O",
    "wait 0 0",
    "role",
    "acl whoami",
    "script exists abc",
    "script load return",
    "script foo",
    "pubsub numsub C",
    "pubsub channels",
    "subscribe",
    "publish C V",
    "evalsha abc 0",
    "evalsha abc 5",
];

pub(crate) const SUBSCRIBED: &[&str] = &[
    "subscribe C",
    "subscribe C C",
    "ssubscribe C",
    "unsubscribe C",
    "publish C V",
    "publish C V",
    "spublish C V",
    "ping",
    "ping V",
    "get K",
    "pubsub numsub C C",
    "pubsub shardnumsub C",
];

pub(crate) const SCRIPTED: &[&str] = &[
    "eval S 1 K V I",
    "eval S 2 K K V I F",
    "eval S 1 K M N",
    "eval_ro S 1 K V",
    "eval S -1",
    "eval S 9 K",
    "eval S x",
];

/// Draws commands from the templates.
pub(crate) struct Generator<'a> {
    pub(crate) rng: SeededRng,
    pub(crate) families: &'a [&'a [&'a str]],
}

impl Generator<'_> {
    pub(crate) fn command(&mut self) -> Vec<Vec<u8>> {
        let family = self.families[self.rng.below(self.families.len())];
        let template = self.rng.pick(family);
        let mut args: Vec<Vec<u8>> =
            template.split(' ').map(|word| self.word(word).as_bytes().to_vec()).collect();
        match self.rng.below(40) {
            0 => {
                args.pop();
            }
            1 => args.push(b"extra".to_vec()),
            2 => args[0].make_ascii_uppercase(),
            _ => {}
        }
        if args.is_empty() {
            args.push(b"ping".to_vec());
        }
        // The number of a connection differs.
        if args.len() <= 2 && args[0].eq_ignore_ascii_case(b"hello") {
            args = vec![args[0].clone(), b"9".to_vec()];
        }
        // Leaving everything is confirmed in the order of a hash.
        if args.len() == 1 && args[0].ends_with(b"unsubscribe") {
            args.push(b"ch1".to_vec());
        }
        args
    }

    fn word<'b>(&mut self, word: &'b str) -> &'b str {
        const NUMBERS: &[&str] = &[
            "0",
            "1",
            "2",
            "-1",
            "-2",
            "3",
            "100",
            "-100",
            "1.5",
            "abc",
            "",
            "+1",
            "01",
            "-0",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
        ];
        const VALUES: &[&str] =
            &["", "0", "1", "-1", "10", "abc", "a b", "\r\n", "3.5", "x*", "9223372036854775807"];
        const SCORES: &[&str] =
            &["0", "1", "-1.5", "2", "2", "0.1", "1e3", "inf", "-inf", "nan", "abc", "3.25"];
        const BOUNDS: &[&str] = &["-inf", "+inf", "0", "(1", "2", "(0.1", "-1.5", "x", "(", "100"];
        const DURATIONS: &[&str] = &["1000000", "0", "-1", "abc", "1.5", "", "9223372036854775807"];
        match word {
            "K" => self.rng.pick(&["k1", "k2", "k3", "k4", "k5"]),
            "V" => self.rng.pick(VALUES),
            "I" => self.rng.pick(NUMBERS),
            "N" => self.rng.pick(SCORES),
            "M" => self.rng.pick(&["m1", "m2", "m3", "7", "a", "b", ""]),
            "F" => self.rng.pick(&["f1", "f2", "f3", "f4"]),
            "G" => self.rng.pick(&["*", "k?", "k[1-3]", "f*", "ch*", "nothing", "[^k]*"]),
            "B" => self.rng.pick(BOUNDS),
            "L" => self.rng.pick(&["-", "+", "[a", "(a", "[m2", "(m3", "x", "["]),
            "T" => self.rng.pick(&[
                "9223372036854775807",
                "99999999999000",
                "99999999999500",
                "88888888888888",
            ]),
            "O" => self.rng.pick(&["1", "1000", "0", "-5"]),
            "C" => self.rng.pick(&["ch1", "ch2", "k1"]),
            "R" => self.rng.pick(DURATIONS),
            "S" => self.rng.pick(SCRIPTS),
            other => other,
        }
    }
}
