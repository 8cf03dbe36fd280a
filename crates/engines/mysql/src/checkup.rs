//! The checks of `doctor` on a MariaDB server.
//!
//! They only read: nothing is written, and the tables are not made. If the account may not read
//! something, the finding says so and is never `ok`.
//!
//! Read next: `role` for replicas that take writes, `snapshots` for old transactions.

mod role;
mod snapshots;

use std::collections::HashMap;
use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::{Checkup, Clock, ErrorKind, Finding, LockError};
use holdline_net::sql::checkup::{pooler, reach, server_clock, tokens};

use crate::connection::Facts;
use crate::error::ENGINE;
use crate::link::Link;
use crate::options::MysqlOptions;
use crate::rows::{Answer, all, only};
use crate::schema::{self, Found};

const SERVER: &str = "procedures, row locks and wake-ups must work as we know them";
const DURABILITY: &str =
    "what a crash takes back may be granted again, with the same fencing token";
const REPLICAS: &str = "a replica that takes over may lack the newest grants and tokens";
const LOGGING: &str =
    "commands read what is committed, which a server that logs statements refuses";
const GALERA: &str = "where several servers take writes, each ends leases by its own clock";
const IDLE: &str = "a connection that is closed while idle is opened again by the next renewal, \
                    which costs time";
const PACKETS: &str = "a batch of renewals must fit into one packet";
const TABLES: &str = "the locks stand in tables of their own, which must be there and be ours";
const NAMES: &str = "many rows slow the listing of names down";

/// A shorter timeout closes connections of occasional users.
const SHORT_IDLE: u64 = 60;
/// The largest batch, in hex, is much smaller.
const LEAST_PACKET: u64 = 1 << 20;
const VARIABLES: &str = "'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', \
    'binlog_format', 'innodb_doublewrite', 'rpl_semi_sync_master_enabled', \
    'rpl_semi_sync_master_wait_point', 'wsrep_on', 'wait_timeout', 'max_allowed_packet'";
/// Status variables that are reported together with the settings.
const COUNTED: &str = "'Rpl_semi_sync_master_clients'";

/// Checks the server of these options.
///
/// Takes a few round trips; a server that does not answer costs the time limits of the options.
///
/// # Errors
/// `Invalid`: an option is wrong. Every other problem is a finding.
pub async fn checkup(options: &MysqlOptions, clock: Arc<dyn Clock>) -> Result<Checkup, LockError> {
    let link = Link::new(options, clock.clone(), Arc::new(Watches::default()), false)?;
    let mut checkup = Checkup::new(ENGINE);
    let reached = reach(&mut checkup, &*clock, link.ready(), || link.ask("select 1")).await;
    let Some(live) = reached else { return Ok(checkup) };
    let facts = &live.session.facts;
    checkup.add(server(facts));
    checkup.add(role::finding(&link).await);
    let settings = Settings::ask(&link).await;
    for judge in [durability, replicas, logging, galera, idle, packets] {
        checkup.add(judge(&settings));
    }
    checkup.add(pooler(facts.pooled));
    checkup.add(snapshots::finding(&link).await);
    checkup.add(server_clock(clock_of(&link)).await);
    let (finding, usable) = tables(&link).await;
    checkup.add(finding);
    if usable {
        checkup.add(tokens(floor(&link).await, "prefix"));
        checkup.add(names(&link).await);
    }
    Ok(checkup)
}

fn server(facts: &Facts) -> Finding {
    let finding = Finding::ok("server", SERVER, facts.version.clone());
    if facts.is_mariadb {
        finding
    } else {
        finding.warn(
            "this is no MariaDB: our procedures were never tested on it. Use MariaDB 10.6 or \
             newer, or try all you rely on first",
        )
    }
}

/// The relevant settings of the server; unknown ones are missing.
struct Settings(Result<HashMap<String, String>, LockError>);

