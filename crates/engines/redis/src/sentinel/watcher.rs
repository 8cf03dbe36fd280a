//! Watches who the master is: asks all sentinels, and hears of each switch from all of them.
//!
//! - Invariant W1: what a sentinel tells unasked is a hint only: all are asked then.
//! - Invariant W2: whoever needs the master asks anew; nobody waits for somebody else's question,
//!   and what is known stays readable meanwhile.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use holdline_core::{Certainty, Clock, ErrorKind, Escaped, LockError, Moment};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::answers::{Answer, Seen, choose};
use crate::error::{ENGINE, unavailable};
use crate::node::{Heard, Inbox, Node, Value, Words};
use crate::options::RedisOptions;
use crate::quorum::race::Race;

/// How often the sentinels are asked although nobody has said anything.
const POLL: Duration = Duration::from_secs(10);
/// How often while nobody knows the master, or it is in doubt.
const SOON: Duration = Duration::from_secs(1);
/// How long the others are waited for once one has answered.
const GRACE: Duration = Duration::from_millis(300);
/// How long a failover may take that somebody asks for.
const FAILOVER: Duration = Duration::from_secs(20);
const SWITCH: &str = "+switch-master";

/// The sentinels of one service, and what they said last.
pub(crate) struct Watcher {
    service: String,
    sentinels: Vec<(String, Node)>,
    clock: Arc<dyn Clock>,
    limit: Duration,
    known: Mutex<Option<Seen>>,
    hearing: Mutex<Hearing>,
    told: watch::Sender<Option<(String, u16)>>,
    doubted: Notify,
}

/// How asking goes.
#[derive(Debug, Default)]
struct Hearing {
    /// The last time, one was to be believed.
    well: bool,
    /// Since when nobody has answered who was asked.
    asked: Option<Moment>,
}

impl Hearing {
    fn asks(&mut self, now: Moment) {
        self.asked.get_or_insert(now);
    }

