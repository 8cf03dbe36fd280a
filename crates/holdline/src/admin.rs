//! What operators see and do: who holds what, who waits, and the commands that intervene.
//!
//! A program that only takes locks needs none of this. [`Client::admin`](crate::Client::admin)
//! returns the [`Admin`] of a client. It reads names page by page ([`ListRequest`], [`ListPage`])
//! or one by one ([`Snapshot`]), and carries out an [`Operation`]: revoke a grant, freeze a name,
//! end a freeze, raise the fencing tokens. Which of them a store has is in its
//! [`Capabilities`](crate::engine::Capabilities).
//!
//! An answer is outdated when it arrives. Nothing in it may decide whether a lock is held: only a
//! [`Guard`](crate::Guard) shows that. [`watch`](crate::watch) compares one listing with the next.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), holdline::LockError> {
//! use holdline::Client;
//! use holdline::admin::{ListRequest, Operation};
//!
//! let client = Client::connect("memory:admin").await?;
//! let guard = client.mutex("orders/17")?.lock().await?;
//!
//! let request = ListRequest { prefix: "orders/".to_owned(), after: None, limit: 100 };
//! let page = client.admin().list(&request).await?;
//! let holder = &page.names[0].holders[0].summary;
//! assert_eq!(holder.token, Some(guard.fencing_token()));
//!
//! let revoke = Operation::Revoke {
//!     name: guard.name().clone(),
//!     token: guard.fencing_token(),
//!     reason: "the host is being replaced".to_owned(),
//!     now: false,
//! };
//! client.admin().operate(&revoke).await?;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::time::SystemTime;

pub use holdline_core::json;
use holdline_core::{
    AuditEntry, AuditPage, AuditRecord, AuditRequest, ClientId, Engine, LockError, LockName,
};
pub use holdline_core::{
    Escaped, FreezeView, GrantState, HolderFields, HolderView, ListPage, ListRequest, Operation,
    OperationReply, Snapshot, WaiterView,
};

use crate::audit::unix_ms;
use crate::core::Core;

/// The operator's view of a client's store. It borrows the client, and is made for one call.
///
/// Get it from [`Client::admin`](crate::Client::admin).
#[derive(Clone, Copy)]
pub struct Admin<'a> {
    core: &'a Arc<Core>,
}

impl<'a> Admin<'a> {
    pub(crate) fn new(core: &'a Arc<Core>) -> Admin<'a> {
        Admin { core }
    }

    /// Returns the holders and the queue of a name.
    ///
    /// # Errors
    /// The engine's error. Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer.
    pub async fn inspect(self, name: &LockName) -> Result<Snapshot, LockError> {
        let state = &self.core.state;
        let snapshot = state.answer(state.engine.inspect(name)).await;
        snapshot.map_err(|error| error.with_name(name))
    }

    /// Lists the names that are held or waited for, page by page.
    ///
    /// # Errors
    /// `Unsupported` if the engine cannot list; otherwise the engine's error. Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer.
    pub async fn list(self, request: &ListRequest) -> Result<ListPage, LockError> {
        let state = &self.core.state;
        state.answer(state.engine.list(request)).await
    }

    /// Carries out an operator's command.
    ///
    /// # Errors
    /// `Unsupported` if the engine cannot do it; otherwise the engine's error, with its certainty.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer: the command may be carried out.
    pub async fn operate(self, operation: &Operation) -> Result<OperationReply, LockError> {
        let state = &self.core.state;
        state.answer(state.engine.operate(operation)).await
    }

    /// Appends a record to the audit trail of the store, with the time of now.
    ///
    /// # Errors
    /// `Unsupported`: the store keeps no trail, or a server keeps it, which appends the records of
    /// its clients itself. `Invalid`: a text of the record is too long. All others: the store
    /// failed, and by its certainty the record may be there.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer: the record may be appended.
    pub async fn append_audit(self, record: AuditRecord) -> Result<(), LockError> {
        let state = &self.core.state;
        let now = unix_ms(SystemTime::now());
        state.answer(state.engine.append_audit(now, &record)).await
    }

    /// Returns the newest records of the audit trail that `wanted` accepts, the newest first. It
    /// asks the store for pages until it has as many as the request says.
    ///
    /// # Errors
    /// `Unsupported`: the store keeps no trail. All others: the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn audit(
        self,
        request: &AuditRequest,
        wanted: impl Fn(&AuditEntry) -> bool,
    ) -> Result<AuditPage, LockError> {
        let state = &self.core.state;
        let limit = request.limit;
        let mut next = *request;
        let mut found = AuditPage::default();
        loop {
            let page = state.answer(state.engine.read_audit(&next)).await?;
            for entry in page.entries.into_iter().filter(&wanted) {
                if found.entries.len() == limit {
                    found.before = found.entries.last().map(|last| last.id);
                    return Ok(found);
                }
                found.entries.push(entry);
            }
            match page.before {
                Some(before) if next.before != Some(before) => next.before = Some(before),
                _ => return Ok(found),
            }
        }
    }

    /// Returns the engine, for a server or a second client that shares it.
    pub fn engine(self) -> &'a Arc<dyn Engine> {
        &self.core.state.engine
    }

    /// Returns the id by which the store knows this client. It proves nothing.
    pub fn client_id(self) -> ClientId {
        self.core.state.client
    }

    /// Plants a bug: validity counts from the reply. The simulation must find it.
    #[cfg(feature = "_mutants")]
    pub fn plant_validity_from_reply(self) {
        use std::sync::atomic::Ordering;
        self.core.state.counts_from_reply.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Admin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let capabilities = self.core.state.engine.capabilities();
        f.debug_struct("Admin").field("identity", &capabilities.identity).finish_non_exhaustive()
    }
}
