//! Counting semaphores: Redisson's `RSemaphore`.
//!
//! - Invariant C1: a caller that drops an acquire gets no permits: a task receives the reply in its
//!   place, and gives back what was taken.
//! - Invariant C2: a wait ends with a message, with a new subscription, or after its time, whatever
//!   messages are lost. A user who may not subscribe asks once a second.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use holdline_core::counting::MAX_PERMITS;
use holdline_core::{Certainty, CountingCommand, CountingReply, ErrorKind, LockError, LockName};
use tokio::sync::oneshot;

use super::COUNTING;
use super::calls::Calls;
use super::names::SEMAPHORE_CHANNEL;
use super::requests::RequestContext;
use crate::args::Args;
use crate::error::ENGINE;
use crate::link::{Call, RoutingPolicy, Subscription, SubscriptionEvent, Value};
use crate::native::replies::ScriptReply;
use crate::route::{PublishVerbs, Purpose};

/// How often a waiter asks that may not subscribe.
const POLL: Duration = Duration::from_secs(1);

impl RequestContext {
    /// Returns the channel of a semaphore.
    pub(super) fn semaphore_channel(&self, name: &LockName) -> String {
        format!("{SEMAPHORE_CHANNEL}{}", self.names.map(name).tag)
    }

    /// Makes the call of a command that does not wait.
    fn counting(&self, name: &LockName, command: CountingCommand, verbs: PublishVerbs) -> Call {
        let (verb, permits) = match command {
            CountingCommand::Set(permits) => ("set", permits),
            CountingCommand::Acquire(permits) => ("acquire", permits),
            CountingCommand::Release(permits) => ("release", permits),
            CountingCommand::Drain => ("drain", 0),
            CountingCommand::Available | CountingCommand::Await { .. } => ("look", 0),
        };
        let mut arguments = Args::default();
        arguments.push(verb);
        arguments.push_number(permits);
        arguments.push(self.semaphore_channel(name));
        arguments.push(verbs);
        arguments.push_number(MAX_PERMITS);
        Call {
            script: &COUNTING,
            keys: Args::from([self.names.map(name).key]),
            arguments,
            routing: RoutingPolicy::Any,
            deadline: self.deadline,
        }
    }
}

/// Carries out a command to a counting semaphore.
pub(super) async fn carry_out(
    calls: &Arc<Calls>,
    name: &LockName,
    command: CountingCommand,
) -> Result<CountingReply, LockError> {
    match command {
        CountingCommand::Acquire(_) | CountingCommand::Drain => take(calls, name, command).await,
        CountingCommand::Await { permits, at_most } => {
            let end = calls.clock.now().after(at_most);
            let asked = calls.clock.sleep_until(end);
            tokio::select! {
                biased;
                changed = await_permits(calls, name, permits) => changed,
                () = asked => ask(calls, name, CountingCommand::Available).await,
            }
        }
        _ => ask(calls, name, command).await,
    }
}

async fn ask(
    calls: &Calls,
    name: &LockName,
    command: CountingCommand,
) -> Result<CountingReply, LockError> {
    let verbs = calls.route.publish_verbs().await;
    let reply = calls.send(name, Purpose::Other, || calls.context.counting(name, command, verbs));
    read(&reply.await?.value)
}

/// Takes permits. If the caller has gone when the reply comes, they are given back.
async fn take(
    calls: &Arc<Calls>,
    name: &LockName,
    command: CountingCommand,
) -> Result<CountingReply, LockError> {
    let (sender, receiver) = oneshot::channel();
    let taking = calls.clone();
    let asked = name.clone();
    calls.route.spawn(Box::pin(async move {
        let reply = ask(&taking, &asked, command).await;
        let Err(Ok(reply)) = sender.send(reply) else { return };
        let taken = reply.before.abs_diff(reply.after);
        if taken > 0 {
            let back = ask(&taking, &asked, CountingCommand::Release(taken)).await;
            if let Err(error) = back {
                tracing::warn!(%error, name = %asked, taken, "permits that nobody wants are lost");
            }
        }
    }));
    match receiver.await {
        Ok(reply) => reply,
        // The runtime of the connection is shut down.
        Err(_) => {
            let message = "the connection's runtime has ended".to_owned();
            let kind = ErrorKind::Unavailable { message };
            Err(LockError::new(ENGINE, kind, Certainty::Unknown))
        }
    }
}

