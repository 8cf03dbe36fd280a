//! Foreign and damaged files, links, owners, companions.

use crate::tests::{Home, is_stale, proof, token};
use crate::{FenceError, Fenced, FencedFile, FileMark};
use holdline_core::Certainty;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

fn at(path: impl AsRef<Path>) -> FencedFile {
    FencedFile::at(path).expect("a place").with_lock_wait(Duration::ZERO)
}

fn put(file: &FencedFile, number: u64, content: &str) -> Result<(), FenceError> {
    file.check_and_write(&proof(number), |stored| {
        *stored = content.as_bytes().to_vec();
        Ok(())
    })
}

/// Every call returns `Foreign`, and the content stays as it was.
fn is_foreign(path: &Path, says: &str) {
    let file = at(path);
    let mine = proof(34);
    let reported = [
        file.mark().map(drop),
        file.check(&mine),
        file.read(&mine).map(drop),
        file.seal(&mine),
        put(&file, 34, "new"),
        FileMark::at(path).expect("a place").check_and_run(&mine, || unreachable!("not ours")),
    ];
    for answer in reported {
        let Err(FenceError::Foreign { found }) = answer else { panic!("{path:?}: {answer:?}") };
        assert!(found.contains(says), "{found}");
    }
}

#[test]
fn foreign_tables_are_reported_and_left() {
    let home = Home::new();
    let whole = "holdline-fence 1 mark=34 bytes=4\ndata";
    for (content, says) in [
        ("", "empty"),
        ("a shopping list\n", "does not begin with"),
        ("holdline-fence 2 mark=34 bytes=4\ndata", "format 2"),
        ("holdline-fence 1 mark=34 byt", "damaged"),
        (&whole[..whole.len() - 1], "3 bytes of data, but the first line says 4"),
        ("holdline-fence 1 mark=34 bytes=4\ndata and more", "13 bytes of data"),
        ("\0\0\0\0\0\0\0\0", "does not begin with"),
    ] {
        let path = home.join("file");
        fs::write(&path, content).expect("written");
        is_foreign(&path, says);
        assert_eq!(fs::read_to_string(&path).expect("there"), content, "left as it is");
        assert!(!home.join("file.holdline-next").exists());
    }
    fs::write(home.join("file"), whole).expect("written");
    assert_eq!(at(home.join("file")).read(&proof(34)).expect("whole"), b"data");
}

#[test]
fn a_special_file_is_an_error_and_left() {
    let home = Home::new();
    let path = home.join("file");
    fs::create_dir(&path).expect("a directory");
    is_foreign(&path, "a directory");
    fs::remove_dir(&path).expect("still a directory");

    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("coreutils");
    assert!(made.success());
    is_foreign(&path, "a named pipe"); // and nothing waits for its other end
    fs::remove_file(&path).expect("still a pipe");

    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    is_foreign(&path, "a socket");
    fs::remove_file(&path).expect("still a socket");

    put(&at(&path), 34, "data").expect("nothing stands there");
    fs::hard_link(&path, home.join("other")).expect("a second name");
    is_foreign(&path, "2 names");
    is_foreign(&home.join("other"), "2 names");
}

#[test]
fn a_symbolic_link_is_followed_to_one_lock() {
    let home = Home::new();
    let (real, link) = (home.join("real"), home.join("link"));
    put(&at(&real), 34, "old").expect("fresh");
    symlink(&real, &link).expect("a link");
    symlink(home.path(), home.join("directory")).expect("a link");
    for path in [link.clone(), home.join("directory").join("real")] {
        assert_eq!(at(&path).atomic_file.paths, at(&real).atomic_file.paths, "{path:?}");
    }
    put(&at(&link), 35, "new").expect("followed");
    assert!(link.symlink_metadata().expect("there").is_symlink(), "the link stays one");
    assert!(is_stale(&put(&at(&real), 34, "late")));

    // It became a link after we had looked: two names, two locks.
    let file = at(&real);
    fs::rename(&real, home.join("moved")).expect("ours");
    symlink(home.join("moved"), &real).expect("a link");
    let reported = put(&file, 36, "new").expect_err("a link");
    assert!(reported.to_string().contains("a symbolic link"), "{reported}");
}

