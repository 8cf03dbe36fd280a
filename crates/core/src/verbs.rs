//! What every engine does around each command: it rejects what the store need not be asked, splits
//! batches, and adds the lock name to an error.
//!
//! An engine that answers by futures implements [`Verbs`], and is an [`Engine`] by that. An engine
//! that can answer at once, without an allocation, implements `Engine` directly.

use std::future::ready;
use std::iter;

use crate::audit::{AuditPage, AuditRecord, AuditRequest};
use crate::capabilities::Capabilities;
use crate::contract::{
    AcquireReply, AcquireRequest, Purpose, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
};
use crate::counting::{CountingCommand, CountingReply};
use crate::engine::{Answer, Engine, Hints};
use crate::error::{Certainty, ErrorKind, LockError};
use crate::latch::{LatchCommand, LatchReply};
use crate::lease_id::LeaseId;
use crate::mode::Mode;
use crate::name::LockName;
use crate::operation::{Operation, OperationReply};
use crate::snapshot::{ListPage, ListRequest, Snapshot};

/// The commands of an engine. Each request fits the capabilities. Rules, errors and cancel safety
/// are those of [`Engine`].
pub trait Verbs: Send + Sync + 'static {
    /// Returns what this engine can do. Never does I/O.
    fn capabilities(&self) -> &Capabilities;

    /// Requests a name. The request fits the capabilities.
    fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> impl Future<Output = Result<AcquireReply, LockError>> + Send;

    /// Carries out one to `max_batch` renewals that fit the capabilities. Returns one reply for
    /// each, in the same order, or one error for all.
    fn renew(&self, batch: &[&RenewRequest]) -> impl Future<Output = Renewed> + Send;

    /// Ends the grant, the hand-off or the queue entry of a lease id.
    fn release(
        &self,
        request: &ReleaseRequest,
    ) -> impl Future<Output = Result<ReleaseReply, LockError>> + Send;

    /// Returns the state of a name.
    fn inspect(&self, name: &LockName) -> impl Future<Output = Result<Snapshot, LockError>> + Send;

    /// Lists the names that are held or waited for; asked only if `capabilities` has `list`.
    fn list(
        &self,
        request: &ListRequest,
    ) -> impl Future<Output = Result<ListPage, LockError>> + Send;

    /// Subscribes to the hints for this lease id.
    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints;

    /// Checks that the engine supports an operator's command. An engine may replace the error's
    /// text.
    ///
    /// # Errors
    /// `Unsupported` or `Invalid`.
    fn check_operation(&self, operation: &Operation) -> Result<(), LockError> {
        operation.check(self.capabilities())
    }

    /// Carries out an operator's command that passed [`check_operation`](Verbs::check_operation).
    fn operate(
        &self,
        operation: &Operation,
    ) -> impl Future<Output = Result<OperationReply, LockError>> + Send;

    /// Sends a command to a latch; asked only if `capabilities` has `latch`.
    fn latch(
        &self,
        _name: &LockName,
        _command: LatchCommand,
    ) -> impl Future<Output = Result<LatchReply, LockError>> + Send {
        ready(Err(self.capabilities().lacks("latches")))
    }

    /// Sends a command to a counting semaphore; asked only if `capabilities` has `counting`.
    fn counting(
        &self,
        _name: &LockName,
        _command: CountingCommand,
    ) -> impl Future<Output = Result<CountingReply, LockError>> + Send {
        ready(Err(self.capabilities().lacks_counting()))
    }

    /// Appends a record; asked only if `capabilities` has the audit trail of a store. The store's
    /// clock says when.
    fn append_audit(
        &self,
        _record: &AuditRecord,
    ) -> impl Future<Output = Result<(), LockError>> + Send {
        ready(Err(self.capabilities().lacks_audit()))
    }

    /// Returns a page of the audit trail; asked only if `capabilities` has one.
    fn read_audit(
        &self,
        _request: &AuditRequest,
    ) -> impl Future<Output = Result<AuditPage, LockError>> + Send {
        ready(Err(self.capabilities().lacks_audit()))
    }

    /// Delivers requests that earlier commands left unsent. Does nothing, unless the engine replies
    /// before it has asked all nodes of its store.
    fn flush(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

/// The replies to one batch, in its order.
pub type Renewed = Result<Vec<Result<RenewReply, LockError>>, LockError>;

impl<V: Verbs> Engine for V {
    fn capabilities(&self) -> &Capabilities {
        Verbs::capabilities(self)
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        if let Err(error) = request.check(Verbs::capabilities(self)) {
            return Answer::ready(Err(error.with_name(&request.name)));
        }
        Answer::later(async { about(self.acquire(request).await, &request.name) })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        if batch.is_empty() {
            return Answer::ready(Vec::new());
        }
        Answer::later(async move {
            let mut answers = Vec::with_capacity(batch.len());
            for chunk in batch.chunks(Verbs::capabilities(self).max_batch.max(1)) {
                renew_chunk(self, chunk, &mut answers).await;
            }
            answers
        })
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        Answer::later(async { about(Verbs::release(self, request).await, &request.name) })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        Answer::later(async { about(Verbs::inspect(self, name).await, name) })
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        if !Verbs::capabilities(self).list {
            return Answer::ready(Err(Verbs::capabilities(self).lacks("listing")));
        }
        Answer::later(Verbs::list(self, request))
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        Verbs::watch(self, name, lease_id)
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        if let Err(error) = self.check_operation(operation) {
            return Answer::ready(named(Err(error), operation.name()));
        }
        Answer::later(async { named(Verbs::operate(self, operation).await, operation.name()) })
    }

    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        command: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>> {
        if let Err(error) = command.check(Verbs::capabilities(self)) {
            return Answer::ready(Err(error.with_name(name)));
        }
        Answer::later(async move { about(Verbs::latch(self, name, command).await, name) })
    }

    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        command: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>> {
        if let Err(error) = command.check(Verbs::capabilities(self)) {
            return Answer::ready(Err(error.with_name(name)));
        }
        Answer::later(async move { about(Verbs::counting(self, name, command).await, name) })
    }

    fn append_audit<'a>(
        &'a self,
        _: u64,
        record: &'a AuditRecord,
    ) -> Answer<'a, Result<(), LockError>> {
        if let Err(error) = record.check(Verbs::capabilities(self)) {
            return Answer::ready(Err(error));
        }
        Answer::later(Verbs::append_audit(self, record))
    }

    fn read_audit<'a>(
        &'a self,
        request: &'a AuditRequest,
    ) -> Answer<'a, Result<AuditPage, LockError>> {
        if let Err(error) = request.check(Verbs::capabilities(self)) {
            return Answer::ready(Err(error));
        }
        Answer::later(Verbs::read_audit(self, request))
    }

    fn flush(&self) -> Answer<'_, ()> {
        Answer::later(Verbs::flush(self))
    }
}

