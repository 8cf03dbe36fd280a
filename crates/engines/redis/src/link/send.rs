//! The life of a request: it takes a connection, waits for its reply, and reports how it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdline_core::{Certainty, ErrorKind, LockError};

use super::connection::{Connection, Rejected};
use super::health::Health;
use super::pending::Limit;
use super::pending_reply::{Outcome, PendingReply};
use super::request::{self, MakeRequest, Request};
use super::router::{Route, RouterChanges};
use super::{Affinity, Call, Link, RoutingPolicy, Value, master_term};
use crate::args::Args;
use crate::error::{NOREPLICAS, ServerError, masterless, refusal, too_few_replicas, unavailable};

/// The error code of a server that does not know a script by its SHA-1.
const NO_SCRIPT: &str = "NOSCRIPT";

/// The forms in which a script is sent: at first, and where the server may not know it.
#[derive(Clone, Copy)]
struct ScriptForms {
    first: MakeRequest,
    by_text: MakeRequest,
}

impl ScriptForms {
    const SHA1: ScriptForms = ScriptForms { first: request::by_sha1, by_text: request::by_text };
    const TEXT: ScriptForms = ScriptForms { first: request::by_text, by_text: request::by_text };
    const ASKING_SHA1: ScriptForms =
        ScriptForms { first: request::asking_by_sha1, by_text: request::asking_by_text };

    /// Returns the forms of the next attempt, for a server that did not know the script.
    fn in_full(self) -> ScriptForms {
        ScriptForms { first: self.by_text, by_text: self.by_text }
    }
}

/// Where a request goes, and how long it may take.
#[derive(Clone, Copy)]
struct Target<'a> {
    aim: Aim<'a>,
    limit: Limit,
}

/// Which connection may take a request.
#[derive(Clone, Copy, Default)]
struct Aim<'a> {
    /// Which run of the server it is for; `None` for any.
    run_id: Option<&'a str>,
    /// The server must be one that may grant now.
    grants: bool,
    /// Receives the connection that it was put on.
    sent_on: Option<&'a SentOn>,
}

/// The connection that a request was last put on.
#[derive(Debug, Default)]
pub(crate) struct SentOn(AtomicU64);

impl Link {
    /// Runs a script by its SHA-1, and once by its text where the server answers `NOSCRIPT`.
    ///
    /// `make` is called again for each attempt, so that a thousand waiting requests keep no copies
    /// of their arguments.
    ///
    /// # Cancel safety
    /// Dropping the future loses the reply only: the request may be carried out.
    pub(crate) async fn call(&self, make: impl Fn() -> Call) -> Result<Value, LockError> {
        self.call_of(None, make).await
    }

    /// Runs a script as [`Link::call`] does, only on a connection to this run of the server. If the
    /// connection is to another run, the error is `Unavailable` and nothing was sent.
    pub(crate) async fn call_of(
        &self,
        run_id: Option<&str>,
        make: impl Fn() -> Call,
    ) -> Result<Value, LockError> {
        let aim = Aim { run_id, ..Aim::default() };
        let outcome = self.run_script(&make, ScriptForms::SHA1, aim).await?;
        outcome.map_err(|error| self.refused(error))
    }

    /// Runs a script that may grant as [`Link::call_of`] does, if the server may grant now.
    pub(crate) async fn call_granting(
        &self,
        run_id: Option<&str>,
        make: impl Fn() -> Call,
    ) -> Result<Value, LockError> {
        let aim = Aim { run_id, grants: true, sent_on: None };
        let outcome = self.run_script(&make, ScriptForms::SHA1, aim).await?;
        outcome.map_err(|error| self.refused(error))
    }

    /// Runs a script as [`Link::call_of`] does, and records the connection for
    /// [`Link::call_behind`].
    pub(crate) async fn call_recorded(
        &self,
        run_id: &str,
        make: impl Fn() -> Call,
        sent_on: &SentOn,
    ) -> Result<Value, LockError> {
        let aim = Aim { run_id: Some(run_id), grants: false, sent_on: Some(sent_on) };
        self.run_script(&make, ScriptForms::SHA1, aim).await?.map_err(|error| self.refused(error))
    }

    /// Runs a script as [`Link::call`] does, and records the connection for
    /// [`Link::command_behind`].
    pub(crate) async fn call_noting(
        &self,
        make: impl Fn() -> Call,
        sent_on: &SentOn,
    ) -> Result<Value, LockError> {
        let aim = Aim { sent_on: Some(sent_on), ..Aim::default() };
        self.run_script(&make, ScriptForms::SHA1, aim).await?.map_err(|error| self.refused(error))
    }

