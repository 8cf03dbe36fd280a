//! What scripts do, without a real server beside them.

use std::sync::Arc;

use holdline::clock::ManualClock;

use crate::{FakeRedis, RedisOptions, Reply};

fn eval(script: &str) -> Reply {
    let clock = Arc::new(ManualClock::new());
    let options = RedisOptions::default().with_script_limit(1_000_000);
    let mut server = FakeRedis::new(clock, options);
    let id = server.connect().expect("it is up");
    server.execute(id, &[b"eval", script.as_bytes(), b"0"]).remove(0)
}

fn error(script: &str) -> String {
    match eval(script) {
        Reply::Error(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn an_error_says_where_it_happened() {
    assert!(error("error('x')").starts_with("ERR user_script:1: x script: "));
    assert!(error("error('x', 0)").ends_with(", on @user_script:1."));
    assert!(error("\n\nredis.call('get')").ends_with(", on @user_script:3."));
}

#[test]
fn an_endless_script_is_an_error_that_it_cannot_catch() {
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "coroutine.resume(coroutine.create(function() while true do end end)) return 1",
    ] {
        assert!(error(script).contains("more instructions"), "{script}");
    }
    // The next one has its own limit.
    assert_eq!(eval("local n = 0 for i = 1, 1000 do n = n + 1 end return n"), Reply::Integer(1000));
}

#[test]
fn a_script_leaves_nothing_behind() {
    assert!(error("x = 1").contains("Attempt to modify a readonly table"));
    assert!(error("return x").contains("nonexistent global variable 'x'"));
    assert!(error("_G.string.x = 1").contains("Attempt to modify a readonly table"));
}
