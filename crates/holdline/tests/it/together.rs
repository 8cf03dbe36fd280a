//! Owners, several names, shared and permit modes, bodies, leases out of the process.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use holdline::{ErrorKind, Keep, LockOptions, LostReason, Mode, OnLost, Owner, ReleaseOutcome};

use crate::faulty::{Call, Fate, Faulty};
use crate::support::{client, drive, engine, look, pass, settle};

const S: Duration = Duration::from_secs(1);

#[tokio::test]
async fn an_owner_enters_again_and_the_last_one_releases() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let mutex = client.mutex("a").expect("good");
    let (owner, other) = (Owner::new(), Owner::new());
    let outer = mutex.lock_as(&owner).await.expect("free");
    let inner = mutex.lock_as(&owner.clone()).await.expect("nests");
    let third = mutex.try_lock_as(&owner).await.expect("nests");
    assert_eq!(
        (outer.fencing_token(), outer.lease_id()),
        (inner.fencing_token(), inner.lease_id())
    );
    let error = mutex.try_lock_as(&other).await.expect_err("another owner");
    assert!(error.is_contended());
    assert_eq!(outer.release().await, ReleaseOutcome::Nested { depth: 2 });
    drop(third);
    settle().await;
    assert!(inner.is_valid());
    assert!(matches!(inner.release().await, ReleaseOutcome::Released { confirmed: true, .. }));
    let next = mutex.try_lock_as(&other).await.expect("free");
    assert!(matches!(next.detach().await, Err(error) if !error.error().is_contended()));
    settle().await;
    assert_eq!(look(&client, "a").await.holder_count, 0, "the guard came back and was dropped");
}

#[tokio::test]
async fn two_tasks_of_one_owner_share_one_attempt() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 2);
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let owner = Owner::new();
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let (mutex, owner) = (mutex.clone(), owner.clone());
            tokio::spawn(async move { mutex.lock_as(&owner).await })
        })
        .collect();
    settle().await;
    assert_eq!(look(&client, "a").await.queue_length, 1);
    let _ = first.release().await;
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.expect("no panic").expect("shared"));
    }
    assert!(guards.windows(2).all(|pair| pair[0].lease_id() == pair[1].lease_id()));
    drop(guards);
    settle().await;
    assert_eq!(look(&client, "a").await.holder_count, 0);
}

#[tokio::test]
async fn an_owner_whose_grant_is_lost_gets_lost_at_the_next_entry() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 3);
    let options = LockOptions::default().with_keep(Keep::Fixed);
    let mutex = client.mutex_with("a", &options).expect("fits");
    let owner = Owner::new();
    let outer = mutex.lock_as(&owner).await.expect("free");
    pass(&clock, 31 * S).await;
    let error = mutex.lock_as(&owner).await.expect_err("lost");
    assert!(matches!(error.kind(), ErrorKind::Lost { reason: LostReason::RanOut }), "{error}");
    assert!(!outer.release().await.is_released());
    let _ = mutex.lock_as(&owner).await.expect("a new grant").release().await;
}

#[tokio::test]
async fn several_names_all_or_none() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 4);
    let held = client.mutex("c").expect("good").lock().await.expect("free");
    let options = LockOptions::default().with_wait(2 * S);
    let names = ["d", "b", "c", "a"];
    let taking = {
        let (client, options) = (client.clone(), options.clone());
        async move { client.lock_all_with(names, &options).await }
    };
    let error = drive(&clock, taking).await.expect_err("c is held");
    assert_eq!(error.name().map(|name| name.as_str()), Some("c"));
    for name in ["a", "b", "d"] {
        assert_eq!(look(&client, name).await.holder_count, 0, "{name}");
    }
    let _ = held.release().await;
    let all = client.lock_all(names).await.expect("all free");
    let taken: Vec<_> = all.guards().iter().map(|guard| guard.name().as_str()).collect();
    assert_eq!(taken, ["a", "b", "c", "d"]);
    assert!(all.is_valid());
    assert!(all.release().await.iter().all(ReleaseOutcome::is_released));
    for bad in [vec!["a", "b", "a"], vec![]] {
        let error = client.lock_all(bad).await.expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Invalid { field: "names", .. }), "{error}");
    }
}

