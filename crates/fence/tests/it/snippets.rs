//! The statements that `docs/fencing.md` gives to those who write SQL themselves, on the databases
//! that it names. SQLite's are run beside its fence.

use std::io::Write;
use std::process::{Command, Stdio};

use holdline_fence::{MysqlFence, PostgresFence, sql};
use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use tokio_postgres::SimpleQueryMessage;

use crate::support::{client, database, mariadb, mysql_client, proof, token, word_of};

/// The blocks of SQL of the page, in their order.
fn documented() -> [String; 8] {
    let page = include_str!("../../../../docs/fencing.md");
    let blocks = page.split("```sql\n").skip(1);
    let blocks: Vec<String> =
        blocks.filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect();
    blocks.try_into().expect("table, raise, look, column, update, and three of MariaDB")
}

fn numbered(statement: &str) -> String {
    statement.replace(":resource", "$1").replace(":token", "$2")
}

#[tokio::test]
async fn the_documented_statements_refuse_by_changing_no_row_of_postgres() {
    let server = database();
    let [table, raise, look, ..] = documented();
    let own = [(table, numbered(&raise), numbered(&look))];
    let ours = [(sql::TABLE.to_owned(), sql::RAISE.to_owned(), sql::LOOK.to_owned())];
    for (table, raise, look) in own.into_iter().chain(ours) {
        server.sql(&format!("DROP TABLE holdline_fence; {table}"));
        let db = client(&server.url()).await;
        for (mine, rows, mark) in
            [(33_i64, 1, 33), (33, 1, 33), (34, 1, 34), (33, 0, 34), (35, 1, 35)]
        {
            let changed = db.execute(&raise, &[&"stock/17", &mine]).await.expect("valid");
            assert_eq!(changed, rows, "{mine}: {raise}");
            let seen = db.query_one(&look, &[&"stock/17"]).await.expect("one row");
            assert_eq!(seen.get::<_, i64>(0), mark);
            // Both sides meet on one table.
            let fence = PostgresFence::new("stock/17");
            assert_eq!(fence.mark(&db).await.expect("readable"), Some(token(mark.unsigned_abs())));
        }
        let late = PostgresFence::new("stock/17").seal(&db, &proof(34)).await;
        assert_eq!(word_of(&late), "stale 34 35");
    }
}

#[tokio::test]
async fn a_mark_in_the_row_that_it_guards_refuses_by_changing_no_row() {
    let server = database();
    let [_, _, _, column, update, ..] = documented();
    server.sql(&column);
    let db = client(&server.url()).await;
    let update = update.replace(":token", "$1");
    for (mine, rows) in [(33_i64, 1), (34, 1), (33, 0), (34, 1)] {
        let changed = db.execute(&update, &[&mine]).await.expect("valid");
        assert_eq!(changed, rows, "{mine}: {update}");
    }
    assert_eq!(server.sql("SELECT apples, mark FROM stock"), ["9|34"]);
}

/// Those of the page and ours, and the fence over the same table.
#[tokio::test]
async fn the_statements_for_mariadb_agree_with_its_fence() {
    let server = mariadb();
    let mut db = mysql_client(&server.url()).await;
    let [.., table, raise, look] = documented();
    let own = [table, raise.replace(":resource", "?").replace(":token", "?"), look];
    let ours = [sql::mysql::TABLE, sql::mysql::RAISE, sql::mysql::LOOK].map(str::to_owned);
    for [table, raise, look] in [own, ours] {
        server.sql(&format!("DROP TABLE holdline_fence; {table}"));
        let fence = MysqlFence::new("stock/17");
        // The page asks whether the mark is mine, our text what it is.
        let asks_for_mine = look.contains(":token");
        for (mine, mark) in [(33_i64, 33), (33, 33), (34, 34), (33, 34), (35, 35)] {
            let filled = look.replace(":resource", "'stock/17'").replace('?', "'stock/17'");
            let look = filled.replace(":token", &mine.to_string());
            let mut step = db.start_transaction(TxOpts::default()).await.expect("begun");
            step.exec_drop(&raise, ("stock/17", mine)).await.expect("valid");
            let read: Option<i64> = step.query_first(look).await.expect("valid");
            step.commit().await.expect("committed");
            let expected = if asks_for_mine { i64::from(mine == mark) } else { mark };
            assert_eq!(read, Some(expected), "{mine}: {raise}");
            let seen = fence.mark(&mut db).await.expect("readable");
            assert_eq!(seen, Some(token(mark.unsigned_abs())));
        }
        assert_eq!(word_of(&fence.seal(&mut db, &proof(34)).await), "stale 34 35");
    }
}

