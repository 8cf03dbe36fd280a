//! `top --once`: what one round shows, as tables or as one JSON object.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdline::watch::StoreWatch;
use holdline_core::ErrorKind;
use holdline_core::snapshot::coarse;
use serde_json::{Value, json};

use super::blocking::{self, Node};
use super::rows::Seen;
use super::store::{Task, left_out};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::session::{NoStore, Session, SessionOptions};
use crate::verbs::ls;
use crate::view;

/// Prints what one round shows.
pub(super) async fn run(task: Task, console: &Console) -> Outcome {
    let url = holdline::redact_url(&task.address.url);
    let seen = match NoStore::at(&task.address)? {
        Some(none) => {
            console.info(&none.to_string());
            let at = SystemTime::now();
            Some(Seen { at, took: Duration::ZERO, left_out_after: None, names: Vec::new() })
        }
        None => look(&task).await?,
    };
    #[cfg(feature = "redis")]
    let quorum = match crate::verbs::quorum::admin(&task.address)? {
        Some(admin) => Some(admin.status().await),
        None => None,
    };
    #[cfg(not(feature = "redis"))]
    let quorum: Option<()> = None;
    if console.is_json() {
        let mut object = object(seen.as_ref());
        object["url"] = url.into();
        object["quorum"] = serde_json::to_value(&quorum).map_err(Failure::internal)?;
        console.object(&object)?;
        return Ok(Exit::Success);
    }
    if let Some(seen) = &seen {
        let counts = seen.counts();
        let mut text = format!(
            "{url}: held {}, waiting {}, frozen {}, round {}\n",
            counts.held,
            counts.waiting,
            counts.frozen,
            coarse(seen.took)
        );
        if !seen.names.is_empty() {
            let (head, rows) = ls::table(&seen.names).lines("");
            text.extend(["\n", &console.heading(&head), &rows]);
        }
        console.data(&text)?;
        if let Some(last) = &seen.left_out_after {
            console.warn(&format!("there are more names than a round covers: none after {last}"));
        }
    } else {
        console.info("names cannot be listed on this engine; give one exact name");
    }
    #[cfg(feature = "redis")]
    if let Some(status) = &quorum {
        let (head, rows) = crate::verbs::quorum::table(&status.nodes).lines("");
        console.data(&format!("\n{}{rows}\n{}\n", console.heading(&head), status.summary()))?;
    }
    Ok(Exit::Success)
}

/// Makes one round; `None` if the engine cannot list.
async fn look(task: &Task) -> Result<Option<Seen>, Failure> {
    let options = SessionOptions { read_only: true, ..SessionOptions::default() };
    let session = Session::open(task.address.clone(), options).await?;
    let watch =
        StoreWatch::new(session.client().clone(), task.pattern.clone(), task.options.clone());
    let mut watch = match watch {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => return Ok(None),
        watch => watch?,
    };
    let round = watch.next_round().await;
    if let Some(failing) = &round.failing {
        return Err(Failure::of(&failing.error, None));
    }
    let names = watch.names().map(|name| name.snapshot().clone()).collect();
    let left_out_after = left_out(round.coverage);
    Ok(Some(Seen { at: round.at, took: round.took, left_out_after, names }))
}

/// Returns the object of `docs/json.md`, without the URL and the quorum.
fn object(seen: Option<&Seen>) -> Value {
    let counts = seen.map(Seen::counts);
    json!({
        "url": null,
        "at_ms": seen.and_then(|seen| seen.at.duration_since(UNIX_EPOCH).ok()).map(view::millis),
        "took_ms": seen.map(|seen| view::millis(seen.took)),
        "left_out_after": seen.and_then(|seen| seen.left_out_after.as_ref()),
        "held": counts.map(|counts| counts.held),
        "waiting": counts.map(|counts| counts.waiting),
        "frozen": counts.map(|counts| counts.frozen),
        "names": seen.map(|seen| seen.names.iter().map(view::object).collect::<Vec<_>>()),
        "blocking": seen.map(blocking_objects),
        "quorum": null,
    })
}

/// Returns the names with waiters, in the order of the tree: after each the names that its waiters
/// hold.
fn blocking_objects(seen: &Seen) -> Vec<Value> {
    let mut behind: Vec<(usize, Value)> = Vec::new();
    let mut objects = Vec::new();
    for line in blocking::tree(seen, "") {
        behind.retain(|(depth, _)| *depth < line.depth);
        match line.node {
            Node::Waiter { name, waiter } => {
                let waiter = &seen.names[name].queue[waiter];
                behind.push((line.depth, json!(waiter.lease_id)));
            }
            Node::Name { name, deadlock } => {
                let snapshot = &seen.names[name];
                objects.push(json!({
                    "name": snapshot.name,
                    "depth": line.depth / 2,
                    "behind": behind.last().map(|(_, lease_id)| lease_id),
                    "queue_length": snapshot.queue_length,
                    "deadlock": deadlock,
                }));
            }
            Node::Again { .. } | Node::More { .. } => {}
        }
    }
    objects
}
