//! The checks of `doctor` on a PostgreSQL server.
//!
//! They run before the schema is trusted, and maybe through a pooler, so each name in a query is
//! qualified, as in `sql/look.sql`.
//!
//! They only read: nothing is written, and the schema is not made. If the role may not read
//! something, the finding says so and is never `ok`.

use std::collections::HashMap;
use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::{Checkup, Clock, ErrorKind, Finding, LockError};
use holdline_net::sql::checkup::{pooler, reach, server_clock, tokens};
use tokio_postgres::types::Type;

use crate::error::{ENGINE, protocol};
use crate::keys::quoted;
use crate::link::{Facts, Link};
use crate::options::PostgresOptions;
use crate::schema::{self, Found, Functions};

const SERVER: &str = "functions, notifications and row locks must work as we know them";
const CERTIFICATE: &str =
    "anybody on the way can be the server: read everything, and grant a lock twice";
const DURABILITY: &str =
    "what a crash takes back may be granted again, with the same fencing token";
const REPLICAS: &str = "a standby that takes over may lack the newest grants and tokens";
const MESSAGES: &str = "while the server's queue of notifications is nearly full, no waiter is \
                        notified: they look once a second";
const WRAPAROUND: &str = "the server accepts no write, and so no lock, when no transaction id is \
                          left";
const SNAPSHOTS: &str = "what an old transaction may still see is not cleaned up: commands on a \
                         busy name read past all of it";
const IDLE: &str = "a connection that is closed while idle is opened again by the next renewal, \
                    which costs time";
const SCHEMA: &str = "the locks stand in a schema of their own, which must be there and be ours";
const SEQUENCE: &str = "a sequence with a cache gives an earlier session larger fencing tokens";
const AUDIT: &str = "what a role without the audit trail revokes or freezes is recorded nowhere";
const NAMES: &str = "many rows slow the listing of names down";

/// From which age in seconds on a transaction is reported, and from how many dead rows on.
const OLD: i64 = 300;
const MANY_DEAD: i64 = 50_000;

/// From how many transactions on that no vacuum has passed a database is reported. A server that
/// vacuums as it should stays below a fifth of the first bound; at 2^31 less 3 million it stops.
const UNVACUUMED_WARNING: i64 = 1_000_000_000;
const UNVACUUMED_ERROR: i64 = 2_000_000_000;
const LAST_TRANSACTION: i64 = (1 << 31) - 3_000_000;

/// Checks the server of these options.
///
/// Takes a few round trips; a server that does not answer costs the time limits of the options.
///
/// # Errors
/// `Invalid`: an option is wrong. Every other problem is a finding.
pub async fn checkup(
    options: &PostgresOptions,
    clock: Arc<dyn Clock>,
) -> Result<Checkup, LockError> {
    let link = Link::new(options, clock.clone(), Arc::new(Watches::default()), false)?;
    let mut checkup = Checkup::new(ENGINE);
    let reached = reach(&mut checkup, &*clock, link.ready(), || link.ask("select 1", &[])).await;
    let Some(live) = reached else { return Ok(checkup) };
    let facts = &live.session.facts;
    checkup.add(server(facts));
    if options.trusts_any_server() {
        checkup.add(certificate());
    }
    let settings = Settings::ask(&link).await;
    for finding in
        [durability(&settings), replicas(&settings), pooler(facts.pooled), idle(&settings)]
    {
        checkup.add(finding);
    }
    checkup.add(messages(&link).await);
    checkup.add(wraparound(&link).await);
    checkup.add(server_clock(clock_of(&link)).await);
    let (finding, usable) = schema_of(&link, options.schema()).await;
    checkup.add(finding);
    if usable {
        checkup.add(sequence(&link, options.schema()).await);
        checkup.add(tokens(last_token(&link, options.schema()).await, "schema"));
        checkup.add(audit(&link, options.schema()).await);
        checkup.add(names(&link, options.schema()).await);
        checkup.add(snapshots(&link, options.schema()).await);
    }
    Ok(checkup)
}

/// The URL has TLS, and no check of the server's certificate.
fn certificate() -> Finding {
    let found = "the server's certificate is not checked (`sslmode=require`)";
    Finding::ok("certificate", CERTIFICATE, found)
        .warn("write `sslmode=verify-full`, and the authority by `sslrootcert` if it is your own")
}

fn server(facts: &Facts) -> Finding {
    let version = format!("PostgreSQL {}.{}", facts.version / 10_000, facts.version % 10_000);
    Finding::ok("server", SERVER, version)
}

