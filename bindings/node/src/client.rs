//! The client.

use std::sync::Arc;
use std::time::Duration;

use holdline::admin::json::LockJson;
use holdline::admin::{HolderFields, ListRequest};
use holdline::election::{Leader, Leaders};
use holdline::once::{Begun, Taken};
use holdline::{ClientOptions, Lease, LockError, LockName, LockOptions};
use holdline_bindings::options::{self as shared, Mistake};
use holdline_bindings::{Grant as SharedGrant, Held, Kind};
use napi::Result;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde_json::{Value as Json, json};
use tokio::sync::Mutex;

use crate::grant;
use crate::operation::Operation;
use crate::options::{self, Value};
use crate::settled::{Client, Settled, millis, since_1970};

/// What this process reports about itself: the interpreter's own name would say nothing.
#[napi(object)]
pub struct Holder {
    /// The machine.
    pub host: String,
    /// The user.
    pub user: String,
    /// The program.
    pub program: String,
}

/// What to acquire.
#[napi(object)]
pub struct Wanted {
    /// `exclusive`, `shared`, `permits`, `any`, `all` or `leadership`.
    pub kind: String,
    /// The lock name, or several.
    pub names: Vec<String>,
    /// What a leader proclaims.
    pub value: String,
    /// How many permits a semaphore has.
    pub permits: f64,
    /// How many of them are wanted.
    pub count: f64,
}

/// Connects to the store that a URL names.
#[napi]
pub fn connect(url: String, holder: Holder, options: Object<'_>) -> Result<Operation> {
    let Holder { host, user, program } = holder;
    let pid = Some(std::process::id());
    let holder = HolderFields { host, pid, user, program, ..HolderFields::default() };
    let options = connect_options(options::given(&options)?);
    Ok(Operation::checked(options.map(|options| {
        // Work on a thread of its own goes on while JavaScript keeps its thread busy.
        let options = options.with_own_thread(true).with_holder(holder);
        let work = async move { holdline::Client::connect_with(&url, options).await };
        Operation::new(work, |client| Settled {
            client: Some(Client(client)),
            ..Settled::default()
        })
    })))
}

/// Reads a time: in milliseconds.
#[napi]
pub fn read_time(value: Unknown<'_>) -> Result<Settled> {
    let time = options::time("limit", &Value::of(value)?);
    Ok(time.map_or_else(Settled::from, |time| Settled::json(millis(time))))
}

