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
//! Run it in `READ COMMITTED`, the default, or in a stricter level. When it has waited for another
//! transaction, PostgreSQL looks at the row once more as that one left it, so the answer is never
//! about an old version.
//!
//! Where `synchronous_commit` is off, a crash takes back what was committed last, marks included,
//! and a late writer could come in again: put `SET LOCAL synchronous_commit = on` before the
//! [`RAISE`]. The statement leaves it to you, since not every database that speaks this SQL knows
//! it.
//!
//! The statements name no schema. Where others may make tables or functions in a schema of the
//! search path, as in `public` before PostgreSQL 15, leave it out of the path: what they planted
//! there would run with your rights.
//!
//! With the feature `fence-postgres` and tokio-postgres, `PostgresFence` does all that.

pub mod mysql;

/// Makes the table of marks. Put it into your migrations; [`MAKE_TABLE`] is the same for many
/// processes at once.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS holdline_fence (
    resource TEXT PRIMARY KEY,
    mark BIGINT NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
)";

/// Makes the table of marks, also while others make it: `IF NOT EXISTS` alone lets one of them
/// fail.
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
/// A row that holds no token of ours is refused too, and left as it is.
pub const RAISE: &str = "INSERT INTO holdline_fence AS fence (resource, mark) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark
WHERE fence.mark BETWEEN 1 AND excluded.mark
RETURNING fence.mark";

/// Returns the mark of resource `$1`, if it has one.
pub const LOOK: &str = "SELECT mark FROM holdline_fence WHERE resource = $1";