/// The relevant settings of the server; unknown ones are missing.
struct Settings(Result<HashMap<String, String>, LockError>);

impl Settings {
    async fn ask(link: &Link) -> Settings {
        let ask = "select s.name, s.setting from pg_catalog.pg_settings s \
            where s.name operator(pg_catalog.=) any (array['fsync', 'full_page_writes', \
            'synchronous_commit', 'synchronous_standby_names', 'idle_session_timeout'] \
            ::pg_catalog.text[]) union all select 'standbys'::pg_catalog.text, \
            pg_catalog.count(*)::pg_catalog.text from pg_catalog.pg_stat_replication";
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
    let standbys = settings.get("standbys");
    let names = settings.get("synchronous_standby_names");
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

fn idle(settings: &Settings) -> Finding {
    let limit = settings.get("idle_session_timeout");
    let finding = Finding::ok("idle", IDLE, format!("idle_session_timeout {limit}"));
    match limit {
        "0" | "unknown" => finding,
        _ => finding.warn("set idle_session_timeout to 0 for this role"),
    }
}

/// Checks how full the server's notification queue is, which all databases share.
async fn messages(link: &Link) -> Finding {
    let ask = "select pg_catalog.pg_notification_queue_usage()";
    let rows = link.ask(ask, &[]).await;
    match rows.ok().and_then(|rows| rows.first()?.try_get::<_, f64>(0).ok()) {
        Some(used) => judge_messages(used),
        None => Finding::ok("messages", MESSAGES, "cannot be looked at").warn("ask again"),
    }
}

fn judge_messages(used: f64) -> Finding {
    let found = format!("the queue of notifications is {:.0} % full", used * 100.0);
    let finding = Finding::ok("messages", MESSAGES, found);
    let fix = "end the session that listens and stays in a transaction: pg_stat_activity shows it \
        as `idle in transaction`, and the server's log names its process";
    match used {
        used if used < 0.5 => finding,
        // The same as `notify_limit_1` in `sql/rules.sql`.
        used if used < 0.75 => finding.warn(fix),
        _ => finding.fail(fix),
    }
}

/// Checks how many transactions the server can still run before a vacuum. The database that no
/// vacuum has passed for longest decides for all databases of the server.
async fn wraparound(link: &Link) -> Finding {
    let ask = "select d.datname::pg_catalog.text, pg_catalog.age(d.datfrozenxid)::pg_catalog.int8 \
        from pg_catalog.pg_database d order by 2 desc, 1 limit 1";
    let rows = link.ask(ask, &[]).await;
    let read = |rows: Vec<tokio_postgres::Row>| {
        let row = rows.first()?;
        Some((row.try_get::<_, String>(0).ok()?, row.try_get::<_, i64>(1).ok()?))
    };
    match rows.ok().and_then(read) {
        Some((database, age)) => judge_wraparound(&database, age),
        None => Finding::ok("wraparound", WRAPAROUND, "cannot be looked at")
            .warn("let this role read pg_database"),
    }
}

fn judge_wraparound(database: &str, age: i64) -> Finding {
    let left = LAST_TRANSACTION.saturating_sub(age).max(0) / 1_000_000;
    let found = format!(
        "{} million transactions since the last full vacuum of database {}, {left} million left",
        age / 1_000_000,
        quoted(database),
    );
    let finding = Finding::ok("wraparound", WRAPAROUND, found);
    let fix = format!(
        "run VACUUM in database {}, as a superuser; first end what holds it back: old transactions \
         (pg_stat_activity, pg_prepared_xacts) and slots (pg_replication_slots). Read \
         \"Preventing Transaction ID Wraparound Failures\" in PostgreSQL's documentation \
         (routine-vacuuming.html)",
        quoted(database),
    );
    match age {
        ..UNVACUUMED_WARNING => finding,
        UNVACUUMED_WARNING..UNVACUUMED_ERROR => finding.warn(fix),
        _ => finding.fail(fix),
    }
}

async fn clock_of(link: &Link) -> Result<i64, LockError> {
    let ask = "select (extract(epoch from pg_catalog.clock_timestamp()) \
        operator(pg_catalog.*) 1000000::pg_catalog.numeric)::pg_catalog.int8";
    let rows = link.ask(ask, &[]).await?;
    let read = rows.first().and_then(|row| row.try_get(0).ok());
    read.ok_or_else(|| protocol("the server does not report the time"))
}

/// Checks the state of the schema, and whether it is readable.
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
    let ask = "select q.seqcache, \
            s.relpersistence operator(pg_catalog.=) 'u'::pg_catalog.\"char\" \
        from pg_catalog.pg_class s \
        join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) s.relnamespace \
        join pg_catalog.pg_sequence q on q.seqrelid operator(pg_catalog.=) s.oid \
        where n.nspname operator(pg_catalog.=) $1::pg_catalog.name \
        and s.relname operator(pg_catalog.=) 'fence'::pg_catalog.name";
    let rows = link.ask(ask, &[(&schema, Type::TEXT)]).await;
    let read = |rows: Vec<tokio_postgres::Row>| {
        let row = rows.first()?;
        let cache: i64 = row.try_get(0).ok()?;
        let is_unlogged: bool = row.try_get(1).ok()?;
        Some((cache, is_unlogged))
    };
    let Some((cache, is_unlogged)) = rows.ok().and_then(read) else {
        return Finding::ok("sequence", SEQUENCE, "cannot be looked at")
            .warn("let this role read pg_sequence");
    };
    let name = format!("{}.fence", quoted(schema));
    if cache != 1 {
        return Finding::ok("sequence", SEQUENCE, format!("a cache of {cache}"))
            .fail(format!("ALTER SEQUENCE {name} CACHE 1"));
    }
    if is_unlogged {
        // A crash resets what writes no log.
        return Finding::ok("sequence", SEQUENCE, "unlogged")
            .fail(format!("ALTER SEQUENCE {name} SET LOGGED"));
    }
    Finding::ok("sequence", SEQUENCE, "no cache")
}

async fn last_token(link: &Link, schema: &str) -> Result<i64, LockError> {
    let ask = format!("select f.last_value from {}.fence f", quoted(schema));
    let rows = link.ask(&ask, &[]).await?;
    let read = rows.first().and_then(|row| row.try_get(0).ok());
    read.ok_or_else(|| protocol("the sequence of tokens has no last value"))
}

/// Whether this role may append to the audit trail and read it.
async fn audit(link: &Link, schema: &str) -> Finding {
    let ask = "select p.proname::pg_catalog.text from pg_catalog.pg_proc p \
        join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) p.pronamespace \
        where n.nspname operator(pg_catalog.=) $1::pg_catalog.name \
        and p.proname operator(pg_catalog.=) \
            any (array['audit_append_1', 'audit_read_1']::pg_catalog.name[]) \
        and not pg_catalog.has_function_privilege(p.oid, 'EXECUTE'::pg_catalog.text) \
        order by 1";
    let rows = link.ask(ask, &[(&schema, Type::TEXT)]).await;
    let name = |row: &tokio_postgres::Row| row.try_get::<_, String>(0).ok();
    let lacks = rows.ok().and_then(|rows| rows.iter().map(name).collect::<Option<Vec<_>>>());
    match lacks {
        Some(lacks) if lacks.is_empty() => {
            Finding::ok("audit", AUDIT, "this role may append and read")
        }
        Some(lacks) => {
            let lacks: Vec<String> =
                lacks.iter().map(|name| format!("{}.{name}", quoted(schema))).collect();
            let lacks = lacks.join(", ");
            Finding::ok("audit", AUDIT, format!("this role may not execute {lacks}"))
                .warn(format!("GRANT EXECUTE ON FUNCTION {lacks} TO the roles of operators"))
        }
        None => {
            Finding::ok("audit", AUDIT, "cannot be looked at").warn("let this role read pg_proc")
        }
    }
}

async fn names(link: &Link, schema: &str) -> Finding {
    let ask = "select c.reltuples::pg_catalog.int8 from pg_catalog.pg_class c \
        join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace \
        where n.nspname operator(pg_catalog.=) $1::pg_catalog.name \
        and c.relname operator(pg_catalog.=) 'names'::pg_catalog.name";
    let rows = link.ask(ask, &[(&schema, Type::TEXT)]).await;
    let rows = rows.ok().and_then(|rows| rows.first()?.try_get::<_, i64>(0).ok());
    let found = match rows {
        Some(rows @ 0..) => format!("about {rows} rows"),
        _ => "not counted yet".to_owned(),
    };
    Finding::ok("names", NAMES, found)
}

/// How long the oldest transaction of this database has run, and how many rows are dead.
async fn snapshots(link: &Link, schema: &str) -> Finding {
    let ask = "select (select pg_catalog.max(extract(epoch from \
            (pg_catalog.now() operator(pg_catalog.-) t.began))::pg_catalog.int8) from ( \
                select a.xact_start from pg_catalog.pg_stat_activity a \
                where a.backend_xmin is not null \
                    and a.backend_type operator(pg_catalog.=) 'client backend'::pg_catalog.text \
                    and a.datname operator(pg_catalog.=) pg_catalog.current_database() \
                union all select p.prepared from pg_catalog.pg_prepared_xacts p \
                where p.database operator(pg_catalog.=) pg_catalog.current_database()) t(began)), \
        (select pg_catalog.sum(s.n_dead_tup)::pg_catalog.int8 \
            from pg_catalog.pg_stat_all_tables s \
            where s.schemaname operator(pg_catalog.=) $1::pg_catalog.name and s.relname \
            operator(pg_catalog.=) any (array['names', 'shared_holders', 'waiters'] \
                ::pg_catalog.name[])), \
        (select pg_catalog.count(*) from pg_catalog.pg_stat_activity a \
            where a.backend_xmin is not null and a.xact_start is null \
            and a.datname operator(pg_catalog.=) pg_catalog.current_database())";
    let rows = link.ask(ask, &[(&schema, Type::TEXT)]).await;
    let read = |rows: Vec<tokio_postgres::Row>| {
        let row = rows.first()?;
        let number = |at: usize| row.try_get::<_, Option<i64>>(at).ok();
        Some((number(0)?.unwrap_or(0), number(1)?.unwrap_or(0), number(2)?.unwrap_or(0)))
    };
    match rows.ok().and_then(read) {
        Some((seconds, dead, hidden)) => judge_snapshots(seconds, dead, hidden),
        None => Finding::ok("snapshots", SNAPSHOTS, "cannot be looked at")
            .warn("let this role read pg_stat_activity (pg_read_all_stats)"),
    }
}

/// Without `pg_read_all_stats`, a role does not see the age of other roles' transactions.
fn judge_snapshots(seconds: i64, dead: i64, hidden: i64) -> Finding {
    let mut found = format!("the oldest transaction runs for {seconds} s, {dead} rows are dead");
    if hidden > 0 {
        found.push_str(&format!("; the age of {hidden} transactions of other roles is not shown"));
    }
    let finding = Finding::ok("snapshots", SNAPSHOTS, found);
    match (seconds >= OLD, dead >= MANY_DEAD) {
        (true, _) => finding.warn(
            "end the oldest transaction (xact_start in pg_stat_activity, or pg_prepared_xacts); \
             let dumps and reports run on a standby or in another database",
        ),
        (_, true) => finding.warn(
            "let autovacuum reach the tables of the schema; a standby with \
             hot_standby_feedback (backend_xmin in pg_stat_replication) or the slot of one that is \
             gone (xmin in pg_replication_slots) keeps dead rows, too",
        ),
        _ => finding,
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn a_notification_queue_that_fills_is_reported_before_it_is_full() {
        for (used, health) in [
            (0.0, Health::Ok),
            (0.49, Health::Ok),
            (0.5, Health::Warning),
            (0.74, Health::Warning),
            (0.75, Health::Error),
            (1.0, Health::Error),
        ] {
            assert_eq!(judge_messages(used).health(), health, "{used}");
        }
    }

    #[test]
    fn a_database_without_a_vacuum_is_reported_before_its_ids_run_out() {
        for (age, health) in [
            (200_000_000, Health::Ok),
            (UNVACUUMED_WARNING - 1, Health::Ok),
            (UNVACUUMED_WARNING, Health::Warning),
            (UNVACUUMED_ERROR - 1, Health::Warning),
            (UNVACUUMED_ERROR, Health::Error),
            (i64::MAX, Health::Error),
        ] {
            assert_eq!(judge_wraparound("shop", age).health(), health, "{age}");
        }
        let found = judge_wraparound("shop", UNVACUUMED_ERROR);
        assert!(found.found().ends_with("144 million left"), "{found:?}");
    }

    #[test]
    fn old_transactions_and_many_dead_rows_are_reported() {
        for (seconds, dead, health) in [
            (0, 0, Health::Ok),
            (OLD - 1, MANY_DEAD - 1, Health::Ok),
            (OLD, 0, Health::Warning),
            (0, MANY_DEAD, Health::Warning),
        ] {
            assert_eq!(judge_snapshots(seconds, dead, 0).health(), health, "{seconds} {dead}");
        }
    }

    #[test]
    fn standbys_that_no_commit_waits_for_are_reported() {
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