    /// Sends a command on the connection of an earlier request, so behind that request.
    ///
    /// # Errors
    /// `Unavailable`, not applied: that connection is no longer the healthy one.
    pub(crate) async fn command_behind(
        &self,
        sent_on: &SentOn,
        args: &Args,
        deadline: Duration,
    ) -> Result<Value, LockError> {
        let Some(connection) = self.parts().router.good(sent_on.0.load(Ordering::Acquire)) else {
            return Err(unavailable("the connection has broken", Certainty::NotApplied));
        };
        let limit = self.limit(deadline);
        let pending = PendingReply::enqueue(connection, Request::Command(args), None, limit)?;
        pending.await?.map_err(|error| self.refused(error))
    }

    /// Runs a script as [`Link::call`] does, and sends its text at once: for requests that nobody
    /// can repeat after `NOSCRIPT`.
    pub(crate) async fn call_in_full(&self, make: impl Fn() -> Call) -> Result<Value, LockError> {
        let outcome = self.run_script(&make, ScriptForms::TEXT, Aim::default()).await?;
        outcome.map_err(|error| self.refused(error))
    }

    /// Runs a script by its text on the connection of an earlier request, so behind that request.
    /// Returns `None`, and sends nothing, unless that connection is the healthy one.
    pub(crate) async fn call_behind(
        &self,
        sent_on: &SentOn,
        make: impl Fn() -> Call,
    ) -> Option<Result<Value, LockError>> {
        let connection = self.parts().router.good(sent_on.0.load(Ordering::Acquire))?;
        if self.is_fork() {
            return None;
        }
        let call = make();
        let affinity = call.routing.affinity().copied();
        let limit = self.limit(call.deadline);
        let pending =
            PendingReply::enqueue(connection, request::by_text(&call), affinity, limit).ok()?;
        drop(call);
        let outcome = pending.await;
        Some(outcome.and_then(|reply| reply.map_err(|error| self.refused(error))))
    }

    /// Writes a script's text to a connection that does not answer, if there is one. The server
    /// runs it when it continues, also if this process has ended. Nobody receives the reply.
    pub(crate) fn leave_behind(&self, make: impl Fn() -> Call) {
        if self.is_fork() {
            return;
        }
        let Some(connection) = self.parts().router.newest_suspect() else { return };
        let call = make();
        let affinity = call.routing.affinity().copied();
        let limit = self.limit(call.deadline);
        drop(PendingReply::enqueue(connection.clone(), request::by_text(&call), affinity, limit));
        connection.flush_now();
    }

    /// Runs a script as [`Link::call`] does, and returns an error reply as the server sent it.
    /// `asking` sends `ASKING` first, for a node that imports the slot.
    pub(crate) async fn outcome(&self, make: impl Fn() -> Call, asking: bool) -> Outcome {
        let forms = if asking { ScriptForms::ASKING_SHA1 } else { ScriptForms::SHA1 };
        self.run_script(&make, forms, Aim::default()).await
    }

    /// Sends a command.
    ///
    /// # Cancel safety
    /// As for [`Link::call`].
    pub(crate) async fn command(
        &self,
        args: impl Into<Args>,
        affinity: Option<Affinity>,
        deadline: Duration,
    ) -> Result<Value, LockError> {
        self.send(&args.into(), affinity, deadline).await
    }

    /// Sends a command that may grant, if the server may grant now.
    ///
    /// # Cancel safety
    /// As for [`Link::call`].
    pub(crate) async fn command_granting(
        &self,
        args: impl Into<Args>,
        affinity: Option<Affinity>,
        deadline: Duration,
    ) -> Result<Value, LockError> {
        let routing = affinity.map_or(RoutingPolicy::Any, RoutingPolicy::Behind);
        let aim = Aim { grants: true, ..Aim::default() };
        let target = Target { aim, limit: self.limit(deadline) };
        self.exchange(&args.into(), routing, target).await
    }

    /// Sends a command whose arguments several nodes share.
    ///
    /// # Cancel safety
    /// As for [`Link::call`].
    pub(crate) async fn send(
        &self,
        args: &Args,
        affinity: Option<Affinity>,
        deadline: Duration,
    ) -> Result<Value, LockError> {
        let routing = affinity.map_or(RoutingPolicy::Any, RoutingPolicy::Behind);
        let target = Target { aim: Aim::default(), limit: self.limit(deadline) };
        self.exchange(args, routing, target).await
    }

    /// Sends a command only on a connection to this run of the server.
    pub(crate) async fn send_to(
        &self,
        run_id: Option<&str>,
        args: &Args,
        deadline: Duration,
    ) -> Result<Value, LockError> {
        let aim = Aim { run_id, ..Aim::default() };
        let target = Target { aim, limit: self.limit(deadline) };
        self.exchange(args, RoutingPolicy::Any, target).await
    }