/// The server runs the statements as it starts, and ends.
#[test]
fn the_documented_statements_refuse_on_mariadb() {
    let home = std::env::temp_dir().join(format!("holdline-mariadb-{}", std::process::id()));
    std::fs::create_dir_all(home.join("data")).expect("a fresh directory");
    let [.., table, raise, look] = documented();
    let mut script = format!("CREATE DATABASE stock;\nUSE stock;\n{}\n", one_line(&table));
    let tries = [(33, "1"), (33, "1"), (34, "1"), (33, "0"), (35, "1")];
    for (at, (mine, _)) in tries.iter().enumerate() {
        let filled = |statement: &str| {
            let line = one_line(statement).replace(":resource", "'stock/17'");
            line.replace(":token", &mine.to_string())
        };
        let look = filled(&look).trim_end_matches(';').to_owned();
        let file = home.join(at.to_string());
        script += &format!("BEGIN;\n{}\n", filled(&raise));
        script += &format!("{look} INTO OUTFILE '{}';\nCOMMIT;\n", file.display());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut server = Command::new("mariadbd")
        // Debian keeps servers where only root looks.
        .env("PATH", format!("{path}:/usr/sbin"))
        .args(["--no-defaults", "--bootstrap", "--innodb-buffer-pool-size=8M"])
        .arg(format!("--datadir={}", home.join("data").display()))
        .args(user_argument())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mariadbd, of Debian's package mariadb-server-core");
    let mut input = server.stdin.take().expect("piped");
    input.write_all(script.as_bytes()).expect("it reads");
    drop(input);
    let output = server.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for (at, (mine, expected)) in tries.iter().enumerate() {
        let written = std::fs::read_to_string(home.join(at.to_string()));
        let written = written.unwrap_or_else(|error| panic!("{mine}: {error}: {said}"));
        assert_eq!(written.trim(), *expected, "{mine}: {raise}");
    }
    std::fs::remove_dir_all(&home).expect("ours");
}

/// It takes one statement a line.
fn one_line(statement: &str) -> String {
    statement.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As root it requires an explicit user.
fn user_argument() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

/// The statements of `docs/postgres.md` for programs that use an advisory lock.
#[tokio::test]
async fn a_token_of_an_advisory_lock_refuses_a_holder_that_lost_its_session() {
    let server = database();
    let page = include_str!("../../../../docs/postgres.md");
    let section = page.split("## Advisory locks").nth(1).expect("the section");
    let mut blocks = section.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    server.sql(blocks.next().expect("the table"));
    let lock = blocks.next().expect("the statements that lock");
    let proof_of = async |session: &tokio_postgres::Client| {
        let rows = session.simple_query(lock).await.expect("locked");
        let row = rows.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let token = row.and_then(|row| row.get(0)).expect("a token");
        proof(token.parse().expect("a number"))
    };
    let first_session = client(&server.url()).await;
    let data = client(&server.url()).await;
    let fence = PostgresFence::new("stock/17");
    let first = proof_of(&first_session).await;
    fence.seal(&data, &first).await.expect("the only holder");
    // The server ends the session, and the lock with it; the holder still has its other connection.
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'");
    let next_session = client(&server.url()).await;
    let next = proof_of(&next_session).await;
    fence.seal(&data, &next).await.expect("a larger token");
    assert_eq!(word_of(&fence.seal(&data, &first).await), "stale 1 2");
}
