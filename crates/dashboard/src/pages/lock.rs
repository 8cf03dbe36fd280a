//! One lock: holders, queue, past, and what an operator may do about it.

use std::time::{Duration, SystemTime};

use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use holdline_core::operation::{MAX_REASON_BYTES, MAX_REMOVAL_REASON_BYTES};
use holdline_core::{
    FencingToken, GrantState, HolderView, LockName, Operation, OperationReply, Snapshot,
};
use maud::{Markup, Render, html};

use crate::chart::{self, Track};
use crate::fault::Fault;
use crate::fields::Fields;
use crate::history::{History, Hold, Row, What, who};
use crate::layout::Page;
use crate::site::{Form, Query, Site, Viewer};
use crate::table::{Column, Figures, Head, table};
use crate::text::{Text, cell, count, figure, moment, or_dash, query, short};

/// How many holders, waiters and past holds a page has.
const MOST: usize = 200;
/// The longest freeze, in minutes: a year.
const MOST_MINUTES: u64 = 365 * 24 * 60;
/// The section whose entry of the navigation is marked.
const SECTION: &str = "/locks";

/// The routes.
pub(crate) fn routes() -> Router<Site> {
    Router::new()
        .route("/dashboard/lock", get(show))
        .route("/dashboard/lock/revoke", post(revoke))
        .route("/dashboard/lock/remove-waiter", post(remove_waiter))
        .route("/dashboard/lock/freeze", post(freeze))
        .route("/dashboard/lock/unfreeze", post(unfreeze))
}

async fn show(viewer: Viewer, Query(mut fields): Query) -> Result<Page, Fault> {
    let name = fields.lock_name()?;
    let done = fields.choice("done", &DONE)?;
    fields.finish()?;
    let lock = viewer.site.store.inspect(&viewer.identity, &name).await?;
    let view = viewer.site.follower.fresh_view().await;
    let found = view.rows.binary_search_by(|row| row.lock.name.cmp(&name)).ok();
    let row = found.and_then(|index| view.rows.get(index));
    let main = {
        let history = viewer.site.follower.history();
        let holds = holds_of(&history, &name);
        html! {
            h1 { "Lock " span.name { (Text(name.as_str())) } }
            @if let Some(done) = done { p role="status" { strong { (done) } } }
            div #lock data-live="" {
                (state(&lock))
                (holders(&lock, row))
                (queue(&lock, &holds))
            }
            @if viewer.may_operate(name.as_str()) { (actions(&viewer, &lock)) }
            @else { p.muted { "To revoke or freeze, you need the right " code { "operate" } "." } }
            div #lock-past data-live="" { (past(&history, &lock, &holds)) }
        }
    };
    Ok(Page { viewer, section: SECTION, title: "Lock".to_owned(), main })
}

fn holds_of<'a>(history: &'a History, name: &LockName) -> Vec<&'a Hold> {
    let mut holds: Vec<&Hold> = history.holds().filter(|hold| hold.name == *name).collect();
    holds.sort_by_key(|hold| std::cmp::Reverse(hold.from));
    holds
}

fn state(lock: &Snapshot) -> Markup {
    let words = match (lock.holder_count, &lock.freeze) {
        (0, Some(freeze)) if freeze.active => "Frozen".to_owned(),
        (0, _) if lock.queue_length > 0 => "Free, about to be granted".to_owned(),
        (0, _) => "Free: nobody holds or waits for it".to_owned(),
        (holders, _) => format!("Held by {}", count(holders, "holder")),
    };
    html! {
        p {
            strong { (words) }
            @if let Some(of) = lock.permits_of { ", a semaphore of " (of) " permits" }
            @if lock.queue_length > 0 { ", " (count(lock.queue_length, "waiter")) } "."
        }
        @if let Some(freeze) = &lock.freeze {
            ul.notes {
                li.warn {
                    @if freeze.active { "Frozen" } @else { "A freeze waits for the holders" }
                    ", until " (moment(SystemTime::now() + freeze.left)) ". Reason: "
                    (or_dash(&freeze.reason))
                }
            }
        }
    }
}

