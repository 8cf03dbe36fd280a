//! How long a verb waits for a server that does not answer: no longer than asked.

use holdline_services::{Fault, FaultProxy, Frames};

use super::Redis;
use crate::world::{CommandOutput, output};

const ASKING: [&[&str]; 3] = [
    &["run", "demo", "--wait", "300ms", "--", "true"],
    &["acquire", "demo", "--wait", "300ms"],
    &["wait", "demo", "--wait", "300ms"],
];

impl Redis {
    /// Asks with every verb that has a limit; connecting and commands would be waited for longer.
    fn ask_each(&self, url: &str) -> Vec<CommandOutput> {
        let url = format!("{url}?connect_timeout_ms=60000&command_timeout_ms=60000");
        let ask =
            |arguments: &[&str]| output(self.world.command(arguments).env("HOLDLINE_URL", &url));
        ASKING.into_iter().map(ask).collect()
    }
}

#[test]
fn a_wait_for_a_server_that_hangs_ends_with_its_limit() {
    let redis = Redis::start();
    redis.server.stop();
    for output in redis.ask_each(&redis.server.url()) {
        assert_eq!(output.code, 69, "{output:?}");
        assert!(output.stderr.contains("no answer to connecting within 300ms"), "{output:?}");
    }
    redis.server.cont();
}

const TRYING: [&[&str]; 3] = [
    &["run", "demo", "--try", "--", "true"],
    &["run", "demo", "--skip", "--", "true"],
    &["acquire", "demo", "--try"],
];

/// The server stands still before or after the connection is made, and both may take a minute by
/// their own limits.
#[test]
fn a_try_of_a_server_that_does_not_answer_ends_with_its_own_limit() {
    let redis = Redis::start();
    let limits = "?connect_timeout_ms=60000&command_timeout_ms=60000";
    let proxy = FaultProxy::start(redis.server.address());
    proxy.inject(Frames::requests().containing("holdline:{demo}"), Fault::Swallow);
    let deaf = format!("redis://{}{limits}", proxy.address());
    let frozen = format!("{}{limits}", redis.server.url());
    for (url, says) in
        [(&deaf, "no answer within 2s"), (&frozen, "no answer to connecting within 2s")]
    {
        if url == &frozen {
            redis.server.stop();
        }
        for arguments in TRYING {
            let output = output(redis.world.command(arguments).env("HOLDLINE_URL", url));
            assert_eq!(output.code, 69, "{arguments:?}: {output:?}");
            assert!(output.stderr.contains(says), "{arguments:?}: {output:?}");
        }
    }
    redis.server.cont();
}

/// Connected, and then there is no answer to anything about the name.
#[test]
fn a_wait_for_an_answer_that_never_comes_ends_with_its_limit() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(redis.server.address());
    proxy.inject(Frames::requests().containing("holdline:{demo}"), Fault::Swallow);
    for output in redis.ask_each(&format!("redis://{}", proxy.address())) {
        assert_eq!(output.code, 69, "{output:?}");
        // How long it was waited for, and not how long an answer may take.
        assert!(!output.stderr.contains("0s"), "{output:?}");
    }
}
