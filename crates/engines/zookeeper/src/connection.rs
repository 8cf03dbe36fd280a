//! The requests of one connection, each with a deadline. They are executed in the order in which
//! they were first polled. So a read after a write is at least as new as the write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error, OneshotWatcher, SessionState, Stat};

use crate::error::{RequestError, protocol};
use crate::options::ZooKeeperOptions;

/// A connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    limit: Duration,
    open: bool,
    root: String,
    /// The task of the client crate is gone.
    dead: Arc<AtomicBool>,
}

impl Connection {
    pub(crate) fn new(client: Client, options: &ZooKeeperOptions) -> Connection {
        Connection {
            client,
            limit: options.command_timeout(),
            open: options.is_open(),
            root: options.chroot().to_owned(),
            dead: Arc::default(),
        }
    }

    /// Returns whether its session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.dead.load(Ordering::SeqCst) || self.client.state().is_terminated()
    }

    /// Returns whether a server is connected, as far as known.
    pub(crate) fn is_connected(&self) -> bool {
        !matches!(self.client.state(), SessionState::Disconnected)
    }

    /// Waits until the connection breaks or is restored, or the session ends.
    pub(crate) fn next_state(&self) -> BoxFuture<'static, SessionState> {
        let mut watcher = self.client.state_watcher();
        Box::pin(async move { watcher.changed().await })
    }

    /// Returns the children of a node; `None` if it does not exist.
    pub(crate) async fn children(&self, path: &str) -> Result<Option<Vec<String>>, RequestError> {
        or_none(self.within(self.client.list_children(path)).await)
    }

    /// Returns the children of a node, and how many it has ever had: the number of the next one.
    /// `None` if it does not exist.
    pub(crate) async fn counted_children(
        &self,
        path: &str,
    ) -> Result<Option<(Vec<String>, i64)>, RequestError> {
        let found = or_none(self.within(self.client.get_children(path)).await)?;
        Ok(found.map(|(children, stat)| {
            // The servers count creations and deletions together, in 32 bits.
            let changes = i64::from(stat.cversion.cast_unsigned());
            (children, (changes + i64::from(stat.num_children)) / 2)
        }))
    }

    /// Returns the children of a node, and a watcher for the next change.
    pub(crate) async fn watch_children(
        &self,
        path: &str,
    ) -> Result<Option<(Vec<String>, OneshotWatcher)>, RequestError> {
        or_none(self.within(self.client.list_and_watch_children(path)).await)
    }

    /// Returns a node's data; `None` if it does not exist.
    pub(crate) async fn data(&self, path: &str) -> Result<Option<(Vec<u8>, Stat)>, RequestError> {
        or_none(self.within(self.client.get_data(path)).await)
    }

    /// Returns a node's stat, and a watcher for the next change. Opens no watch if there is no
    /// node.
    pub(crate) async fn watch_data(
        &self,
        path: &str,
    ) -> Result<Option<(Stat, OneshotWatcher)>, RequestError> {
        let found = or_none(self.within(self.client.get_and_watch_data(path)).await)?;
        Ok(found.map(|(_, stat, watcher)| (stat, watcher)))
    }

    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Stat>, RequestError> {
        self.within(self.client.check_stat(path)).await
    }

    /// Creates a sequential ephemeral node.
    pub(crate) async fn create_contender(
        &self,
        path: &str,
        data: &[u8],
    ) -> Result<(String, Stat), RequestError> {
        let options = CreateMode::EphemeralSequential.with_acls(self.acls());
        let (stat, number) = self.within(self.client.create(path, data, &options)).await?;
        let child = path.rsplit_once('/').map_or(path, |(_, child)| child);
        Ok((format!("{child}{number}"), stat))
    }

    /// Creates a container node, and the chroot above it.
    pub(crate) async fn make_container(&self, path: &str) -> Result<(), RequestError> {
        let container = CreateMode::Container.with_acls(self.acls());
        for _ in 0..2 {
            match self.within(self.client.create(path, &[], &container)).await {
                Ok(_) | Err(RequestError::NodeExists) => return Ok(()),
                Err(RequestError::NoNode) if self.root != "/" => {
                    let root = CreateMode::Persistent.with_acls(self.acls());
                    self.within(self.client.mkdir(&self.root, &root)).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(RequestError::NoNode)
    }

    /// Deletes a node, of this version if one is given; returns `false` if there is none.
    pub(crate) async fn delete(
        &self,
        path: &str,
        version: Option<i32>,
    ) -> Result<bool, RequestError> {
        or_none(self.within(self.client.delete(path, version)).await).map(|done| done.is_some())
    }

    /// Deletes a node that has no children; returns `false` if it has some.
    pub(crate) async fn delete_empty(&self, path: &str) -> Result<bool, RequestError> {
        match self.within(self.client.delete(path, None)).await {
            Ok(()) | Err(RequestError::NoNode) => Ok(true),
            Err(RequestError::NotEmpty) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Sets the data of a node of this version.
    pub(crate) async fn set(
        &self,
        path: &str,
        data: &[u8],
        version: i32,
    ) -> Result<Stat, RequestError> {
        self.within(self.client.set_data(path, data, Some(version))).await
    }

    /// Creates a mark, and deletes a node of this version or sets its data: both or neither.
    pub(crate) async fn mark_and_change(
        &self,
        (mark, reason): (&str, &[u8]),
        (path, version): (&str, i32),
        data: Option<&[u8]>,
    ) -> Result<(), RequestError> {
        let options = CreateMode::Persistent.with_acls(self.acls());
        let mut writer = self.client.new_multi_writer();
        writer.add_create(mark, reason, &options)?;
        match data {
            Some(data) => writer.add_set_data(path, data, Some(version))?,
            None => writer.add_delete(path, Some(version))?,
        }
        self.within(async { writer.commit().await.map_err(Error::from) }).await?;
        Ok(())
    }

    /// Sends a transaction that changes nothing to a majority. Its success proves that the session
    /// exists at the leader. The result of the check in it does not matter.
    pub(crate) async fn prove_session(&self) -> Result<(), RequestError> {
        let mut writer = self.client.new_multi_writer();
        writer.add_check_version(&self.root, -1)?;
        match self.within(async { writer.commit().await.map_err(Error::from) }).await {
            Ok(_) | Err(RequestError::NoNode) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Checks whether the user may create a node below the chroot, or the chroot itself. Writes
    /// nothing: the last operation of the transaction requires a version that no node has.
    ///
    /// # Errors
    /// The refusal, if it is one.
    pub(crate) async fn may_write(&self) -> Result<(), RequestError> {
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
            Ok(_) | Err(RequestError::BadVersion | RequestError::NodeExists) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Makes the connected member catch up with the leader.
    pub(crate) async fn catch_up(&self, path: &str) -> Result<(), RequestError> {
        match self.within(self.client.sync(path)).await {
            Ok(()) | Err(RequestError::NoNode) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn acls(&self) -> Acls<'static> {
        if self.open { Acls::anyone_all() } else { Acls::creator_all() }
    }

    async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, RequestError> {
        match timeout(self.limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Error::BadArguments(why))) => {
                Err(protocol(format!("the client crate rejects the request: {why}")).into())
            }
            // The task of the client crate has ended, for which it has no kind of error.
            Ok(Err(Error::UnexpectedError(why)))
                if why.starts_with("expect error state") || why.starts_with("BUG: ") =>
            {
                self.dead.store(true, Ordering::SeqCst);
                Err(RequestError::SessionGone)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(RequestError::NoAnswer(format!("no answer within {:?}", self.limit))),
        }
    }
}

/// Turns the absence of a node into an answer.
fn or_none<T>(answer: Result<T, RequestError>) -> Result<Option<T>, RequestError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(RequestError::NoNode) => Ok(None),
        Err(failure) => Err(failure),
    }
}
