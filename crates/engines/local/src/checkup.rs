//! The checks of `doctor` for the local engine.
//!
//! They create nothing: if there is no store yet, they check the directory in which it would be
//! created.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use holdline_core::{Checkup, FencingToken, Finding, LockError, operation::FENCE_HEADROOM};
use rustix::process::{Resource, getrlimit};

use crate::directory;
use crate::engine::LocalEngine;
use crate::error::{ENGINE, Fault};
use crate::filesystem;
use crate::housekeeping::MAX_PAGES;
use crate::machine;
use crate::options::LocalOptions;
use crate::report::LocalReport;

/// With fewer free bytes the log may soon have no room: it may grow to 16 MiB.
const ROOM: u64 = 64 << 20;
/// With fewer free inodes, liveness files may soon have no room.
const INODES: u64 = 1_000;
/// With fewer descriptors a process has few left besides ours: about 8 for an engine, and one for
/// each live grant.
const DESCRIPTORS: u64 = 256;
/// This many files of dead processes are swept without a noticeable delay.
const STALE: usize = 1_000;

/// Checks the engine's machine, directory and database.
///
/// If a process is stopped inside a transaction, it waits up to the transaction limit and reports
/// that.
pub fn checkup(options: &LocalOptions) -> Checkup {
    let mut checkup = Checkup::new(ENGINE);
    checkup.add(machine());
    checkup.add(descriptors());
    let directory = match options.directory() {
        Ok(directory) => directory,
        Err(error) => {
            checkup.add(failed("directory", DIRECTORY, &error));
            return checkup;
        }
    };
    check_directory(&mut checkup, options, &directory);
    match options.is_made() {
        Ok(true) => check_store_files(&mut checkup, options),
        Ok(false) => checkup.add(Finding::ok(
            "database",
            DATABASE,
            "not made yet: nobody has locked here; the first lock creates it",
        )),
        Err(error) => checkup.add(failed("database", DATABASE, &error)),
    }
    checkup
}

const MACHINE: &str = "leases are judged by the clock of this boot, which all processes must share";
const LIMIT: &str = "a process without free descriptors can neither take nor release a lock";
const DIRECTORY: &str =
    "processes share their locks here: every user with write access can acquire and free locks";
const FILE_SYSTEM: &str = "file locks and shared memory must mean the same to all processes, and \
                           tokens must outlive the machine's restart";
const ROOM_LEFT: &str = "without room no lock can be acquired, and leases cannot be renewed";
const DATABASE: &str = "it holds every name's holders and queue";
const LOG: &str = "a long log makes opening slow; one that never shrinks fills the disk";
const FILES: &str = "each process has a file that shows that it lives; the next lock \
                     sweeps those of dead processes, and many of them make that slow";
const TOKENS: &str =
    "if the counter falls, tokens are given twice; at its end, no lock can be acquired";
const FOREIGN: &str = "a name with foreign data cannot be locked";
const NAMES: &str = "how much is held now";

fn failed(check: &'static str, matters: &'static str, error: &LockError) -> Finding {
    Finding::ok(check, matters, error.to_string())
        .fail("do what the error says; until then nothing can be locked here")
}

fn machine() -> Finding {
    match machine::boot_id() {
        Ok(boot) => Finding::ok("machine", MACHINE, format!("boot {boot}")),
        Err(fault) => failed("machine", MACHINE, &fault.into_error()),
    }
}

fn descriptors() -> Finding {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return Finding::ok("descriptors", LIMIT, "no limit");
    };
    let finding = Finding::ok("descriptors", LIMIT, format!("at most {limit} a process"));
    if limit >= DESCRIPTORS {
        return finding;
    }
    finding.warn(format!("raise it, for example: ulimit -n {}", 4 * DESCRIPTORS))
}

/// Checks the directory, or the one in which it will be created.
fn check_directory(checkup: &mut Checkup, options: &LocalOptions, directory: &Path) {
    let (place, status) = match directory::nearest(directory) {
        Ok(found) => found,
        Err(fault) => return checkup.add(failed("directory", DIRECTORY, &fault.into_error())),
    };
    checkup.add(privacy(options, directory, &place, &status));
    let open = match std::fs::File::open(&place) {
        Ok(open) => open,
        Err(error) => {
            let error = Fault::at("opening", &place, error).into_error();
            return checkup.add(failed("file_system", FILE_SYSTEM, &error));
        }
    };
    checkup.add(match filesystem::check(&open) {
        Err(fault) => failed("file_system", FILE_SYSTEM, &fault.into_error()),
        Ok(kind) if kind.forgets => Finding::ok("file_system", FILE_SYSTEM, kind.name).warn(
            "it forgets everything when the machine restarts, the counter of tokens too: name a \
             directory on a disk with local:///DIRECTORY",
        ),
        Ok(kind) => Finding::ok("file_system", FILE_SYSTEM, kind.name),
    });
    checkup.add(match rustix::fs::fstatvfs(&open) {
        Ok(status) => {
            let bytes = status.f_bavail.saturating_mul(status.f_frsize);
            room(bytes, (status.f_files > 0).then_some(status.f_favail))
        }
        Err(error) => {
            let error = Fault::at("asking how much room is left on", &place, error.into());
            failed("room", ROOM_LEFT, &error.into_error())
        }
    });
}

