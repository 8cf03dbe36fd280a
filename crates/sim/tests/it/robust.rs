//! Whatever comes, the server goes on; and the same always comes to the same.

use crate::generator::{self as g, Generator, SeededRng};
use crate::time::TestServer;
use holdline_services::resp::command as request;
use holdline_sim::{Memory, RedisOptions};
use std::time::Duration;

const FAMILIES: &[&[&str]] = &[
    g::STRINGS,
    g::KEYS,
    g::HASHES,
    g::LISTS,
    g::SORTED_SETS,
    g::CONNECTION,
    g::SUBSCRIBED,
    g::SCRIPTED,
    UNCOMPARED,
];

/// What a comparison with a real server cannot have: time, waiting, operators, chance.
const UNCOMPARED: &[&str] = &[
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
    "time",
    "command",
    "evalsha S 0",
];

/// Everything that two connections were sent, under random faults, in one go.
fn transcript(seed: u64, steps: usize) -> Vec<u8> {
    let mut rng = SeededRng::new(!seed);
    let mut generator = Generator { rng: SeededRng::new(seed), families: FAMILIES };
    let mut server = TestServer::with(RedisOptions::default().with_seed(seed));
    let mut ids = [(); 2].map(|()| server.server.connect().expect("it is up"));
    let mut all = Vec::new();
    for _ in 0..steps {
        let at = rng.below(2);
        let mut bytes = request(&generator.command());
        if rng.below(50) == 0 {
            let place = rng.below(bytes.len());
            bytes[place] = u8::try_from(rng.below(256)).unwrap_or(0);
        }
        server.server.receive(ids[at], &bytes);
        match rng.below(60) {
            0 => server.server.freeze(),
            1 | 2 => server.server.thaw(),
            3 => server.clock.advance(Duration::from_millis(15)),
            4 => server.server.close(ids[at]),
            5 => server.server.restart(Memory::Lost),
            _ => server.server.tick(),
        }
        for id in &mut ids {
            all.extend(server.server.take_output(*id, usize::MAX));
            if !server.server.is_open(*id) {
                *id = server.server.connect().expect("it is up");
            }
        }
    }
    server.server.restart(Memory::Kept);
    let id = server.server.connect().expect("it is up");
    assert_eq!(server.ask_on(id, "ping"), "+PONG", "seed {seed}");
    all
}

#[test]
fn no_input_stops_the_server() {
    for seed in 0..40 {
        transcript(seed, 1000);
    }
}

#[test]
fn the_same_seed_produces_the_same_bytes() {
    for seed in 0..5 {
        let first = transcript(seed, 1000);
        assert!(first.len() > 10_000, "{} bytes", first.len());
        assert_eq!(first, transcript(seed, 1000), "seed {seed}");
    }
    assert_ne!(transcript(0, 1000), transcript(1, 1000));
}