#[tokio::test]
async fn overlapping_sets_never_wait_in_a_circle() {
    let (engine, clock) = engine();
    let clients = [client(engine.clone(), &clock, 5), client(engine, &clock, 6)];
    let tasks: Vec<_> = (0..2)
        .map(|n| {
            let client = clients[n].clone();
            let names = [["x", "y", "z"], ["z", "y", "x"]][n];
            tokio::spawn(async move {
                for _ in 0..20 {
                    let all = client.lock_all(names).await.expect("in the end");
                    tokio::task::yield_now().await;
                    let _ = all.release().await;
                }
            })
        })
        .collect();
    drive(&clock, async {
        for task in tasks {
            task.await.expect("no panic");
        }
    })
    .await;
}

#[tokio::test]
async fn readers_share_and_a_waiting_writer_stops_later_ones() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 7);
    let lock = client.rwlock("a").expect("good");
    let one = lock.read().await.expect("free");
    let two = lock.try_read().await.expect("shared");
    assert_eq!(one.mode(), Mode::Shared);
    let writing = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.write().await })
    };
    settle().await;
    assert!(lock.try_read().await.is_err_and(|error| error.is_contended()));
    let _ = one.release().await;
    let _ = two.release().await;
    let writer = writing.await.expect("no panic").expect("alone");
    assert_eq!(writer.mode(), Mode::Exclusive);
    // A mutex of the same name is the same lock.
    assert!(client.mutex("a").expect("good").try_lock().await.is_err());
    let _ = writer.release().await;
}

#[tokio::test]
async fn a_large_request_for_permits_is_served_in_the_end() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 8);
    let permits = client.semaphore("a", 3).expect("good");
    let one = permits.acquire().await.expect("free");
    let large = {
        let permits = permits.clone();
        tokio::spawn(async move { permits.acquire_many(3).await })
    };
    settle().await;
    assert!(permits.try_acquire().await.is_err_and(|error| error.is_contended()));
    let other = client.semaphore("a", 4).expect("good").try_acquire().await.expect_err("3, not 4");
    assert!(matches!(other.kind(), ErrorKind::Invalid { .. }), "{other}");
    let _ = one.release().await;
    let _ = large.await.expect("no panic").expect("all three").release().await;
    for bad in [0, 4] {
        assert!(permits.try_acquire_many(bad).await.is_err());
    }
}

#[tokio::test]
async fn a_body_is_dropped_or_notified_when_the_lease_is_lost() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 9);
    let fine = client.mutex("fine").expect("good").run(async |held| held.is_valid()).await;
    let fine = fine.expect("ran");
    assert!(fine.outcome().is_released());
    assert!(fine.into_output());
    faulty.line.judge(|call, _| if call == Call::Renew { Fate::Unavailable } else { Fate::Good });
    let endless = {
        let mutex = client.mutex("a").expect("good");
        async move { mutex.run(async |_| std::future::pending::<()>().await).await.map(drop) }
    };
    let error = drive(&clock, endless).await.expect_err("dropped");
    assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
    let notified = {
        let options = LockOptions::default().with_on_lost(OnLost::Notify);
        let mutex = client.mutex_with("b", &options).expect("fits");
        async move {
            mutex
                .run(async |held| {
                    held.cancellation_token().cancelled().await;
                    "tidied up"
                })
                .await
        }
    };
    let ran = drive(&clock, notified).await.expect("ran to its end");
    assert_eq!(ran.outcome(), &ReleaseOutcome::Lost { reason: LostReason::Expired });
    assert_eq!(ran.into_output(), "tidied up");
}

#[tokio::test]
async fn a_lease_goes_from_one_process_to_another() {
    let (engine, clock) = engine();
    let giver = client(engine.clone(), &clock, 10);
    let taker = client(engine, &clock, 11);
    let guard = giver.mutex("a").expect("good").lock().await.expect("free");
    let (token, held) = (guard.fencing_token(), guard.held());
    let lease = guard.detach().await.expect("memory can");
    assert!(!held.is_valid(), "the giver must not believe any longer");
    pass(&clock, 20 * S).await;
    assert!(taker.leases().renew(&lease).await.expect("still there") > 29 * S);
    pass(&clock, 20 * S).await;
    let taken = taker.leases().attach(&lease).await.expect("still there");
    assert_eq!(taken.fencing_token(), token);
    pass(&clock, 120 * S).await;
    assert!(taken.is_valid(), "it is kept from now on");
    let lease = taken.detach().await.expect("again");
    assert!(giver.leases().release(&lease).await.expect("known").is_released());
    let gone = taker.leases().attach(&lease).await.expect_err("released");
    assert!(matches!(gone.kind(), ErrorKind::Lost { reason: LostReason::Missing }), "{gone}");
    let outcome = giver.leases().release(&lease).await.expect("asked");
    assert_eq!(outcome, ReleaseOutcome::Lost { reason: LostReason::Missing });
    let elsewhere = holdline::Client::connect("memory:elsewhere").await.expect("made");
    let error = elsewhere.leases().attach(&lease).await.expect_err("another store");
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "lease", .. }), "{error}");
}