fn connect_options(given: Vec<(String, Value)>) -> std::result::Result<ClientOptions, Mistake> {
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

fn taken(word: &str, taken: &Taken) -> Settled {
    let since = taken.since().map(since_1970);
    let clock_skew = taken.clock_skew().map(millis);
    let by = json!(taken.by());
    Settled::json(json!({ "why": word, "by": by, "since": since, "clock_skew": clock_skew }))
}

impl Client {
    fn kind(&self, wanted: Wanted, options: &LockOptions) -> std::result::Result<Kind, Mistake> {
        let permits = options::whole("permits", wanted.permits)?;
        let count = options::whole("count", wanted.count)?;
        let client = &self.0;
        let name = wanted.names.first().map_or("", String::as_str);
        let kind = match wanted.kind.as_str() {
            "shared" => client.rwlock_with(name, options).map(Kind::Read),
            "permits" => client
                .semaphore_with(name, permits, options)
                .map(|semaphore| Kind::Semaphore(semaphore, count)),
            "any" => client.any_of_with(wanted.names, options).map(Kind::AnyOf),
            "all" => Ok(Kind::All(client.clone(), wanted.names, options.clone())),
            "leadership" => client
                .election_with(name, options)
                .map(|election| Kind::Campaign(election, wanted.value)),
            _ => client.mutex_with(name, options).map(Kind::Mutex),
        };
        kind.map_err(Mistake::Value)
    }

    fn lease(lease: &str) -> std::result::Result<Lease, Mistake> {
        serde_json::from_str(lease).map_err(|why| {
            Mistake::Value(LockError::invalid("holdline", "lease", format!("no lease: {why}")))
        })
    }

    fn name(&self, field: &'static str, name: &str) -> std::result::Result<LockName, Mistake> {
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

    /// Acquires what is wanted; waits as the options say, or not at all.
    #[napi]
    pub fn acquire(&self, wanted: Wanted, options: Object<'_>, waits: bool) -> Result<Operation> {
        let options = shared::lock(options::given(&options)?);
        let kind = options.and_then(|options| self.kind(wanted, &options));
        Ok(Operation::checked(kind.map(|kind| {
            let acquired = |acquired| Settled::grants(SharedGrant::all(acquired));
            if waits {
                Operation::new(kind.acquire(), acquired)
            } else {
                Operation::new(kind.try_acquire(), acquired)
            }
        })))
    }

    /// Looks who leads now.
    #[napi]
    pub fn leader(&self, name: String) -> Operation {
        let election = self.0.election(name).map_err(Mistake::Value);
        Operation::checked(election.map(|election| {
            let work = async move { election.leader().await };
            Operation::new(work, |found| Settled::json(json!(found.as_ref().map(leader))))
        }))
    }

    /// The leaders, one after the other.
    #[napi]
    pub fn leaders(&self, name: String) -> ObservedLeaders {
        let leaders = self.0.election(name).map(|election| election.observe());
        ObservedLeaders(Arc::new(Mutex::new(leaders)))
    }

    /// Takes a slot.
    #[napi]
    pub fn begin(&self, name: String, options: Object<'_>) -> Result<Operation> {
        let once = shared::once(options::given(&options)?).and_then(|(slot, options)| {
            self.0.once_with(name, slot, options).map_err(Mistake::Value)
        });
        Ok(Operation::checked(once.map(|once| {
            Operation::new(async move { once.begin().await }, |begun| match begun {
                Begun::Run(run) => Settled::grants(vec![SharedGrant::new(Held::Once(run))]),
                Begun::AlreadyRan(by) => taken("already_ran", &by),
                Begun::RunningElsewhere(by) => taken("running_elsewhere", &by),
                _ => Settled::json(json!({ "why": "unknown", "by": {} })),
            })
        })))
    }

    /// Takes a detached lease over.
    #[napi]
    pub fn attach(&self, lease: String) -> Operation {
        let client = self.0.clone();
        Operation::checked(Client::lease(&lease).map(|lease| {
            let work = async move { client.leases().attach(&lease).await };
            Operation::new(work, |guard| {
                Settled::grants(vec![SharedGrant::new(Held::Guard(guard))])
            })
        }))
    }

    /// Renews a detached lease for its whole duration, or for another one.
    #[napi]
    pub fn renew(&self, lease: String, lease_duration: Option<Unknown<'_>>) -> Result<Operation> {
        let client = self.0.clone();
        let duration = lease_duration.map(Value::of).transpose()?;
        let duration = duration.map(|value| options::time("lease_duration", &value)).transpose();
        let asked = duration.and_then(|duration| Ok((Client::lease(&lease)?, duration)));
        Ok(Operation::checked(asked.map(|(lease, duration)| {
            let work = async move {
                let leases = client.leases();
                match duration {
                    None => leases.renew(&lease).await,
                    Some(duration) => {
                        leases.renew_by_id(lease.name(), lease.lease_id(), duration).await
                    }
                }
            };
            Operation::new(work, |left| Settled::json(millis(left)))
        })))
    }

    /// Releases a detached lease.
    #[napi]
    pub fn release(&self, lease: String) -> Operation {
        let client = self.0.clone();
        Operation::checked(Client::lease(&lease).map(|lease| {
            let work = async move { client.leases().release(&lease).await };
            Operation::new(work, |outcome| grant::release(outcome.into()))
        }))
    }

    /// Shows a name.
    #[napi]
    pub fn inspect(&self, name: String) -> Operation {
        let client = self.0.clone();
        Operation::checked(self.name("name", &name).map(|name| {
            let work = async move { client.admin().inspect(&name).await };
            Operation::new(work, |state| Settled::json(json!(LockJson::from(&state))))
        }))
    }

    /// One page of names that are held or waited for, and where to go on.
    #[napi]
    pub fn list(&self, prefix: String, after: Option<String>, limit: u32) -> Operation {
        let client = self.0.clone();
        let after = after.map(|after| self.name("after", &after)).transpose();
        Operation::checked(after.map(|after| {
            let request = ListRequest { prefix, after, limit: limit as usize };
            let work = async move { client.admin().list(&request).await };
            Operation::new(work, |page| {
                let names: Vec<_> = page.names.iter().map(LockJson::from).collect();
                Settled::json(json!({ "names": names, "after": page.after }))
            })
        }))
    }

    /// Refuses new attempts, and waits until what was given up is gone from the store.
    #[napi]
    pub fn shutdown(&self, limit: f64) -> Operation {
        let client = self.0.clone();
        // No time that JavaScript can mean here is out of its range.
        let limit = Duration::try_from_secs_f64(limit / 1000.0).unwrap_or_default();
        Operation::sure(async move { Settled::json(client.shutdown(limit).await.is_clean()) })
    }
}

/// The leaders of an election, one after the other.
#[napi]
pub struct ObservedLeaders(Arc<Mutex<std::result::Result<Leaders, LockError>>>);

#[napi]
impl ObservedLeaders {
    /// The next one; null after an error.
    #[napi]
    pub fn next(&self) -> Operation {
        let leaders = self.0.clone();
        let work = async move {
            match &mut *leaders.lock().await {
                Ok(leaders) => leaders.next().await.transpose(),
                Err(error) => Err(error.clone()),
            }
        };
        Operation::new(work, |found| Settled::json(json!(found.as_ref().map(leader))))
    }
}
