//! The statements of a fence in MariaDB and MySQL, for any driver. They have no condition on a
//! conflict, so it takes two, in one transaction:
//!
//! 1. [`RAISE`], with the resource and the token, at the start of each writing transaction. Until
//!    the end of the transaction nobody else raises this mark.
//! 2. [`LOOK`], with the resource. If the mark is my token: read, write, commit. If it is another:
//!    refused, roll back.
//!
//! Read and write after them, not before: in `REPEATABLE READ`, the default, the first plain
//! `SELECT` fixes the snapshot of the transaction.
//!
//! With the feature `fence-mysql` and mysql_async, `MysqlFence` does all that.

/// Creates the table of marks. Put it into your migrations.
///
/// Names are bytes here: a text column treats names as equal that differ in case or in trailing
/// spaces. Only InnoDB rolls the mark back with the rest, and lets others wait for it.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS holdline_fence (
    resource VARBINARY(255) NOT NULL PRIMARY KEY,
    mark BIGINT NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
) ENGINE = InnoDB";

/// Raises the mark of a resource to a token that is not smaller, and locks it until the end of the
/// transaction either way.
///
/// A row without a valid token is left unchanged.
pub const RAISE: &str = "INSERT INTO holdline_fence (resource, mark) VALUES (?, ?)
ON DUPLICATE KEY UPDATE mark = IF(mark BETWEEN 1 AND VALUES(mark), VALUES(mark), mark)";

/// Returns the mark of a resource, if it has one: the newest, not the one of an old snapshot.
pub const LOOK: &str = "SELECT mark FROM holdline_fence WHERE resource = ? FOR UPDATE";
