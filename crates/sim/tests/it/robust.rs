//! Whatever comes, the server goes on; and the same always comes to the same.

use crate::generator::{self as g, Dice, Generator};
use crate::real::request;
use crate::time::Bench;
use holdline_sim::{Memory, RedisOptions};
use std::time::Duration;

const FAMILIES: &[&[&str]] = &[
    g::STRINGS,
    g::KEYS,
    g::HASHES,
    g::LISTS,
    g::SORTED_SETS,
    g::CONNECTION,
    g::LISTENING,
    g::SCRIPTED,
    WILD,
];

/// What a comparison with a real server cannot have: time, waiting, operators, chance.
const WILD: &[&str] = &[
    "client pause 20 write",
    "client pause 20",
    "client unpause",
    "client kill type pubsub",
    "client kill id 3",
    "client reply skip",
    "client reply off",
    "client reply on",
    "client list",
    "debug sleep 0.02",
    "config set maxmemory 901kb",
    "config set maxmemory-policy allkeys-random",
    "config set maxmemory 0",
    "pexpire K 20",
    "scan I count 2",
    "info",
    "hello 2",
    "hello 3",
    "reset",
    "quit",
    "time",
    "command",
    "evalsha S 0",
];

/// Everything that two connections were sent, under random faults, in one go.
fn transcript(seed: u64, steps: usize) -> Vec<u8> {
    let mut dice = Dice::new(!seed);
    let mut generator = Generator { dice: Dice::new(seed), families: FAMILIES };
    let mut bench = Bench::with(RedisOptions::default().with_seed(seed));
    let mut ids = [(); 2].map(|()| bench.server.connect().expect("it is up"));
    let mut all = Vec::new();
    for _ in 0..steps {
        let at = dice.below(2);
        let mut bytes = request(&generator.command());
        if dice.below(50) == 0 {
            let place = dice.below(bytes.len());
            bytes[place] = u8::try_from(dice.below(256)).unwrap_or(0);
        }
        bench.server.receive(ids[at], &bytes);
        match dice.below(60) {
            0 => bench.server.freeze(),
            1 | 2 => bench.server.thaw(),
            3 => bench.clock.advance(Duration::from_millis(15)),
            4 => bench.server.close(ids[at]),
            5 => bench.server.restart(Memory::Lost),
            _ => bench.server.tick(),
        }
        for id in &mut ids {
            all.extend(bench.server.take_output(*id, usize::MAX));
            if !bench.server.is_open(*id) {
                *id = bench.server.connect().expect("it is up");
            }
        }
    }
    bench.server.restart(Memory::Kept);
    let id = bench.server.connect().expect("it is up");
    assert_eq!(bench.ask_on(id, "ping"), "+PONG", "seed {seed}");
    all
}

#[test]
fn nothing_that_comes_stops_the_server() {
    for seed in 0..40 {
        transcript(seed, 1000);
    }
}

#[test]
fn the_same_seed_leaves_the_same_bytes() {
    for seed in 0..5 {
        let first = transcript(seed, 1000);
        assert!(first.len() > 10_000, "{} bytes", first.len());
        assert_eq!(first, transcript(seed, 1000), "seed {seed}");
    }
    assert_ne!(transcript(0, 1000), transcript(1, 1000));
}
