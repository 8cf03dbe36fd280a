//! Elections: a lock whose holder leads, with a value that observers see.
//!
//! [`Client::election`] describes an [`Election`]. A candidate [campaigns](Election::campaign), and
//! has a [`Leadership`] from then on. All others see the [`Leader`] and its value: once by
//! [`Election::leader`], or one after the other by [`Election::observe`].
//!
//! Invariant L1: the term of a leadership is the fencing token of its grant. So terms grow, and a
//! resource that checks tokens rejects a deposed leader.
//! Invariant L2: a leadership is valid exactly while its lease is: on a loss, `lost` resolves
//! before the store can grant the name to another candidate.
//! Invariant L3: observers never see an older term after a newer one, nor one term twice.
//! Read next: `leadership`, what a leader has; `observe`, what the others see; `value`, where the
//! value is stored.

mod leader;
mod leadership;
mod observe;
mod value;

pub use crate::plan::options::MAX_VALUE_BYTES;
pub use leader::Leader;
pub use leadership::Leadership;
pub use observe::Leaders;

use std::time::Duration;

use holdline_core::{LockError, LockName, Mode, Snapshot};

use crate::client::Client;
use crate::plan::options::LockOptions;
use value::Proclaimed;

impl Client {
    /// Describes an election: a lock whose holder leads, with a value that observers see.
    ///
    /// # Errors
    /// As [`Client::mutex`]; and `Unsupported` where the engine has no fencing tokens or keeps no
    /// metadata, `Invalid` for a name that leaves no room for the locks of
    /// [`Leadership::proclaim`](crate::Leadership::proclaim) (more than 499 bytes).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_election").await?;
    /// let election = client.election("scheduler")?;
    /// let leadership = election.campaign("http://10.0.0.7:8080").await?;
    /// leadership.resign().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election, LockError> {
        self.election_with(name, &LockOptions::default())
    }

    /// As [`Client::election`], with the options of its campaigns.
    ///
    /// # Errors
    /// As [`Client::election`] and [`Client::mutex_with`]; and `Invalid` for options with a lease
    /// id, which is good for one campaign only.
    pub fn election_with(
        &self,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<Election, LockError> {
        Election::new(self, name, options)
    }
}

/// An election: at most one candidate leads at a time, and everybody can see which. A description
/// only; cheap to clone.
///
/// An election is the exclusive lock of its name: [`Client::mutex`] with the same name excludes the
/// leader, and `holdline who`, `revoke` and `freeze` work on it. Candidates lead in the order in
/// which they queued, where the engine is fair.
///
/// It does not promise that a deposed leader has stopped: a process that is paused for longer than
/// its lease can act when it resumes. Give [`Leadership::term`] to the resource, and let it reject
/// smaller terms.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use holdline::Client;
///
/// let client = Client::connect("memory:election").await?;
/// let election = client.election("scheduler")?;
/// let leadership = election.campaign("http://10.0.0.7:8080").await?;
///
/// let leader = election.leader().await?.expect("somebody leads");
/// assert_eq!(leader.term(), leadership.term());
/// assert_eq!(leader.value(), "http://10.0.0.7:8080");
///
/// // The future is dropped if the leadership is lost.
/// let done = leadership.run(async { "scheduled" }).await?;
/// assert_eq!(done, "scheduled");
/// leadership.resign().await.into_result()?;
/// assert!(election.leader().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    name: LockName,
    options: LockOptions,
    proclaimed: Proclaimed,
}

