//! A macro for engines that run each verb as a task, so that a dropped future does not interrupt a
//! request.

/// Implements [`Verbs`](holdline_core::Verbs) and `Debug` for an engine.
///
/// The engine's first field gives access to `store`, an `Arc` of the type that has the verbs as
/// methods, and to `executor`, the [`Executor`](crate::executor::Executor) where they run.
/// Dropping the future of a verb does not stop its task. `known` names a method of the store that
/// answers an acquire without a request, if it can: then no task runs. In braces the engine adds
/// the verbs that not all have, such as `latch`.
#[macro_export]
macro_rules! verbs_as_tasks {
    ($engine:ident $(, known: $known:ident)? $({ $($more:tt)* })?) => {
        const _: () = {
            use ::holdline_core::*;
            use ::std::result::Result;

            impl Verbs for $engine {
                fn capabilities(&self) -> &Capabilities {
                    &self.0.store.capabilities
                }

                async fn acquire(
                    &self,
                    request: &AcquireRequest,
                ) -> Result<AcquireReply, LockError> {
                    $(
                        if let Some(reply) = self.0.store.$known(request) {
                            return Ok(reply);
                        }
                    )?
                    let (store, request) = (self.0.store.clone(), request.clone());
                    self.0.executor.run(async move { store.acquire(&request).await }).await?
                }

                async fn renew(&self, requests: &[&RenewRequest]) -> Renewed {
                    let requests: Vec<_> = requests.iter().copied().cloned().collect();
                    let store = self.0.store.clone();
                    self.0.executor.run(async move { store.renew(&requests).await }).await?
                }

                async fn release(
                    &self,
                    request: &ReleaseRequest,
                ) -> Result<ReleaseReply, LockError> {
                    let (store, request) = (self.0.store.clone(), request.clone());
                    self.0.executor.run(async move { store.release(&request).await }).await?
                }

                async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
                    let (store, name) = (self.0.store.clone(), name.clone());
                    self.0.executor.run(async move { store.inspect(&name).await }).await?
                }

                async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
                    let (store, request) = (self.0.store.clone(), request.clone());
                    self.0.executor.run(async move { store.list(&request).await }).await?
                }

                fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
                    self.0.store.watch(&self.0.executor, name, lease_id)
                }

                fn check_operation(&self, operation: &Operation) -> Result<(), LockError> {
                    match operation {
                        // The store explains why it cannot freeze a name.
                        Operation::Freeze { .. } | Operation::Unfreeze { .. } => Ok(()),
                        _ => operation.check(&self.0.store.capabilities),
                    }
                }

                async fn operate(
                    &self,
                    operation: &Operation,
                ) -> Result<OperationReply, LockError> {
                    let (store, operation) = (self.0.store.clone(), operation.clone());
                    self.0.executor.run(async move { store.operate(&operation).await }).await?
                }

                $($($more)*)?
            }

            impl ::std::fmt::Debug for $engine {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    let identity = &self.0.store.capabilities.identity;
                    f.debug_struct(stringify!($engine))
                        .field("identity", identity)
                        .finish_non_exhaustive()
                }
            }
        };
    };
}
