//! Several stores on one screen.

use holdline_services::{RedisConfig, RedisServer};
use serde_json::Value;

use super::pty::Pty;
use crate::world::{World, output};

/// A second store on this machine, as `--url` takes it, and its URL.
fn billing(world: &World) -> (String, String) {
    let url = format!("local://{}", world.path("billing").display());
    (format!("billing={url}"), url)
}

#[test]
fn the_locks_of_all_stores_are_shown_and_acted_on_where_they_are() {
    let world = World::new();
    let (named, url) = billing(&world);
    let mut default = world.hold(&["--reason", "nightly", "job/a"]);
    let mut other = world.hold(&["--url", &url, "job/a"]);
    let _waiter = world.start(&["--url", &url, "run", "job/a", "--", "true"]);
    let arguments = ["top", "--interval", "100ms", "--url", &world.url(), "--url", &named];
    let top = Pty::start(&world, &arguments, (24, 80));
    top.expect("a line for each store, and one for both", |screen| {
        let line = |at: usize| screen.lines().nth(at).map(str::trim_end);
        (line(0)?.starts_with("2 stores, 2 up  held 2  waiting 1  frozen 0")
            && line(1)?.starts_with("default  up  held 1  waiting 0")
            && line(2)?.starts_with("billing  up  held 1  waiting 1"))
        .then_some(())
    });
    top.expect("a row of each store", |screen| {
        let rows: Vec<&str> = screen.lines().skip(5).take(2).collect();
        (rows[0].starts_with("default job/a ") && rows[1].starts_with("billing job/a "))
            .then_some(())
    });
    // The filter and the keys for sorting are for all stores.
    top.keys("s");
    top.sees("sort: store");
    top.keys("/billing\r");
    top.expect("one store only", |screen| {
        let row = screen.lines().nth(5)?;
        (row.starts_with("billing ") && !screen.contains("nightly")).then_some(())
    });
    // The name of the selected row is revoked in its own store.
    top.keys("B");
    top.sees("billing: job/a");
    top.keys("rollback\r");
    top.sees("billing: job/a: revoked, token ");
    assert_eq!(other.code(), 79);
    top.sees("nothing matches the filter");
    top.keys("\u{1b}");
    top.sees("nightly");
    assert_eq!(world.who("job/a")["holders"][0]["revoke_reason"], Value::Null);
    top.keys("f");
    top.sees("default: job/a");
    top.keys("moving\r");
    top.sees("default: job/a: will be frozen");
    top.keys("4");
    top.expect("both stores", |screen| {
        (screen.contains("\ndefault:") && screen.contains("\nbilling:")).then_some(())
    });
    top.keys("5");
    top.sees("billing: job/a: revoked, token ");
    default.let_go();
    top.sees("default: job/a released, or its processes have ended");
    assert_eq!(top.quit("q"), 0);
}

/// A store that takes requests and answers none, and one that is away, delay no other row and no
/// key.
#[test]
fn a_store_that_hangs_or_is_away_delays_no_other() {
    let world = World::new();
    let hanging = RedisServer::start(RedisConfig::default());
    let away = RedisServer::start(RedisConfig::default());
    let hanging_url = hanging.url();
    let on_hanging = ["--url", &hanging_url, "acquire", "job/hung", "--lease", "1h"];
    assert_eq!(world.run(&on_hanging).code, 0);
    let urls = [format!("hung={}", hanging.url()), format!("gone={}", away.url())];
    let url = world.url();
    let arguments = ["top", "--interval", "100ms", "--url", &urls[0], "--url", &urls[1]];
    let arguments = [&arguments[..], &["--url", &url]].concat();
    let top = Pty::start(&world, &arguments, (24, 120));
    // Nobody has locked in the third one yet.
    top.sees("3 stores, 2 up  held 1");
    hanging.stop();
    away.kill();
    let holder = world.hold(&["job/a"]);
    top.expect("the third store is shown as it is now", |screen| {
        let default = screen.lines().find(|line| line.starts_with("default "))?;
        (default.contains("up  held 1") && screen.contains(" job/a ")).then_some(())
    });
    top.expect("each says what it is", |screen| {
        let is_down = |line: &str| line.contains("DOWN for ") && line.contains("as of ");
        let both = ["hung ", "gone "]
            .map(|name| screen.lines().any(|line| line.starts_with(name) && is_down(line)));
        (both == [true, true] && screen.starts_with("3 stores, 1 up")).then_some(())
    });
    top.expect("what the store has shown before stays", |screen| {
        screen.lines().any(|line| line.starts_with("hung    job/hung ")).then_some(())
    });
    // An operator's command in the store that hangs ends in time; rounds and keys go on.
    top.keys("/job/hung\rBx\r");
    top.sees("hung: revoking job/hung");
    drop(holder);
    // An Esc right before another key would be read as one with Alt.
    top.keys("\u{1b}");
    top.expect("no filter", |screen| (!screen.contains("filter:")).then_some(()));
    top.keys("2");
    top.sees("nobody waits");
    top.keys("1");
    top.expect("the holder of the third store is gone", |screen| {
        (!screen.contains(" job/a ") && screen.contains("job/hung")).then_some(())
    });
    top.keys("5");
    top.sees("hung: redis: no answer");
    hanging.cont();
    away.restart();
    top.sees("3 stores, 3 up");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn a_store_that_can_never_be_used_is_shown_beside_the_others() {
    let world = World::new();
    let _holder = world.hold(&["job/a"]);
    let arguments = ["top", "--interval", "100ms", "--url", "odd=nonsense:", "--url", &world.url()];
    let top = Pty::start(&world, &arguments, (24, 80));
    top.sees("odd      UNUSABLE: ");
    top.sees("default  up  held 1");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn once_names_the_store_of_each_row_and_what_failed() {
    let world = World::new();
    let (named, url) = billing(&world);
    let _default = world.hold(&["job/a"]);
    let _other = world.hold(&["--url", &url, "job/b"]);
    let default = world.url();
    let urls = ["--url", &default, "--url", &named];
    let object = super::json(&world, &[&urls[..], &["top", "--once", "--json"]].concat());
    assert_eq!((&object["held"], &object["url"]), (&2.into(), &Value::Null));
    for (at, (store, name)) in [("default", "job/a"), ("billing", "job/b")].iter().enumerate() {
        assert_eq!(object["names"][at]["store"], *store);
        assert_eq!(object["names"][at]["name"], *name);
        assert_eq!(object["stores"][at]["store"], *store);
        assert_eq!(
            (&object["stores"][at]["held"], &object["stores"][at]["error"]),
            (&1.into(), &Value::Null)
        );
    }
    let table = world.run(&[&urls[..], &["top", "--once"]].concat());
    assert!(table.stdout.starts_with("default: local://"), "{table:?}");
    assert!(table.stdout.lines().any(|line| line.starts_with("billing  job/b  held")), "{table:?}");

    // One that does not answer is named, and the others are printed all the same.
    let away = RedisServer::start(RedisConfig::default());
    away.kill();
    let away = format!("gone={}", away.url());
    let line = [&urls[..], &["--url", &away, "top", "--once", "--json"]].concat();
    let failed = output(&mut world.command(&line));
    assert_eq!(failed.code, 69, "{failed:?}");
    assert!(failed.stderr.contains("gone: "), "{failed:?}");
    let object: Value = serde_json::from_str(&failed.stdout).expect("JSON");
    assert_eq!((&object["held"], &object["stores"][2]["held"]), (&2.into(), &Value::Null));
    assert_eq!(object["stores"][2]["error"]["kind"], "unavailable");
}
