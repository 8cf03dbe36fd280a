//! Stores for the marks of a service.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use holdline_core::FencingToken;
use parking_lot::Mutex;

#[cfg(feature = "postgres")]
use crate::PostgresFence;
use crate::{Access, FenceError, Proof, Rules};

/// Keeps a mark for each resource of a service.
///
/// [`FencingLayer`](super::FencingLayer) uses it. A service with several replicas needs a shared
/// store, where the data is.
pub trait FenceStore: Send + Sync + 'static {
    /// Checks that no newer holder was here, and does not raise the mark.
    ///
    /// # Errors
    /// As [`Fenced::check`](crate::Fenced::check).
    fn check<A: Access + Send + Sync>(
        &self,
        resource: &str,
        proof: &Proof<A>,
    ) -> impl Future<Output = Result<(), FenceError>> + Send;

    /// Raises the mark to the holder's token, in one atomic step.
    ///
    /// # Errors
    /// As [`Fenced::seal`](crate::Fenced::seal).
    fn seal(
        &self,
        resource: &str,
        proof: &Proof,
    ) -> impl Future<Output = Result<(), FenceError>> + Send;
}

impl<S: FenceStore> FenceStore for Arc<S> {
    fn check<A: Access + Send + Sync>(
        &self,
        resource: &str,
        proof: &Proof<A>,
    ) -> impl Future<Output = Result<(), FenceError>> + Send {
        S::check(self, resource, proof)
    }

    fn seal(
        &self,
        resource: &str,
        proof: &Proof,
    ) -> impl Future<Output = Result<(), FenceError>> + Send {
        S::seal(self, resource, proof)
    }
}

/// Marks in this process, for a service that is one process with its data in it, and for tests.
///
/// A restart loses them; then a late holder is admitted until a newer one raises the mark.
#[derive(Debug)]
pub struct MemoryMarks {
    marks: Mutex<HashMap<String, FencingToken>>,
    rules: Rules,
    capacity: usize,
}

impl MemoryMarks {
    /// Makes a store for the marks of `capacity` resources. A mark is never dropped to make room;
    /// requests for further resources are refused (`Busy`).
    pub fn new(capacity: usize) -> MemoryMarks {
        MemoryMarks { marks: Mutex::default(), rules: Rules::default(), capacity }
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> MemoryMarks {
        self.rules = rules;
        self
    }

    /// Returns the mark of a resource.
    pub fn mark(&self, resource: &str) -> Option<FencingToken> {
        self.marks.lock().get(resource).copied()
    }

    fn raise(&self, resource: &str, proof: &Proof) -> Result<(), FenceError> {
        let mut marks = self.marks.lock();
        let mark = self.rules.raise(marks.get(resource).copied(), proof)?;
        if let Some(stored) = marks.get_mut(resource) {
            *stored = mark;
        } else if marks.len() < self.capacity {
            marks.insert(resource.to_owned(), mark);
        } else {
            let what = format!("no room for the mark of more than {} resources", self.capacity);
            return Err(FenceError::Busy { what });
        }
        Ok(())
    }
}

impl FenceStore for MemoryMarks {
    async fn check<A: Access + Send + Sync>(
        &self,
        resource: &str,
        proof: &Proof<A>,
    ) -> Result<(), FenceError> {
        let mark = self.mark(resource);
        self.rules.report(&resource, self.rules.check(mark, proof))
    }

    async fn seal(&self, resource: &str, proof: &Proof) -> Result<(), FenceError> {
        let answer = self.raise(resource, proof);
        self.rules.report(&resource, answer)
    }
}

/// Marks in a PostgreSQL database, those of [`PostgresFence`]: the layer checks the mark first, and
/// the handler checks it again in its transaction.
///
/// All requests use one connection, which the caller drives and replaces.
#[cfg(feature = "postgres")]
#[derive(Clone)]
pub struct PostgresMarks {
    db: Arc<tokio_postgres::Client>,
    schema: Option<String>,
    rules: Rules,
}

#[cfg(feature = "postgres")]
impl std::fmt::Debug for PostgresMarks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PostgresMarks { schema, rules, .. } = self;
        f.debug_struct("PostgresMarks")
            .field("schema", schema)
            .field("rules", rules)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "postgres")]
impl PostgresMarks {
    /// Uses the table that [`PostgresFence::create_table`] makes.
    pub fn new(db: Arc<tokio_postgres::Client>) -> PostgresMarks {
        PostgresMarks { db, schema: None, rules: Rules::default() }
    }

    /// Names the schema of the table.
    #[must_use]
    pub fn in_schema(mut self, schema: impl Into<String>) -> PostgresMarks {
        self.schema = Some(schema.into());
        self
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> PostgresMarks {
        self.rules = rules;
        self
    }

    /// Returns the fence of a resource, for the handler's own transaction.
    pub fn fence(&self, resource: &str) -> PostgresFence {
        let fence = PostgresFence::new(resource).with_rules(self.rules.clone());
        match &self.schema {
            Some(schema) => fence.in_schema(schema),
            None => fence,
        }
    }
}

#[cfg(feature = "postgres")]
impl FenceStore for PostgresMarks {
    async fn check<A: Access + Send + Sync>(
        &self,
        resource: &str,
        proof: &Proof<A>,
    ) -> Result<(), FenceError> {
        self.fence(resource).check(&*self.db, proof).await
    }

    async fn seal(&self, resource: &str, proof: &Proof) -> Result<(), FenceError> {
        self.fence(resource).seal(&*self.db, proof).await
    }
}
