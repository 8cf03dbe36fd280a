//! The client crate of our engine, on a fake server, unchanged.

use std::sync::Arc;
use std::time::Duration;

use holdline::clock::{Clock, ManualClock};
use holdline_sim::{Memory, RedisHost, RedisOptions, RedisStream, Reply, World};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisResult, Value};

type DriverTask = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

async fn open(
    host: &RedisHost,
    protocol: ProtocolVersion,
    config: AsyncConnectionConfig,
) -> RedisResult<(MultiplexedConnection, DriverTask)> {
    let stream: RedisStream = host.connect()?;
    let info = RedisConnectionInfo::default().set_protocol(protocol);
    let config = config.set_response_timeout(None).set_connection_timeout(None);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&info, stream, config).await?;
    Ok((connection, Box::pin(driver)))
}

#[tokio::test]
async fn the_client_crate_runs_on_a_fake_server() {
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
        let host = RedisHost::new(clock, RedisOptions::default());
        let (mut connection, driver) =
            open(&host, protocol, AsyncConnectionConfig::new()).await.expect("a handshake");
        let driver = tokio::spawn(driver);
        let mut script = redis::cmd("EVAL");
        script.arg("return {KEYS[1], redis.call('incr', KEYS[1])}").arg(1).arg("n");
        let answer: (String, i64) = script.query_async(&mut connection).await.expect("a script");
        assert_eq!(answer, ("n".to_owned(), 1));
        // The end of the connection is seen by the driver, without a command.
        host.server().crash();
        driver.await.expect("the driver ends");
        let late: RedisResult<Value> = redis::cmd("PING").query_async(&mut connection).await;
        assert!(late.is_err());
        host.server().restart(Memory::Kept);
        let (mut connection, driver) =
            open(&host, protocol, AsyncConnectionConfig::new()).await.expect("a handshake");
        tokio::spawn(driver);
        let n: i64 = redis::cmd("GET").arg("n").query_async(&mut connection).await.expect("n");
        assert_eq!(n, 1);
    }
}

#[tokio::test]
async fn a_message_of_a_direct_call_wakes_a_subscriber() {
    let host = RedisHost::new(Arc::new(ManualClock::new()), RedisOptions::default());
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(sender);
    let (mut connection, driver) =
        open(&host, ProtocolVersion::RESP3, config).await.expect("a handshake");
    tokio::spawn(driver);
    redis::cmd("SUBSCRIBE").arg("c").exec_async(&mut connection).await.expect("a subscription");
    // So that the driver has nothing left to do but to wait for the server.
    tokio::task::yield_now().await;
    let operator = host.server().connect().expect("it is up");
    let replies = host.server().execute(operator, &[b"publish", b"c", b"hello"]);
    assert_eq!(replies, [Reply::Integer(1)]);
    let received = async {
        while let Some(push) = pushes.recv().await {
            if push.kind == redis::PushKind::Message {
                return push.data.len();
            }
        }
        0
    };
    let received = tokio::time::timeout(Duration::from_secs(10), received).await;
    assert_eq!(received.expect("it is notified"), 2);
}

/// Contenders for one key, each waiting by a subscription: what they did, in order.
fn trace(seed: u64) -> (Vec<String>, u64) {
    let mut world = World::new(seed);
    let host = RedisHost::new(world.clock(), RedisOptions::default().with_seed(seed));
    let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
    for name in 0..4 {
        let (host, clock, log) = (host.clone(), world.clock(), log.clone());
        let spawner = world.spawner();
        world.spawn(async move {
            let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
            let config = AsyncConnectionConfig::new().set_push_sender(sender);
            let (mut connection, driver) =
                open(&host, ProtocolVersion::RESP3, config).await.expect("a handshake");
            spawner.spawn(driver);
            let mut subscribe = redis::cmd("SUBSCRIBE");
            subscribe.arg("freed").exec_async(&mut connection).await.expect("a subscription");
            loop {
                let mut set = redis::cmd("SET");
                set.arg("lock").arg(name).arg("NX").arg("PX").arg(1000);
                let reply: Value = set.query_async(&mut connection).await.expect("an answer");
                if reply == Value::Okay {
                    break;
                }
                pushes.recv().await.expect("a message");
            }
            log.lock().push(format!("{name} holds at {}", clock.now().as_nanos()));
            let end = clock.now().after(Duration::from_millis(70 + name * 10));
            clock.sleep_until(end).await;
            log.lock().push(format!("{name} ends"));
            let release = "redis.call('del', KEYS[1]) return redis.call('publish', 'freed', 1)";
            let mut eval = redis::cmd("EVAL");
            eval.arg(release).arg(1).arg("lock");
            let _: i64 = eval.query_async(&mut connection).await.expect("a release");
        });
    }
    world.run_all(Duration::from_secs(60)).expect("all get their turn");
    let log = log.lock().clone();
    let commands = host.server().commands_run();
    (log, commands)
}

#[test]
fn the_same_seed_repeats_the_world() {
    let (log, commands) = trace(5);
    assert_eq!(log.len(), 8);
    assert!(log.chunks(2).all(|pair| pair[0][..1] == pair[1][..1]), "{log:?}");
    assert_eq!(trace(5), (log.clone(), commands));
    assert!((6..12).any(|seed| trace(seed).0 != log));
}
