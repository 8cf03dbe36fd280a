//! Waits until replicas have acknowledged a grant.
//!
//! `WAIT` covers the writes of its own connection, and blocks later requests there. So it has a
//! connection of its own, which writes a value first. That write follows the grant in the master's
//! replication stream: a replica that has it has the grant, too.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Certainty, LockError};

use crate::args::Args;
use crate::error::unavailable;
use crate::link::{Link, MasterSource};
use crate::options::Replicas;

/// Collects the acknowledgements of replicas.
pub(crate) struct ReplicaAcks {
    link: Link,
    /// Knows how many replicas there are; `None` for one server.
    source: Option<Arc<dyn MasterSource>>,
    wanted: Replicas,
    key: Vec<u8>,
    deadline: Duration,
}

impl ReplicaAcks {
    pub(crate) fn new(
        link: Link,
        source: Option<Arc<dyn MasterSource>>,
        wanted: Replicas,
        key: Vec<u8>,
        deadline: Duration,
    ) -> ReplicaAcks {
        ReplicaAcks { link, source, wanted, key, deadline }
    }

    /// Waits until enough replicas have everything that this run of the server has written so far.
    ///
    /// # Errors
    /// `Unavailable`, unknown: they are too few. The writes remain all the same.
    pub(crate) async fn confirm(&self, run: Option<&str>) -> Result<(), LockError> {
        let wanted = self.wanted_now()?;
        if run.is_none() {
            let message = "`replicas` needs the right `+info`, so that it is known which run of \
                           the server has granted";
            return Err(unavailable(message, Certainty::Unknown));
        }
        match self.count_acks(wanted, run).await {
            Ok(count) if count >= wanted => Ok(()),
            Ok(count) => {
                let message = format!("{count} of {wanted} replicas have acknowledged it");
                Err(unavailable(message, Certainty::Unknown))
            }
            Err(error) => {
                let message = format!("it is not known which replicas have it: {error}");
                Err(unavailable(message, Certainty::Unknown))
            }
        }
    }

    fn wanted_now(&self) -> Result<u64, LockError> {
        let known = match (&self.source, self.wanted) {
            (Some(source), _) => source.replicas(),
            (None, Replicas::Count(count)) => count,
            (None, _) => 0,
        };
        self.wanted.of(known).ok_or_else(|| {
            let message = format!("the sentinels know {known} replicas, which are too few");
            unavailable(message, Certainty::Unknown)
        })
    }

    async fn count_acks(&self, wanted: u64, run: Option<&str>) -> Result<u64, LockError> {
        let unique = self.link.random().to_string();
        let args: [&[u8]; 4] = [b"HSET", &self.key, b"c", unique.as_bytes()];
        self.link.send_to(run, &Args::from(args), self.deadline).await?;
        let wait_ms = (self.deadline / 2).as_millis().max(1).to_string();
        let args = Args::from(["WAIT", &wanted.to_string(), &wait_ms]);
        let count = self.link.send_to(run, &args, self.deadline).await?;
        Ok(count.as_integer().and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
    }
}
