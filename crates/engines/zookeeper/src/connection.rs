//! The requests of one session, each with a limit. They are executed in the order in which they
//! were first polled. So a read after a write is at least as new as the write.

use futures_util::future::BoxFuture;

use crate::client::messages::{
    Acl, CreateMode, Stat, Transaction, create, delete, exists, get_children, get_data, set_data,
    sync,
};
use crate::client::{Client, SessionState, Watch, Watched};
use crate::error::{RequestError, protocol};
use crate::options::ZooKeeperOptions;

/// The data of a node, and the stat that belongs to them.
pub(crate) struct NodeContent {
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
}

/// A session's requests. Clones are the same session.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    open: bool,
    root: String,
}

impl Connection {
    pub(crate) fn new(client: Client, options: &ZooKeeperOptions) -> Connection {
        Connection { client, open: options.is_open(), root: options.chroot().to_owned() }
    }

    /// Returns whether its session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.client.state() == SessionState::Ended
    }

    /// Returns whether a server is connected, as far as known.
    pub(crate) fn is_connected(&self) -> bool {
        self.client.state() == SessionState::Connected
    }

    /// Waits until the connection breaks or is restored, or the session ends.
    pub(crate) fn next_state(&self) -> BoxFuture<'static, SessionState> {
        let mut changes = self.client.state_changes();
        Box::pin(async move {
            match changes.changed().await {
                Ok(()) => *changes.borrow(),
                Err(_) => SessionState::Ended,
            }
        })
    }

    /// Returns the children of a node; `None` if it does not exist.
    pub(crate) async fn children(&self, path: &str) -> Result<Option<Vec<String>>, RequestError> {
        let found = or_none(self.client.ask(get_children(path, false)).await)?;
        Ok(found.map(|(children, _)| children))
    }

    /// Returns the children of a node, and how many it has ever had: the number of the next one.
    /// `None` if it does not exist.
    pub(crate) async fn counted_children(
        &self,
        path: &str,
    ) -> Result<Option<(Vec<String>, i64)>, RequestError> {
        let found = or_none(self.client.ask(get_children(path, false)).await)?;
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
    ) -> Result<Option<(Vec<String>, Watch)>, RequestError> {
        let request = get_children(path, true);
        let found = or_none(self.client.ask_and_watch(request, Watched::Children, path).await)?;
        Ok(found.map(|((children, _), watch)| (children, watch)))
    }

    /// Returns a node's data; `None` if it does not exist.
    pub(crate) async fn data(&self, path: &str) -> Result<Option<NodeContent>, RequestError> {
        let found = or_none(self.client.ask(get_data(path, false)).await)?;
        Ok(found.map(|(data, stat)| NodeContent { data, stat }))
    }

    /// Returns a node's stat, and a watcher for the next change. Opens no watch if there is no
    /// node.
    pub(crate) async fn watch_data(
        &self,
        path: &str,
    ) -> Result<Option<(Stat, Watch)>, RequestError> {
        let request = get_data(path, true);
        let found = or_none(self.client.ask_and_watch(request, Watched::Data, path).await)?;
        Ok(found.map(|((_, stat), watch)| (stat, watch)))
    }

    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Stat>, RequestError> {
        or_none(self.client.ask(exists(path)).await)
    }

    /// Creates a sequential ephemeral node.
    pub(crate) async fn create_contender(
        &self,
        path: &str,
        data: &[u8],
    ) -> Result<(String, Stat), RequestError> {
        let request = create(path, data, self.acl(), CreateMode::EphemeralSequential);
        let (made, stat) = self.client.ask(request).await?;
        let child = made.strip_prefix(path).and_then(|_| made.rsplit_once('/'));
        match (child, stat) {
            (Some((_, child)), Some(stat)) => Ok((child.to_owned(), stat)),
            _ => Err(protocol("the servers created another node than the one asked for").into()),
        }
    }

    /// Creates a container node, and the chroot above it.
    pub(crate) async fn make_container(&self, path: &str) -> Result<(), RequestError> {
        for _ in 0..2 {
            let container = create(path, &[], self.acl(), CreateMode::Container);
            match self.client.ask(container).await {
                Ok(_) | Err(RequestError::NodeExists) => return Ok(()),
                Err(RequestError::NoNode) if self.root != "/" => self.make_root().await?,
                Err(failure) => return Err(failure),
            }
        }
        Err(RequestError::NoNode)
    }

    /// Creates the chroot, and the nodes above it.
    async fn make_root(&self) -> Result<(), RequestError> {
        let mut missing = Vec::new();
        let mut above = self.root.as_str();
        while !above.is_empty() && self.stat(above).await?.is_none() {
            missing.push(above);
            above = &above[..above.rfind('/').unwrap_or(0)];
        }
        for path in missing.into_iter().rev() {
            let node = create(path, &[], self.acl(), CreateMode::Persistent);
            match self.client.ask(node).await {
                Ok(_) | Err(RequestError::NodeExists) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Deletes a node, of this version if one is given; returns `false` if there is none.
    pub(crate) async fn delete(
        &self,
        path: &str,
        version: Option<i32>,
    ) -> Result<bool, RequestError> {
        or_none(self.client.ask(delete(path, version)).await).map(|done| done.is_some())
    }

    /// Deletes a node that has no children; returns `false` if it has some.
    pub(crate) async fn delete_empty(&self, path: &str) -> Result<bool, RequestError> {
        match self.client.ask(delete(path, None)).await {
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
        self.client.ask(set_data(path, data, version)).await
    }

    /// Creates a mark, and deletes a node of this version or sets its data: both or neither.
    pub(crate) async fn mark_and_change(
        &self,
        mark: &str,
        reason: &[u8],
        path: &str,
        version: i32,
        data: Option<&[u8]>,
    ) -> Result<(), RequestError> {
        let marking = Transaction::default().create(mark, reason, self.acl());
        self.commit(match data {
            Some(data) => marking.set_data(path, data, version),
            None => marking.delete(path, Some(version)),
        })
        .await
    }

    /// Sends a transaction that changes nothing to a majority. Its success proves that the session
    /// exists at the leader. The result of the check in it does not matter.
    pub(crate) async fn prove_session(&self) -> Result<(), RequestError> {
        match self.commit(Transaction::default().check(&self.root, -1)).await {
            Ok(()) | Err(RequestError::NoNode) => Ok(()),
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
        let node = format!("{above}/.doctor");
        let making = Transaction::default().create(&node, &[], self.acl());
        match self.commit(making.delete(&node, None).check("/", i32::MAX)).await {
            Ok(()) | Err(RequestError::BadVersion | RequestError::NodeExists) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Makes the connected member catch up with the leader.
    pub(crate) async fn catch_up(&self, path: &str) -> Result<(), RequestError> {
        match self.client.ask(sync(path)).await {
            Ok(()) | Err(RequestError::NoNode) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Executes a transaction.
    ///
    /// # Errors
    /// The error of the first operation that failed; then none was applied.
    async fn commit(&self, transaction: Transaction) -> Result<(), RequestError> {
        match self.client.ask(transaction.into_request()).await? {
            None => Ok(()),
            Some(code) => Err(RequestError::of_code(code)),
        }
    }

    fn acl(&self) -> Acl {
        if self.open { Acl::Anyone } else { Acl::Creator }
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
