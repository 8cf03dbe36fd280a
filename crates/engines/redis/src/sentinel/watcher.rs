//! Tracks the master: queries all sentinels, and subscribes to their announcements of a switch.
//!
//! - Invariant W1: an announcement is a hint only: it makes the watcher query all sentinels.
//! - Invariant W2: a caller that needs the master starts a query of its own. It never waits for the
//!   query of another, and the last result stays readable meanwhile.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use holdline_core::{Certainty, Clock, ErrorKind, Escaped, LockError, Moment};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::answers::{MasterView, SentinelAnswer, choose};
use crate::args::Args;
use crate::error::{ENGINE, unavailable};
use crate::in_flight::InFlight;
use crate::link::{
    HostPort, Link, MasterSource, SourceFuture, Subscription, SubscriptionEvent, Value,
};
use crate::options::RedisOptions;

/// How often the sentinels are queried without another reason.
const QUERY_INTERVAL: Duration = Duration::from_secs(10);
/// How often while the master is unknown or suspected.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait for the others once one has answered.
const GRACE: Duration = Duration::from_millis(300);
/// How long a requested failover may take.
const FAILOVER_LIMIT: Duration = Duration::from_secs(20);
const SWITCH_CHANNEL: &str = "+switch-master";

/// The sentinels of one service, and their last result.
pub(crate) struct Watcher {
    service: String,
    sentinels: Vec<(String, Link)>,
    clock: Arc<dyn Clock>,
    limit: Duration,
    known: Mutex<Option<MasterView>>,
    query_status: Mutex<QueryStatus>,
    master: watch::Sender<Option<(String, u16)>>,
    suspicion: Notify,
}

/// Whether the sentinels answer.
#[derive(Debug, Default)]
struct QueryStatus {
    /// The last query returned a master.
    succeeded: bool,
    /// Since when a query is unanswered.
    since: Option<Moment>,
}

impl QueryStatus {
    fn begin(&mut self, now: Moment) {
        self.since.get_or_insert(now);
    }

    fn is_current(&self, now: Moment) -> bool {
        self.succeeded && self.since.is_none_or(|since| since.until(now) < RETRY_INTERVAL)
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("service", &self.service).finish_non_exhaustive()
    }
}

impl MasterSource for Watcher {
    fn answers(&self) -> bool {
        self.query_status.lock().is_current(self.clock.now())
    }

    fn master(&self) -> watch::Receiver<Option<HostPort>> {
        self.master.subscribe()
    }

    fn replicas(&self) -> u64 {
        self.known.lock().as_ref().map_or(0, |seen| seen.replicas)
    }

    fn query(&self) -> SourceFuture<'_, Result<HostPort, LockError>> {
        Box::pin(async { self.query_now().await.map(|view| (view.host, view.port)) })
    }

    fn query_soon(&self) {
        self.suspicion.notify_one();
    }

    fn run(&self) -> SourceFuture<'_, ()> {
        Box::pin(self.follow())
    }
}

impl Watcher {
    /// Makes a watcher, which starts to dial the sentinels at once; `None` where the options name
    /// none.
    pub(crate) fn new(
        options: &RedisOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Watcher>, LockError> {
        let Some(group) = options.group() else { return Ok(None) };
        let sentinels = options.sentinels().into_iter().map(|sentinel| {
            Ok((sentinel.address().to_string(), Link::new(&sentinel, clock.clone())?))
        });
        Ok(Some(Watcher {
            service: group.service().to_owned(),
            sentinels: sentinels.collect::<Result<_, LockError>>()?,
            clock: clock.clone(),
            // Long enough to learn why a connection to a sentinel fails, and shorter than the time
            // for the connection to the server.
            limit: options.command_timeout().max(options.connect_timeout() / 4 * 3),
            known: Mutex::default(),
            query_status: Mutex::default(),
            master: watch::Sender::new(None),
            suspicion: Notify::new(),
        }))
    }

    /// Queries the sentinels for the master.
    ///
    /// # Errors
    /// `Unavailable`: none of them answers, or no answer is acceptable. `Refused`: they do not let
    /// us in, or do not know the service.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    async fn query_now(&self) -> Result<MasterView, LockError> {
        self.query_status.lock().begin(self.clock.now());
        let answers = self.query_all().await;
        let mut known = self.known.lock();
        let chosen = choose(&answers, self.sentinels.len(), known.as_ref());
        *self.query_status.lock() = QueryStatus { succeeded: chosen.is_some(), since: None };
        let Some(view) = chosen else {
            drop(known);
            return Err(self.explain_failure(&answers));
        };
        let host_port = (view.host.clone(), view.port);
        *known = Some(view.clone());
        // Under the lock, so that of two concurrent queries the later result is published last.
        self.master.send_if_modified(|master| {
            let changed = master.as_ref() != Some(&host_port);
            if changed {
                tracing::info!(
                    service = self.service,
                    host = host_port.0,
                    port = host_port.1,
                    "the master"
                );
                *master = Some(host_port);
            }
            changed
        });
        Ok(view)
    }

    /// Has a sentinel promote a replica, and waits until the sentinels name it as the master.
    pub(crate) async fn fail_over(&self) -> Result<(), LockError> {
        let before = self.query_now().await?;
        let end = self.clock.now().after(FAILOVER_LIMIT);
        let mut begun = Err(unavailable("no sentinel was asked", Certainty::NotApplied));
        while self.clock.now() < end {
            if begun.is_err() {
                begun = self.begin_failover().await;
            }
            if self.query_now().await.is_ok_and(|view| !view.is_at(&before.host, before.port)) {
                return Ok(());
            }
            self.clock.sleep_until(self.clock.now().after(RETRY_INTERVAL / 4)).await;
        }
        begun?;
        Err(unavailable("the master is the same as before", Certainty::Unknown))
    }

