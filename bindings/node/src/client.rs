//! The client.

use std::sync::Arc;
use std::time::Duration;

use holdline::admin::json::LockJson;
use holdline::admin::{HolderFields, ListRequest};
use holdline::election::{Leader, Leaders};
use holdline::once::{Begun, Taken};
use holdline::{ClientOptions, Lease, LockError, LockName, LockOptions};
use holdline_bindings::options::{self as shared, Mistake};
use holdline_bindings::{Grant, Held, Kind};
use napi::Result;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde_json::{Value as Json, json};
use tokio::sync::Mutex;

use crate::event_loop::{EventLoop, Started};
use crate::options::{self, Checked, Value};
use crate::settled::{Client, Outcome, Settled, millis, since_1970};

/// What a kind has besides its names.
#[napi(object)]
#[derive(Default)]
pub struct Details {
    /// What a leader proclaims.
    pub value: Option<String>,
    /// How many permits a semaphore has.
    pub permits: Option<f64>,
    /// How many of them are wanted.
    pub count: Option<f64>,
}

/// Connects to the store that a URL names, as this user and program of a host.
#[napi]
pub fn connect(
    event_loop: &EventLoop,
    url: String,
    host: String,
    user: String,
    program: String,
    options: Option<Object<'_>>,
) -> Result<Started> {
    let pid = Some(std::process::id());
    let holder = HolderFields { host, pid, user, program, ..HolderFields::default() };
    let options = connect_options(options::given(options)?);
    Ok(event_loop.checked(options, |options| {
        // Work on a thread of its own goes on while JavaScript keeps its thread busy.
        let options = options.with_own_thread(true).with_holder(holder);
        let work = async move { holdline::Client::connect_with(&url, options).await };
        event_loop.start(work, Outcome::Client)
    }))
}

/// Reads a time: in milliseconds.
#[napi]
pub fn read_time(value: Unknown<'_>) -> Result<Settled> {
    let time = options::time("limit", &Value::of(value)?);
    let read = time.map_or_else(Outcome::from, |time| Outcome::Data(json!(millis(time))));
    Ok(Settled::new(0, read, |_| 0))
}

fn connect_options(given: Vec<(String, Value)>) -> Checked<ClientOptions> {
    let mut options = ClientOptions::default();
    for (key, value) in given {
        options = match key.as_str() {
            "lease_duration" => {
                options.with_lease_duration(options::time("lease_duration", &value)?)
            }
            "answer_within" => options.with_answer_within(options::time("answer_within", &value)?),
            _ => return Err(Mistake::Unknown(key)),
        };
    }
    Ok(options)
}

fn leader(leader: &Leader) -> Json {
    json!({
        "term": leader.term().get().to_string(),
        "value": leader.value(),
        "since": leader.since().map(since_1970),
        "host": leader.host(),
    })
}

fn taken(word: &str, taken: &Taken) -> Outcome {
    let since = taken.since().map(since_1970);
    let clock_skew = taken.clock_skew().map(millis);
    let by = json!(taken.by());
    Outcome::Data(json!({ "why": word, "by": by, "since": since, "clock_skew": clock_skew }))
}

impl Client {
    fn kind(
        &self,
        word: &str,
        names: Vec<String>,
        details: Option<Details>,
        options: &LockOptions,
    ) -> Checked<Kind> {
        let Details { value, permits, count } = details.unwrap_or_default();
        let permits = options::whole("permits", permits.unwrap_or(1.0))?;
        let count = options::whole("count", count.unwrap_or(1.0))?;
        let client = &self.0;
        let name = names.first().map_or("", String::as_str);
        let kind = match word {
            "shared" => client.rwlock_with(name, options).map(Kind::Read),
            "permits" => client
                .semaphore_with(name, permits, options)
                .map(|semaphore| Kind::Semaphore(semaphore, count)),
            "any" => client.any_of_with(names, options).map(Kind::AnyOf),
            "all" => Ok(Kind::All(client.clone(), names, options.clone())),
            "leadership" => client
                .election_with(name, options)
                .map(|election| Kind::Campaign(election, value.unwrap_or_default())),
            _ => client.mutex_with(name, options).map(Kind::Mutex),
        };
        kind.map_err(Mistake::Value)
    }

    fn lease(lease: &str) -> Checked<Lease> {
        serde_json::from_str(lease).map_err(|why| {
            Mistake::Value(LockError::invalid("holdline", "lease", format!("no lease: {why}")))
        })
    }

    fn name(&self, field: &'static str, name: &str) -> Checked<LockName> {
        let engine = self.0.capabilities().engine;
        LockName::new(name).map_err(|why| Mistake::Value(LockError::invalid(engine, field, why)))
    }
}