impl Election {
    /// Checks everything that can be checked without the store.
    pub(crate) fn new(
        client: &Client,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<Election, LockError> {
        let capabilities = client.capabilities();
        if !capabilities.fencing {
            return Err(capabilities.lacks("elections, whose terms are fencing tokens"));
        }
        if !capabilities.metadata {
            return Err(capabilities.lacks("elections, whose values are metadata of the holder"));
        }
        if options.lease_id.is_some() {
            let message = "an election draws a new one for each campaign: leave it out";
            return Err(LockError::invalid(capabilities.engine, "lease_id", message));
        }
        let name = client.mutex_with(name, options)?.name().clone();
        let proclaimed = Proclaimed::of(client, &name)?;
        Ok(Election { client: client.clone(), name, options: options.clone(), proclaimed })
    }

    /// Returns the lock name of the election.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Waits until this candidate leads, or the wait limit has passed.
    ///
    /// Observers see `value` while it leads: an address, for example. The value may have
    /// [`MAX_VALUE_BYTES`] bytes, and together with reason, labels and the rest of the holder's
    /// metadata 1,024 bytes when encoded as JSON.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`]; and `Invalid` for a value that is too long: nothing was asked of
    /// the store.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate, as [`crate::Mutex::lock`] does.
    ///
    /// # Fairness
    /// Where the engine is fair, candidates lead in the order in which they queued.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:campaign").await?;
    /// let election = client.election("scheduler")?;
    /// let leadership = election.campaign("http://10.0.0.7:8080").await?;
    /// println!("leads in term {}", leadership.term());
    /// leadership.resign().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn campaign(&self, value: impl Into<String>) -> Result<Leadership, LockError> {
        self.lead(self.options.clone().with_value(value)).await
    }

    /// As [`Election::campaign`], with the wait limit of this call in place of that of the options.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`] and [`Election::campaign`].
    ///
    /// # Cancel safety
    /// As [`Election::campaign`].
    ///
    /// # Fairness
    /// As [`Election::campaign`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:campaign_within").await?;
    /// use std::time::Duration;
    ///
    /// let election = client.election("scheduler")?;
    /// let leadership = election.campaign("node 1").await?;
    /// let late = election.campaign_within("node 2", Duration::from_millis(50)).await;
    /// assert!(late.is_err_and(|error| error.is_contended()));
    /// leadership.resign().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn campaign_within(
        &self,
        value: impl Into<String>,
        limit: Duration,
    ) -> Result<Leadership, LockError> {
        self.lead(self.options.clone().with_value(value).with_wait(limit)).await
    }

    async fn lead(&self, options: LockOptions) -> Result<Leadership, LockError> {
        let guard = self.client.mutex_with(self.name.as_str(), &options)?.lock().await?;
        Ok(Leadership::new(self, guard))
    }

    /// Returns who leads now; `None` if nobody does.
    ///
    /// The answer is old when it arrives: the leader may have changed since. It decides nothing.
    ///
    /// # Errors
    /// What the engine says. Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:leader").await?;
    /// let election = client.election("scheduler")?;
    /// match election.leader().await? {
    ///     Some(leader) => println!("{} leads in term {}", leader.value(), leader.term()),
    ///     None => println!("nobody leads"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn leader(&self) -> Result<Option<Leader>, LockError> {
        match self.look().await? {
            Some(leader) => self.with_proclaimed(leader).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the leaders one after the other: the present one at once, then each new one.
    ///
    /// The stream looks at the store twice a second. So it returns each term that lasts longer
    /// than a second, and may miss a shorter one: between two items there can be a gap. Terms only
    /// grow. While nobody leads, it returns nothing. An error that passes by itself (no answer, no
    /// quorum) is retried; any other error is the last item.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:observe").await?;
    /// let election = client.election("scheduler")?;
    /// let leadership = election.campaign("node 1").await?;
    /// let mut leaders = election.observe();
    /// let leader = leaders.next().await.expect("the stream goes on")?;
    /// assert_eq!((leader.term(), leader.value()), (leadership.term(), "node 1"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn observe(&self) -> Leaders {
        Leaders::of(self)
    }

    /// Returns who leads now, with the value of its campaign.
    async fn look(&self) -> Result<Option<Leader>, LockError> {
        let snapshot = self.client.admin().inspect(&self.name).await?;
        Ok(leader_of(&snapshot))
    }

    /// Returns the leader with the value that it proclaimed last.
    async fn with_proclaimed(&self, leader: Leader) -> Result<Leader, LockError> {
        match self.proclaimed.read(&self.client, leader.term()).await? {
            Some(value) => Ok(leader.with_value(value)),
            None => Ok(leader),
        }
    }
}

/// Finds the leader in a snapshot: the exclusive holder. A freeze, a reader and a client without
/// tokens lead nothing.
fn leader_of(snapshot: &Snapshot) -> Option<Leader> {
    let holder = snapshot.holders.first()?;
    if holder.summary.mode == Mode::Exclusive { Leader::of(&holder.summary) } else { None }
}
