//! The engine: its connection and capabilities. Each command runs as a task.

use std::sync::Arc;

use holdline_core::LockError;
use holdline_net::executor::Executor;

use crate::error::ENGINE;
use crate::options::HttpOptions;
use crate::store::Store;

/// The engine of one Holdline server. Clones share its connections.
#[derive(Clone)]
pub struct HttpEngine(Arc<HttpEngineParts>);

struct HttpEngineParts {
    store: Arc<Store>,
    executor: Executor,
}

impl HttpEngine {
    /// Makes an engine and waits until the server has described its store.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: the server cannot be reached. `Refused`: it
    /// does not accept the token, or is of another version. Nothing is held after any of them.
    pub async fn connect(options: &HttpOptions) -> Result<HttpEngine, LockError> {
        let executor = Executor::current(ENGINE)?;
        let options = options.clone();
        let store = executor.run(async move { Store::connect(&options).await }).await??;
        Ok(HttpEngine(Arc::new(HttpEngineParts { store: Arc::new(store), executor })))
    }
}

holdline_net::verbs_as_tasks!(HttpEngine {
    async fn latch(
        &self,
        name: &LockName,
        command: LatchCommand,
    ) -> Result<LatchReply, LockError> {
        let store = self.0.store.clone();
        let name = name.clone();
        self.0.executor.run(async move { store.latch(name, command).await }).await?
    }

    async fn counting(
        &self,
        name: &LockName,
        command: CountingCommand,
    ) -> Result<CountingReply, LockError> {
        let store = self.0.store.clone();
        let name = name.clone();
        self.0.executor.run(async move { store.counting(name, command).await }).await?
    }

    async fn read_audit(&self, request: &AuditRequest) -> Result<AuditPage, LockError> {
        let store = self.0.store.clone();
        let request = *request;
        self.0.executor.run(async move { store.read_audit(request).await }).await?
    }
});
