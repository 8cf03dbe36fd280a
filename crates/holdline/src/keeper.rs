//! Keeps the leases of one client: renews them in batches, tells holders what they must know.
//!
//! Invariant K1: a lease leaves the schedule before its release is sent, and a reply that comes
//! after that finds nothing.
//! Invariant K2: a renewal never resurrects: what is over stays over ([`Grant`]).
//! Invariant K3: a renewal that fails is tried again until the lease may no longer be believed.
//! Invariant K4: every hint is followed by a question that left after it, and a watch begins with
//! one: so what happened before it, or while an answer was on its way, is told as well.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, join_all, select};
use holdline_core::{
    ErrorKind, GrantState, HolderView, LeaseTerms, LockError, LostReason, Moment, Purpose,
    RenewReply, RenewRequest, renewal,
};

use crate::core::Shared;
use crate::grant::Grant;
use crate::observer::HoldEnd;
use crate::registry::{Entry, Keeping, Key, Registry, Stage};

/// A lease that is held this long is watched for revokes; shorter ones never cost a watch.
const WATCH_AFTER: Duration = Duration::from_secs(1);
/// Leases that are due within this time go into the same batch.
const BUNDLE: Duration = Duration::from_millis(50);

/// Begins to keep a grant. Also returns when to look at it first: nothing is due earlier.
///
/// Most leases are released before that, so the rest is planned at the first look only.
pub(crate) fn begin(grant: Arc<Grant>) -> (Keeping, Moment) {
    let (since, until) = (grant.since, grant.valid_until());
    // Renewal and warning come after a quarter of what is left, whatever the plan.
    let quarter = until.as_nanos().saturating_sub(since.as_nanos()) / 4;
    let due = since.after(grant.plan.first_look.min(Duration::from_nanos(quarter)));
    let keeping = Keeping {
        renew_at: Moment::NEVER,
        risk_at: Moment::NEVER,
        watch_at: since.after(WATCH_AFTER),
        planned_for: None,
        hinted: false,
        failures: 0,
        grant,
    };
    (keeping, due)
}

/// Returns how long after its beginning a grant with these times need not be looked at, if its
/// whole first lease is left.
pub(crate) fn first_look(terms: &LeaseTerms, renews: bool, is_cut: bool) -> Duration {
    match renews {
        // The first lease is a part only: the whole one is reached by a renewal that leaves now.
        _ if is_cut => Duration::ZERO,
        true => WATCH_AFTER.min(terms.renew_interval() / 16 * 13),
        false => WATCH_AFTER,
    }
}

/// Returns what is known of a lease that is held, planned, and whether a request is under way.
fn held(registry: &mut Registry, key: Key) -> Option<(&mut Keeping, &mut bool)> {
    match registry.get(key)? {
        Entry { stage: Stage::Held(keeping), in_flight, .. } => {
            plan_first(keeping);
            Some((keeping, in_flight))
        }
        _ => None,
    }
}

/// Plans renewal and warning of a grant that nothing was planned for yet.
fn plan_first(keeping: &mut Keeping) {
    if keeping.planned_for.is_some() {
        return;
    }
    let sent = keeping.grant.since;
    plan_next(keeping, sent);
    let plan = &keeping.grant.plan;
    if plan.hold != plan.hold.first() {
        keeping.renew_at = sent;
    }
}

/// Plans renewal and warning after the store confirmed the lease to a request sent at `sent`.
fn plan_next(keeping: &mut Keeping, sent: Moment) {
    let grant = &keeping.grant;
    let (plan, until) = (&grant.plan, grant.valid_until());
    let terms = &plan.terms;
    // A renewal that brought no time, near the longest hold, moves no warning either.
    if Some(until) != keeping.planned_for {
        keeping.planned_for = Some(until);
        keeping.risk_at = renewal::at_risk_at(sent, until, terms);
    }
    keeping.renew_at = if !plan.renews() {
        Moment::NEVER
    } else {
        // What the longest hold has cut is no measure of the store's lease: a third of that rest
        // would be renewed sooner and sooner, to no end.
        let is_whole = until != Moment::NEVER && !grant.is_cut();
        let left = is_whole.then_some(sent.until(until));
        let at = renewal::renew_at(sent, left, terms, grant.lease_id.as_bytes()[15]);
        on_tick(sent, at)
    };
}

/// Brings a renewal forward to the tick before it, so that all that are due until the next one
/// leave together: many leases otherwise wake the keeper for a few at a time.
fn on_tick(sent: Moment, at: Moment) -> Moment {
    let tick = BUNDLE.min(sent.until(at) / 16).as_nanos();
    let beyond = u64::try_from(u128::from(at.as_nanos()) % tick.max(1)).unwrap_or(0);
    at.before(Duration::from_nanos(beyond))
}

