//! Where processes meet.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use holdline_core::{Engine, FencingToken, Health, Operation};
use holdline_local::{LocalEngine, LocalOptions, checkup};

use crate::role::Player;
use crate::support::{Scratch, Verbs, ask, wait};

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).expect("there").permissions().mode() & 0o7777
}

/// Cron and a shell have different environments and must meet at one place.
#[test]
fn the_directory_does_not_depend_on_the_environment() {
    let plain = Player::spawn(Player::command("player")).finish();
    assert_eq!(plain, ["ready"]);
    let mut shell = Command::new("env");
    shell.args(["-i", "HOLDLINE_LOCAL_TEST_ROLE=player"]);
    shell.arg(std::env::current_exe().expect("this program")).args(Player::ARGUMENTS);
    let mut elsewhere = Player::command("player");
    elsewhere.env("HOME", "/nowhere").env("XDG_STATE_HOME", "/nowhere").current_dir("/");
    let (mut bare, mut elsewhere) = (Player::spawn(shell), Player::spawn(elsewhere));
    assert_eq!((bare.answer(), elsewhere.answer()), ("ready".into(), "ready".into()));
    let name = format!("holdline-local-test/{}", std::process::id());
    assert!(bare.ask(&format!("acquire {name} 1 leased")).starts_with("granted"));
    assert_eq!(elsewhere.ask(&format!("acquire {name} 2 leased")), "queued 0");
    assert!(bare.ask(&format!("release {name} 1")).starts_with("Released"));
    assert!(elsewhere.ask(&format!("acquire {name} 2 leased")).starts_with("granted"));
    assert!(elsewhere.ask(&format!("release {name} 2")).starts_with("Released"));
    let directory = LocalOptions::default().directory().expect("a directory");
    assert_eq!(mode(&directory), 0o700);
}

#[test]
fn our_own_directory_is_closed_and_an_explicit_one_is_as_open_as_its_owner_made_it() {
    let scratch = Scratch::new();
    let made = scratch.path().join("made");
    LocalEngine::open(&LocalOptions::default().with_dir(&made)).expect("opened");
    let shared = scratch.path().join("shared");
    std::fs::create_dir(&shared).expect("made");
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o2770)).expect("opened up");
    let engine = LocalEngine::open(&LocalOptions::default().with_dir(&shared)).expect("opened");
    engine.granted(&ask("a", 1));
    for (directory, closed, files) in [(made, 0o700, 0o600), (shared, 0o2770, 0o660)] {
        for below in ["", "live", "wake"] {
            assert_eq!(mode(&directory.join(below)), closed, "{below}");
        }
        assert_eq!(mode(&directory.join("locks.db")), files);
        for below in ["live", "wake"] {
            for file in std::fs::read_dir(directory.join(below)).expect("listed") {
                assert_eq!(mode(&file.expect("listed").path()), files);
            }
        }
    }
}

/// Of what another user left in a sticky directory nobody else can remove anything.
#[test]
fn files_of_one_user_in_a_sticky_directory_block_no_other() {
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o1777)).expect("its own");
    let left = scratch.path().join("locks.db.new");
    std::fs::create_dir(&left).expect("made");
    LocalEngine::open(&LocalOptions::default().with_dir(scratch.path())).expect("opened");
    assert!(left.exists(), "it cannot be removed like a file");
    for below in ["live", "wake"] {
        assert_eq!(mode(&scratch.path().join(below)), 0o777, "{below}");
    }
}

#[test]
fn a_long_path_is_no_obstacle() {
    let scratch = Scratch::new();
    let deep = (0..4).fold(scratch.path().to_owned(), |path, _| path.join("d".repeat(100)));
    let options = LocalOptions::default().with_dir(&deep);
    let (here, there) = (LocalEngine::open(&options), LocalEngine::open(&options));
    let (here, there) = (here.expect("opened"), there.expect("opened"));
    here.granted(&ask("a", 1));
    there.queued(&ask("a", 2));
    let mut hints =
        holdline_core::Engine::watch(&there, &crate::support::name("a"), crate::support::id(2));
    here.end("a", 1);
    crate::support::hint(&mut hints);
    let too_deep = deep.join("d".repeat(100));
    let refused = LocalEngine::open(&LocalOptions::default().with_dir(too_deep));
    assert!(refused.expect_err("too long").to_string().contains("dir: may have 480 bytes"));
}

#[test]
fn an_unusable_directory_is_an_error() {
    let scratch = Scratch::new();
    let file = scratch.path().join("file");
    std::fs::write(&file, "").expect("written");
    let below_file = LocalEngine::open(&LocalOptions::default().with_dir(file.join("x")));
    assert!(below_file.expect_err("no directory").to_string().contains("making the directory"));
    let foreign = scratch.path().join("own");
    std::fs::create_dir_all(foreign.join("live")).expect("made");
    std::fs::write(foreign.join("wake"), "").expect("written");
    let taken = LocalEngine::open(&LocalOptions::default().with_dir(&foreign));
    assert!(taken.expect_err("no directory").to_string().contains("wake"));
}

#[test]
fn a_report_says_where_and_how_many() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    engine.granted(&ask("a", 1));
    engine.queued(&ask("a", 2));
    let report = engine.report().expect("a report");
    assert_eq!(report.directory, scratch.path().canonicalize().expect("there"));
    assert!(report.explicit && !report.file_system.is_empty());
    assert_eq!((report.names, report.holders, report.waiters), (1, 1, 1));
    assert_eq!((report.clients, report.live_grants, report.foreign), (2, 0, 0));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("readable");
    assert_eq!(report.boot_id, boot.trim().replace('-', ""));
}

/// A counter that has given nothing out must not take a raise to 1 for done.
#[test]
fn a_fence_that_is_raised_before_its_first_token_gives_a_larger_one() {
    for raise in [1, 2, 7] {
        let scratch = Scratch::new();
        let engine = scratch.open();
        let to = FencingToken::new(raise).expect("a token");
        wait(engine.operate(&Operation::RaiseFence { to })).expect("raised");
        let (token, _) = engine.granted(&ask("a", 1));
        assert!(token > to, "raised to {raise}: {token}");
    }
}

/// Found in a real store by `doctor`, which changes nothing there.
#[test]
fn stale_files_few_tokens_and_foreign_rows_are_warnings() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    let to = FencingToken::new(FencingToken::MAX.get() - (1 << 40)).expect("the largest allowed");
    wait(engine.operate(&Operation::RaiseFence { to })).expect("raised");
    engine.granted(&ask("a", 1));
    engine.end("a", 1);
    crate::engines::plant(&scratch, "b", b"theirs");
    for number in 5_000..6_001 {
        let file = scratch.path().join(format!("live/client-{number:016x}"));
        std::fs::write(file, "").expect("written");
    }
    let result = checkup(&LocalOptions::default().with_dir(scratch.path()));
    for check in ["files", "tokens", "foreign"] {
        let finding = result.findings().iter().find(|finding| finding.check() == check);
        let finding = finding.unwrap_or_else(|| panic!("{check} is missing in {result:?}"));
        assert_eq!(finding.health(), Health::Warning, "{result:?}");
    }
}