fn holders(lock: &Snapshot, row: Option<&Row>) -> Markup {
    let slack = |holder: &HolderView| {
        let row = row?;
        let same = |other: &HolderView| other.summary.lease_id == holder.summary.lease_id;
        row.slack.get(row.lock.holders.iter().position(same)?).copied().flatten()
    };
    html! {
        @for holder in lock.holders.iter().take(MOST) {
            @let summary = &holder.summary;
            @let fields = summary.metadata.fields();
            h2 { "Holder: " (Text(&who(summary))) }
            dl.facts {
                dt { "Mode" } dd { (summary.mode) }
                dt { "State" }
                dd {
                    @match &holder.state {
                        GrantState::Held => "held",
                        GrantState::Revoked(reason) => {
                            span.bad { "revoked: " (Text(reason)) }
                        }
                    }
                }
                dt { "Token" } dd { (figure(summary.token)) }
                dt { "Host" } dd { (or_dash(&fields.host)) }
                dt { "Pid" } dd { (figure(fields.pid)) }
                dt { "Program" } dd { (or_dash(&fields.program)) }
                dt { "User" } dd { (or_dash(&fields.user)) }
                dt { "Reason" } dd { (or_dash(&fields.reason)) }
                dt { "Held for" } dd { (figure(summary.held_for.map(short))) }
                dt { "Lease left" }
                dd {
                    @if holder.live { "as long as its processes" }
                    @else if summary.no_expiry { span.bad { "no expiry" } }
                    @else { (figure(summary.left.map(short))) }
                }
                dt { "Slack" } dd { (figure(slack(holder).map(short))) }
                @for (label, value) in &fields.labels {
                    dt { (cell(label)) } dd { (Text(value)) }
                }
            }
        }
        @if lock.holder_count > MOST { p { "and " (lock.holder_count - MOST) " more holders" } }
    }
}

const QUEUE: [Head; 6] = [
    Figures("Position"),
    Column("Program"),
    Column("Host"),
    Column("Mode"),
    Figures("Waited"),
    Figures("Likely wait"),
];

fn queue(lock: &Snapshot, holds: &[&Hold]) -> Markup {
    if lock.queue_length == 0 {
        return html! {};
    }
    let typical = median(holds);
    let rows = html! {
        @for (index, waiter) in lock.queue.iter().take(MOST).enumerate() {
            @let fields = waiter.metadata.fields();
            @let position = u32::try_from(index + 1).unwrap_or(u32::MAX);
            tr {
                td.number { (position) " of " (lock.queue_length) }
                td { (or_dash(&fields.program)) }
                td { (or_dash(&fields.host)) }
                td { (waiter.mode) }
                td.number { (figure(waiter.waited.map(short))) }
                td.number { (figure(typical.map(|t| short(t.saturating_mul(position))))) }
            }
        }
    };
    html! {
        h2 { "Queue" }
        p.muted {
            @match typical {
                Some(typical) => {
                    "A likely wait is the position times the median hold, " (short(typical))
                    ", of " (count(ended(holds).count(), "hold")) " that this server has seen end."
                }
                None => "No hold was seen to end yet, so the likely wait is not known.",
            }
        }
        (table("lock-queue", "Queue", &QUEUE, &rows))
    }
}

fn ended<'a>(holds: &'a [&'a Hold]) -> impl Iterator<Item = &'a Hold> {
    holds.iter().copied().filter(|hold| hold.end.is_some())
}

fn median(holds: &[&Hold]) -> Option<Duration> {
    let now = SystemTime::now();
    let mut lasted: Vec<Duration> = ended(holds).map(|hold| hold.lasted(now)).collect();
    lasted.sort_unstable();
    lasted.get(lasted.len() / 2).copied()
}

/// The forms of what an operator may do. The page exchanges them only while nobody uses them.
fn actions(viewer: &Viewer, lock: &Snapshot) -> Markup {
    let held = lock.holders.iter().take(MOST).filter(|holder| holder.state == GrantState::Held);
    let held = held.filter_map(|holder| Some((holder.summary.token?, who(&holder.summary))));
    let held: Vec<(FencingToken, String)> = held.collect();
    let tokens: Vec<String> = held.iter().map(|(token, _)| token.to_string()).collect();
    let can_remove = viewer.site.store.client().capabilities().remove_waiter;
    let has_waiters = can_remove && !lock.queue.is_empty();
    let state = format!("{} {} {has_waiters}", tokens.join(" "), lock.freeze.is_some());
    html! {
        section #lock-actions data-forms=(state) aria-labelledby="lock-actions-title" {
            h2 #lock-actions-title { "Actions" }
            p.warn role="status"
                data-stale="The lock has changed meanwhile. Load the page again to act on it." {}
            @for (token, who) in &held { (revoke_form(viewer, lock.name.as_str(), *token, who)) }
            @if has_waiters { (remove_form(viewer, lock)) }
            (freeze_form(viewer, lock.name.as_str()))
            @if lock.freeze.is_some() {
                form.row method="post" action=(viewer.link("/lock/unfreeze")) {
                    (viewer.form_token())
                    input type="hidden" name="name" value=(lock.name.as_str());
                    button { "Unfreeze" }
                }
            }
        }
    }
}

fn reason_field(longest: usize) -> Markup {
    html! {
        label {
            "Reason, at most " (longest) " bytes"
            input name="reason" required maxlength=(longest) autocomplete="off";
        }
    }
}

