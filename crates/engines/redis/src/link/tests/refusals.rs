//! Error replies of real servers, to commands and inside scripts.

use super::*;
use crate::link::{Call, Script};

static WRITE: Script = Script::new("write", "return redis.call('SET', KEYS[1], ARGV[1])");
static SPIN: Script = Script::new("spin", "while true do end");

fn write(key: &str) -> Call {
    let (keys, arguments) = (Args::from([key]), Args::from(["v"]));
    Call { script: &WRITE, keys, arguments, routing: RoutingPolicy::Any, deadline: LONG }
}

/// A write is refused in both ways, and nothing of it was done.
async fn refuses(server: &RedisServer, sends_text: &str) {
    let link = link_at(server.address());
    let plain = say(&link, "SET k v").await.expect_err("refused");
    let scripted = link.call(|| write("k")).await.expect_err("refused");
    for error in [plain, scripted] {
        assert!(refused(&error).contains(sends_text), "{error}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    }
    assert_eq!(ask_server(server, "EXISTS k").integer(), Some(0));
}

/// The newest form of each error, and that of the oldest version that is supported.
const FORMS: [Flavour; 2] = [Flavour::Debian, Flavour::Redis6];

#[tokio::test]
async fn a_full_memory() {
    for flavour in FORMS {
        let config = RedisConfig::default().with_maxmemory("1mb", "noeviction");
        let server = RedisServer::start(config.with_flavour(flavour));
        ask_server(&server, "CONFIG SET maxmemory 1");
        refuses(&server, "memory is full").await;
    }
}

#[tokio::test]
async fn a_replica() {
    for flavour in FORMS {
        let master = server();
        let config = RedisConfig::default().with_replica_of(master.address());
        refuses(&RedisServer::start(config.with_flavour(flavour)), "is a replica").await;
    }
}

#[tokio::test]
async fn too_few_replicas() {
    for flavour in FORMS {
        let config = RedisConfig::default().with_line("min-replicas-to-write 1");
        refuses(&RedisServer::start(config.with_flavour(flavour)), "too few replicas").await;
    }
}

#[tokio::test]
async fn a_disk_that_cannot_be_written() {
    for flavour in FORMS {
        let config = RedisConfig::default().with_line("save 3600 1").with_line("dbfilename x.rdb");
        let server = RedisServer::start(config.with_flavour(flavour));
        // A directory stands where the file must go, so saving fails.
        std::fs::create_dir_all(server.directory().join("x.rdb/full")).expect("made");
        let failed = || {
            ask_server(&server, "BGSAVE");
            let info = ask_server(&server, "INFO persistence").text().unwrap_or_default();
            info.contains("rdb_last_bgsave_status:err")
        };
        until("saving has failed", failed).await;
        refuses(&server, "cannot save to disk").await;
    }
}

#[tokio::test]
async fn a_cluster_without_its_slots_and_keys_of_two_slots() {
    let server = RedisServer::start(RedisConfig::default().with_line("cluster-enabled yes"));
    let link = link_at(server.address());
    let error = say(&link, "SET k v").await.expect_err("down");
    assert!(unavailable(&error, Certainty::NotApplied).contains("cluster is down"), "{error}");
    ask_server(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
    let up = || {
        let info = ask_server(&server, "CLUSTER INFO").text().unwrap_or_default();
        info.contains("cluster_state:ok")
    };
    until("the cluster is up", up).await;
    let error = say(&link, "MGET a b").await.expect_err("two slots");
    assert!(refused(&error).contains("several nodes"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
}

#[tokio::test]
async fn a_server_that_runs_somebodys_script_without_end() {
    let config = RedisConfig::default().with_line("busy-reply-threshold 50");
    let server = RedisServer::start(config);
    let spinner = link_at(server.address());
    let link = link_at(server.address());
    let mut raw = server.raw();
    ready(&link).await;
    spinner.ready().await.expect("a connection");
    let (keys, arguments) = (Args::default(), Args::default());
    let spin = Call { script: &SPIN, keys, arguments, routing: RoutingPolicy::Any, deadline: LONG };
    let spinning = tokio::spawn(async move { spinner.call(|| spin.clone()).await });
    // Until it spins for long enough, the server answers in turn, or not at all.
    let error = async {
        loop {
            match say(&link, "SET k v").await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    };
    let error = in_time(error).await;
    assert!(unavailable(&error, Certainty::NotApplied).contains("busy with a script"), "{error}");
    raw.say("SCRIPT KILL").expect("a reply");
    let killed = in_time(spinning).await.expect("no panic").expect_err("killed");
    assert_eq!(killed.certainty(), Certainty::Unknown, "{killed:?}");
}

#[tokio::test]
async fn the_plain_dialect_is_not_taken_for_ours() {
    let error = crate::RedisEngine::new(&options("redis://h?dialect=plain"), clock());
    let error = error.expect_err("another dialect");
    assert!(error.to_string().contains("PlainEngine"), "{error}");
    let error = crate::PlainEngine::new(&options("redis://h"), clock());
    let error = error.expect_err("another dialect");
    assert!(error.to_string().contains("RedisEngine"), "{error}");
}