    /// Returns whether a call failed because no server answers.
    pub(crate) fn is_without_answers(&self, error: &LockError) -> bool {
        self.parts().router.is_without_answers(error.certainty())
    }

    /// Runs a script in the first form, and by its text where the server does not know it.
    async fn run_script(
        &self,
        make: &impl Fn() -> Call,
        forms: ScriptForms,
        aim: Aim<'_>,
    ) -> Outcome {
        let call = make();
        let script = call.script;
        let target = Target { aim, limit: self.limit(call.deadline) };
        match self.run_once(call, make, forms, target).await? {
            Err(error) if error.code == NO_SCRIPT => {
                tracing::debug!(script = script.name(), "the server did not know a script");
                self.parts().unknown_scripts.fetch_add(1, Ordering::Relaxed);
                self.run_once(make(), make, forms.in_full(), target).await
            }
            other => Ok(other),
        }
    }

    /// Runs a script in the first form; copies of an undo are sent by its text.
    async fn run_once(
        &self,
        call: Call,
        make: &impl Fn() -> Call,
        forms: ScriptForms,
        target: Target<'_>,
    ) -> Outcome {
        let routing = call.routing;
        let (connection, pending) = self.put((forms.first)(&call), routing, target).await?;
        drop(call);
        let outcome = pending.await.map_err(|error| self.between_masters(error));
        self.close_replica(&connection, &outcome);
        // The copies come after the reply: a copy that came first would leave the request nothing
        // to do, and its reply would say so. After `NOSCRIPT` the request itself is still to come.
        let unknown = matches!(&outcome, Ok(Err(error)) if error.code == NO_SCRIPT);
        if let (RoutingPolicy::Undo(affinity), false) = (routing, unknown) {
            // Nobody waits for these replies, so nobody could react to `NOSCRIPT`: send the text.
            for other in self.parts().router.others_with_unanswered(&affinity, &connection) {
                drop(PendingReply::enqueue(
                    other,
                    (forms.by_text)(&make()),
                    Some(affinity),
                    self.limit(target.limit.asked),
                ));
            }
        }
        outcome
    }

    async fn exchange(
        &self,
        args: &Args,
        routing: RoutingPolicy,
        target: Target<'_>,
    ) -> Result<Value, LockError> {
        let (connection, pending) = self.put(Request::Command(args), routing, target).await?;
        let outcome = pending.await.map_err(|error| self.between_masters(error));
        self.close_replica(&connection, &outcome);
        outcome?.map_err(|error| self.refused(error))
    }

    /// Closes the connection to a server that answers as a replica, where sentinels know the
    /// master, or where it was the master itself and its name may lead to another now.
    fn close_replica(&self, connection: &Connection, outcome: &Outcome) {
        if (self.master_source().is_some() || self.was_master())
            && matches!(outcome, Ok(Err(error)) if is_of_replica(error))
        {
            connection.close("the server is no longer the master");
        }
    }

    /// Turns `Unavailable` into `NoQuorum` while the sentinels answer and the master does not:
    /// they can promote another or see this one return. Callers wait through that, as through an
    /// election.
    fn between_masters(&self, error: LockError) -> LockError {
        let elects = self.master_source().is_some_and(|source| source.answers());
        match error.kind() {
            ErrorKind::Unavailable { message } if elects && self.is_without_answers(&error) => {
                masterless(message, error.certainty())
            }
            _ => error,
        }
    }

    fn refused(&self, error: ServerError) -> LockError {
        match self.master_source() {
            Some(_) if is_of_replica(&error) => master_term::refused_by_replica(&refusal(error)),
            Some(source) if error.code == NOREPLICAS => {
                source.query_soon();
                too_few_replicas(error)
            }
            None if self.was_master() && is_of_replica(&error) => {
                let message = format!(
                    "a switchover is under way: the server was the master, and takes no writes \
                     ({error})"
                );
                unavailable(message, refusal(error).certainty())
            }
            _ => refusal(error),
        }
    }

    /// Returns whether the one server of the engine was a master when it was connected.
    fn was_master(&self) -> bool {
        let single = self.parts().discovery.single.as_ref();
        single.is_some_and(|single| single.was_master.load(Ordering::Relaxed))
    }

    /// Returns whether this process is a fork of the one that made the link.
    fn is_fork(&self) -> bool {
        std::process::id() != self.parts().process.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&self, asked: Duration) -> Limit {
        Limit { end: self.parts().clock.now().after(asked), asked }
    }

