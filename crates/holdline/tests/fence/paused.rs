//! The case that fencing is for: a holder is stopped past its lease, another holds and writes,
//! and the first wakes up and writes. Real processes, real servers, on each kind of resource.

use std::net::SocketAddr;
use std::time::Duration;

use holdline::fence::{MysqlFence, PostgresFence, Proof, RedisFence, Refusals};
use holdline::{Client, Guard, LockOptions};
use holdline_services::{RedisConfig, RedisServer};
use mysql_async::prelude::Queryable;
use rustix::process::Signal;

use crate::children::{Process, next_command};
use crate::support::{LONG, client, database, mariadb, mysql_client, soon, word_of};
use crate::web_server::{WebServer, plain};

const NAME: &str = "stock/17";
const KIND: &str = "HOLDLINE_TEST_PAUSED_KIND";
const LOCKS: &str = "HOLDLINE_TEST_PAUSED_LOCKS";
const DATA: &str = "HOLDLINE_TEST_PAUSED_DATA";

/// What holders write to, by its URL or address.
enum Resource {
    Postgres(Box<tokio_postgres::Client>),
    Mysql(Box<mysql_async::Conn>),
    Redis(redis::aio::MultiplexedConnection),
    Http(SocketAddr),
}

impl Resource {
    async fn open(kind: &str, data: &str) -> Resource {
        match kind {
            "postgres" => Resource::Postgres(Box::new(client(data).await)),
            "mysql" => Resource::Mysql(Box::new(mysql_client(data).await)),
            "redis" => {
                let redis = redis::Client::open(data).expect("a URL");
                Resource::Redis(redis.get_multiplexed_async_connection().await.expect("connected"))
            }
            _ => Resource::Http(data.parse().expect("an address")),
        }
    }

    /// Seals, before the first read.
    async fn seal(&mut self, proof: &Proof) {
        match self {
            Resource::Postgres(db) => {
                PostgresFence::new(NAME).seal(&**db, proof).await.expect("sealed");
            }
            Resource::Mysql(db) => {
                MysqlFence::new(NAME).seal(&mut **db, proof).await.expect("sealed");
            }
            Resource::Redis(db) => {
                let call = RedisFence::new(NAME).expect("a key").seal(proof).expect("a call");
                call.outcome(&eval(db, &call.words()).await).expect("sealed");
            }
            Resource::Http(address) => {
                let head = format!("GET /stock/17 token={}", proof.token());
                let answer = plain(*address, &head, "");
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            }
        }
    }

    /// Writes a number by check-and-write, and says in words what came of it.
    async fn put(&mut self, proof: &Proof, apples: i32) -> String {
        match self {
            Resource::Postgres(db) => {
                let answer = PostgresFence::new(NAME)
                    .check_and_write(&mut **db, proof, async |step| {
                        step.execute("UPDATE stock SET apples = $1", &[&apples]).await
                    })
                    .await;
                word_of(&answer)
            }
            Resource::Mysql(db) => {
                let answer = MysqlFence::new(NAME)
                    .check_and_write(db, proof, async |step| {
                        step.exec_drop("UPDATE stock SET apples = ?", (apples,)).await
                    })
                    .await;
                word_of(&answer)
            }
            Resource::Redis(db) => {
                let fence = RedisFence::new(NAME).expect("a key");
                let call = fence.check_and_set(proof, apples.to_string()).expect("a call");
                word_of(&call.outcome(&eval(db, &call.words()).await))
            }
            Resource::Http(address) => {
                let head = format!("PUT /stock/17 token={}", proof.token());
                let answer = plain(*address, &head, &apples.to_string());
                if answer.starts_with("HTTP/1.1 200") {
                    return "yes".to_owned();
                }
                assert!(answer.starts_with("HTTP/1.1 412"), "{answer}");
                let body = answer.split_once("\r\n\r\n").expect("a body").1;
                let problem: serde_json::Value = serde_json::from_str(body).expect("JSON");
                format!("stale {} {}", problem["mine"], problem["seen"])
            }
        }
    }
}

/// Writes as if there were no fence, which a service behind the layer does not let anybody do.
async fn put_unfenced(resource: &mut Resource, apples: i32) {
    match resource {
        Resource::Postgres(db) => {
            db.execute("UPDATE stock SET apples = $1", &[&apples]).await.expect("written");
        }
        Resource::Mysql(db) => {
            db.exec_drop("UPDATE stock SET apples = ?", (apples,)).await.expect("written");
        }
        Resource::Redis(db) => {
            let set = redis::cmd("SET").arg(NAME).arg(apples).query_async(db).await;
            let _: String = set.expect("written");
        }
        Resource::Http(_) => {}
    }
}

