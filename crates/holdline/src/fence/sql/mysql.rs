//! The statements of a fence in MariaDB and MySQL, for any driver. They have no condition on a
//! conflict, so it takes two, in one transaction:
//!
//! 1. [`RAISE`], with the resource and the token, at the start of each writing transaction. From
//!    here to its end nobody else raises this mark.
//! 2. [`LOOK`], with the resource. The mark is my token: read, write, commit. It is another:
//!    refused, roll back.
//!
//! Read and write after them, not before: in `REPEATABLE READ`, the default, the first plain
//! `SELECT` fixes what all later ones of the transaction see.
//!
//! With the feature `fence-mysql` and mysql_async, `MysqlFence` does all that.

/// Makes the table of marks. Put it into your migrations.
///
/// Names are bytes here: text columns take names for the same that differ in case or in spaces at
/// the end. Only InnoDB undoes the mark with the rest, and lets others wait for it.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS holdline_fence (
    resource VARBINARY(255) NOT NULL PRIMARY KEY,
    mark BIGINT NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
) ENGINE = InnoDB";

/// Raises the mark of a resource to a token that is not smaller, and locks it until the end of the
/// transaction either way.
///
/// A row that holds no token of ours is left as it is.
pub const RAISE: &str = "INSERT INTO holdline_fence (resource, mark) VALUES (?, ?)
ON DUPLICATE KEY UPDATE mark = IF(mark BETWEEN 1 AND VALUES(mark), VALUES(mark), mark)";

/// Returns the mark of a resource, if it has one: the newest, not the one of an old snapshot.
pub const LOOK: &str = "SELECT mark FROM holdline_fence WHERE resource = ? FOR UPDATE";
