//! Live grants, and what a holder learns when its files are taken away.

use holdline_core::{
    AcquireReply, AcquireRequest, Engine, ErrorKind, GrantState, Hold, LostReason, Operation,
    OperationReply, Purpose, RenewReply,
};

use holdline_local::LocalEngine;
use holdline_services::steady;

use crate::role::Player;
use crate::support::{LEASE, Scratch, Verbs, ask, id, name, until, wait};

fn live(text: &str, number: u64) -> AcquireRequest {
    AcquireRequest { hold: Hold::Live, ..ask(text, number) }
}

fn store_gone(reply: &Result<RenewReply, holdline_core::LockError>) -> bool {
    let lost = reply.as_ref().err().map(|error| error.kind());
    matches!(lost, Some(ErrorKind::Lost { reason: LostReason::StoreGone(_) }))
}

#[test]
fn a_live_grant_ends_by_release_and_has_no_end_by_time() {
    let scratch = Scratch::new();
    let (here, there) = (scratch.open(), scratch.open());
    let reply = here.acquire(&live("a", 1)).expect("granted");
    let AcquireReply::Granted { token, left: None, anchor: Some(_) } = reply else {
        panic!("{reply:?}")
    };
    let (again, anchor) = here.granted(&live("a", 1));
    assert_eq!((again, anchor.is_some()), (token, true));
    let kept = here.line("a", 1, Purpose::Keep(Hold::Live));
    assert!(matches!(kept, Ok(RenewReply::Renewed { left: None })), "{kept:?}");
    let shown = &there.look("a").holders[0];
    assert!(shown.live && shown.summary.left.is_none());
    assert_eq!(shown.pids, [std::process::id()]);
    let refused = there.acquire(&live("a", 1)).expect_err("another process's grant");
    assert!(matches!(refused.kind(), ErrorKind::Invalid { field: "lease_id", .. }), "{refused}");
    here.end("a", 1);
    there.granted(&ask("a", 2));
    assert_eq!(std::fs::read_dir(scratch.path().join("live")).expect("listed").count(), 2);
}

#[test]
fn a_live_grant_is_held_until_the_last_process_that_has_it_ends() {
    steady(|| {
        let scratch = Scratch::new();
        let engine = scratch.open();
        let mut holder = Player::start("player", scratch.path());
        assert_eq!(holder.answer(), "ready");
        assert!(holder.ask("acquire job 1 live").starts_with("granted"));
        let child = Heir::of(&mut holder);
        holder.kill();
        assert_eq!(engine.queued(&ask("job", 2)), 0);
        assert_eq!(engine.look("job").holders[0].pids, [child.0]);
        drop(child);
        // The kernel closes the last descriptor when it has ended the process.
        until(|| match engine.line("job", 2, Purpose::Wait) {
            Ok(RenewReply::Held { .. }) => Some(()),
            Ok(RenewReply::Queued { .. }) => None,
            other => panic!("{other:?}"),
        });
        engine.granted(&AcquireRequest { known: true, ..ask("job", 2) });
    });
}