/// Sends as many renewals as one call takes. An invalid one is answered without asking the store.
async fn renew_chunk<V: Verbs>(
    engine: &V,
    chunk: &[RenewRequest],
    answers: &mut Vec<Result<RenewReply, LockError>>,
) {
    let capabilities = Verbs::capabilities(engine);
    let check = |renewal: &RenewRequest| match renewal.purpose {
        Purpose::Keep(hold) => capabilities.check(Mode::Exclusive, hold),
        Purpose::Wait => Ok(()),
    };
    let checked: Vec<Result<(), LockError>> = chunk.iter().map(check).collect();
    let good = iter::zip(chunk, &checked).filter(|(_, checked)| checked.is_ok());
    let good: Vec<&RenewRequest> = good.map(|(renewal, _)| renewal).collect();
    let replies = if good.is_empty() { Ok(Vec::new()) } else { Verbs::renew(engine, &good).await };
    let (replies, failure) = match replies {
        Ok(replies) => (replies, unanswered(capabilities.engine)),
        Err(error) => (Vec::new(), error),
    };
    let mut replies = replies.into_iter();
    answers.extend(iter::zip(chunk, checked).map(|(renewal, checked)| {
        let reply = checked.and_then(|()| replies.next().unwrap_or_else(|| Err(failure.clone())));
        about(reply, &renewal.name)
    }));
}

fn unanswered(engine: &'static str) -> LockError {
    let message = "a renewal of the batch was not answered".to_owned();
    LockError::new(engine, ErrorKind::Protocol { message }, Certainty::Unknown)
}

fn about<T>(reply: Result<T, LockError>, name: &LockName) -> Result<T, LockError> {
    named(reply, Some(name))
}