#[tokio::test]
async fn a_client_that_is_shut_down_starts_nothing_and_keeps_its_guards() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 12);
    let mutex = client.mutex("a").expect("good");
    let guard = mutex.lock().await.expect("free");
    let report = client.shutdown(S).await;
    assert!(!report.is_clean());
    assert_eq!((report.held(), report.left()), (1, 0));
    let error = mutex.lock().await.expect_err("closed");
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    pass(&clock, 60 * S).await;
    assert!(guard.is_valid());
    let _ = guard.release().await;
    assert!(client.shutdown(S).await.is_clean());
}

#[tokio::test]
async fn urls_name_what_is_wrong_with_them() {
    for (url, says) in [
        ("memroy:", "did you mean 'memory:'"),
        ("zookeeper://h/locks", "no engine 'zookeeper:': write 'zk:'"),
        ("redis+cluster://u:secret@h", "write 'redis-cluster:'"),
        ("memory", "has no scheme"),
        ("memory:a?lease=1", "no parameters"),
        ("mongodb://u:secret@h/0", "no engine of that scheme"),
        ("secret:u@h", "no engine"),
        ("REDIS+CLUSTER://u:secret@h", "write 'redis-cluster:'"),
        ("memory:secret\n", "line feed"),
        ("host=h password=secret", "libpq"),
        ("", "has no scheme"),
    ] {
        let error = holdline::Client::connect(url).await.expect_err(url).to_string();
        assert!(error.contains(says), "{url}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

/// Runs in a process of its own, started by the test below.
#[tokio::test]
async fn print_what_the_environment_names() {
    if std::env::var_os("HOLDLINE_TEST_CHILD").is_some() {
        match holdline::Client::from_env().await {
            Ok(client) => println!("identity {}", client.capabilities().identity),
            Err(error) => println!("error {error}"),
        }
    }
}

#[test]
fn the_environment_names_the_engine() {
    let no_text = std::ffi::OsStr::from_bytes(b"memory:\xff");
    for (url, says) in [
        ("memory:from-env".as_ref(), "identity memory:from-env"),
        ("".as_ref(), "HOLDLINE_URL: is empty"),
        (no_text, "HOLDLINE_URL: is not UTF-8"),
        ("memory:a\n".as_ref(), "HOLDLINE_URL: ends with a line feed"),
    ] {
        let printed = with_environment(&[(holdline::Client::URL_VARIABLE, url)]);
        assert!(printed.contains(says), "{printed}");
    }
}

#[test]
fn a_required_server_makes_a_missing_url_an_error() {
    let required = ("HOLDLINE_REQUIRE_SERVER", "1".as_ref());
    let url = |url: &'static str| (holdline::Client::URL_VARIABLE, url.as_ref());
    for (variables, says) in [
        (&[required][..], "is not set, and HOLDLINE_REQUIRE_SERVER requires a server"),
        (&[required, url("memory:a")], "names no server"),
        (&[required, url("LOCAL:")], "names no server"),
        (&[("HOLDLINE_REQUIRE_SERVER", "0".as_ref()), url("memory:a")], "identity memory:a"),
    ] {
        let printed = with_environment(variables);
        assert!(printed.contains(says), "{printed}");
    }
}

/// Runs [`print_what_the_environment_names`] with these variables.
fn with_environment(variables: &[(&str, &std::ffi::OsStr)]) -> String {
    let output = std::process::Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "together::print_what_the_environment_names", "--nocapture"])
        .env_remove(holdline::Client::URL_VARIABLE)
        .env("HOLDLINE_TEST_CHILD", "1")
        .envs(variables.iter().copied())
        .output()
        .expect("runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_users_hold_goes_to_any_thread() {
    fn goes<T: Send + Sync + 'static>() {}
    goes::<holdline::Client>();
    goes::<holdline::Mutex>();
    goes::<holdline::RwLock>();
    goes::<holdline::Semaphore>();
    goes::<holdline::Guard>();
    goes::<holdline::Guards>();
    goes::<holdline::Held>();
    goes::<holdline::Owner>();
    goes::<holdline::Lease>();
    goes::<holdline::LockError>();
    goes::<holdline::blocking::Guard>();
}
