//! `holdline watch` while its server is stopped, away at the start, or has many names.

use rustix::process::Signal;

use super::Redis;
use crate::watch::event;
use crate::world::Running;

impl Redis {
    fn watch(&self, more: &[&str]) -> Running {
        let arguments = [&["watch", "--json", "--interval", "100ms"], more].concat();
        self.world.start_command(&mut self.command(&arguments))
    }
}

#[test]
fn a_server_that_is_stopped_and_started_is_reported_once_each() {
    let redis = Redis::start();
    assert_eq!(redis.run(&["acquire", "a", "--lease", "1h"]).code, 0);
    let watch = redis.watch(&[]);
    assert_eq!(event(&watch, "granted")["name"], "a");
    redis.server.kill();
    let down = event(&watch, "store_down");
    assert!(down["message"].as_str().is_some_and(|message| !message.is_empty()), "{down}");
    assert!(down["name"].is_null() && down["at_ms"].is_u64(), "{down}");
    redis.server.restart_settled();
    // The next event is this one, however many rounds have failed. The server has no data file, so
    // the name is gone; that is compared with what was known before it was away.
    let next = |watch: &Running| -> serde_json::Value {
        serde_json::from_str(&watch.line()).expect("JSON")
    };
    let up = next(&watch);
    assert_eq!(up["event"], "store_up", "{up}");
    assert!(up["message"].as_str().is_some_and(|message| message.starts_with("after ")), "{up}");
    let ended = next(&watch);
    assert_eq!((&ended["event"], &ended["name"]), (&"ended".into(), &"a".into()), "{ended}");
    assert_eq!(ended["found"], false);
}

#[test]
fn a_server_that_is_away_at_the_start_is_awaited() {
    let redis = Redis::start();
    redis.server.kill();
    let mut watch = redis.watch(&[]);
    let said: serde_json::Value = serde_json::from_str(&watch.said()).expect("JSON");
    assert_eq!(said["message"], "waiting for the store");
    let down = event(&watch, "store_down");
    assert!(down["message"].as_str().is_some_and(|message| !message.is_empty()), "{down}");
    redis.server.restart_settled();
    event(&watch, "store_up");
    assert_eq!(redis.run(&["acquire", "a", "--lease", "1h"]).code, 0);
    assert_eq!(event(&watch, "granted")["name"], "a");
    watch.signal(Signal::TERM);
    assert_eq!(watch.code(), 128 + 15);
    assert_eq!(watch.rest(), "", "it said once that it waits");
}

#[test]
fn names_beyond_what_a_round_covers_are_reported_as_left_out() {
    let redis = Redis::start();
    for name in ["a", "b", "c"] {
        assert_eq!(redis.run(&["acquire", name, "--lease", "1h"]).code, 0);
    }
    let watch = redis.watch(&["--max-names", "2"]);
    let left_out = event(&watch, "left_out");
    assert_eq!(left_out["message"], "more names than a round covers: none after b");
    assert_eq!(event(&watch, "granted")["name"], "a");
    assert_eq!(event(&watch, "granted")["name"], "b");
    #[cfg(feature = "top")]
    {
        let once = redis.run(&["top", "--once", "--json", "--max-names", "2"]);
        let once: serde_json::Value = serde_json::from_str(&once.stdout).expect("JSON");
        assert_eq!((&once["left_out_after"], &once["held"]), (&"b".into(), &2.into()));
    }
}