impl Settings {
    async fn ask(link: &Link) -> Settings {
        let ask = format!("show global variables where variable_name in ({VARIABLES})");
        let reply = link.ask(&ask).await;
        // A server that knows none of them returns no rows.
        let ask = format!("show global status where variable_name in ({COUNTED})");
        let counted = link.ask(&ask).await.unwrap_or_default();
        Settings(reply.map(|reply| pairs(&reply).chain(pairs(&counted)).collect()))
    }

    fn get(&self, name: &str) -> &str {
        self.0.as_ref().ok().and_then(|all| all.get(name)).map_or("unknown", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), "ON" | "1")
    }
}

/// Reads the reply to a `show`: names and their values.
fn pairs(reply: &Answer) -> impl Iterator<Item = (String, String)> {
    all(reply).filter_map(|row| {
        let name = row.sure("Variable_name");
        let value = row.sure("Value");
        Some((name.ok()?, value.ok()?))
    })
}

fn durability(settings: &Settings) -> Finding {
    let flush = settings.get("innodb_flush_log_at_trx_commit");
    let pages = settings.get("innodb_doublewrite");
    let logs = settings.is_on("log_bin");
    let sync = if logs { settings.get("sync_binlog") } else { "of no concern" };
    let found = format!(
        "innodb_flush_log_at_trx_commit {flush}, innodb_doublewrite {pages}, sync_binlog {sync}"
    );
    let finding = Finding::ok("durability", DURABILITY, found);
    match (flush, pages, sync) {
        ("unknown", ..) => finding.warn("let this account read the server's variables"),
        ("0" | "2", ..) => finding.fail("set innodb_flush_log_at_trx_commit to 1"),
        (_, "OFF", _) => finding.fail("set innodb_doublewrite to ON"),
        // After a crash, commits that the binary log has lost are rolled back in the tables too.
        (_, _, "1" | "of no concern") => finding,
        _ => finding.fail("set sync_binlog to 1"),
    }
}

fn replicas(settings: &Settings) -> Finding {
    if !settings.is_on("log_bin") {
        return Finding::ok("replicas", REPLICAS, "none can follow: there is no binary log");
    }
    let waits = settings.is_on("rpl_semi_sync_master_enabled");
    let point = settings.get("rpl_semi_sync_master_wait_point");
    let server_error = if waits { "commits wait for one" } else { "no commit waits for one" };
    let finding =
        Finding::ok("replicas", REPLICAS, format!("they can follow; {server_error}, {point}"));
    match (waits, point) {
        (true, "AFTER_SYNC") if settings.get("Rpl_semi_sync_master_clients") == "0" => finding
            .warn(
                "start a replica with rpl_semi_sync_slave_enabled: none answers, and after \
                 rpl_semi_sync_master_timeout commits wait for nobody",
            ),
        (true, "AFTER_SYNC") => finding,
        _ => finding.warn(
            "set rpl_semi_sync_master_enabled, with the wait point AFTER_SYNC, and promote only \
             a replica that had all; or rely on fencing tokens, and run `holdline fence bump` \
             after a failover",
        ),
    }
}

fn logging(settings: &Settings) -> Finding {
    let format = settings.get("binlog_format");
    let logs = settings.is_on("log_bin");
    let kept = if logs { "kept" } else { "not kept" };
    let finding =
        Finding::ok("logging", LOGGING, format!("a binary log is {kept}, binlog_format {format}"));
    match (logs, format) {
        (true, "STATEMENT") => finding.fail("set binlog_format to MIXED or ROW"),
        _ => finding,
    }
}

fn galera(settings: &Settings) -> Finding {
    let on = settings.is_on("wsrep_on");
    let found = if on { "the server is a node of a cluster" } else { "the server stands alone" };
    let finding = Finding::ok("galera", GALERA, found);
    if !on {
        return finding;
    }
    finding.warn(
        "let all clients name the same node; rely on fencing tokens when another takes its place",
    )
}

