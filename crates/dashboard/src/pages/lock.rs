//! One lock: holders, queue, past, and what an operator may do about it.

use std::time::{Duration, SystemTime};

use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use holdline_core::audit::MAX_REASON_BYTES;
use holdline_core::contract::MAX_REMOVAL_REASON_BYTES;
use holdline_core::{
    FencingToken, GrantState, HolderView, LockName, ShortLeaseId, ShortLeaseIdError, Snapshot,
};
use maud::{Markup, html};

use crate::chart::{self, Track};
use crate::fault::Fault;
use crate::fields::Fields;
use crate::history::{History, Hold, Row, What, who};
use crate::layout::Page;
use crate::site::{Form, Query, Site, Viewer};
use crate::text::{Text, cell, count, moment, or_dash, query, short};

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
    let view = viewer.site.seen.fresh_view().await;
    let found = view.rows.binary_search_by(|row| row.lock.name.cmp(&name)).ok();
    let row = found.and_then(|index| view.rows.get(index));
    let main = {
        let history = viewer.site.seen.history();
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
                        GrantState::Handed => "handed over, not claimed yet",
                        GrantState::Revoked(reason) => {
                            span.bad { "revoked: " (Text(reason)) }
                        }
                    }
                }
                dt { "Token" } dd { @if let Some(token) = summary.token { (token) } @else { "–" } }
                dt { "Host" } dd { (or_dash(&fields.host)) }
                dt { "Pid" } dd { @if let Some(pid) = fields.pid { (pid) } @else { "–" } }
                dt { "Program" } dd { (or_dash(&fields.program)) }
                dt { "User" } dd { (or_dash(&fields.user)) }
                dt { "Reason" } dd { (or_dash(&fields.reason)) }
                dt { "Held for" } dd { (duration(summary.held_for)) }
                dt { "Lease left" }
                dd {
                    @if holder.live { "as long as its processes" }
                    @else { (duration(summary.left)) }
                }
                dt { "Slack" } dd { (duration(slack(holder))) }
                @for (label, value) in &fields.labels {
                    dt { (cell(label)) } dd { (Text(value)) }
                }
            }
        }
        @if lock.holder_count > MOST { p { "and " (lock.holder_count - MOST) " more holders" } }
    }
}

fn duration(duration: Option<Duration>) -> Markup {
    html! { @if let Some(duration) = duration { (short(duration)) } @else { "–" } }
}

fn queue(lock: &Snapshot, holds: &[&Hold]) -> Markup {
    if lock.queue_length == 0 {
        return html! {};
    }
    let typical = median(holds);
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
        div #lock-queue.scroll tabindex="0" role="region" aria-label="Queue" {
            table {
                thead {
                    tr {
                        th.number scope="col" { "Position" }
                        th scope="col" { "Program" }
                        th scope="col" { "Host" }
                        th scope="col" { "Mode" }
                        th.number scope="col" { "Waited" }
                        th.number scope="col" { "Likely wait" }
                    }
                }
                tbody {
                    @for (index, waiter) in lock.queue.iter().take(MOST).enumerate() {
                        @let fields = waiter.metadata.fields();
                        @let position = u32::try_from(index + 1).unwrap_or(u32::MAX);
                        tr {
                            td.number { (position) " of " (lock.queue_length) }
                            td { (or_dash(&fields.program)) }
                            td { (or_dash(&fields.host)) }
                            td { (waiter.mode) }
                            td.number { (duration(waiter.waited)) }
                            td.number { (duration(typical.map(|t| t.saturating_mul(position)))) }
                        }
                    }
                }
            }
        }
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

fn revoke_form(viewer: &Viewer, name: &str, token: FencingToken, who: &str) -> Markup {
    html! {
        details {
            summary { "Revoke token " (token) " of " (Text(who)) }
            form.stack method="post" action=(viewer.link("/lock/revoke")) {
                (viewer.form_token())
                input type="hidden" name="name" value=(name);
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
            }
        }
    }
}

fn remove_form(viewer: &Viewer, lock: &Snapshot) -> Markup {
    html! {
        details {
            summary { "Remove a waiter" }
            form.stack method="post" action=(viewer.link("/lock/remove-waiter")) {
                (viewer.form_token())
                input type="hidden" name="name" value=(lock.name.as_str());
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
            }
        }
    }
}

