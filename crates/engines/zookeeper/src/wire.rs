//! One connection's requests, each with a deadline. They are carried out in the order in which
//! they were first polled, so that what is read after a write is at least as new as that write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error, OneshotWatcher, SessionState, Stat};

use crate::error::{Trouble, protocol};
use crate::options::ZooKeeperOptions;

/// A connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Wire {
    client: Client,
    limit: Duration,
    open: bool,
    root: String,
    /// The task that served the connection is gone.
    dead: Arc<AtomicBool>,
}

impl Wire {
    pub(crate) fn new(client: Client, options: &ZooKeeperOptions) -> Wire {
        Wire {
            client,
            limit: options.cluster.command_timeout,
            open: options.is_open(),
            root: options.chroot().to_owned(),
            dead: Arc::default(),
        }
    }

    /// Tells whether its session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.dead.load(Ordering::SeqCst) || self.client.state().is_terminated()
    }

    /// Tells whether a server is connected, as far as is known.
    pub(crate) fn is_connected(&self) -> bool {
        !matches!(self.client.state(), SessionState::Disconnected)
    }

    /// Waits until the connection breaks, is there again, or the session is over.
    pub(crate) fn next_state(&self) -> BoxFuture<'static, SessionState> {
        let mut watcher = self.client.state_watcher();
        Box::pin(async move { watcher.changed().await })
    }

    /// The children of a node; `None` when it is not there.
    pub(crate) async fn children(&self, path: &str) -> Result<Option<Vec<String>>, Trouble> {
        or_none(self.within(self.client.list_children(path)).await)
    }

    /// The children of a node, and how many it has ever had: the number of its next one. `None`
    /// when it is not there.
    pub(crate) async fn counted_children(
        &self,
        path: &str,
    ) -> Result<Option<(Vec<String>, i64)>, Trouble> {
        let found = or_none(self.within(self.client.get_children(path)).await)?;
        Ok(found.map(|(children, stat)| {
            // The servers tell the creations and deletions together, in 32 bits.
            let changes = i64::from(stat.cversion.cast_unsigned());
            (children, (changes + i64::from(stat.num_children)) / 2)
        }))
    }

    /// The children of a node, and what hears of the next change.
    pub(crate) async fn watch_children(
        &self,
        path: &str,
    ) -> Result<Option<(Vec<String>, OneshotWatcher)>, Trouble> {
        or_none(self.within(self.client.list_and_watch_children(path)).await)
    }

    /// A node's data; `None` when it is not there.
    pub(crate) async fn data(&self, path: &str) -> Result<Option<(Vec<u8>, Stat)>, Trouble> {
        or_none(self.within(self.client.get_data(path)).await)
    }

    /// A node's data, and what hears of the next change. No watch is left where there is none.
    pub(crate) async fn watch_data(
        &self,
        path: &str,
    ) -> Result<Option<(Stat, OneshotWatcher)>, Trouble> {
        let found = or_none(self.within(self.client.get_and_watch_data(path)).await)?;
        Ok(found.map(|(_, stat, watcher)| (stat, watcher)))
    }

    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Stat>, Trouble> {
        self.within(self.client.check_stat(path)).await
    }

    /// Makes a node that goes with the session, numbered by the servers.
    pub(crate) async fn create_contender(
        &self,
        path: &str,
        data: &[u8],
    ) -> Result<(String, Stat), Trouble> {
        let options = CreateMode::EphemeralSequential.with_acls(self.acls());
        let (stat, number) = self.within(self.client.create(path, data, &options)).await?;
        let child = path.rsplit_once('/').map_or(path, |(_, child)| child);
        Ok((format!("{child}{number}"), stat))
    }

    /// Makes a node that goes when its last child has gone, and what is above it.
    pub(crate) async fn make_container(&self, path: &str) -> Result<(), Trouble> {
        let container = CreateMode::Container.with_acls(self.acls());
        for _ in 0..2 {
            match self.within(self.client.create(path, &[], &container)).await {
                Ok(_) | Err(Trouble::NodeExists) => return Ok(()),
                Err(Trouble::NoNode) if self.root != "/" => {
                    let root = CreateMode::Persistent.with_acls(self.acls());
                    self.within(self.client.mkdir(&self.root, &root)).await?;
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Err(Trouble::NoNode)
    }

    /// Deletes a node, of this version if one is given; `false` when there is none.
    pub(crate) async fn delete(&self, path: &str, version: Option<i32>) -> Result<bool, Trouble> {
        or_none(self.within(self.client.delete(path, version)).await).map(|done| done.is_some())
    }

    /// Deletes a node that has no children; `false` when it has some.
    pub(crate) async fn delete_empty(&self, path: &str) -> Result<bool, Trouble> {
        match self.within(self.client.delete(path, None)).await {
            Ok(()) | Err(Trouble::NoNode) => Ok(true),
            Err(Trouble::NotEmpty) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Changes a node's data, of this version.
    pub(crate) async fn set(&self, path: &str, data: &[u8], version: i32) -> Result<Stat, Trouble> {
        self.within(self.client.set_data(path, data, Some(version))).await
    }

    /// Leaves a mark, and deletes a node of this version or changes its data: both or neither.
    pub(crate) async fn mark_and_change(
        &self,
        (mark, said): (&str, &[u8]),
        (path, version): (&str, i32),
        data: Option<&[u8]>,
    ) -> Result<(), Trouble> {
        let options = CreateMode::Persistent.with_acls(self.acls());
        let mut writer = self.client.new_multi_writer();
        writer.add_create(mark, said, &options)?;
        match data {
            Some(data) => writer.add_set_data(path, data, Some(version))?,
            None => writer.add_delete(path, Some(version))?,
        }
        self.within(async { writer.commit().await.map_err(Error::from) }).await?;
        Ok(())
    }

    /// Has a majority carry out nothing: proof that the session stands at the leader. A check is a
    /// write of nothing, whether what it looks for is there or not.
    pub(crate) async fn beat(&self) -> Result<(), Trouble> {
        let mut writer = self.client.new_multi_writer();
        writer.add_check_version(&self.root, -1)?;
        match self.within(async { writer.commit().await.map_err(Error::from) }).await {
            Ok(_) | Err(Trouble::NoNode) => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Asks whether we may make a node below the chroot, or the chroot itself, and writes nothing:
    /// the transaction's last part looks for a version that no node has.
    ///
    /// # Errors
    /// The refusal, if it is one.
    pub(crate) async fn may_write(&self) -> Result<(), Trouble> {
        let mut above = self.root.trim_end_matches('/').to_owned();
        while !above.is_empty() && self.stat(&above).await?.is_none() {
            above.truncate(above.rfind('/').unwrap_or(0));
        }
        let node = CreateMode::Persistent.with_acls(self.acls());
        let probe = format!("{above}/.doctor");
        let mut writer = self.client.new_multi_writer();
        writer.add_create(&probe, &[], &node)?;
        writer.add_delete(&probe, None)?;
        writer.add_check_version("/", i32::MAX)?;
        match self.within(async { writer.commit().await.map_err(Error::from) }).await {
            Ok(_) | Err(Trouble::BadVersion | Trouble::NodeExists) => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Has the member that we are connected to catch up with the leader.
    pub(crate) async fn catch_up(&self, path: &str) -> Result<(), Trouble> {
        match self.within(self.client.sync(path)).await {
            Ok(()) | Err(Trouble::NoNode) => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    fn acls(&self) -> Acls<'static> {
        if self.open { Acls::anyone_all() } else { Acls::creator_all() }
    }

    async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Trouble> {
        match timeout(self.limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Error::BadArguments(why))) => {
                Err(protocol(format!("the client refuses its own request: {why}")).into())
            }
            // Nobody is left who would answer, which the client has no kind of error for.
            Ok(Err(Error::UnexpectedError(why)))
                if why.starts_with("expect error state") || why.starts_with("BUG: ") =>
            {
                self.dead.store(true, Ordering::SeqCst);
                Err(Trouble::SessionGone)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Trouble::NoAnswer(format!("no answer within {:?}", self.limit))),
        }
    }
}

/// A node that is not there is an answer.
fn or_none<T>(answer: Result<T, Trouble>) -> Result<Option<T>, Trouble> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Trouble::NoNode) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}