    /// Puts a request on a connection; waits for one.
    async fn put(
        &self,
        request: Request<'_>,
        routing: RoutingPolicy,
        target: Target<'_>,
    ) -> Result<(Arc<Connection>, PendingReply), LockError> {
        let Target { aim, limit } = target;
        if self.is_fork() {
            let message = "this process was copied by fork: it needs a client of its own";
            return Err(unavailable(message, Certainty::NotApplied));
        }
        // The common case: a healthy connection exists, and nothing is allocated to wait for one.
        let waits = routing.waits_for_healthy();
        if let Ok(Route::Use(connection)) = self.parts().router.route(routing, None, waits)
            && self.may_take(&connection, aim).is_ok()
            && let Ok(pending) = PendingReply::enqueue(
                connection.clone(),
                request,
                routing.affinity().copied(),
                limit,
            )
        {
            note(aim.sent_on, &connection);
            return Ok((connection, pending));
        }
        Box::pin(self.put_later(request, routing, target)).await
    }

    /// Checks that a connection is to a server that the request may go to.
    fn may_take(&self, connection: &Connection, aim: Aim<'_>) -> Result<(), LockError> {
        let facts = connection.facts();
        if !facts.is_of(aim.run_id) {
            let message = "the server was restarted, or is another";
            return Err(match self.master_source() {
                Some(_) => masterless(message, Certainty::NotApplied),
                None => unavailable(message, Certainty::NotApplied),
            });
        }
        if aim.grants { facts.check_may_grant(&*self.parts().clock) } else { Ok(()) }
    }

    /// Puts a request on a connection as soon as one accepts it.
    async fn put_later(
        &self,
        request: Request<'_>,
        routing: RoutingPolicy,
        Target { aim, limit }: Target<'_>,
    ) -> Result<(Arc<Connection>, PendingReply), LockError> {
        let mut waiter = Waiter::default();
        loop {
            let connection = self.next_connection(routing, limit, &mut waiter).await?;
            self.may_take(&connection, aim)?;
            match PendingReply::enqueue(
                connection.clone(),
                request,
                routing.affinity().copied(),
                limit,
            ) {
                Ok(pending) => {
                    note(aim.sent_on, &connection);
                    return Ok((connection, pending));
                }
                // Nothing was sent, so another connection may take it.
                Err(Rejected::Closed(_)) if connection.health() == Health::Closed => {}
                Err(Rejected::Closed(error)) => return Err(error),
                Err(Rejected::Full) => self.wait_for_room(&connection, limit, &mut waiter).await?,
            }
        }
    }

    /// Waits until the connection may accept another request, or another connection may.
    async fn wait_for_room<'a>(
        &'a self,
        connection: &Connection,
        limit: Limit,
        waiter: &mut Waiter<'a>,
    ) -> Result<(), LockError> {
        let changes = waiter.changes.get_or_insert_with(|| self.parts().router.watch());
        tokio::select! {
            biased;
            () = connection.room() => Ok(()),
            () = changes.changed() => Ok(()),
            () = self.parts().clock.sleep_until(limit.end) => Err(Rejected::Full.into()),
        }
    }

    /// Finds the connection for a request; waits for one.
    pub(super) async fn next_connection<'a>(
        &'a self,
        routing: RoutingPolicy,
        limit: Limit,
        waiter: &mut Waiter<'a>,
    ) -> Result<Arc<Connection>, LockError> {
        let router = &*self.parts().router;
        let mut waits = routing.waits_for_healthy();
        loop {
            match router.route(routing, waiter.attempts, waits) {
                Ok(Route::Use(connection)) => return Ok(connection),
                Ok(Route::Wait { attempts }) => waiter.attempts = Some(attempts),
                Err(error) => return Err(self.between_masters(error)),
            }
            let Some(changes) = &mut waiter.changes else {
                // From here on no change is missed; check once more for earlier ones.
                waiter.changes = Some(router.watch());
                continue;
            };
            tokio::select! {
                biased;
                () = changes.changed() => {}
                () = self.parts().clock.sleep_until(limit.half()), if waits => waits = false,
                () = self.parts().clock.sleep_until(limit.end) => {
                    let error = router.last_error().unwrap_or_else(|| no_connection(limit.asked));
                    return Err(self.between_masters(error));
                }
            }
        }
    }
}

fn note(sent_on: Option<&SentOn>, connection: &Connection) {
    if let Some(sent_on) = sent_on {
        sent_on.0.store(connection.id(), Ordering::Release);
    }
}

fn is_of_replica(error: &ServerError) -> bool {
    matches!(error.code.as_str(), "READONLY" | "MASTERDOWN")
}

/// A request that has no connection yet, or no room on it.
#[derive(Default)]
pub(super) struct Waiter<'a> {
    changes: Option<RouterChanges<'a>>,
    attempts: Option<u64>,
}

fn no_connection(asked: Duration) -> LockError {
    unavailable(format!("no connection to the server within {asked:?}"), Certainty::NotApplied)
}
