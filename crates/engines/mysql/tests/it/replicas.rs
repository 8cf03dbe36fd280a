//! A replica takes over without the newest commits: what is lost, and what an operator mends.

use holdline_core::{Engine, FencingToken, Operation};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{engine, let_go, request, take};

fn server(id: u32) -> MariaDbServer {
    let config = MariaDbConfig::default().with_line(format!("server-id={id}"));
    MariaDbServer::start(config.with_line("log-bin=binlog").with_line("binlog-format=ROW"))
}

/// The last commit of a server.
fn position(server: &MariaDbServer) -> String {
    server.sql("select @@global.gtid_binlog_pos").concat()
}

/// Lets a replica repeat from now on what the primary commits.
fn follow(primary: &MariaDbServer, replica: &MariaDbServer) {
    primary.sql(
        "create user copier@'%' identified by 'copy'; \
         grant replication slave on *.* to copier@'%'",
    );
    let (at, port) = (position(primary), primary.address().port());
    replica.sql(&format!(
        "reset master; set global gtid_slave_pos = '{at}'; \
         change master to master_host = '127.0.0.1', master_port = {port}, \
         master_user = 'copier', master_password = 'copy', master_use_gtid = slave_pos; \
         start slave"
    ));
}

fn await_repeated(primary: &MariaDbServer, replica: &MariaDbServer) {
    let at = position(primary);
    assert_eq!(replica.sql(&format!("select master_gtid_wait('{at}', 60)")), ["0"]);
}

/// The control of what is not promised: nothing in the database can tell what it never had.
#[tokio::test]
async fn a_replica_without_the_newest_commits_grants_again_and_is_mended_by_a_raised_fence() {
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
    let unheard = take(&before, &request("a")).await;
    primary.kill();
    replica.sql("reset slave all");
    let after = engine(&replica).await;
    let second = request("a");
    let given = take(&after, &second).await;
    assert!(given <= unheard, "two hold, and the tokens do not say who came later");
    let_go(&after, &second).await;
    let to = FencingToken::new(unheard.get() + 1_000).expect("a good token");
    after.operate(&Operation::RaiseFence { to }).await.expect("raised");
    let mended = request("a");
    assert!(take(&after, &mended).await > to);
    let_go(&after, &mended).await;
}