#[test]
fn a_leased_grant_is_not_inherited() {
    steady(|| {
        let scratch = Scratch::new();
        let engine = scratch.open();
        let mut holder = Player::start("player", scratch.path());
        assert_eq!(holder.answer(), "ready");
        assert!(holder.ask("acquire other 7 live").starts_with("granted"));
        assert!(holder.ask("acquire job 1 leased").starts_with("granted"));
        assert!(holder.ask("acquire more 2 live").starts_with("granted"));
        let _child = Heir::of(&mut holder);
        holder.kill();
        drop((engine.acquire(&ask("job", 3)), engine.acquire(&ask("other", 4))));
        // A child that has just begun closes what it must not inherit a moment later.
        for (text, number) in [("job", 3), ("other", 4)] {
            until(|| match engine.line(text, number, Purpose::Wait) {
                Ok(RenewReply::Held { .. }) => Some(()),
                Ok(RenewReply::Queued { .. }) => None,
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(engine.queued(&ask("more", 5)), 0);
    });
}

/// A process that has inherited a live grant. It is killed when it is dropped.
struct Heir(u32);

impl Heir {
    fn of(holder: &mut Player) -> Heir {
        Heir(holder.ask("hand-down sleep 600").parse().expect("a pid"))
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0).ok().and_then(rustix::process::Pid::from_raw);
        let signal = rustix::process::Signal::KILL;
        rustix::process::kill_process(pid.expect("a pid"), signal).expect("killed");
    }
}

#[test]
fn a_live_grant_that_ignores_a_revoke_is_freed_by_force_only() {
    let scratch = Scratch::new();
    let (here, there) = (scratch.open(), scratch.open());
    let (token, _) = here.granted(&live("a", 1));
    let revoke = |now| Operation::Revoke { name: name("a"), token, reason: "stuck".into(), now };
    let result = wait(there.operate(&revoke(false)));
    assert!(matches!(result, Ok(OperationReply::Notified { left: None })), "{result:?}");
    assert_eq!(there.look("a").holders[0].state, GrantState::Revoked("stuck".into()));
    assert_eq!(wait(there.operate(&revoke(true))).ok(), Some(OperationReply::Done));
    there.granted(&ask("a", 2));
    let kept = here.line("a", 1, Purpose::Keep(Hold::Live));
    assert!(matches!(kept, Ok(RenewReply::Revoked { .. })), "{kept:?}");
}

#[test]
fn holders_lose_when_the_database_is_removed_or_replaced() {
    steady(|| {
        let scratch = Scratch::new();
        let engine = scratch.open();
        engine.granted(&live("a", 1));
        engine.granted(&ask("b", 2));
        engine.granted(&ask("c", 3));
        engine.queued(&ask("c", 4));
        let aside = scratch.path().join("aside");
        std::fs::create_dir(&aside).expect("made");
        for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
            std::fs::rename(scratch.path().join(file), aside.join(file)).expect("moved");
        }
        for replaced in [false, true] {
            let kept = engine.line("a", 1, Purpose::Keep(Hold::Live));
            assert!(store_gone(&kept), "{replaced}: {kept:?}");
            assert!(store_gone(&engine.line("b", 2, Purpose::Keep(LEASE))));
            assert!(matches!(engine.line("c", 4, Purpose::Wait), Ok(RenewReply::Unknown)));
            let refused = engine.acquire(&ask("d", 5)).expect_err("no store");
            assert!(matches!(refused.kind(), ErrorKind::Unavailable { .. }), "{refused}");
            if !replaced {
                // No new database is begun while holders of the old one have not noticed yet.
                let error = LocalEngine::open(&scratch.options()).expect_err("still locked");
                assert!(error.to_string().contains("was removed"), "{error}");
                assert!(scratch.database().exists());
            }
        }
        drop(engine);
        scratch.open_after_live_grants().granted(&ask("a", 6));
    });
}

#[test]
fn holders_lose_when_their_liveness_files_are_removed() {
    let scratch = Scratch::new();
    let (here, there) = (scratch.open(), scratch.open());
    here.granted(&live("a", 1));
    here.granted(&ask("b", 2));
    for file in std::fs::read_dir(scratch.path().join("live")).expect("listed") {
        std::fs::remove_file(file.expect("listed").path()).expect("removed");
    }
    there.granted(&ask("a", 3));
    there.granted(&ask("b", 4));
    assert!(store_gone(&here.line("a", 1, Purpose::Keep(Hold::Live))));
    assert!(store_gone(&here.line("b", 2, Purpose::Keep(LEASE))));
}

#[test]
fn a_dropped_reply_leaves_a_live_grant_that_giving_up_ends() {
    steady(|| {
        let scratch = Scratch::new();
        let (here, there) = (scratch.open(), scratch.open());
        drop(here.try_acquire(&live("a", 1)));
        assert_eq!(there.queued(&ask("a", 2)), 0);
        let ending = holdline_core::Ending { for_good: true, hold: Hold::Live };
        let request = holdline_core::ReleaseRequest { name: name("a"), lease_id: id(1), ending };
        wait(here.release(&request)).expect("given up");
        there.granted(&AcquireRequest { known: true, ..ask("a", 2) });
        let refused = here.acquire(&live("a", 1)).expect_err("given up");
        assert!(matches!(refused.kind(), ErrorKind::Cancelled), "{refused}");
    });
}
