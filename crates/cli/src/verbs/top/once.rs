//! `top --once`: what one round of each store shows, as tables or as one JSON object.

use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdline::watch::StoreWatch;
use holdline_core::snapshot::coarse;
use holdline_core::{Certainty, ErrorKind, LockError};
use serde_json::{Value, json};

use super::blocking::{self, Node};
use super::store::{Task, left_out};
use super::stores::{Flow, Now, RoundView, StoreView, Stores};
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::{NoStore, OpenStore, StoreOptions};
use crate::verbs::ls;
use crate::view;

/// How long several stores may take to answer. A single one takes the time that it needs.
const LIMIT: Duration = Duration::from_secs(30);

/// What a store has answered.
struct StoreAnswer {
    round: Option<RoundView>,
    #[cfg(feature = "redis")]
    quorum: Option<holdline::redlock::QuorumStatus>,
    /// There is no store yet.
    no_store: Option<String>,
}

/// Prints what one round of each store shows.
pub(super) fn run(tasks: Vec<Task>, console: &Console) -> Outcome {
    let view = |task: &Task| StoreView::new(task.name.clone(), task.url());
    let mut stores = Stores(tasks.iter().map(view).collect());
    let answers = match <[Task; 1]>::try_from(tasks) {
        Ok([only]) => vec![Ok(answer(&only)?)],
        Err(tasks) => answers(tasks)?,
    };
    let mut errors: Vec<Option<Failure>> = Vec::new();
    for (store, answer) in answers.into_iter().enumerate() {
        errors.push(match answer {
            Ok(answer) => {
                if let Some(none) = &answer.no_store {
                    console.info(&stores.labelled(store, none));
                } else if answer.round.is_none() && !console.is_json() {
                    let text = "names cannot be listed on this engine; give one exact name";
                    console.info(&stores.labelled(store, text));
                }
                let view = &mut stores.0[store];
                #[cfg(feature = "redis")]
                (view.quorum = answer.quorum);
                if let Some(round) = answer.round {
                    view.round(round, Flow::default(), Now::read());
                }
                None
            }
            Err(failure) => Some(failure),
        });
    }
    if console.is_json() {
        console.object(&object(&stores, &errors)?)?;
    } else {
        print(&stores, console)?;
    }
    ending(&stores, errors, console)
}

/// Reports the stores that did not answer; the first one decides how this program ends.
fn ending(stores: &Stores, errors: Vec<Option<Failure>>, console: &Console) -> Outcome {
    let errors = errors.into_iter().enumerate();
    let mut errors = errors.filter_map(|(store, failure)| Some((store, failure?)));
    let Some((first, mut failure)) = errors.next() else { return Ok(Exit::Success) };
    for (store, failure) in errors {
        console.warn(&stores.labelled(store, &failure.message));
    }
    failure.message = stores.labelled(first, &failure.message);
    Err(failure)
}

/// Asks all stores at once, each on a thread of its own: none delays another for longer than
/// [`LIMIT`].
fn answers(tasks: Vec<Task>) -> Result<Vec<Result<StoreAnswer, Failure>>, Failure> {
    let no_answer = || {
        let message = format!("no answer within {}", duration::written(LIMIT));
        let kind = ErrorKind::Unavailable { message };
        Failure::from(LockError::new("holdline", kind, Certainty::NotApplied))
    };
    let end = Instant::now() + LIMIT;
    let mut answers: Vec<_> = tasks.iter().map(|_| Err(no_answer())).collect();
    let (sender, receiver) = mpsc::channel();
    for (store, task) in tasks.into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::Builder::new().name("store".into()).spawn(move || {
            // Nobody receives it after the limit.
            let _ = sender.send((store, answer(&task)));
        })?;
    }
    drop(sender);
    // It ends when each thread has, or at the limit.
    while let Ok((store, answer)) =
        receiver.recv_timeout(end.saturating_duration_since(Instant::now()))
    {
        answers[store] = answer;
    }
    Ok(answers)
}

/// Asks one store.
fn answer(task: &Task) -> Result<StoreAnswer, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(async {
        let no_store = NoStore::at(&task.address)?.map(|none| none.to_string());
        let round = if no_store.is_some() {
            let at = SystemTime::now();
            let took = Duration::ZERO;
            Some(RoundView { at, took, left_out_after: None, names: Vec::new() })
        } else {
            look(task).await?
        };
        #[cfg(feature = "redis")]
        let quorum = match crate::verbs::quorum::admin(&task.address)? {
            Some(admin) => Some(admin.status().await),
            None => None,
        };
        Ok(StoreAnswer {
            round,
            #[cfg(feature = "redis")]
            quorum,
            no_store,
        })
    }))
}