fn freeze_form(viewer: &Viewer, name: &str) -> Markup {
    html! {
        details {
            summary { "Freeze" }
            form.stack method="post" action=(viewer.link("/lock/freeze")) {
                (viewer.form_token())
                input type="hidden" name="name" value=(name);
                p { "Nobody gets the name meanwhile. A present holder is not disturbed." }
                label {
                    "For how many minutes from now"
                    input type="number" name="minutes" value="60" min="1" max=(MOST_MINUTES)
                        required;
                }
                (reason_field(MAX_REASON_BYTES))
                div { button.danger { "Freeze" } }
            }
        }
    }
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
                (chart::timeline(&[track], (from, now)))
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

/// Lists the holds, with who held the lock and why.
fn tokens(holds: &[&Hold], lock: &Snapshot, now: SystemTime) -> Markup {
    html! {
        div #lock-tokens.scroll tabindex="0" role="region" aria-label="Tokens" {
            table {
                thead {
                    tr {
                        th.number scope="col" { "Token" }
                        th scope="col" { "Holder" }
                        th.number scope="col" { "Pid" }
                        th scope="col" { "User" }
                        th scope="col" { "From" }
                        th.number scope="col" { "For" }
                        th.number scope="col" { "Slack" }
                        th scope="col" { "End" }
                        th scope="col" { "Reason" }
                    }
                }
                tbody {
                    @for hold in holds.iter().take(MOST) {
                        @let fields = hold.holder.metadata.fields();
                        tr {
                            th.number scope="row" {
                                @if let Some(token) = hold.holder.token { (token) } @else { "–" }
                            }
                            td { (Text(&who(&hold.holder))) }
                            td.number { @if let Some(pid) = fields.pid { (pid) } @else { "–" } }
                            td { (or_dash(&fields.user)) }
                            td { (moment(hold.from)) }
                            td.number { (short(hold.lasted(now))) }
                            td.number { (duration(hold.slack)) }
                            td class=[hold.is_lost().then_some("bad")] { (end(hold, lock)) }
                            td.prose { (or_dash(&fields.reason)) }
                        }
                    }
                }
            }
        }
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
    let token = fields.need("token")?;
    let token: FencingToken = token.parse().map_err(|error: holdline_core::TokenError| {
        Fault::invalid("token", error.to_string(), "send the form of the page of the lock")
    })?;
    let reason = reason(&mut fields, MAX_REASON_BYTES)?;
    let now = fields.choice("force", &[("yes", true)])?.unwrap_or(false);
    fields.finish()?;
    let left = viewer.site.store.revoke(&viewer.identity, &name, token, reason, now).await?;
    Ok(done(&viewer, &name, if left.is_some() { "notified" } else { "revoked" }).await)
}

async fn remove_waiter(Form(viewer, mut fields): Form) -> Result<Response, Fault> {
    let name = fields.lock_name()?;
    let waiter = fields.need("waiter")?;
    let waiter: ShortLeaseId = waiter.parse().map_err(|error: ShortLeaseIdError| {
        Fault::invalid("waiter", error.to_string(), "send the form of the page of the lock")
    })?;
    let reason = reason(&mut fields, MAX_REMOVAL_REASON_BYTES)?;
    fields.finish()?;
    viewer.site.store.remove_waiter(&viewer.identity, &name, waiter, reason).await?;
    Ok(done(&viewer, &name, "removed").await)
}

async fn freeze(Form(viewer, mut fields): Form) -> Result<Response, Fault> {
    let name = fields.lock_name()?;
    let minutes = fields.number("minutes", (1, MOST_MINUTES))?;
    let minutes = minutes
        .ok_or_else(|| Fault::invalid("minutes", "it is missing", "say for how many minutes"))?;
    let reason = reason(&mut fields, MAX_REASON_BYTES)?;
    fields.finish()?;
    let duration = Duration::from_secs(minutes * 60);
    viewer.site.store.freeze(&viewer.identity, &name, duration, reason).await?;
    Ok(done(&viewer, &name, "frozen").await)
}

async fn unfreeze(Form(viewer, mut fields): Form) -> Result<Response, Fault> {
    let name = fields.lock_name()?;
    fields.finish()?;
    viewer.site.store.unfreeze(&viewer.identity, &name).await?;
    Ok(done(&viewer, &name, "unfrozen").await)
}

fn reason(fields: &mut Fields, longest: usize) -> Result<String, Fault> {
    let reason = fields.need("reason")?;
    if reason.len() > longest {
        let detail = format!("it has {} bytes", reason.len());
        return Err(Fault::invalid("reason", detail, format!("use at most {longest} bytes")));
    }
    Ok(reason)
}

/// Leads back to the page of the lock, so that a reload does not repeat the action.
async fn done(viewer: &Viewer, name: &LockName, word: &str) -> Response {
    viewer.site.seen.look_again().await;
    let to = viewer.link("/lock") + &query(&[("name", name.as_str()), ("done", word)]);
    Redirect::to(&to).into_response()
}