/// Returns when the keeper must look at a lease next.
pub(crate) fn next(keeping: &Keeping, in_flight: bool) -> Moment {
    let soonest = keeping.grant.valid_until().min(keeping.risk_at).min(keeping.watch_at);
    if in_flight { soonest } else { soonest.min(keeping.renew_at) }
}

/// What must be done about a lease, outside the client's mutex.
pub(crate) enum Task {
    Lose(Arc<Grant>),
    Warn(Arc<Grant>),
    Watch(Key, Arc<Grant>),
    Renew(Key, Arc<Grant>, RenewRequest),
}

/// Looks at one lease that is due. Returns when to look again.
pub(crate) fn look(
    shared: &Shared,
    key: Key,
    keeping: &mut Keeping,
    in_flight: &mut bool,
    now: Moment,
    tasks: &mut Vec<Task>,
) -> Moment {
    if keeping.grant.is_over() {
        return Moment::NEVER;
    }
    plan_first(keeping);
    let grant = &keeping.grant;
    if !grant.is_valid(now) {
        tasks.push(Task::Lose(grant.clone()));
        return Moment::NEVER;
    }
    if now >= keeping.risk_at {
        keeping.risk_at = Moment::NEVER;
        tasks.push(Task::Warn(grant.clone()));
    }
    if now >= keeping.watch_at {
        keeping.watch_at = Moment::NEVER;
        tasks.push(Task::Watch(key, grant.clone()));
    }
    let bundle = BUNDLE.min(grant.plan.terms.renew_interval() / 16);
    if !*in_flight && now.after(bundle) >= keeping.renew_at {
        *in_flight = true;
        let mut line = grant.renewal(shared.client);
        if !grant.wants_renewal() {
            // It must not be extended; the answer still says whether it is there.
            line.purpose = Purpose::Wait;
        }
        tasks.push(Task::Renew(key, grant.clone(), line));
    }
    next(keeping, *in_flight)
}

/// Tells a holder that its lease may no longer be believed.
pub(crate) fn lose(shared: &Shared, grant: &Grant, reason: LostReason) {
    if let Some(reason) = grant.lose(reason) {
        tracing::warn!(
            parent: grant.span_id(), name = %grant.plan.name, lease_id = %grant.lease_id, %reason,
            "a lease is lost"
        );
        shared.observe(|observer| observer.lost(grant.subject(), &reason));
        shared.observe_end(grant, || HoldEnd::Lost(reason.clone()));
    }
}

/// Tells a holder that one renewal interval is left at most.
pub(crate) fn warn(shared: &Shared, grant: &Grant) {
    grant.risk();
    let remaining = shared.clock.now().until(grant.valid_until());
    tracing::debug!(
        parent: grant.span_id(), name = %grant.plan.name, ?remaining, "a lease is at risk"
    );
    shared.observe(|observer| observer.at_risk(grant.subject(), remaining));
}

/// One lease of a batch.
pub(crate) type Line = (Key, Arc<Grant>);

/// Renews one batch and takes note of each answer.
pub(crate) async fn renew(shared: Arc<Shared>, lines: Vec<Line>, batch: Vec<RenewRequest>) {
    let sent = shared.clock.now();
    // Half of what the most urgent lease of the batch has left: several tries fit before its end.
    let soonest = lines.iter().map(|(_, grant)| grant.valid_until()).min();
    let patience = sent.until(soonest.unwrap_or(Moment::NEVER)) / 2;
    let limit = sent.after(patience.clamp(renewal::MIN_RETRY, shared.answer_within));
    let replies = shared.answered(shared.engine.renew(&batch), limit).await;
    let mut replies = replies.unwrap_or_default().into_iter();
    let mut asked_further = Vec::new();
    for (key, grant) in lines {
        match heed(&shared, &grant, sent, replies.next()) {
            Outcome::There => asked_further.push((key, grant)),
            outcome => note(&shared, key, sent, (outcome, By::Worker)),
        }
    }
    // Only now: a store that is slow to tell more delays what it has told already for nobody.
    let asked_further = asked_further.into_iter().map(|(key, grant)| {
        let shared = &shared;
        async move {
            ask_whether_revoked(shared, &grant).await;
            note(shared, key, sent, (Outcome::There, By::Worker));
        }
    });
    join_all(asked_further).await;
}

/// Looks whether an operator wants a lease back that is not renewed: its renewals cannot say so.
async fn ask_whether_revoked(shared: &Shared, grant: &Grant) {
    let sent = shared.clock.now();
    let Ok(snapshot) = shared.answer(shared.engine.inspect(&grant.plan.name)).await else {
        return;
    };
    let ours = snapshot.holders.into_iter().find(|holder| {
        let summary = &holder.summary;
        summary.lease_id == grant.lease_id.short() && summary.token == Some(grant.token)
    });
    if let Some(HolderView { state: GrantState::Revoked(reason), summary, .. }) = ours {
        revoke(shared, grant, sent, reason, summary.left);
    }
}