fn print(stores: &Stores, console: &Console) -> Result<(), Failure> {
    let mut text = String::new();
    for (at, store) in stores.0.iter().enumerate() {
        let (Some(round), counts) = (&store.last_round, store.counts()) else { continue };
        let line = format!(
            "{} held {}, waiting {}, frozen {}, round {}\n",
            store.url,
            counts.held,
            counts.waiting,
            counts.frozen,
            coarse(round.took)
        );
        text += &stores.labelled(at, &line);
    }
    let names = || stores.names().map(|(at, snapshot)| (stores.label(at.store), snapshot));
    if names().next().is_some() {
        let (head, rows) = ls::table(names()).lines("");
        text.extend(["\n", &console.heading(&head), &rows]);
    }
    console.data(&text)?;
    for (at, store) in stores.0.iter().enumerate() {
        let last = store.last_round.as_ref().and_then(|round| round.left_out_after.as_ref());
        if let Some(last) = last {
            let text = format!("there are more names than a round covers: none after {last}");
            console.warn(&stores.labelled(at, &text));
        }
        #[cfg(feature = "redis")]
        if let Some(status) = &store.quorum {
            let (head, rows) = crate::verbs::quorum::table(&status.nodes).lines("");
            let text = format!("\n{}{rows}\n{}\n", console.heading(&head), status.summary());
            console.data(&stores.labelled(at, &text))?;
        }
    }
    Ok(())
}

/// Makes one round; `None` if the engine cannot list.
async fn look(task: &Task) -> Result<Option<RoundView>, Failure> {
    let options = StoreOptions { read_only: true, ..StoreOptions::default() };
    let open_store = OpenStore::open(task.address.clone(), options).await?;
    let watch =
        StoreWatch::new(open_store.client().clone(), task.pattern.clone(), task.options.clone());
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
    Ok(Some(RoundView { at: round.at, took: round.took, left_out_after, names }))
}

/// Returns the object of `docs/json.md`.
fn object(stores: &Stores, errors: &[Option<Failure>]) -> Result<Value, Failure> {
    let objects = stores.0.iter().map(store_object).collect::<Result<Vec<_>, _>>()?;
    let has_rounds = stores.0.iter().any(|store| store.last_round.is_some());
    let names = stores.names().map(|(at, snapshot)| {
        let object = view::object(snapshot);
        of_store(stores, at.store, object)
    });
    let mut object = match <[Value; 1]>::try_from(objects) {
        Ok([only]) => only,
        Err(mut objects) => {
            for ((object, store), error) in objects.iter_mut().zip(&stores.0).zip(errors) {
                object["store"] = store.name.as_str().into();
                let error = error.as_ref();
                object["error"] =
                    json!(error.map(|e| json!({ "kind": e.kind, "message": e.message })));
            }
            let counts = has_rounds.then(|| stores.counts());
            json!({
                "url": null,
                "at_ms": null,
                "took_ms": null,
                "left_out_after": null,
                "held": counts.map(|counts| counts.held),
                "waiting": counts.map(|counts| counts.waiting),
                "frozen": counts.map(|counts| counts.frozen),
                "quorum": null,
                "stores": objects,
            })
        }
    };
    object["names"] = json!(has_rounds.then(|| names.collect::<Vec<_>>()));
    object["blocking"] = json!(has_rounds.then(|| blocking_objects(stores)));
    Ok(object)
}

/// Returns what is reported about one store.
fn store_object(store: &StoreView) -> Result<Value, Failure> {
    let round = store.last_round.as_ref();
    let counts = round.map(|_| store.counts());
    #[cfg(feature = "redis")]
    let quorum = serde_json::to_value(&store.quorum).map_err(Failure::internal)?;
    #[cfg(not(feature = "redis"))]
    let quorum = Value::Null;
    Ok(json!({
        "url": store.url,
        "at_ms": round.and_then(|round| round.at.duration_since(UNIX_EPOCH).ok()).map(view::millis),
        "took_ms": round.map(|round| view::millis(round.took)),
        "left_out_after": round.and_then(|round| round.left_out_after.as_ref()),
        "held": counts.map(|counts| counts.held),
        "waiting": counts.map(|counts| counts.waiting),
        "frozen": counts.map(|counts| counts.frozen),
        "quorum": quorum,
    }))
}

/// Adds the name of the store to an object, if there are several.
fn of_store(stores: &Stores, store: usize, mut object: Value) -> Value {
    if stores.are_several() {
        object["store"] = stores.label(store).into();
    }
    object
}

/// Returns the names with waiters, in the order of the tree: after each the names that its waiters
/// hold.
fn blocking_objects(stores: &Stores) -> Vec<Value> {
    let mut behind: Vec<(usize, Value)> = Vec::new();
    let mut objects = Vec::new();
    for line in blocking::tree(stores, "") {
        behind.retain(|(depth, _)| *depth < line.depth);
        match line.node {
            Node::Waiter { name, waiter } => {
                let waiter = &stores.at(name).queue[waiter];
                behind.push((line.depth, json!(waiter.lease_id)));
            }
            Node::Name { name, deadlock } => {
                let snapshot = stores.at(name);
                let object = json!({
                    "name": snapshot.name,
                    "depth": line.depth / 2,
                    "behind": behind.last().map(|(_, lease_id)| lease_id),
                    "queue_length": snapshot.queue_length,
                    "deadlock": deadlock,
                });
                objects.push(of_store(stores, name.store, object));
            }
            Node::Again { .. } | Node::More { .. } => {}
        }
    }
    objects
}
