//! The keys after each step, as a Redisson client expects them, and what is not ours under a name.

use holdline_core::{Engine, ErrorKind, FencingToken, LockKind, Mode, ReleaseReply};
use holdline_services::{RedisConfig, RedisServer, Reply};

use crate::support::{behind, ending, engine, name, request, take};

fn server() -> RedisServer {
    RedisServer::start(RedisConfig::default())
}

fn texts(reply: &Reply) -> Vec<String> {
    reply.items().expect("a list").iter().filter_map(Reply::text).collect()
}

fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys = texts(&behind(server, &["KEYS", "*"]));
    keys.sort();
    keys
}

#[tokio::test]
async fn a_mutex_is_a_fenced_lock() {
    let server = server();
    let engine = engine(&server, "").await;
    let held = request("a");
    let token = take(&engine, &held).await;
    assert_eq!(token, FencingToken::MIN);
    assert_eq!(keys(&server), ["a", "redisson_lock_token:{a}"]);
    let fields = texts(&behind(&server, &["HKEYS", "a"]));
    let owner = fields.iter().find(|field| *field != "holdline").expect("an owner");
    let count = behind(&server, &["HGET", "a", owner]).text();
    assert_eq!(count.as_deref(), Some("1"));
    let left = behind(&server, &["PTTL", "a"]).integer().expect("a number");
    assert!((1..=30_000).contains(&left), "{left}");
    // What Redisson draws comes between ours.
    behind(&server, &["INCR", "redisson_lock_token:{a}"]);
    let released = engine.release(&ending(&held, false)).await.expect("released");
    assert!(matches!(released, ReleaseReply::Released { held_for: Some(_) }), "{released:?}");
    assert_eq!(keys(&server), ["redisson_lock_token:{a}"]);
    assert_eq!(take(&engine, &request("a")).await.get(), 3);
}

/// Redisson's own read/write lock takes this for a free one.
#[tokio::test]
async fn what_is_not_of_the_requested_kind_is_foreign_and_stays_as_it_is() {
    const OWNER: &str = "b983c153-7421-469a-addb-44fb92259a1b:47";
    let server = server();
    let engine = engine(&server, "").await;
    let writer = format!("{OWNER}:write");
    let plants: [(&[&str], &str, bool, bool); 14] = [
        (&["HSET", "a", OWNER, "1"], "a lock without readers", false, true),
        (&["HSET", "a", "mode", "read", OWNER, "1"], "a read/write lock", true, false),
        (&["HSET", "a", "mode", "write", &writer, "1"], "a read/write lock", true, false),
        (&["HSET", "a", "mode", "neither", OWNER, "1"], "the mode 'neither'", true, true),
        (&["HSET", "a", OWNER, "-1"], "a hold count of '-1'", true, true),
        (&["HSET", "a", OWNER, "one"], "a hold count of 'one'", true, true),
        (&["HSET", "a", "mine", "1"], "a hash with the field 'mine'", true, true),
        (&["HSET", "a", &writer, "1"], ":write'", true, true),
        (
            &["HSET", "a", OWNER, "1", "b983c153-7421-469a-addb-44fb92259a1c:1", "1"],
            "2",
            true,
            true,
        ),
        (&["SET", "a", "3"], "a number", true, true),
        (&["SET", "a", "text"], "a string", true, true),
        (&["RPUSH", "a", OWNER], "a list", true, true),
        (&["ZADD", "a", "1", OWNER], "a zset", true, true),
        (&["SADD", "a", OWNER], "a set", true, true),
    ];
    for (plant, found, for_mutex, for_readers) in plants {
        behind(&server, plant);
        let before = behind(&server, &["DUMP", "a"]);
        for (mode, kind, is_foreign) in [
            (Mode::Exclusive, LockKind::Mutex, for_mutex),
            (Mode::Exclusive, LockKind::ReadWrite, for_readers),
            (Mode::Shared, LockKind::ReadWrite, for_readers),
        ] {
            let mut attempt = request("a");
            (attempt.mode, attempt.kind) = (mode, kind);
            let reply = engine.try_acquire(&attempt).await;
            let seen = match &reply {
                Err(error) => match error.kind() {
                    ErrorKind::Foreign { found } => Some(found.clone()),
                    _ => None,
                },
                Ok(_) => None,
            };
            match is_foreign {
                true => assert!(
                    seen.as_ref().is_some_and(|seen| seen.contains(found)),
                    "{plant:?} {mode:?} {kind:?}: {reply:?}"
                ),
                false => assert!(reply.is_ok() && seen.is_none(), "{plant:?}: {reply:?}"),
            }
            // A reader may join readers.
            drop(engine.release(&ending(&attempt, false)).await);
        }
        assert_eq!(behind(&server, &["DUMP", "a"]), before, "{plant:?}");
        behind(&server, &["DEL", "a"]);
        assert!(!engine.inspect(&name("a")).await.expect("free").is_held());
    }
}