/// Waits until as many permits may be available.
async fn await_permits(
    calls: &Calls,
    name: &LockName,
    permits: u64,
) -> Result<CountingReply, LockError> {
    let wanted = i64::try_from(permits).unwrap_or(i64::MAX);
    let channel = calls.context.semaphore_channel(name);
    let mut subscriptions = calls.route.subscribe(&channel, calls.slot(name)?).await?;
    let mut polls = false;
    loop {
        let next_poll = calls.clock.sleep_until(calls.clock.now().after(POLL));
        let event = tokio::select! {
            biased;
            event = next_event(&mut subscriptions) => event,
            () = next_poll, if polls => Some(SubscriptionEvent::Resubscribed),
        };
        match event {
            Some(SubscriptionEvent::Message(message)) => {
                let available =
                    std::str::from_utf8(&message).ok().and_then(|text| text.parse().ok());
                // A message of another form is a hint, too.
                if available.is_some_and(|available: i64| available < wanted) {
                    continue;
                }
            }
            Some(SubscriptionEvent::Resubscribed) => {}
            Some(SubscriptionEvent::Refused) => polls = true,
            Some(SubscriptionEvent::Lost) => continue,
            // The connection has ended: the caller's limit ends the wait.
            None => std::future::pending().await,
        }
        let reply = ask(calls, name, CountingCommand::Available).await?;
        if reply.after >= wanted {
            return Ok(reply);
        }
    }
}

/// Returns the next event of any of the subscriptions; `None` when all have ended.
async fn next_event(subscriptions: &mut Vec<Subscription>) -> Option<SubscriptionEvent> {
    poll_fn(|context| {
        let mut event = None;
        subscriptions.retain_mut(|one| match event {
            Some(_) => true,
            None => match Pin::new(one).poll_next(context) {
                Poll::Ready(Some(came)) => {
                    event = Some(came);
                    true
                }
                Poll::Ready(None) => false,
                Poll::Pending => true,
            },
        });
        match event {
            Some(event) => Poll::Ready(Some(event)),
            None if subscriptions.is_empty() => Poll::Ready(None),
            None => Poll::Pending,
        }
    })
    .await
}

fn read(value: &Value) -> Result<CountingReply, LockError> {
    let reply = ScriptReply::of(value)?;
    let number = |at: usize| reply.part(at)?.as_integer().ok_or_else(|| reply.unexpected(at));
    match reply.status {
        "counting" => Ok(CountingReply { before: number(0)?, after: number(1)? }),
        "many" => {
            let message = format!(
                "{} are available, and more than {MAX_PERMITS} would be after it",
                number(0)?
            );
            Err(LockError::invalid(ENGINE, "permits", message))
        }
        _ => Err(reply.unknown_status()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(parts: &[Value]) -> Value {
        Value::Array(parts.to_vec())
    }

    fn text(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    #[test]
    fn a_reply_has_the_numbers_before_and_after() {
        let reply = list(&[text("counting"), Value::Integer(3), Value::Integer(-1)]);
        assert_eq!(read(&reply).expect("read"), CountingReply { before: 3, after: -1 });
        let many = read(&list(&[text("many"), Value::Integer(7)])).expect_err("refused");
        assert!(many.to_string().contains("7 are available"), "{many}");
        assert_eq!(many.certainty(), Certainty::NotApplied);
        let foreign = read(&list(&[text("foreign"), text("a list")])).expect_err("foreign");
        assert!(matches!(foreign.kind(), ErrorKind::Foreign { .. }), "{foreign}");
        for odd in [text("counting"), list(&[text("counting"), text("3")]), list(&[]), Value::Nil] {
            let error = read(&odd).expect_err("odd");
            assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{odd:?}: {error}");
        }
    }
}