/// Tells a holder that an operator wants its lease back.
fn revoke(shared: &Shared, grant: &Grant, sent: Moment, reason: String, left: Option<Duration>) {
    tracing::warn!(parent: grant.span_id(), name = %grant.plan.name, %reason, "a lease is revoked");
    grant.revoke(sent, reason, left);
    let remaining = shared.clock.now().until(grant.valid_until());
    shared.observe(|observer| observer.at_risk(grant.subject(), remaining));
}

/// What a reply means for the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The store keeps the lease.
    Kept,
    /// The answer changes nothing: no renewal was wanted.
    There,
    /// It is revoked or over: no renewal leaves any more.
    NoMore,
    /// Try again soon.
    Failed,
}

/// Takes note of one answer in the grant.
pub(crate) fn heed(
    shared: &Shared,
    grant: &Grant,
    sent: Moment,
    reply: Option<Result<RenewReply, LockError>>,
) -> Outcome {
    match reply {
        Some(Ok(RenewReply::Renewed { left })) => {
            let sent = shared.counts_from(sent);
            if let Some(slack) = grant.confirm(shared.clock.now(), sent, left) {
                shared.observe(|observer| observer.renewed(grant.subject(), slack));
            }
            Outcome::Kept
        }
        Some(Ok(RenewReply::Handed { .. })) if !grant.wants_renewal() => Outcome::There,
        Some(Ok(RenewReply::Revoked { reason, left })) => {
            if left == Some(Duration::ZERO) {
                lose(shared, grant, LostReason::Revoked(reason));
            } else {
                revoke(shared, grant, sent, reason, left);
            }
            Outcome::NoMore
        }
        Some(Ok(RenewReply::Unknown)) => {
            lose(shared, grant, LostReason::Missing);
            Outcome::NoMore
        }
        Some(Ok(RenewReply::Handed { .. } | RenewReply::Queued { .. })) => {
            grant.note_failure(&nonsense(shared));
            Outcome::Failed
        }
        Some(Err(error)) => match error.kind() {
            ErrorKind::Lost { reason } => {
                lose(shared, grant, reason.clone());
                Outcome::NoMore
            }
            ErrorKind::Foreign { .. } => {
                lose(shared, grant, LostReason::Missing);
                Outcome::NoMore
            }
            _ => {
                tracing::debug!(parent: grant.span_id(), %error, "a renewal failed");
                grant.note_failure(&error);
                Outcome::Failed
            }
        },
        None => {
            grant.note_failure(&shared.nothing_within(sent.until(shared.clock.now())));
            Outcome::Failed
        }
    }
}

/// Makes the error for a reply that no held lease can have.
pub(crate) fn nonsense(shared: &Shared) -> LockError {
    let message = "a held lease was answered as one that waits".to_owned();
    shared.error(ErrorKind::Protocol { message }, holdline_core::Certainty::Unknown)
}

/// Who asked for a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The worker, which has one under way for a lease at a time.
    Worker,
    /// A caller, beside the worker.
    Caller,
}

/// Takes note of one answer in the schedule.
pub(crate) fn note(shared: &Shared, key: Key, sent: Moment, (outcome, by): (Outcome, By)) {
    let now = shared.clock.now();
    let mut registry = shared.registry.lock();
    let Some((keeping, in_flight)) = held(&mut registry, key) else { return };
    if by == By::Worker {
        *in_flight = false;
    }
    let in_flight = *in_flight;
    match outcome {
        Outcome::Kept => {
            keeping.failures = 0;
            plan_next(keeping, sent);
            // A lease that the store cut again would be renewed without a pause.
            let soonest = now.after(renewal::MIN_RETRY);
            keeping.renew_at = keeping.renew_at.max(soonest);
        }
        // It may have been given back meanwhile by one that could not detach it.
        Outcome::There if keeping.grant.wants_renewal() => keeping.renew_at = now,
        Outcome::There => keeping.renew_at = Moment::NEVER,
        Outcome::NoMore => {
            keeping.renew_at = Moment::NEVER;
            keeping.risk_at = Moment::NEVER;
        }
        Outcome::Failed => {
            let pause = renewal::retry_after(keeping.failures, &keeping.grant.plan.terms);
            keeping.failures = keeping.failures.saturating_add(1);
            keeping.renew_at = now.after(pause);
        }
    }
    if !in_flight && std::mem::take(&mut keeping.hinted) {
        keeping.renew_at = keeping.renew_at.min(now.after(renewal::MIN_RETRY));
    }
    let grant = keeping.grant.clone();
    let due = if grant.is_over() { Moment::NEVER } else { next(keeping, in_flight) };
    let ring = registry.schedule(key, due);
    drop(registry);
    shared.ring(ring);
    grant.landed();
}