/// A form behind its title: what an operator may do, what it does, and its button.
fn action(viewer: &Viewer, name: &str, path: &str, title: impl Render, fields: &Markup) -> Markup {
    html! {
        details {
            summary { (title) }
            form.stack method="post" action=(viewer.link(path)) {
                (viewer.form_token())
                input type="hidden" name="name" value=(name);
                (fields)
            }
        }
    }
}

fn revoke_form(viewer: &Viewer, name: &str, token: FencingToken, who: &str) -> Markup {
    let title = html! { "Revoke token " (token) " of " (Text(who)) };
    let fields = html! {
        input type="hidden" name="token" value=(token);
        p {
            "The holder is notified, and its lease is not renewed. If another "
            "token holds the name by now, nothing is changed."
        }
        (reason_field(MAX_REASON_BYTES))
        label.check {
            input type="checkbox" name="force" value="yes";
            span {
                "Free the name at once. Two holders may then believe that they "
                "hold it: be sure that this one has stopped."
            }
        }
        div { button.danger { "Revoke" } }
    };
    action(viewer, name, "/lock/revoke", title, &fields)
}

fn remove_form(viewer: &Viewer, lock: &Snapshot) -> Markup {
    let fields = html! {
        p { "Its request fails, and the others move up. Holders are not affected." }
        label {
            "The waiter"
            select name="waiter" required {
                @for (index, waiter) in lock.queue.iter().take(MOST).enumerate() {
                    @let fields = waiter.metadata.fields();
                    option value=(waiter.lease_id) {
                        (index + 1) ": " (or_dash(&fields.program)) " on "
                        (or_dash(&fields.host)) " (" (waiter.lease_id) ")"
                    }
                }
            }
        }
        (reason_field(MAX_REMOVAL_REASON_BYTES))
        div { button.danger { "Remove" } }
    };
    action(viewer, lock.name.as_str(), "/lock/remove-waiter", "Remove a waiter", &fields)
}

fn freeze_form(viewer: &Viewer, name: &str) -> Markup {
    let fields = html! {
        p { "Nobody gets the name meanwhile. A present holder is not disturbed." }
        label {
            "For how many minutes from now"
            input type="number" name="minutes" value="60" min="1" max=(MOST_MINUTES) required;
        }
        (reason_field(MAX_REASON_BYTES))
        div { button.danger { "Freeze" } }
    };
    action(viewer, name, "/lock/freeze", "Freeze", &fields)
}

fn past(history: &History, lock: &Snapshot, holds: &[&Hold]) -> Markup {
    let name = &lock.name;
    let now = SystemTime::now();
    let from = holds.iter().take(MOST).map(|hold| hold.from).min().unwrap_or(now);
    let overlaps = history
        .notes()
        .any(|note| note.name == *name && matches!(note.what, What::Overlap(_)) && note.at >= from);
    let waits = history.waits().filter(|wait| wait.name == *name);
    let (granted, gave_up): (Vec<_>, Vec<_>) = waits.partition(|wait| wait.granted);
    let track = Track { label: "", holds: holds.iter().copied().take(MOST).collect(), overlaps };
    html! {
        h2 { "Timeline" }
        @if holds.is_empty() {
            p { "No hold of this name was seen." }
        } @else {
            figure {
                figcaption {
                    "The holds that were seen; the table of " a href="#lock-tokens" { "tokens" }
                    " has the same"
                }
                (chart::timeline(&[track], from..now))
            }
        }
        @if overlaps {
            ul.notes { li.bad { "Two holders were seen at once, one of them exclusive." } }
        }
        div.columns {
            div { (chart::histogram("How long it was held",
                &chart::classes(ended(holds).map(|hold| hold.lasted(now))))) }
            div { (chart::histogram("How long contenders waited until they had it",
                &chart::classes(granted.iter().map(|wait| wait.waited)))) }
        }
        @if !gave_up.is_empty() {
            p {
                (count(gave_up.len(), "contender")) " left the queue without a grant that was "
                "seen, the last at " (moment(gave_up[gave_up.len() - 1].at)) "."
            }
        }
        h2 { "Tokens" }
        (tokens(holds, lock, now))
    }
}

const TOKENS: [Head; 9] = [
    Figures("Token"),
    Column("Holder"),
    Figures("Pid"),
    Column("User"),
    Column("From"),
    Figures("For"),
    Figures("Slack"),
    Column("End"),
    Column("Reason"),
];