async fn eval(db: &mut redis::aio::MultiplexedConnection, words: &[Vec<u8>]) -> String {
    let (verb, rest) = words.split_first().expect("a verb");
    let verb = std::str::from_utf8(verb).expect("text");
    redis::cmd(verb).arg(rest).query_async(db).await.expect("an answer")
}

async fn hold(locks: &str) -> (Client, Guard) {
    let client = Client::connect(locks).await.expect("connected");
    let options =
        LockOptions::default().with_lease_duration(Duration::from_secs(3)).with_wait(LONG);
    let mutex = client.mutex_with(NAME, &options).expect("a good lock");
    let guard = mutex.lock().await.expect("the lock");
    (client, guard)
}

/// The process that the tests stop; does nothing when run by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder() {
    let Ok(kind) = std::env::var(KIND) else { return };
    let variable = |name| std::env::var(name).expect("set by the test");
    let mut resource = Resource::open(&kind, &variable(DATA)).await;
    let (_client, guard) = hold(&variable(LOCKS)).await;
    let proof = Proof::exclusive_of(&guard).expect("exclusive");
    resource.seal(&proof).await;
    println!("\nholding {}", proof.token());
    next_command().await;
    // It does not know that it has been stopped, and does not ask.
    println!("wrote: {}", resource.put(&proof, 8).await);
    println!("refusals: {}", Refusals::of_this_process().total());
    next_command().await;
    put_unfenced(&mut resource, 7).await;
    println!("wrote unfenced: done");
}

/// Stops a holder past its lease, lets another hold and write, wakes the first up, and sees its
/// write refused. `stored` reads the resource behind everybody's back; at the end the same holder
/// writes without the fence, to show that nothing else has kept it.
async fn pause(kind: &str, locks: &str, data: &str, stored: impl Fn() -> String) {
    let variables = [(KIND, kind), (LOCKS, locks), (DATA, data)];
    let mut holder = Process::start("paused::one_holder", &variables);
    let mine: u64 = holder.says("holding ").parse().expect("a token");
    holder.stop();

    let mut resource = Resource::open(kind, data).await;
    let (_client, guard) = soon("the end of the stopped holder's lease", hold(locks)).await;
    let proof = Proof::exclusive_of(&guard).expect("exclusive");
    assert!(proof.token().get() > mine);
    resource.seal(&proof).await;
    assert_eq!(resource.put(&proof, 9).await, "yes");

    holder.signal(Signal::CONT);
    holder.send("go");
    let late_write = tokio::task::spawn_blocking(move || {
        let wrote = holder.says("wrote: ");
        (wrote, holder.says("refusals: "), holder)
    });
    let (wrote, refusals, mut holder) = soon("the late write", late_write).await.expect("no panic");
    assert_eq!(wrote, format!("stale {mine} {}", proof.token()));
    // Of HTTP the service counts, and not its caller.
    assert_eq!(refusals, if kind == "http" { "0" } else { "1" });
    assert_eq!(stored(), "9");
    // Who holds now goes on undisturbed.
    assert_eq!(resource.put(&proof, 9).await, "yes");

    holder.send("go");
    let done = tokio::task::spawn_blocking(move || holder.says("wrote unfenced: "));
    soon("the unfenced write", done).await.expect("no panic");
    assert_eq!(stored(), if kind == "http" { "9" } else { "7" });
}

#[tokio::test]
async fn a_stopped_holder_writes_no_row_of_postgres() {
    let server = database();
    let stored = || server.sql("SELECT apples FROM stock").concat();
    pause("postgres", &server.url(), &server.url(), stored).await;
}

#[tokio::test]
async fn a_stopped_holder_writes_no_row_of_mariadb() {
    let (locks, server) = (RedisServer::start(RedisConfig::default()), mariadb());
    let stored = || server.sql("SELECT apples FROM stock").concat();
    let url = format!("redis://{}", locks.address());
    pause("mysql", &url, &server.url(), stored).await;
}

#[tokio::test]
async fn a_stopped_holder_writes_no_key_of_redis() {
    let server = RedisServer::start(RedisConfig::default());
    let url = format!("redis://{}", server.address());
    let look = || server.raw().say("GET stock/17").expect("an answer").text();
    pause("redis", &url, &url, || look().unwrap_or_default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_holder_is_refused_by_an_http_service() {
    let server = RedisServer::start(RedisConfig::default());
    let web = WebServer::start().await;
    let locks = format!("redis://{}", server.address());
    let newest = Proof::exclusive(holdline::FencingToken::MAX);
    let stored = || web.stock.read(&newest, String::clone).expect("readable");
    pause("http", &locks, &web.address.to_string(), stored).await;
}
