//! `holdline watch` and `holdline top` at a Holdline server.

use super::Served;
use crate::watch::event;
use crate::world::World;

#[test]
fn a_server_is_watched_like_a_store() {
    let world = World::new();
    let server = Served::fresh(&world);
    let url = ["--url", &server.1];
    let _first = world.hold(&["--url", &server.1, "0"]);
    let watch = world.start(&[&url[..], &["watch", "--json", "--interval", "100ms"]].concat());
    // From now on it sees what changes.
    assert_eq!(event(&watch, "granted")["found"], true);
    let mut holder = world.hold(&["--url", &server.1, "a"]);
    let granted = event(&watch, "granted");
    assert_eq!((&granted["name"], &granted["found"]), (&"a".into(), &false.into()));
    assert_eq!(granted["holder"]["pid"], holder.pid());
    #[cfg(feature = "top")]
    {
        let once = world.run(&[&url[..], &["top", "--once", "--json", "a"]].concat());
        let once: serde_json::Value = serde_json::from_str(&once.stdout).expect("JSON");
        assert_eq!((&once["url"], &once["held"]), (&server.1.as_str().into(), &1.into()));
    }
    holder.let_go();
    assert_eq!(event(&watch, "ended")["name"], "a");
}

/// Each store of a server has a URL of its own.
#[test]
#[cfg(feature = "top")]
fn several_stores_of_a_server_are_shown_together() {
    let world = World::new();
    let billing = format!("billing=local://{}", world.path("billing").display());
    let default = world.url();
    let more = ["--url", &default, "--url", &billing];
    let server = Served::start(&world, "127.0.0.1:0", &more);
    let below = |store: &str| format!("{}/stores/{store}", server.1);
    let _first = world.hold(&["--url", &server.1, "a"]);
    let billing = below("billing");
    let _second = world.hold(&["--url", &billing, "b"]);
    let urls = [server.1.clone(), format!("billing={billing}")];
    let line = ["--url", &urls[0], "--url", &urls[1], "top", "--once", "--json"];
    let once = world.run(&line);
    let once: serde_json::Value = serde_json::from_str(&once.stdout).expect("JSON");
    let of = |at: usize| (once["names"][at]["store"].as_str(), once["names"][at]["name"].as_str());
    assert_eq!((of(0), of(1)), ((Some("default"), Some("a")), (Some("billing"), Some("b"))));
}
