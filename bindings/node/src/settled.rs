//! What became of a request, as JavaScript gets it: what each lock needs as values, other data as
//! JSON. The methods of a client stand in `client`.

use holdline::LockError;
use holdline::admin::json::HolderJson;
use holdline_bindings::Grant;
use holdline_bindings::options::Mistake;
use holdline_bindings::words::{self, Detail, Reason, Release};
use napi::bindgen_prelude::BigInt;
use napi_derive::napi;
use serde_json::{Value, json};

/// A connection to one store.
#[napi]
pub struct Client(pub(crate) holdline::Client);

/// What the library made of a request.
pub(crate) enum Outcome {
    Grants(Vec<Grant>),
    Client(holdline::Client),
    Released(Release),
    Reason(Reason),
    Data(Value),
    Failure(Failure),
}

/// What became of a request: one of these, and its key.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct Settled {
    /// The key of the operation.
    pub key: u32,
    /// What was acquired.
    pub grants: Option<Vec<Granted>>,
    /// A connection.
    pub client: Option<Client>,
    /// How a lease was released.
    pub released: Option<Released>,
    /// Why a lease is lost or at risk, or that it was released.
    pub why: Option<Why>,
    /// Plain data, as JSON.
    pub json: Option<String>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// A grant: its number, the lock name, the proof of the grant in full, the mode's word, the fencing
/// token, and when the slot began, in milliseconds since 1970. An array, since that costs less.
pub type Granted = (u32, String, String, &'static str, BigInt, Option<f64>);

/// How a lease was released: whether the store confirmed it, for how many milliseconds it was held,
/// why it had been lost before, and why the store did not confirm.
pub type Released = (bool, Option<f64>, Option<Why>, Option<String>);

/// Why a lease is lost or at risk.
#[napi(object, object_from_js = false)]
pub struct Why {
    /// The word.
    pub word: &'static str,
    /// The text.
    pub text: String,
}

/// A failure.
#[napi(object, object_from_js = false)]
pub struct Failure {
    /// The word of its kind; `type` for a value of a wrong type.
    pub kind: &'static str,
    /// What it says.
    pub message: String,
    /// Whether the request took effect.
    pub certainty: &'static str,
    /// The engine.
    pub engine: String,
    /// The lock name.
    pub name: Option<String>,
    /// The details, as JSON.
    pub details: String,
}

impl Settled {
    /// Converts an outcome; `hold` takes a grant over, and returns its number.
    pub(crate) fn new(key: u32, outcome: Outcome, hold: impl Fn(Grant) -> u32) -> Settled {
        let mut settled = Settled { key, ..Settled::default() };
        match outcome {
            Outcome::Grants(grants) => {
                let grants = grants.into_iter();
                settled.grants = Some(grants.map(|grant| granted(grant, &hold)).collect());
            }
            Outcome::Client(client) => settled.client = Some(Client(client)),
            Outcome::Released(release) => settled.released = Some(released(release)),
            Outcome::Reason(reason) => settled.why = Some(why(reason)),
            Outcome::Data(data) => settled.json = Some(data.to_string()),
            Outcome::Failure(failure) => settled.failure = Some(failure),
        }
        settled
    }
}

fn granted(grant: Grant, hold: impl Fn(Grant) -> u32) -> Granted {
    let held = grant.held();
    let name = held.name().as_str().to_owned();
    let lease_id = held.lease_id().to_hex();
    let mode = held.mode().word();
    let token = BigInt::from(held.fencing_token().get());
    let slot_start = grant.slot_start().map(since_1970);
    (hold(grant), name, lease_id, mode, token, slot_start)
}

fn released(release: Release) -> Released {
    let held_for = release.held_for.map(millis);
    (release.confirmed, held_for, release.lost.map(why), release.failure)
}

fn why(reason: Reason) -> Why {
    Why { word: reason.word, text: reason.text }
}

impl From<&LockError> for Outcome {
    fn from(error: &LockError) -> Outcome {
        let details = words::details(error).into_iter();
        let details: serde_json::Map<_, _> =
            details.map(|(name, detail)| (name.to_owned(), value_of(detail))).collect();
        Outcome::Failure(Failure {
            kind: error.kind().word(),
            message: error.to_string(),
            certainty: error.certainty().word(),
            engine: error.engine().to_owned(),
            name: error.name().map(|name| name.as_str().to_owned()),
            details: Value::Object(details).to_string(),
        })
    }
}

impl From<Mistake> for Outcome {
    fn from(mistake: Mistake) -> Outcome {
        match mistake {
            Mistake::Type { field, wanted, given } => {
                wrong(&field, format!("`{field}` is {wanted}, not {given}"))
            }
            Mistake::Unknown(key) => wrong(&key, format!("there is no option `{key}`")),
            Mistake::Value(error) => Outcome::from(&error),
        }
    }
}

/// A value of a wrong type. JavaScript spells the field in its own way.
fn wrong(field: &str, message: String) -> Outcome {
    Outcome::Failure(Failure {
        kind: "type",
        message,
        certainty: "not_applied",
        engine: "holdline".to_owned(),
        name: None,
        details: json!({ "field": field }).to_string(),
    })
}

fn value_of(detail: Detail<'_>) -> Value {
    match detail {
        Detail::Holder(holder) => json!(holder.map(HolderJson::from)),
        Detail::Time(time) => json!(millis(time)),
        Detail::Number(number) => json!(number),
        Detail::Text(text) => json!(text),
        Detail::Texts(texts) => json!(texts),
    }
}

/// A time as JavaScript has it.
pub(crate) fn millis(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A moment as JavaScript has it.
pub(crate) fn since_1970(time: std::time::SystemTime) -> f64 {
    time.duration_since(std::time::UNIX_EPOCH).map_or(0.0, millis)
}