fn privacy(options: &LocalOptions, directory: &Path, place: &Path, status: &Metadata) -> Finding {
    let mode = status.mode() & 0o7777;
    if place != directory {
        let found = format!("{}, not made yet", directory.display());
        let finding = Finding::ok("directory", DIRECTORY, found);
        if status.is_dir() && directory::can_be_made(directory) {
            return finding;
        }
        return finding.fail(format!("it cannot be made in {}: choose another", place.display()));
    }
    let found = format!("{}, mode {mode:04o}, owner {}", directory.display(), status.uid());
    let finding = Finding::ok("directory", DIRECTORY, found);
    if !status.is_dir() {
        return finding.fail("it is not a directory: name another by --url local:///DIRECTORY");
    }
    let ours = status.uid() == rustix::process::geteuid().as_raw();
    if options.dir().is_none() {
        let private = ours && mode & 0o077 == 0;
        let fix = "make it yours alone: chown it to yourself and run chmod 700 on it";
        return if private { finding } else { finding.fail(fix) };
    }
    if mode & 0o1000 != 0 && mode & 0o022 != 0 {
        // fs.protected_regular: a file there is opened by its owner and the directory's only.
        return finding.warn(
            "it is sticky, as /tmp is, and the kernel may keep a second user from the database \
             there: name a directory in it of mode 0700, or of mode 2770 for a group",
        );
    }
    if mode & 0o002 == 0 {
        return finding;
    }
    let fix = "every user of this machine can acquire and free its locks: chmod o-w, unless this \
               is intended";
    finding.warn(fix)
}

/// Checks how much room is left; a file system without an inode table has no limit of inodes.
fn room(bytes: u64, inodes: Option<u64>) -> Finding {
    let files = inodes.map_or_else(String::new, |inodes| format!(", {inodes} files"));
    let finding = Finding::ok("room", ROOM_LEFT, format!("{} MiB{files} free", bytes >> 20));
    match (bytes, inodes.unwrap_or(u64::MAX)) {
        (0, _) | (_, 0) => finding.fail("make room on this file system now"),
        (bytes, inodes) if bytes < ROOM || inodes < INODES => {
            finding.warn("make room on this file system")
        }
        _ => finding,
    }
}

fn check_store_files(checkup: &mut Checkup, options: &LocalOptions) {
    let report = LocalEngine::open(options).and_then(|engine| engine.report());
    match report {
        Ok(report) => findings_of(&report).into_iter().for_each(|finding| checkup.add(finding)),
        Err(error) => checkup.add(failed("database", DATABASE, &error)),
    }
}