fn idle(settings: &Settings) -> Finding {
    let limit = settings.get("wait_timeout");
    let finding = Finding::ok("idle", IDLE, format!("wait_timeout {limit} s"));
    match limit.parse::<u64>() {
        Ok(..SHORT_IDLE) => finding.warn("set wait_timeout to 600 or more"),
        _ => finding,
    }
}

fn packets(settings: &Settings) -> Finding {
    let limit = settings.get("max_allowed_packet");
    let finding = Finding::ok("packets", PACKETS, format!("max_allowed_packet {limit}"));
    match limit.parse::<u64>() {
        Ok(..LEAST_PACKET) => finding.fail("set max_allowed_packet to 1M or more"),
        _ => finding,
    }
}

async fn clock_of(link: &Link) -> Result<i64, LockError> {
    let ask = "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) as now";
    only(&link.ask(ask).await?)?.sure("now")
}

/// Checks the state of the tables, and whether they are readable.
async fn tables(link: &Link) -> (Finding, bool) {
    let prefix = link.names().table("");
    let reply = link.ask(&schema::look(link.names())).await;
    match reply.and_then(|reply| Ok((schema::found(&reply)?, schema::makers(&reply)))) {
        Ok((Found::Ours, makers)) => {
            let found = format!("`{prefix}…` are ours, procedures made by {makers}");
            (Finding::ok("tables", TABLES, found), true)
        }
        Ok((found, _)) => {
            let says = match found {
                Found::Missing => "are not there",
                _ => "have no procedures of this version that this account may call",
            };
            let finding = Finding::ok("tables", TABLES, format!("`{prefix}…` {says}"));
            let fix = "take a lock once by an account that may make tables and procedures";
            (finding.warn(fix), false)
        }
        Err(error) => {
            let fix = match error.kind() {
                ErrorKind::Foreign { .. } => "name others by `prefix`, or another database",
                _ => "do what the error says",
            };
            (Finding::ok("tables", TABLES, error.to_string()).fail(fix), false)
        }
    }
}

/// The number that every later token exceeds. A name's own counter comes near the end only if all
/// were raised, or if somebody changed its row.
async fn floor(link: &Link) -> Result<i64, LockError> {
    let ask = format!("select floor from {} where only_row = 1", link.names().table("about"));
    only(&link.ask(&ask).await?)?.sure("floor")
}

async fn names(link: &Link) -> Finding {
    let table = link.names().table("heads");
    let ask = format!(
        "select table_rows as known from information_schema.tables \
         where table_schema = database() and table_name = '{table}'"
    );
    let reply = link.ask(&ask).await;
    let rows = reply.and_then(|reply| only(&reply)?.sure::<i64>("known"));
    let found = match rows {
        Ok(rows) => format!("about {rows} rows"),
        Err(_) => "not counted".to_owned(),
    };
    Finding::ok("names", NAMES, found)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdline_core::Health;

    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        Settings(Ok(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()))
    }

    #[test]
    fn a_binary_log_that_is_not_flushed_is_reported_only_if_there_is_one() {
        let of = |flush, logs, sync| {
            let all = [
                ("innodb_flush_log_at_trx_commit", flush),
                ("log_bin", logs),
                ("sync_binlog", sync),
            ];
            durability(&settings(&all)).health()
        };
        assert_eq!(of("1", "OFF", "0"), Health::Ok);
        assert_eq!(of("1", "ON", "1"), Health::Ok);
        assert_eq!(of("1", "ON", "0"), Health::Error);
        assert_eq!(of("2", "OFF", "0"), Health::Error);
        assert_eq!(durability(&settings(&[])).health(), Health::Warning);
    }

    #[test]
    fn an_unknown_server_is_reported() {
        let facts = |version: &str, is_mariadb| Facts {
            version: version.to_owned(),
            is_mariadb,
            pooled: false,
            round_trip: Duration::ZERO,
        };
        assert_eq!(server(&facts("10.11.19-MariaDB", true)).health(), Health::Ok);
        let finding = server(&facts("8.0.36", false));
        assert_eq!(finding.health(), Health::Warning);
    }
}
