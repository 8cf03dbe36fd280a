//! One MariaDB server: cycles and hand-offs beside bare one-row updates.
//!
//! The server is Debian's, started for this run with a flush at each commit; its files lie where
//! temporary files do (`TMPDIR`), so a disk's flush is in the floor and in our figure alike.

use holdline::mysql::mysql_async::prelude::Queryable;
use holdline::mysql::mysql_async::{Conn, OptsBuilder, Statement};
use holdline_services::{MariaDbConfig, MariaDbServer};
use tokio::task::LocalSet;

use crate::contend::{CYCLES, NAMES, beside_updates};
use crate::rounds::{Failure, middle};

/// The sizes that the server has by itself, and not those of tests: with a pool of 16 MB it reads
/// back what it has just written.
pub(crate) const USUAL: [&str; 2] = ["innodb-buffer-pool-size=128M", "innodb-log-file-size=96M"];

/// Runs all of it.
pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = MariaDbConfig::default().with_fsync();
    let server =
        MariaDbServer::try_start(USUAL.iter().copied().fold(config, MariaDbConfig::with_line))?;
    server.sql(
        "create table floor (name int primary key, value bigint not null) engine = InnoDB; \
         insert into floor select seq, 0 from seq_0_to_15",
    );
    runtime.block_on(LocalSet::new().run_until(run(&server)))
}

async fn run(server: &MariaDbServer) -> Result<(), Failure> {
    let mut floor = Floor::connect(server).await?;
    beside_updates("mysql", &server.url(), "at most 1.5", async || floor.update().await).await
}

/// A bare connection.
struct Floor {
    connection: Conn,
    update: Statement,
}

impl Floor {
    async fn connect(server: &MariaDbServer) -> Result<Floor, Failure> {
        let options = OptsBuilder::default()
            .ip_or_hostname(server.address().ip().to_string())
            .tcp_port(server.address().port())
            .user(Some("holdline"))
            .pass(Some(MariaDbServer::PASSWORD))
            .db_name(Some("locks"))
            .prefer_socket(false);
        let mut connection = Conn::new(options).await?;
        let update = connection.prep("update floor set value = value + 1 where name = ?").await?;
        Ok(Floor { connection, update })
    }

    /// The middle time of an update of one row.
    async fn update(&mut self) -> Result<f64, Failure> {
        middle(CYCLES, async |done| {
            let name = i32::try_from(done % NAMES)?;
            Ok(self.connection.exec_drop(&self.update, (name,)).await?)
        })
        .await
    }
}
