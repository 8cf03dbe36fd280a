//! Operators' commands on the screen.

use super::pty::Pty;
use crate::world::{World, eventually, is_alive};

#[test]
fn a_grant_is_revoked_for_a_reason_that_must_be_given() {
    let world = World::new();
    let mut holder = world.hold(&["job/a"]);
    let token = world.token("job/a");
    let top = Pty::start(&world, &["top", "--interval", "100ms"], (24, 80));
    top.sees("job/a");
    top.keys("B");
    top.sees(&format!("token {token}"));
    top.sees("reason: ");
    top.keys("\r");
    top.sees("reason: is missing");
    assert!(world.who("job/a")["holders"][0]["revoke_reason"].is_null());
    top.keys("rollback\r");
    top.sees(&format!("job/a: revoked, token {token}"));
    assert_eq!(holder.code(), 79);
    assert!(holder.rest().contains("rollback"), "the holder reads why");
    top.sees("no name is held");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn a_grant_is_revoked_now_while_its_job_still_runs() {
    let world = World::new();
    // It takes no notice of TERM, so that it can only be revoked now.
    let job = ["--", "sh", "-c", "trap '' TERM; echo up $$; read line; exit 3"];
    let holder = world.start(&[&["run", "--grace", "1h", "job/a"][..], &job].concat());
    assert!(holder.line().starts_with("up "));
    let token = world.token("job/a");
    let top = Pty::start(&world, &["top", "--interval", "100ms"], (24, 80));
    top.sees("job/a");
    top.keys("B");
    top.sees("how: polite");
    top.sees("now: the name is free at once; its job may still run and write");
    top.keys("outage\t\u{15}no\r");
    top.sees("how: must be polite or now");
    assert_eq!(world.token("job/a"), token);
    top.keys("w\r");
    top.sees(&format!("job/a: freed at once, token {token}; its job may still run"));
    world.free("job/a");
    assert!(is_alive(holder.job.get()), "the job runs on, as the form has said");
    let audit = world.run(&["--json", "audit"]);
    assert!(audit.stdout.contains("\"action\":\"revoke_now\""), "{audit:?}");
    assert!(audit.stdout.contains("\"reason\":\"outage\""), "{audit:?}");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn a_form_that_is_left_changes_nothing() {
    let world = World::new();
    let _holder = world.hold(&["job/a"]);
    let top = Pty::start(&world, &["top", "--interval", "100ms"], (24, 80));
    top.sees("job/a");
    top.keys("Brollback\u{1b}");
    // The keys of a form are no keys of the page: `q` would have left it.
    top.expect("the form is closed", |screen| (!screen.contains("rollback")).then_some(()));
    assert!(world.who("job/a")["holders"][0]["revoke_reason"].is_null());
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn a_holder_that_came_in_between_is_not_revoked() {
    let world = World::new();
    let mut first = world.hold(&["job/a"]);
    let token = world.token("job/a");
    let top = Pty::start(&world, &["top", "--interval", "100ms"], (24, 80));
    top.sees("job/a");
    top.keys("Brollback");
    top.sees("reason: rollback");
    first.let_go();
    assert_eq!(first.code(), 3);
    let _second = world.hold(&["job/a"]);
    let now = world.token("job/a");
    assert_ne!(now, token);
    // The round behind the form shows the new holder, and the form still means the first.
    top.keys("\r");
    top.sees("nothing was revoked");
    top.sees(&format!("token {token} is over; now token {now}"));
    let holders = &world.who("job/a")["holders"];
    assert_eq!(holders[0]["fencing_token"].to_string(), now);
    assert!(holders[0]["revoke_reason"].is_null());
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn a_name_is_frozen_and_the_freeze_is_ended() {
    let world = World::new();
    let _holder = world.hold(&["job/a"]);
    let top = Pty::start(&world, &["top", "--interval", "100ms"], (24, 80));
    top.sees("job/a");
    top.keys("u");
    top.sees("job/a: is not frozen");
    top.keys("f");
    top.sees("for: 10m");
    top.keys("moving\t\u{15}1x\r");
    top.sees("must end with one unit");
    top.keys("\u{15}1h\r");
    top.sees("job/a: will be frozen when its holder is done");
    let freeze = &world.who("job/a")["freeze"];
    assert_eq!((&freeze["reason"], &freeze["active"]), (&"moving".into(), &false.into()));
    assert!(freeze["left_ms"].as_u64().is_some_and(|left| left > 3_000_000), "{freeze}");
    top.sees("to be frozen: moving");
    top.keys("u");
    top.sees("Enter ends the freeze");
    top.keys("\r");
    top.sees("job/a: no longer frozen");
    eventually("no freeze", || world.who("job/a")["freeze"].is_null());
    assert_eq!(top.quit("q"), 0);
}
