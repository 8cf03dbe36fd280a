//! The statements of a fence in PostgreSQL, for any driver: sqlx, diesel, an ORM, `psql`. Those of
//! MariaDB and MySQL are in [`mysql`].
//!
//! Parameters are `$1`, the resource (text), and `$2`, the token (`bigint`). A [`RAISE`] at the
//! start of a writing transaction makes that transaction a check-and-write, and alone it is a seal:
//!
//! | [`RAISE`] answers | means | do |
//! |---|---|---|
//! | one row | the mark is mine, and its row is locked until I commit | read, write, commit |
//! | no row | refused | ask [`LOOK`], let [`Rules::raise`](super::Rules::raise) say why; roll back |
//! | error `40001`, `40P01` | others were at work | roll back and try again |
//!
//! Run it in `READ COMMITTED`, the default, or in a stricter level. After a wait for another
//! transaction, PostgreSQL reads the row again as that one committed it, so the answer is never
//! about an old version.
//!
//! If `synchronous_commit` is off, a crash can lose the last commits, marks included, and a late
//! writer would be accepted again: put `SET LOCAL synchronous_commit = on` before the [`RAISE`].
//! The statement does not contain it, since not every database with this SQL dialect supports it.
//!
//! The statements name no schema. If others may create tables or functions in a schema of the
//! search path, as in `public` before PostgreSQL 15, remove that schema from the path: their code
//! would run with your rights.
//!
//! With the feature `fence-postgres` and tokio-postgres, `PostgresFence` does all that.

pub mod mysql;

/// Creates the table of marks. Put it into your migrations; [`MAKE_TABLE`] is the same for
/// concurrent processes.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS holdline_fence (
    resource TEXT PRIMARY KEY,
    mark BIGINT NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
)";

/// Creates the table of marks, also concurrently: with `IF NOT EXISTS` alone one of the processes
/// fails.
pub const MAKE_TABLE: &str = "DO $make$ BEGIN
    CREATE TABLE IF NOT EXISTS holdline_fence (
        resource TEXT PRIMARY KEY,
        mark BIGINT NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
    );
EXCEPTION WHEN unique_violation OR duplicate_table OR duplicate_object THEN
    IF pg_catalog.to_regclass('holdline_fence') IS NULL THEN RAISE; END IF;
END $make$";

/// Raises the mark of resource `$1` to token `$2`. No row means: refused.
///
/// A row without a valid token is refused too, and left unchanged.
pub const RAISE: &str = "INSERT INTO holdline_fence AS fence (resource, mark) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark
WHERE fence.mark BETWEEN 1 AND excluded.mark
RETURNING mark";

/// Returns the mark of resource `$1`, if it has one.
pub const LOOK: &str = "SELECT mark FROM holdline_fence WHERE resource = $1";