fn findings_of(report: &LocalReport) -> [Finding; 6] {
    let database = format!("{}, layout {}", report.database.display(), report.layout);
    let log = Finding::ok("log", LOG, format!("{} pages", report.log_pages));
    let left = FencingToken::MAX.get().saturating_sub(report.next_token);
    let tokens = Finding::ok("tokens", TOKENS, format!("next is {}", report.next_token));
    let files = Finding::ok("files", FILES, format!("{} stale", report.stale_files));
    let foreign = Finding::ok("foreign", FOREIGN, format!("{} names", report.foreign));
    let names = format!(
        "{} names, {} holders, {} waiting, {} live grants, {} processes",
        report.names, report.holders, report.waiters, report.live_grants, report.clients
    );
    [
        Finding::ok("database", DATABASE, database),
        match report.log_pages {
            pages if pages > 2 * MAX_PAGES => log.warn(
                "the next lock moves it into the database; if it stays this long, some \
                 program keeps the database open in a transaction: end that",
            ),
            _ => log,
        },
        if report.stale_files > STALE {
            files.warn("lock something: it sweeps them; if they stay, see who may write to `live`")
        } else {
            files
        },
        match report.newest_live_token {
            // A file is created for a token that was drawn, and the counter never falls.
            Some(newest) if newest >= report.next_token => Finding::ok(
                "tokens",
                TOKENS,
                format!("next is {}, and a process has {newest} already", report.next_token),
            )
            .fail(
                "an old copy of the database was put back: run `holdline fence bump --to N`, with \
                 N the largest token that this, a resource or a log has seen",
            ),
            _ if left < FENCE_HEADROOM => {
                tokens.warn("the fence was raised too far: plan to start with a new directory")
            }
            _ => tokens,
        },
        if report.foreign > 0 {
            foreign.warn("find out who else writes into this database")
        } else {
            foreign
        },
        Finding::ok("names", NAMES, names),
    ]
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;
    use crate::scratch::Scratch;

    fn of<'a>(checkup: &'a Checkup, check: &str) -> &'a Finding {
        let found = checkup.findings().iter().find(|finding| finding.check() == check);
        found.unwrap_or_else(|| panic!("{check} is missing in {checkup:?}"))
    }

    #[test]
    fn a_missing_store_is_ok_and_is_not_created() {
        let scratch = Scratch::new();
        let directory = scratch.path().join("later/here");
        let checkup = checkup(&LocalOptions::default().with_dir(&directory));
        assert!(of(&checkup, "directory").found().contains("not made yet"), "{checkup:?}");
        assert_eq!(of(&checkup, "database").health(), Health::Ok);
        assert!(!directory.exists());
    }

    #[test]
    fn a_directory_below_a_file_is_an_error() {
        let scratch = Scratch::new();
        let file = scratch.path().join("file");
        std::fs::write(&file, "x").expect("written");
        let checkup = checkup(&LocalOptions::default().with_dir(file.join("below")));
        assert_eq!(of(&checkup, "directory").health(), Health::Error, "{checkup:?}");
    }

    #[test]
    fn a_store_gets_every_check() {
        let scratch = Scratch::new();
        let options = LocalOptions::default().with_dir(scratch.path().join("store"));
        drop(LocalEngine::open(&options).expect("opened"));
        let checkup = checkup(&options);
        let checks: Vec<&str> = checkup.findings().iter().map(Finding::check).collect();
        assert_eq!(
            checks,
            [
                "machine",
                "descriptors",
                "directory",
                "file_system",
                "room",
                "database",
                "log",
                "files",
                "tokens",
                "foreign",
                "names"
            ]
        );
        assert!(of(&checkup, "database").found().contains("layout 1"), "{checkup:?}");
    }

    #[test]
    fn a_damaged_database_is_an_error_with_a_reason() {
        let scratch = Scratch::new();
        let options = LocalOptions::default().with_dir(scratch.path().join("store"));
        drop(LocalEngine::open(&options).expect("opened"));
        std::fs::write(scratch.path().join("store/locks.db"), "x".repeat(9_000)).expect("written");
        let checkup = checkup(&options);
        assert_eq!(checkup.health(), Health::Error);
        assert_eq!(of(&checkup, "database").health(), Health::Error, "{checkup:?}");
    }

    #[test]
    fn a_directory_open_to_all_is_a_warning() {
        let scratch = Scratch::new();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(scratch.path(), open).expect("its own");
        let checkup = checkup(&LocalOptions::default().with_dir(scratch.path()));
        assert_eq!(of(&checkup, "directory").health(), Health::Warning);
    }

    #[test]
    fn a_sticky_directory_of_several_users_is_a_warning() {
        let scratch = Scratch::new();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(scratch.path(), mode).expect("its own");
        let checkup = checkup(&LocalOptions::default().with_dir(scratch.path()));
        let finding = of(&checkup, "directory");
        assert_eq!(finding.health(), Health::Warning);
        assert!(finding.fix().is_some_and(|fix| fix.contains("sticky")), "{finding:?}");
    }

    #[test]
    fn room_is_checked_by_bytes_and_by_files() {
        for (bytes, inodes, health) in [
            (ROOM, Some(INODES), Health::Ok),
            (ROOM, None, Health::Ok),
            (ROOM - 1, None, Health::Warning),
            (ROOM, Some(INODES - 1), Health::Warning),
            (0, None, Health::Error),
            (ROOM, Some(0), Health::Error),
        ] {
            assert_eq!(room(bytes, inodes).health(), health, "{bytes} {inodes:?}");
        }
    }

    #[test]
    fn few_tokens_a_long_log_and_foreign_names_are_warnings() {
        let scratch = Scratch::new();
        let options = LocalOptions::default().with_dir(scratch.path().join("store"));
        let engine = LocalEngine::open(&options).expect("opened");
        let well = engine.report().expect("a report");
        assert!(findings_of(&well).iter().all(|finding| finding.health() == Health::Ok));
        let ill = LocalReport {
            log_pages: 2 * MAX_PAGES + 1,
            next_token: FencingToken::MAX.get() - 1,
            foreign: 1,
            stale_files: STALE + 1,
            ..well
        };
        let error = findings_of(&ill);
        let ill: Vec<&str> =
            error.iter().filter(|f| f.health() == Health::Warning).map(Finding::check).collect();
        assert_eq!(ill, ["log", "files", "tokens", "foreign"]);
    }

    #[test]
    fn a_store_that_a_restart_empties_is_a_warning() {
        let place = format!("/dev/shm/holdline-doctor-{}", std::process::id());
        std::fs::create_dir_all(&place).expect("memory of the machine");
        let error = checkup(&LocalOptions::default().with_dir(&place));
        std::fs::remove_dir_all(&place).expect("removed");
        let finding = of(&error, "file_system");
        assert_eq!(finding.health(), Health::Warning, "{error:?}");
        assert_eq!(finding.found(), "tmpfs");
    }
}