    /// Asks one sentinel after the other: one may have begun already, or know no usable replica.
    async fn begin_failover(&self) -> Result<(), LockError> {
        let mut last = unavailable("the URL names no sentinels", Certainty::NotApplied);
        for (_, sentinel) in &self.sentinels {
            let args = Args::from(["SENTINEL", "FAILOVER", &self.service]);
            match sentinel.command(args, None, self.limit).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Queries whenever there is a reason, for as long as it is polled.
    async fn follow(&self) {
        let mut subscriptions: Vec<Subscription> = (self.sentinels.iter())
            .map(|(_, link)| link.subscribe(SWITCH_CHANNEL.as_bytes().to_vec()))
            .collect();
        let service = format!("{} ", self.service);
        loop {
            let pause = if self.known.lock().is_some() { QUERY_INTERVAL } else { RETRY_INTERVAL };
            let now = self.clock.now();
            let end = now.after(pause);
            let suspicion = async {
                self.suspicion.notified().await;
                self.clock.sleep_until(now.after(RETRY_INTERVAL)).await;
            };
            tokio::select! {
                biased;
                () = switch_announced(&mut subscriptions, service.as_bytes()) => {}
                () = suspicion => {}
                () = self.clock.sleep_until(end) => {}
            }
            if let Err(error) = self.query_now().await {
                tracing::debug!(%error, "the sentinels name no master");
            }
        }
    }

    /// Queries all, until all have answered, or one has and the others had time to.
    async fn query_all(&self) -> Vec<SentinelAnswer> {
        let mut in_flight = InFlight::with_capacity(self.sentinels.len());
        for (at, (_, link)) in self.sentinels.iter().enumerate() {
            in_flight.push(at, self.query_one(link));
        }
        let mut answers = Vec::with_capacity(self.sentinels.len());
        let mut end = Moment::NEVER;
        loop {
            let next = in_flight.next_before(end, &*self.clock).await;
            let Some((_, answer)) = next else { return answers };
            if matches!(answer, SentinelAnswer::View(_)) {
                end = end.min(self.clock.now().after(GRACE));
            }
            answers.push(answer);
        }
    }

    async fn query_one(&self, link: &Link) -> SentinelAnswer {
        match self.try_query_one(link).await {
            Ok(answer) => answer,
            Err(error) => SentinelAnswer::Failed(error),
        }
    }

    async fn try_query_one(&self, link: &Link) -> Result<SentinelAnswer, LockError> {
        let service = self.service.as_str();
        let say = |args: Vec<&str>| link.command(Args::from(args), None, self.limit);
        let address = say(vec!["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]).await?;
        if address == Value::Nil {
            let masters = say(vec!["SENTINEL", "MASTERS"]).await?;
            let of = |master: &Value| {
                let (pairs, _) = master.as_array()?.as_chunks::<2>();
                let found = pairs.iter().find(|[key, _]| key.as_text() == Some("name"));
                found.and_then(|[_, name]| name.as_text().map(str::to_owned))
            };
            let names = masters.as_array().unwrap_or_default().iter().filter_map(of);
            return Ok(SentinelAnswer::OtherServices(names.collect()));
        }
        let fields = say(vec!["SENTINEL", "MASTER", service]).await?;
        MasterView::parse(&address, &fields)
            .map(SentinelAnswer::View)
            .ok_or_else(|| unavailable("invalid reply of a sentinel", Certainty::NotApplied))
    }

    /// Explains why there is no master: first what an operator must fix, then what may pass.
    fn explain_failure(&self, answers: &[SentinelAnswer]) -> LockError {
        let refused = |message: String| {
            LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
        };
        let service = Escaped(&self.service);
        let all = || {
            let names = self.sentinels.iter().map(|(name, _)| name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        let failed = answers.iter().filter_map(|answer| match answer {
            SentinelAnswer::Failed(error) => Some(error),
            _ => None,
        });
        if let Some(error) = failed.clone().find(|error| !error.is_unavailable()) {
            return refused(advice(error));
        }
        let others = answers.iter().find_map(|answer| match answer {
            SentinelAnswer::OtherServices(names) => Some(names),
            _ => None,
        });
        match others {
            Some(names) if names.is_empty() => refused(format!(
                "the sentinels monitor no master: add one by SENTINEL MONITOR {service}"
            )),
            Some(names) => {
                let names: Vec<String> =
                    names.iter().map(|name| Escaped(name).to_string()).collect();
                let names = names.join(", ");
                refused(format!(
                    "the sentinels know no service `{service}`: name one that they watch, such as \
                     {names}"
                ))
            }
            None if answers.iter().any(|answer| matches!(answer, SentinelAnswer::View(_))) => {
                let message = "too few sentinels answer, and they name a master that was replaced";
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

/// Waits until a sentinel announces a switch, or may have done so unnoticed.
async fn switch_announced(subscriptions: &mut [Subscription], service: &[u8]) {
    poll_fn(|context| {
        let mut master = false;
        for inbox in subscriptions.iter_mut() {
            while let Poll::Ready(Some(event)) = Pin::new(&mut *inbox).poll_next(context) {
                master |= match event {
                    SubscriptionEvent::Message(message) => message.starts_with(service),
                    SubscriptionEvent::Resubscribed => true,
                    SubscriptionEvent::Lost | SubscriptionEvent::Refused => false,
                };
            }
        }
        if master { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
