//! What is typed: names of every kind, durations out of range, and very many waiters.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use holdline::admin::ListRequest;
use holdline::{Client, ErrorKind, LockError, LockOptions};
use holdline_services::RedisServer;

use crate::support::{
    Referee, behind, clean, client, client_at, lease, let_go, patient, queued, server, soon, take,
    until,
};

fn invalid(outcome: Result<impl Sized, LockError>, what: &str) {
    let Err(error) = outcome else { panic!("accepted: {what}") };
    assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{what}: {error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_refused_or_its_own_lock() {
    let server = server();
    let client = client_at(server.address()).await;
    names_are_refused_or_locks_of_their_own(&client, &server).await;
    clean(&server, &[&client]).await;
}

/// The same for any way to this server.
pub(crate) async fn names_are_refused_or_locks_of_their_own(client: &Client, server: &RedisServer) {
    let long = "x".repeat(1_000_000);
    for bad in ["", "a\0b", "a\r\nb", "a\x1b[31m", "\u{85}", &long] {
        invalid(client.mutex(bad), bad);
    }
    // Names that try to be another's key, slot or pattern, and names that only look alike.
    let good = [
        "a",
        "a:1q",
        "a:1d",
        "a}:1d",
        "{a}",
        "{a}:1t:",
        "{",
        "}",
        "{}",
        "}{",
        "%7B",
        "%257B",
        "%",
        "holdline:{a}",
        "fence",
        "inbox:0",
        "*",
        "[a]",
        "a*",
        "?",
        "\\",
        "a b",
        " ",
        "'\"",
        "-1",
        "é",
        "e\u{301}",
        "ключ",
        "🔒",
        "\u{202e}abc",
        "\u{200b}",
        "A",
    ];
    let mut guards = Vec::new();
    for name in good {
        guards.push(take(client, name, &patient()).await);
    }
    let tokens: BTreeSet<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
    assert_eq!(tokens.len(), good.len(), "no two of them are one lock");
    let request = ListRequest { limit: 1_000, ..ListRequest::default() };
    let listed = soon("a list", client.admin().list(&request)).await.expect("an answer").names;
    let listed: BTreeSet<String> =
        listed.iter().map(|shown| shown.name.as_str().to_owned()).collect();
    assert_eq!(listed, good.iter().map(|name| (*name).to_owned()).collect(), "byte for byte");
    let locks = behind(server, "KEYS holdline:{*}").items().expect("a list").len();
    assert_eq!(locks, good.len());
    for guard in guards {
        let_go(guard).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durations_out_of_range_are_refused_before_anything_is_asked() {
    let server = server();
    let client = client_at(server.address()).await;
    let asked = || {
        let stats = behind(&server, "INFO commandstats").text().expect("text");
        stats.contains("cmdstat_evalsha")
    };
    let day = Duration::from_secs(24 * 3_600);
    for duration in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(49),
        day + Duration::from_millis(1),
        Duration::from_secs(1 << 53),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ] {
        let options = LockOptions::default().with_lease_duration(duration);
        invalid(client.mutex_with("a", &options), &format!("{duration:?}"));
    }
    let hasty = lease(1_000).with_renew_interval(Duration::from_millis(999));
    invalid(client.mutex_with("a", &hasty), "no time for a renewal");
    invalid(client.semaphore("a", 0), "no permits");
    assert!(!asked(), "the server was asked");
    for duration in [Duration::from_millis(50), day] {
        let options = LockOptions::default().with_lease_duration(duration);
        let mutex = client.mutex_with("a", &options).expect("in range");
        match soon("the lock", mutex.lock()).await {
            Ok(guard) => assert!(guard.remaining() <= duration),
            // Granted as well, but to a machine that was busy for longer.
            Err(error) => assert!(error.to_string().contains("had expired"), "{error:?}"),
        }
    }
    // As long a wait as there is ends by the release, not by an overflow.
    let guard = take(&client, "b", &patient()).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { take(&client, "b", &patient().with_wait(Duration::MAX)).await }
    });
    queued(&server, "b", 1).await;
    let_go(guard).await;
    let_go(soon("the lock", waiting).await.expect("no panic")).await;
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_are_served_in_order_by_a_wake_up_each() {
    const COUNT: usize = 1_000;
    let server = server();
    let at = server.address();
    let url = format!("redis://{at}?max_waiters={COUNT}&command_timeout_ms=5000");
    let (holder, waiters) = (client(&url).await, client(&url).await);
    let guard = take(&holder, "a", &patient()).await;
    let referee = Referee::default();
    let wait = |_| async {
        let guard =
            take(&waiters, "a", &patient().with_lease_duration(Duration::from_secs(20))).await;
        referee.granted(&guard);
        let_go(guard).await;
    };
    let all = join_all((0..COUNT).map(wait));
    let release = async {
        queued(&server, "a", COUNT).await;
        let mutex = holder.mutex_with("a", &patient()).expect("a good lock");
        let full = soon("an answer", mutex.lock()).await.expect_err("the line is full");
        assert_eq!(*full.kind(), ErrorKind::TooManyWaiters { limit: COUNT });
        behind(&server, "CONFIG RESETSTAT");
        let_go(guard).await;
    };
    futures_util::future::join(release, all).await;
    assert_eq!(referee.grants(), COUNT);
    let stats = behind(&server, "INFO commandstats").text().expect("text");
    let published = stats.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
    let published: usize =
        published.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0);
    // Each hand-off wakes one; a few more where a process had just become deaf.
    assert!((COUNT..COUNT + COUNT / 10).contains(&published), "{published} messages");
    until("the line is gone", || behind(&server, "EXISTS holdline:{a}:1q").integer() == Some(0))
        .await;
    clean(&server, &[&holder, &waiters]).await;
}