/// Resolves when no renewal of this lease is under way from the worker.
pub(crate) async fn landed(shared: &Shared, key: Key, grant: &Grant) {
    let under_way = || shared.registry.lock().get(key).is_some_and(|entry| entry.in_flight);
    grant.until(|grant| (grant.is_over() || !under_way()).then_some(())).await;
}

/// Asks how a lease stands as soon as may be. Returns whether it is still kept.
pub(crate) fn ask_soon(shared: &Shared, key: Key) -> bool {
    let now = shared.clock.now();
    let mut registry = shared.registry.lock();
    let Some((keeping, in_flight)) = held(&mut registry, key) else { return false };
    // What is under way may have been answered before the reason to ask.
    keeping.hinted = *in_flight;
    keeping.renew_at = now;
    let due = next(keeping, *in_flight);
    let ring = registry.schedule(key, due);
    drop(registry);
    shared.ring(ring);
    true
}

/// Watches one lease until it is over: a hint makes the keeper ask how it stands.
pub(crate) async fn watch(shared: Arc<Shared>, key: Key, grant: Arc<Grant>) {
    let mut hints = shared.engine.watch(&grant.plan.name, grant.lease_id);
    if !ask_soon(&shared, key) {
        return;
    }
    loop {
        let over = std::pin::pin!(grant.over());
        let hint = match select(over, hints.next()).await {
            Either::Left(_) => return,
            Either::Right((hint, _)) => hint,
        };
        match hint {
            Some(_) if ask_soon(&shared, key) => {}
            Some(_) => return,
            None => return watch_later(&shared, key),
        }
    }
}

/// The watch has ended, and is opened again an interval later.
fn watch_later(shared: &Shared, key: Key) {
    let now = shared.clock.now();
    let mut registry = shared.registry.lock();
    let Some((keeping, in_flight)) = held(&mut registry, key) else { return };
    keeping.watch_at = now.after(keeping.grant.plan.terms.renew_interval());
    let due = next(keeping, *in_flight);
    let ring = registry.schedule(key, due);
    drop(registry);
    shared.ring(ring);
}

#[cfg(test)]
mod tests {
    use holdline_core::{FencingToken, LeaseId, Mode};

    use super::*;
    use crate::grant::Granted;
    use crate::plan::Plan;
    use crate::{ClientOptions, Keep, LockOptions, ManualClock, MemoryEngine};

    #[test]
    fn nothing_is_due_before_the_first_look() {
        let ms = Duration::from_millis;
        let engine = MemoryEngine::new("look", Arc::new(ManualClock::new()), &<_>::default());
        let core = ClientOptions::default().build(Arc::new(engine)).expect("made");
        let leases = [ms(50), ms(400), ms(3_000), ms(30_000), ms(3_600_000)];
        let max_holds = [None, Some(ms(7)), Some(ms(900)), Some(ms(20_000))];
        for (lease, max_hold) in leases.iter().flat_map(|l| max_holds.iter().map(move |m| (l, m))) {
            let mut options = LockOptions::default().with_lease_duration(*lease);
            if let Some(max_hold) = max_hold {
                options = options.with_max_hold(*max_hold);
            }
            for options in [
                options.clone(),
                options.clone().with_renew_interval(ms(5)),
                options.clone().with_renew_interval(ms(20)),
                options.with_keep(Keep::Fixed),
            ] {
                let plan = Plan::new(&core, "a", Mode::Exclusive, &options).expect("good");
                let plan = Arc::new(plan);
                for (jitter, part) in [(0, 1), (255, 1), (255, 7), (0, 1_000)] {
                    let left = plan.hold.first().duration().map(|first| first / part);
                    looked_at_in_time(&plan, left, jitter);
                }
            }
        }
    }

    fn looked_at_in_time(plan: &Arc<Plan>, left: Option<Duration>, jitter: u8) {
        let granted = Granted {
            lease_id: LeaseId::from_bytes([jitter; 16]),
            token: FencingToken::MIN,
            sent: Moment::from_nanos(1_000_000_007),
            left,
            anchor: None,
            unsettled: false,
        };
        let (mut keeping, first_look) = begin(Arc::new(Grant::new(plan, granted)));
        plan_first(&mut keeping);
        let due = next(&keeping, false);
        assert!(first_look <= due, "{first_look:?} {due:?} {left:?} {:?}", plan.terms);
    }
}
