//! What `doctor` looks at on a PostgreSQL server.
//!
//! It only asks: nothing is written, and the schema is not made. What the role may not ask is told
//! as that, never taken for well.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdline_core::hints::Watches;
use holdline_core::{Checkup, Clock, ErrorKind, Finding, LockError};
use tokio_postgres::types::Type;

use crate::error::{ENGINE, protocol};
use crate::keys::quoted;
use crate::link::{Facts, Link};
use crate::options::PostgresOptions;
use crate::schema::{self, Found, Functions};

const REACHABLE: &str = "without an answer no lock can be taken, and held ones run out";
const SERVER: &str = "functions, notifications and row locks must work as we know them";
const DURABILITY: &str =
    "what a crash takes back may be granted again, with the same fencing token";
const REPLICAS: &str = "a standby that takes over may lack the newest grants and tokens";
const POOLER: &str = "behind a pooler nobody can be woken: those who wait look once a second";
const IDLE: &str = "a connection that is closed while idle is opened again by the next renewal, \
                    which costs time";
const CLOCK: &str = "leases end by the server's clock: a step forward ends them early, a step back \
                     late";
const SCHEMA: &str = "the locks stand in a schema of their own, which must be there and be ours";
const SEQUENCE: &str = "a sequence with a cache gives an earlier session larger fencing tokens";
const NAMES: &str = "many rows slow the listing of names down";

/// How far the server's clock may be from ours before it is worth a word: leases do not compare
/// the two.
const FAR: i128 = 1_000_000;
const TRIPS: usize = 5;

/// Looks how the server of these options stands.
///
/// Takes a few round trips; a server that does not answer costs the time limits of the options.
///
/// # Errors
/// `Invalid`: an option is wrong. All else is a finding.
pub async fn checkup(
    options: &PostgresOptions,
    clock: Arc<dyn Clock>,
) -> Result<Checkup, LockError> {
    let link = Link::new(options, clock.clone(), Arc::new(Watches::default()), false)?;
    let mut checkup = Checkup::new(ENGINE);
    let reached = async {
        let facts = link.ready().await?;
        Ok::<_, LockError>((facts, round_trip(&link, &*clock).await?))
    };
    let (facts, trip) = match reached.await {
        Ok(reached) => reached,
        Err(error) => {
            let finding = Finding::ok("reachable", REACHABLE, error.to_string());
            checkup.add(finding.fail("do what the error says; until then nothing can be locked"));
            return Ok(checkup);
        }
    };
    let found = format!("answers in {trip:?}");
    checkup.add(Finding::ok("reachable", REACHABLE, found));
    checkup.add(server(&facts));
    let settings = Settings::ask(&link).await;
    for finding in [durability(&settings), replicas(&settings), pooler(&facts), idle(&settings)] {
        checkup.add(finding);
    }
    checkup.add(server_clock(&link).await);
    let (finding, usable) = schema_of(&link, options.schema()).await;
    checkup.add(finding);
    if usable {
        checkup.add(sequence(&link, options.schema()).await);
        checkup.add(names(&link, options.schema()).await);
    }
    Ok(checkup)
}

/// Measures the shortest of a few round trips.
async fn round_trip(link: &Link, clock: &dyn Clock) -> Result<Duration, LockError> {
    let mut shortest = Duration::MAX;
    for _ in 0..TRIPS {
        let start = clock.now();
        link.ask("select 1", &[]).await?;
        shortest = shortest.min(start.until(clock.now()));
    }
    Ok(shortest)
}

fn server(facts: &Facts) -> Finding {
    let version = format!("PostgreSQL {}.{}", facts.version / 10_000, facts.version % 10_000);
    Finding::ok("server", SERVER, version)
}

/// The server's settings that matter here; those that it does not know are missing.
struct Settings(Result<HashMap<String, String>, LockError>);

impl Settings {
    async fn ask(link: &Link) -> Settings {
        let ask = "select name, setting from pg_settings where name in ('fsync', \
            'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', \
            'idle_session_timeout') \
            union all select 'standbys', count(*)::text from pg_stat_replication";
        let rows = link.ask(ask, &[]).await;
        let pair = |row: &tokio_postgres::Row| Some((row.try_get(0).ok()?, row.try_get(1).ok()?));
        Settings(rows.map(|rows| rows.iter().filter_map(pair).collect()))
    }

    fn get(&self, name: &str) -> &str {
        self.0.as_ref().ok().and_then(|all| all.get(name)).map_or("unknown", String::as_str)
    }
}

fn durability(settings: &Settings) -> Finding {
    let [fsync, pages, commit] =
        ["fsync", "full_page_writes", "synchronous_commit"].map(|name| settings.get(name));
    let found = format!("fsync {fsync}, full_page_writes {pages}, synchronous_commit {commit}");
    let finding = Finding::ok("durability", DURABILITY, found);
    match (fsync, pages, commit) {
        ("off", _, _) | (_, "off", _) => finding.fail("set fsync and full_page_writes to on"),
        ("unknown", ..) => finding.warn("let this role read pg_settings"),
        _ => finding,
    }
}

fn replicas(settings: &Settings) -> Finding {
    let (standbys, names) = (settings.get("standbys"), settings.get("synchronous_standby_names"));
    let waited = if names.is_empty() { "no commit waits for one" } else { "commits wait" };
    let finding = Finding::ok("replicas", REPLICAS, format!("{standbys} standbys, {waited}"));
    match (standbys, names) {
        ("0", _) => finding,
        (_, "") => finding.warn(
            "set synchronous_standby_names, and promote only a standby of that set; or rely on \
             fencing tokens, and run `holdline fence bump` after a failover",
        ),
        _ => finding,
    }
}