#[test]
fn a_path_that_cannot_be_a_file_is_refused_at_once() {
    let home = Home::new();
    symlink(home.join("nowhere"), home.join("dangling")).expect("a link");
    for path in [home.join("no/such/directory"), home.join(".."), home.join("dangling")] {
        let reported = FencedFile::at(&path).expect_err("no place");
        assert_eq!(reported.certainty(), Certainty::NotApplied, "{path:?}: {reported}");
    }
    assert!(FencedFile::at("/").is_err());
    assert!(FencedFile::at("").is_err());
    assert!(!home.join("nowhere").exists());
}

#[test]
fn a_relative_path_is_one_place_wherever_the_process_goes() {
    let here = std::env::current_dir().expect("a directory").canonicalize().expect("there");
    let paths = FencedFile::at("some-file").expect("a place").atomic_file.paths;
    assert_eq!((paths.file, paths.directory), (here.join("some-file"), here));
}

#[test]
fn mode_is_kept_and_companions_are_as_documented() {
    let home = Home::new();
    let path = home.join("file");
    put(&at(&path), 34, "old").expect("fresh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
    put(&at(&path), 35, "new").expect("newer");
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    let mut names: Vec<_> = fs::read_dir(home.path())
        .expect("there")
        .map(|entry| entry.expect("there").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert_eq!(names, ["file", "file.holdline-lock"]);
}

/// Unless root runs the tests, who may do everything.
#[test]
fn a_directory_that_cannot_be_written_is_reported_and_nothing_changed() {
    let home = Home::new();
    let path = home.join("file");
    put(&at(&path), 34, "old").expect("fresh");
    // A directory in the place of the next content stops even root.
    fs::create_dir(home.join("file.holdline-next")).expect("in the way");
    let reported = put(&at(&path), 35, "new").expect_err("in the way");
    assert_eq!(reported.certainty(), Certainty::NotApplied, "{reported}");
    assert_eq!(at(&path).mark().expect("readable"), Some(token(34)));
    assert_eq!(at(&path).read(&proof(34)).expect("readable"), b"old");
}

#[test]
fn a_write_that_gives_up_changes_nothing() {
    let home = Home::new();
    let file = at(home.join("file"));
    put(&file, 34, "old").expect("fresh");
    let reported = file.check_and_write(&proof(35), |content| {
        content.clear();
        Err::<(), _>(std::io::Error::other("no apples left"))
    });
    assert!(matches!(&reported, Err(FenceError::Write { .. })), "{reported:?}");
    assert_eq!(file.mark().expect("readable"), Some(token(34)));
    assert_eq!(file.read(&proof(34)).expect("readable"), b"old");
}

#[test]
fn a_lock_that_is_removed_is_noticed_before_the_write_counts() {
    let home = Home::new();
    let (file, lock) = (at(home.join("file")), home.join("file.holdline-lock"));
    put(&file, 34, "old").expect("fresh");
    let reported = file.check_and_write(&proof(35), |content| {
        content.clear();
        // Another process now locks a file that is not ours.
        fs::remove_file(&lock).and_then(|()| fs::write(&lock, ""))
    });
    let reported = reported.expect_err("the lock excludes nobody");
    assert!(reported.to_string().contains("while it was locked"), "{reported}");
    assert_eq!(reported.certainty(), Certainty::NotApplied);
    assert_eq!(file.read(&proof(34)).expect("readable"), b"old");
    put(&file, 35, "new").expect("the new lock is as good");

    fs::remove_file(&lock).expect("ours");
    fs::create_dir(&lock).expect("in the way");
    let reported = put(&file, 36, "newer").expect_err("in the way");
    assert!(matches!(reported, FenceError::Foreign { .. }), "{reported}");
}

#[test]
fn a_seal_keeps_the_data() {
    let home = Home::new();
    let path = home.join("file");
    put(&at(&path), 34, "data\nwith\0all\n").expect("fresh");
    FileMark::at(&path).expect("a place").seal(&proof(35)).expect("newer");
    assert_eq!(at(&path).read(&proof(35)).expect("mine"), b"data\nwith\0all\n");
    let text = fs::read(&path).expect("there");
    assert_eq!(text, b"holdline-fence 1 mark=35 bytes=14\ndata\nwith\0all\n");
}