#[napi]
impl Client {
    /// The engine.
    #[napi(getter)]
    pub fn engine(&self) -> &'static str {
        self.0.capabilities().engine
    }

    /// Acquires names: `exclusive`, `shared`, `permits`, `any`, `all` or `leadership`. Waits as the
    /// options say, or not at all.
    #[napi]
    pub fn acquire(
        &self,
        event_loop: &EventLoop,
        kind: String,
        names: Vec<String>,
        details: Option<Details>,
        options: Option<Object<'_>>,
        waits: bool,
    ) -> Result<Started> {
        let options = shared::lock(options::given(options)?);
        let kind = options.and_then(|options| self.kind(&kind, names, details, &options));
        Ok(event_loop.checked(kind, |kind| {
            let acquired = |acquired| Outcome::Grants(Grant::all(acquired));
            if waits {
                event_loop.start(kind.acquire(), acquired)
            } else {
                event_loop.start(kind.try_acquire(), acquired)
            }
        }))
    }

    /// Looks who leads now.
    #[napi]
    pub fn leader(&self, event_loop: &EventLoop, name: String) -> Started {
        let election = self.0.election(name).map_err(Mistake::Value);
        event_loop.checked(election, |election| {
            let work = async move { election.leader().await };
            event_loop.start(work, |found| Outcome::Data(json!(found.as_ref().map(leader))))
        })
    }

    /// The leaders, one after the other.
    #[napi]
    pub fn leaders(&self, name: String) -> ObservedLeaders {
        let leaders = self.0.election(name).map(|election| election.observe());
        ObservedLeaders(Arc::new(Mutex::new(leaders)))
    }

    /// Takes a slot.
    #[napi]
    pub fn begin(
        &self,
        event_loop: &EventLoop,
        name: String,
        options: Option<Object<'_>>,
    ) -> Result<Started> {
        let once = shared::once(options::given(options)?).and_then(|(slot, options)| {
            self.0.once_with(name, slot, options).map_err(Mistake::Value)
        });
        Ok(event_loop.checked(once, |once| {
            event_loop.start(async move { once.begin().await }, |begun| match begun {
                Begun::Run(run) => Outcome::Grants(vec![Grant::new(Held::Once(run))]),
                Begun::AlreadyRan(by) => taken("already_ran", &by),
                Begun::RunningElsewhere(by) => taken("running_elsewhere", &by),
                _ => Outcome::Data(json!({ "why": "unknown", "by": {} })),
            })
        }))
    }

    /// Takes a detached lease over.
    #[napi]
    pub fn attach(&self, event_loop: &EventLoop, lease: String) -> Started {
        let client = self.0.clone();
        event_loop.checked(Client::lease(&lease), |lease| {
            let work = async move { client.leases().attach(&lease).await };
            event_loop.start(work, |guard| Outcome::Grants(vec![Grant::new(Held::Guard(guard))]))
        })
    }

    /// Renews a detached lease for its whole duration, or for another one.
    #[napi]
    pub fn renew(
        &self,
        event_loop: &EventLoop,
        lease: String,
        lease_duration: Option<Unknown<'_>>,
    ) -> Result<Started> {
        let client = self.0.clone();
        let duration = options::lease_duration(lease_duration)?;
        let asked = duration.and_then(|duration| Ok((Client::lease(&lease)?, duration)));
        Ok(event_loop.checked(asked, |(lease, duration)| {
            let work = async move {
                let leases = client.leases();
                match duration {
                    None => leases.renew(&lease).await,
                    Some(duration) => {
                        leases.renew_by_id(lease.name(), lease.lease_id(), duration).await
                    }
                }
            };
            event_loop.start(work, |left| Outcome::Data(json!(millis(left))))
        }))
    }

    /// Releases a detached lease.
    #[napi]
    pub fn release(&self, event_loop: &EventLoop, lease: String) -> Started {
        let client = self.0.clone();
        event_loop.checked(Client::lease(&lease), |lease| {
            let work = async move { client.leases().release(&lease).await };
            event_loop.start(work, |outcome| Outcome::Released(outcome.into()))
        })
    }

    /// Shows a name.
    #[napi]
    pub fn inspect(&self, event_loop: &EventLoop, name: String) -> Started {
        let client = self.0.clone();
        event_loop.checked(self.name("name", &name), |name| {
            let work = async move { client.admin().inspect(&name).await };
            event_loop.start(work, |state| Outcome::Data(json!(LockJson::from(&state))))
        })
    }

    /// One page of names that are held or waited for, and where to go on.
    #[napi]
    pub fn list(
        &self,
        event_loop: &EventLoop,
        prefix: String,
        after: Option<String>,
        limit: u32,
    ) -> Started {
        let client = self.0.clone();
        let after = after.map(|after| self.name("after", &after)).transpose();
        event_loop.checked(after, |after| {
            let request = ListRequest { prefix, after, limit: limit as usize };
            let work = async move { client.admin().list(&request).await };
            event_loop.start(work, |page| {
                let names: Vec<_> = page.names.iter().map(LockJson::from).collect();
                Outcome::Data(json!({ "names": names, "after": page.after }))
            })
        })
    }

    /// Refuses new attempts, and waits until what was given up is gone from the store.
    #[napi]
    pub fn shutdown(&self, event_loop: &EventLoop, limit: f64) -> Started {
        let client = self.0.clone();
        // No time that JavaScript can mean here is out of its range.
        let limit = Duration::try_from_secs_f64(limit / 1000.0).unwrap_or_default();
        event_loop
            .drive(async move { Outcome::Data(json!(client.shutdown(limit).await.is_clean())) })
    }
}

/// The leaders of an election, one after the other.
#[napi]
pub struct ObservedLeaders(Arc<Mutex<std::result::Result<Leaders, LockError>>>);

#[napi]
impl ObservedLeaders {
    /// The next one; null after an error.
    #[napi]
    pub fn next(&self, event_loop: &EventLoop) -> Started {
        let leaders = self.0.clone();
        let work = async move {
            match &mut *leaders.lock().await {
                Ok(leaders) => leaders.next().await.transpose(),
                Err(error) => Err(error.clone()),
            }
        };
        event_loop.start(work, |found| Outcome::Data(json!(found.as_ref().map(leader))))
    }
}