    fn is_well(&self, now: Moment) -> bool {
        self.well && self.asked.is_none_or(|asked| asked.until(now) < SOON)
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Watcher {
    /// Makes a watcher, which begins to dial the sentinels at once; `None` where the options name
    /// none.
    pub(crate) fn new(
        options: &RedisOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Watcher>, LockError> {
        let Some(group) = options.group() else { return Ok(None) };
        let sentinels = options.sentinels().into_iter().map(|sentinel| {
            Ok((sentinel.address().to_string(), Node::new(&sentinel, clock.clone())?))
        });
        Ok(Some(Watcher {
            service: group.service().to_owned(),
            sentinels: sentinels.collect::<Result<_, LockError>>()?,
            clock: clock.clone(),
            // Long enough to hear why a connection to a sentinel fails, within that to the server.
            limit: options.command_timeout().max(options.connect_timeout() / 4 * 3),
            known: Mutex::default(),
            hearing: Mutex::default(),
            told: watch::Sender::new(None),
            doubted: Notify::new(),
        }))
    }

    /// What the sentinels said last.
    pub(crate) fn known(&self) -> Option<Seen> {
        self.known.lock().clone()
    }

    /// Tells whether the sentinels name a master, whether that answers or not.
    pub(crate) fn answers(&self) -> bool {
        self.hearing.lock().is_well(self.clock.now())
    }

    /// Where the master is, told at each change.
    pub(crate) fn told(&self) -> watch::Receiver<Option<(String, u16)>> {
        self.told.subscribe()
    }

    /// Asks the sentinels who the master is.
    ///
    /// # Errors
    /// `Unavailable`: none of them answers, or none that is to be believed. `Refused`: they do not
    /// let us in, or do not know the service.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn look(&self) -> Result<Seen, LockError> {
        self.hearing.lock().asks(self.clock.now());
        let answers = self.ask_all().await;
        let mut known = self.known.lock();
        let chosen = choose(&answers, self.sentinels.len(), known.as_ref());
        *self.hearing.lock() = Hearing { well: chosen.is_some(), asked: None };
        let Some(seen) = chosen else {
            drop(known);
            return Err(self.why_not(&answers));
        };
        let place = (seen.host.clone(), seen.port);
        *known = Some(seen.clone());
        // Under the lock: of two who asked, the later word is told last.
        self.told.send_if_modified(|told| {
            let changed = told.as_ref() != Some(&place);
            if changed {
                tracing::info!(
                    service = self.service,
                    host = place.0,
                    port = place.1,
                    "the master"
                );
                *told = Some(place);
            }
            changed
        });
        Ok(seen)
    }

    /// Has a sentinel give the master's place to a replica, and waits until that is so.
    pub(crate) async fn fail_over(&self) -> Result<(), LockError> {
        let before = self.look().await?;
        let end = self.clock.now().after(FAILOVER);
        let mut begun = Err(unavailable("nobody was asked", Certainty::NotApplied));
        while self.clock.now() < end {
            if begun.is_err() {
                begun = self.begin_failover().await;
            }
            if self.look().await.is_ok_and(|seen| !seen.is_at(&before.host, before.port)) {
                return Ok(());
            }
            self.clock.sleep_until(self.clock.now().after(SOON / 4)).await;
        }
        begun?;
        Err(unavailable("the master is the same as before", Certainty::Unknown))
    }

    /// Asks one after the other: one may have begun already, or know no replica that is well.
    async fn begin_failover(&self) -> Result<(), LockError> {
        let mut last = unavailable("the URL names no sentinels", Certainty::NotApplied);
        for (_, sentinel) in &self.sentinels {
            let words = Words::from(["SENTINEL", "FAILOVER", &self.service]);
            match sentinel.command(words, None, self.limit).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Has the sentinels asked soon: the master does not behave as one.
    pub(crate) fn hurry(&self) {
        self.doubted.notify_one();
    }

    /// Looks whenever there is reason to, for as long as it is polled.
    pub(crate) async fn watch(&self) {
        let mut inboxes: Vec<Inbox> = (self.sentinels.iter())
            .map(|(_, node)| node.listen(SWITCH.as_bytes().to_vec()))
            .collect();
        let service = format!("{} ", self.service);
        loop {
            let pause = if self.known.lock().is_some() { POLL } else { SOON };
            let now = self.clock.now();
            let end = now.after(pause);
            let doubt = async {
                self.doubted.notified().await;
                self.clock.sleep_until(now.after(SOON)).await;
            };
            tokio::select! {
                biased;
                () = news(&mut inboxes, service.as_bytes()) => {}
                () = doubt => {}
                () = self.clock.sleep_until(end) => {}
            }
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "the sentinels do not tell the master");
            }
        }
    }

    /// Asks all, until all have answered, or some have and the others had time to.
    async fn ask_all(&self) -> Vec<Answer> {
        let mut race = Race::with_room(self.sentinels.len());
        for (at, (_, node)) in self.sentinels.iter().enumerate() {
            race.add(at, self.ask(node));
        }
        let mut answers = Vec::with_capacity(self.sentinels.len());
        let mut end = None;
        loop {
            let grace = async {
                match end {
                    Some(end) => self.clock.sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                biased;
                next = race.next() => next,
                () = grace => None,
            };
            let Some((_, answer)) = next else { return answers };
            if matches!(answer, Answer::Knows(_)) && end.is_none() {
                end = Some(self.clock.now().after(GRACE));
            }
            answers.push(answer);
        }
    }

    async fn ask(&self, node: &Node) -> Answer {
        match self.ask_one(node).await {
            Ok(answer) => answer,
            Err(error) => Answer::Failed(error),
        }
    }

    async fn ask_one(&self, node: &Node) -> Result<Answer, LockError> {
        let service = self.service.as_str();
        let say = |words: Vec<&str>| node.command(Words::from(words), None, self.limit);
        let address = say(vec!["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]).await?;
        if address == Value::Nil {
            let masters = say(vec!["SENTINEL", "MASTERS"]).await?;
            let of = |master: &Value| {
                let (pairs, _) = master.as_array()?.as_chunks::<2>();
                let found = pairs.iter().find(|[key, _]| key.as_text() == Some("name"));
                found.and_then(|[_, name]| name.as_text().map(str::to_owned))
            };
            let names = masters.as_array().unwrap_or_default().iter().filter_map(of);
            return Ok(Answer::KnowsOthers(names.collect()));
        }
        let fields = say(vec!["SENTINEL", "MASTER", service]).await?;
        Seen::read(&address, &fields).map(Answer::Knows).ok_or_else(|| {
            unavailable("what came is no answer of a sentinel", Certainty::NotApplied)
        })
    }

    /// Says why nobody is to be believed: what must be mended first, before what may pass.
    fn why_not(&self, answers: &[Answer]) -> LockError {
        let refused = |message: String| {
            LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
        };
        let service = Escaped(&self.service);
        let all = || {
            let names = self.sentinels.iter().map(|(name, _)| name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        let failed = answers.iter().filter_map(|answer| match answer {
            Answer::Failed(error) => Some(error),
            _ => None,
        });
        if let Some(error) = failed.clone().find(|error| !is_passing(error)) {
            return refused(advice(error));
        }
        let others = answers.iter().find_map(|answer| match answer {
            Answer::KnowsOthers(names) => Some(names),
            _ => None,
        });
        match others {
            Some(names) if names.is_empty() => refused(format!(
                "the sentinels watch nobody: tell them to, by SENTINEL MONITOR {service}"
            )),
            Some(names) => {
                let names: Vec<String> =
                    names.iter().map(|name| Escaped(name).to_string()).collect();
                let names = names.join(", ");
                refused(format!(
                    "the sentinels know no service `{service}`: name one that they watch, as \
                     {names}"
                ))
            }
            None if answers.iter().any(|answer| matches!(answer, Answer::Knows(_))) => {
                let message = "too few sentinels answer, and those name a master that was replaced";
                unavailable(message, Certainty::NotApplied)
            }
            None => {
                let why = failed.map(ToString::to_string).next().unwrap_or_default();
                let message = format!("none of the sentinels {} answers: {why}", all());
                unavailable(message, Certainty::NotApplied)
            }
        }
    }
}

/// Tells whether it may be over by itself.
fn is_passing(error: &LockError) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable { .. })
}

fn advice(error: &LockError) -> String {
    let says = error.to_string();
    let what = match error.kind() {
        ErrorKind::Refused { message } if message.contains("does not know a command") => {
            "what the URL names is no sentinel: write `redis://` for a server, or name its sentinels"
        }
        ErrorKind::Refused { message } if message.contains("password") => {
            "a sentinel does not let us in: set `sentinel_user` and `sentinel_password_file`"
        }
        _ => "a sentinel does not serve us",
    };
    format!("{what} ({says})")
}

/// Waits until a sentinel tells of a switch, or may have told.
async fn news(inboxes: &mut [Inbox], service: &[u8]) {
    poll_fn(|context| {
        let mut told = false;
        for inbox in inboxes.iter_mut() {
            while let Poll::Ready(Some(heard)) = Pin::new(&mut *inbox).poll_next(context) {
                told |= match heard {
                    Heard::Message(message) => message.starts_with(service),
                    Heard::Resubscribed => true,
                    Heard::Lost => false,
                };
            }
        }
        if told { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