fn pooler(facts: &Facts) -> Finding {
    match facts.pooled {
        false => Finding::ok("pooler", POOLER, "none: the connection is the server's own"),
        true => {
            let found = "something between us and the server shares connections";
            let fix = "name the server itself in the URL; if that cannot be, locks work, and those \
                who wait are slower";
            Finding::ok("pooler", POOLER, found).warn(fix)
        }
    }
}

fn idle(settings: &Settings) -> Finding {
    let limit = settings.get("idle_session_timeout");
    let finding = Finding::ok("idle", IDLE, format!("idle_session_timeout {limit}"));
    match limit {
        "0" | "unknown" => finding,
        _ => finding.warn("set idle_session_timeout to 0 for this role"),
    }
}

async fn server_clock(link: &Link) -> Finding {
    let before = micros_now();
    let ask = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    let rows = link.ask(ask, &[]).await;
    let after = micros_now();
    let told = rows.and_then(|rows| {
        let read = rows.first().and_then(|row| row.try_get::<_, i64>(0).ok());
        read.ok_or_else(|| protocol("the server does not tell the time"))
    });
    match told {
        Ok(server) => judge_clock(i128::from(server), before, after),
        Err(error) => Finding::ok("clock", CLOCK, error.to_string()).warn("do what the error says"),
    }
}

fn micros_now() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i128::try_from(since.as_micros()).unwrap_or(i128::MAX))
}

/// The server read its clock between `before` and `after` on ours, in microseconds.
fn judge_clock(server: i128, before: i128, after: i128) -> Finding {
    let error = (after - before).max(0) / 2;
    let offset = server - (before + error);
    let found = format!("{} ms from ours, ± {} ms", offset / 1_000, error / 1_000);
    let finding = Finding::ok("clock", CLOCK, found);
    if offset.abs() - error <= FAR {
        return finding;
    }
    finding.warn("let both machines keep the same time (NTP), slewed and not stepped")
}

/// How the schema stands, and whether it can be looked into.
async fn schema_of(link: &Link, schema: &str) -> (Finding, bool) {
    let rows = link.ask(schema::LOOK, &[(&schema, Type::TEXT)]).await;
    match rows.and_then(|rows| schema::found(&rows, schema)) {
        Ok(Found::Ours(Functions::Current)) => {
            (Finding::ok("schema", SCHEMA, format!("`{schema}` is ours")), true)
        }
        Ok(found) => {
            let says = match found {
                Found::Missing => "is not there",
                Found::Empty { .. } => "is empty",
                Found::Ours(_) => "has functions of an older version",
            };
            let finding = Finding::ok("schema", SCHEMA, format!("`{schema}` {says}"));
            let fix = "take a lock once as a role that may make it";
            (finding.warn(fix), false)
        }
        Err(error) => {
            let fix = match error.kind() {
                ErrorKind::Foreign { .. } => "name another schema by `schema`",
                _ => "do what the error says",
            };
            (Finding::ok("schema", SCHEMA, error.to_string()).fail(fix), false)
        }
    }
}

async fn sequence(link: &Link, schema: &str) -> Finding {
    let ask =
        "select cache_size from pg_sequences where schemaname = $1 and sequencename = 'fence'";
    let rows = link.ask(ask, &[(&schema, Type::TEXT)]).await;
    let size = rows.ok().and_then(|rows| rows.first()?.try_get::<_, i64>(0).ok());
    match size {
        Some(1) => Finding::ok("sequence", SEQUENCE, "no cache"),
        Some(many) => Finding::ok("sequence", SEQUENCE, format!("a cache of {many}"))
            .fail(format!("ALTER SEQUENCE {}.fence CACHE 1", quoted(schema))),
        None => Finding::ok("sequence", SEQUENCE, "cannot be looked at")
            .warn("let this role read pg_sequences"),
    }
}

async fn names(link: &Link, schema: &str) -> Finding {
    let ask = "select c.reltuples::bigint from pg_class c join pg_namespace n \
        on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'heads'";
    let rows = link.ask(ask, &[(&schema, Type::TEXT)]).await;
    let rows = rows.ok().and_then(|rows| rows.first()?.try_get::<_, i64>(0).ok());
    let found = match rows {
        Some(rows @ 0..) => format!("about {rows} rows"),
        _ => "not counted yet".to_owned(),
    };
    Finding::ok("names", NAMES, found)
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn an_offset_within_the_error_is_none() {
        let second = 1_000_000;
        for (server, before, after, health) in [
            (500, 0, 1_000, Health::Ok),
            (3 * second, 0, 10 * second, Health::Ok),
            (second + 2, 0, 0, Health::Warning),
            (-second - 2, 0, 0, Health::Warning),
        ] {
            assert_eq!(judge_clock(server, before, after).health(), health);
        }
    }

    #[test]
    fn standbys_that_no_commit_waits_for_are_told() {
        let settings = |standbys: &str, names: &str| {
            let pairs = [("standbys", standbys), ("synchronous_standby_names", names)];
            Settings(Ok(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into()))
        };
        for (standbys, names, health) in
            [("0", "", Health::Ok), ("2", "", Health::Warning), ("2", "any 1 (*)", Health::Ok)]
        {
            assert_eq!(replicas(&settings(standbys, names)).health(), health);
        }
    }
}