/// Adds the lock name to an error that has none.
fn named<T>(reply: Result<T, LockError>, name: Option<&LockName>) -> Result<T, LockError> {
    reply.map_err(|error| match (name, error.name()) {
        (Some(name), None) => error.with_name(name),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;
    use crate::hints::Watches;
    use crate::lease::Hold;
    use crate::lease_id::ClientId;

    /// Answers each renewal with its place in the call, or too few of them, or fails.
    struct Counting {
        capabilities: Capabilities,
        answered: usize,
        failure: Option<LockError>,
        calls: Mutex<Vec<usize>>,
    }

    impl Counting {
        fn new(answered: usize) -> Counting {
            let capabilities =
                Capabilities { max_batch: 3, list: false, ..Capabilities::reference("e", "test") };
            Counting { capabilities, answered, failure: None, calls: Mutex::default() }
        }
    }

    impl Verbs for Counting {
        fn capabilities(&self) -> &Capabilities {
            &self.capabilities
        }

        async fn acquire(&self, _: &AcquireRequest) -> Result<AcquireReply, LockError> {
            Ok(AcquireReply::Unknown)
        }

        async fn renew(&self, batch: &[&RenewRequest]) -> Renewed {
            self.calls.lock().expect("unbroken").push(batch.len());
            if let Some(error) = &self.failure {
                return Err(error.clone());
            }
            let place = |place| Duration::from_secs(place as u64);
            let answered = self.answered.min(batch.len());
            let answer = |at| Ok(RenewReply::Renewed { left: Some(place(at)) });
            Ok((0..answered).map(answer).collect())
        }

        async fn release(&self, _: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
            Ok(ReleaseReply::NotHeld { revoked: None })
        }

        async fn inspect(&self, _: &LockName) -> Result<Snapshot, LockError> {
            Err(unanswered("e"))
        }

        async fn list(&self, _: &ListRequest) -> Result<ListPage, LockError> {
            Ok(ListPage::default())
        }

        fn watch(&self, _: &LockName, lease_id: LeaseId) -> Hints {
            Box::pin(Watches::open(&Arc::default(), lease_id))
        }

        async fn operate(&self, _: &Operation) -> Result<OperationReply, LockError> {
            Err(unanswered("e"))
        }
    }

    fn now<T>(answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("nothing here waits"),
        }
    }

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("a good name")
    }

    fn renewal(number: u8, hours: u64) -> RenewRequest {
        RenewRequest {
            name: name(&format!("n{number}")),
            lease_id: LeaseId::from_bytes([number; 16]),
            client: ClientId::from_u64(1),
            purpose: Purpose::Keep(Hold::Leased(Duration::from_secs(hours * 3600))),
        }
    }

    fn message_of(reply: &Result<RenewReply, LockError>) -> String {
        match reply {
            Ok(RenewReply::Renewed { left }) => format!("{}", left.unwrap_or_default().as_secs()),
            Ok(other) => format!("{other:?}"),
            Err(error) => {
                let kind = match error.kind() {
                    ErrorKind::Invalid { .. } => "invalid",
                    ErrorKind::Protocol { .. } => "protocol",
                    _ => "other",
                };
                format!("{kind} {}", error.name().expect("named"))
            }
        }
    }

    fn renewed(engine: &Counting, batch: &[RenewRequest]) -> Vec<String> {
        now(Engine::renew(engine, batch)).iter().map(message_of).collect()
    }

    #[test]
    fn each_item_has_its_own_reply_and_an_invalid_one_is_not_sent() {
        let engine = Counting::new(3);
        let batch = [renewal(1, 1), renewal(2, 10_000), renewal(3, 1)];
        assert_eq!(renewed(&engine, &batch), ["0", "invalid n2", "1"]);
        assert_eq!(*engine.calls.lock().expect("unbroken"), [2]);
    }

    #[test]
    fn a_large_batch_is_split_in_order_and_an_empty_one_sends_nothing() {
        let engine = Counting::new(3);
        let batch = vec![renewal(1, 1); 7];
        assert_eq!(renewed(&engine, &batch), ["0", "1", "2", "0", "1", "2", "0"]);
        assert!(renewed(&engine, &[]).is_empty());
        assert_eq!(renewed(&engine, &[renewal(2, 10_000)]), ["invalid n2"]);
        assert_eq!(*engine.calls.lock().expect("unbroken"), [3, 3, 1]);
    }

    #[test]
    fn a_missing_reply_is_an_error_and_a_failure_is_returned_for_every_item_that_was_sent() {
        let batch = [renewal(1, 1), renewal(2, 10_000), renewal(3, 1)];
        let missing = renewed(&Counting::new(1), &batch);
        assert_eq!(missing, ["0", "invalid n2", "protocol n3"]);
        let busy = LockError::new("e", ErrorKind::Busy { holder: None }, Certainty::Unknown);
        let failing = Counting { failure: Some(busy), ..Counting::new(3) };
        assert_eq!(renewed(&failing, &batch), ["other n1", "invalid n2", "other n3"]);
    }

    #[test]
    fn an_error_has_the_name_and_missing_features_are_not_requested() {
        let engine = Counting::new(0);
        let error = now(Engine::inspect(&engine, &name("n"))).expect_err("fails");
        assert_eq!(error.name(), Some(&name("n")));
        let listing = ListRequest { prefix: String::new(), after: None, limit: 1 };
        let lacking = now(Engine::list(&engine, &listing)).expect_err("lacks it");
        assert!(matches!(lacking.kind(), ErrorKind::Unsupported { .. }), "{lacking}");
        let thaw = Operation::Unfreeze { name: name("n") };
        let error = now(Engine::operate(&engine, &thaw)).expect_err("fails");
        assert_eq!(error.name(), Some(&name("n")));
    }
}
