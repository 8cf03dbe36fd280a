//! What every fenced resource must do, on each of them.

mod histories;
mod home;
mod sqlite;
mod tables;

use std::path::Path;

use holdline_core::FencingToken;

use super::{FenceError, Fenced, FencedCell, FencedFile, Proof, SqliteResource};
pub(super) use home::Home;

pub(super) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("in range")
}

pub(super) fn proof(number: u64) -> Proof {
    Proof::exclusive(token(number))
}

pub(super) fn is_stale<T>(answer: &Result<T, FenceError>) -> bool {
    matches!(answer, Err(FenceError::Stale(_)))
}

/// A resource that holds one number, whatever it is made of.
pub(super) trait Shelf: Fenced {
    fn put(&self, proof: &Proof, number: u64) -> Result<(), FenceError>;
    fn look(&self, proof: &Proof) -> Result<u64, FenceError>;
}

impl Shelf for FencedCell<u64> {
    fn put(&self, proof: &Proof, number: u64) -> Result<(), FenceError> {
        self.check_and_write(proof, |value| {
            *value = number;
            Ok(())
        })
    }

    fn look(&self, proof: &Proof) -> Result<u64, FenceError> {
        self.read(proof, |value| *value)
    }
}

impl Shelf for FencedFile {
    fn put(&self, proof: &Proof, number: u64) -> Result<(), FenceError> {
        self.check_and_write(proof, |content| {
            *content = number.to_string().into_bytes();
            Ok(())
        })
    }

    fn look(&self, proof: &Proof) -> Result<u64, FenceError> {
        let content = String::from_utf8(self.read(proof)?).expect("a number in text");
        Ok(if content.is_empty() { 0 } else { content.parse().expect("a number") })
    }
}

impl Shelf for SqliteResource<'_> {
    fn put(&self, proof: &Proof, number: u64) -> Result<(), FenceError> {
        let number = i64::try_from(number).expect("small");
        self.check_and_write(proof, |db| db.execute("UPDATE shelf SET number = ?1", [number]))
            .map(|rows| assert_eq!(rows, 1))
    }

    fn look(&self, proof: &Proof) -> Result<u64, FenceError> {
        self.check(proof)?;
        let number = self.connection().query_row("SELECT number FROM shelf", [], |r| r.get(0));
        let number: i64 = number.expect("one row");
        Ok(u64::try_from(number).expect("small"))
    }
}

pub(super) fn shelf_database(path: &Path) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(path).expect("a database");
    db.execute_batch("CREATE TABLE shelf(number INTEGER NOT NULL); INSERT INTO shelf VALUES (0)")
        .expect("a fresh table");
    super::SqliteFence::create_table(&db).expect("a fresh table");
    db
}