/// Lists the holds, with who held the lock and why.
fn tokens(holds: &[&Hold], lock: &Snapshot, now: SystemTime) -> Markup {
    let rows = html! {
        @for hold in holds.iter().take(MOST) {
            @let fields = hold.holder.metadata.fields();
            tr {
                th.number scope="row" { (figure(hold.holder.token)) }
                td { (Text(&who(&hold.holder))) }
                td.number { (figure(fields.pid)) }
                td { (or_dash(&fields.user)) }
                td { (moment(hold.from)) }
                td.number { (short(hold.lasted(now))) }
                td.number { (figure(hold.slack.map(short))) }
                td class=[hold.is_lost().then_some("bad")] { (end(hold, lock)) }
                td.prose { (or_dash(&fields.reason)) }
            }
        }
    };
    html! {
        (table("lock-tokens", "Tokens", &TOKENS, &rows))
    }
}

/// Says how a hold ended. The lock is read for each page and the history only now and then, so it
/// can be over without an end in the history.
fn end(hold: &Hold, lock: &Snapshot) -> Markup {
    use crate::history::End;
    let is_holder = |view: &HolderView| view.summary.lease_id == hold.holder.lease_id;
    let is_cut = lock.holders.len() < lock.holder_count;
    html! {
        @match &hold.end {
            None if is_cut || lock.holders.iter().any(is_holder) => "held",
            None => "has just ended",
            Some((_, End::Revoked(reason))) => { "revoked: " (cell(reason)) }
            Some((_, end)) => (end.word()),
        }
    }
}

/// Where the values of an action come from.
const FROM_FORM: &str = "send the form of the page of the lock";

/// What a page says after an action, by the word in its URL.
const DONE: [(&str, &str); 5] = [
    ("notified", "The holder is notified; the name is free when it stops or its lease ends."),
    ("revoked", "The grant is revoked and over."),
    ("removed", "The waiter is removed from the queue."),
    ("frozen", "The name is frozen, or will be once its holders are done."),
    ("unfrozen", "The freeze is over."),
];

async fn revoke(Form(viewer, mut fields): Form) -> Result<Response, Fault> {
    let name = fields.lock_name()?;
    let token = fields.parsed("token", FROM_FORM)?;
    let reason = reason(&mut fields, MAX_REASON_BYTES)?;
    let now = fields.choice("force", &[("yes", true)])?.unwrap_or(false);
    fields.finish()?;
    let revoke = Operation::Revoke { name: name.clone(), token, reason, now };
    act(&viewer, &name, revoke, |reply| match reply {
        OperationReply::Notified { .. } => "notified",
        OperationReply::Done | OperationReply::NothingThere => "revoked",
    })
    .await
}

async fn remove_waiter(Form(viewer, mut fields): Form) -> Result<Response, Fault> {
    let name = fields.lock_name()?;
    let waiter = fields.parsed("waiter", FROM_FORM)?;
    let reason = reason(&mut fields, MAX_REMOVAL_REASON_BYTES)?;
    fields.finish()?;
    let remove = Operation::RemoveWaiter { name: name.clone(), waiter, reason };
    act(&viewer, &name, remove, |_| "removed").await
}

async fn freeze(Form(viewer, mut fields): Form) -> Result<Response, Fault> {
    let name = fields.lock_name()?;
    let minutes = fields.number("minutes", 1..=MOST_MINUTES)?;
    let minutes = minutes
        .ok_or_else(|| Fault::invalid("minutes", "it is missing", "say for how many minutes"))?;
    let reason = reason(&mut fields, MAX_REASON_BYTES)?;
    fields.finish()?;
    let duration = Duration::from_secs(minutes * 60);
    let freeze = Operation::Freeze { name: name.clone(), duration, reason };
    act(&viewer, &name, freeze, |_| "frozen").await
}

async fn unfreeze(Form(viewer, mut fields): Form) -> Result<Response, Fault> {
    let name = fields.lock_name()?;
    fields.finish()?;
    act(&viewer, &name, Operation::Unfreeze { name: name.clone() }, |_| "unfrozen").await
}

fn reason(fields: &mut Fields, longest: usize) -> Result<String, Fault> {
    let reason = fields.need("reason")?;
    if reason.len() > longest {
        let detail = format!("it has {} bytes", reason.len());
        return Err(Fault::invalid("reason", detail, format!("use at most {longest} bytes")));
    }
    Ok(reason)
}

/// Carries a command out, and leads back to the page of the lock, so that a reload does not repeat
/// it. `done` says which word of [`DONE`] fits the reply.
async fn act(
    viewer: &Viewer,
    name: &LockName,
    operation: Operation,
    done: impl Fn(OperationReply) -> &'static str,
) -> Result<Response, Fault> {
    let reply = viewer.site.store.intervene(&viewer.identity, operation).await?;
    viewer.site.follower.look_again().await;
    let to = viewer.link("/lock") + &query(&[("name", name.as_str()), ("done", done(reply))]);
    Ok(Redirect::to(&to).into_response())
}
