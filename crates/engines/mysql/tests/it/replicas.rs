//! A replica takes over. Without the newest commits something is lost, and an operator repairs it;
//! with all of them nothing is lost.

use holdline_core::{Engine, FencingToken, Operation};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{engine, eventually, let_go, request, take};

pub(crate) fn server(id: u32) -> MariaDbServer {
    let config = MariaDbConfig::default().with_line(format!("server-id={id}"));
    MariaDbServer::start(config.with_line("log-bin=binlog").with_line("binlog-format=ROW"))
}

/// The last commit of a server.
fn position(server: &MariaDbServer) -> String {
    server.sql("select @@global.gtid_binlog_pos").concat()
}

/// Starts replication from the primary on a replica that has committed nothing.
pub(crate) fn follow(primary: &MariaDbServer, replica: &MariaDbServer) {
    replica.sql("reset master");
    repeat(primary, replica);
}

/// Starts replication from another server.
pub(crate) fn repeat(primary: &MariaDbServer, replica: &MariaDbServer) {
    primary.sql(
        "create user copier@'%' identified by 'copy'; \
         grant replication slave on *.* to copier@'%'",
    );
    let (at, port) = (position(primary), primary.address().port());
    replica.sql(&format!(
        "set global gtid_slave_pos = '{at}'; \
         change master to master_host = '127.0.0.1', master_port = {port}, \
         master_user = 'copier', master_password = 'copy', master_use_gtid = slave_pos; \
         start slave"
    ));
}

pub(crate) fn await_repeated(primary: &MariaDbServer, replica: &MariaDbServer) {
    let at = position(primary);
    assert_eq!(replica.sql(&format!("select master_gtid_wait('{at}', 60)")), ["0"]);
}

/// Waits until a replica acknowledges to the primary.
pub(crate) async fn await_answering(primary: &MariaDbServer) {
    let clients = "show global status like 'Rpl_semi_sync_master_clients'";
    let one = ["Rpl_semi_sync_master_clients|1"];
    eventually("the replica answers", || primary.sql(clients) == one).await;
}

/// The control of what is not promised: a replica cannot know what it has not received.
#[tokio::test]
async fn a_replica_without_the_newest_commits_grants_again_and_a_raised_fence_repairs_it() {
    let (primary, replica) = (server(1), server(2));
    follow(&primary, &replica);
    let before = engine(&primary).await;
    let known = request("a");
    take(&before, &known).await;
    let_go(&before, &known).await;
    await_repeated(&primary, &replica);
    replica.sql("stop slave");
    for _ in 0..3 {
        let missed = request("a");
        take(&before, &missed).await;
        let_go(&before, &missed).await;
    }
    let unreplicated = take(&before, &request("a")).await;
    primary.kill();
    replica.sql("reset slave all");
    let after = engine(&replica).await;
    let second = request("a");
    let given = take(&after, &second).await;
    assert!(given <= unreplicated, "two hold, and the tokens do not say who came later");
    let_go(&after, &second).await;
    let to = FencingToken::new(unreplicated.get() + 1_000).expect("a good token");
    after.operate(&Operation::RaiseFence { to }).await.expect("raised");
    let repaired = request("a");
    assert!(take(&after, &repaired).await > to);
    let_go(&after, &repaired).await;
}

/// A replica that commits wait for (semi-synchronous, `AFTER_SYNC`) has all that was answered.
#[tokio::test]
async fn a_replica_that_commits_wait_for_knows_all_grants_and_tokens() {
    let (primary, replica) = (server(1), server(2));
    replica.sql("set global rpl_semi_sync_slave_enabled = 1");
    follow(&primary, &replica);
    primary.sql(
        "set global rpl_semi_sync_master_wait_point = 'AFTER_SYNC'; \
         set global rpl_semi_sync_master_timeout = 600000; \
         set global rpl_semi_sync_master_enabled = 1",
    );
    await_answering(&primary).await;
    // What it applies later it has received already.
    replica.sql("stop slave sql_thread");
    let before = engine(&primary).await;
    let (held, mut last) = (request("held"), None);
    let token_of_held = take(&before, &held).await;
    for _ in 0..5 {
        let known = request("a");
        last = Some(take(&before, &known).await);
        let_go(&before, &known).await;
    }
    let at = position(&primary);
    primary.kill();
    replica.sql("start slave sql_thread");
    assert_eq!(replica.sql(&format!("select master_gtid_wait('{at}', 60)")), ["0"]);
    replica.sql("stop slave; reset slave all");
    let after = engine(&replica).await;
    assert_eq!(take(&after, &held).await, token_of_held);
    assert!(Some(take(&after, &request("a")).await) > last);
}

/// The control of what `doctor` finds: with a writable replica, its clients hold a name at the same
/// time as those of the primary.
#[tokio::test]
async fn a_replica_that_takes_writes_grants_beside_its_primary() {
    let (primary, replica) = (server(1), server(2));
    follow(&primary, &replica);
    let (right, wrong) = (engine(&primary).await, engine(&replica).await);
    take(&right, &request("made")).await;
    await_repeated(&primary, &replica);
    let stranger = take(&wrong, &request("a")).await;
    assert!(
        take(&right, &request("a")).await <= stranger,
        "two hold, and the tokens do not say who came later"
    );
}
