//! What became of a request, as JavaScript gets it: plain data as JSON, and what has a life of its
//! own as objects. Their methods stand in `client` and `grant`.

use holdline::LockError;
use holdline::admin::json::HolderJson;
use holdline_bindings::options::Mistake;
use holdline_bindings::words::{self, Detail, Reason};
use napi_derive::napi;
use serde_json::{Value, json};

/// A connection to one store.
#[napi]
pub struct Client(pub(crate) holdline::Client);

/// A grant. Dropped, it is given up.
#[napi]
pub struct Grant(pub(crate) holdline_bindings::Grant);

/// What became of a request: one of these.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct Settled {
    /// What was acquired.
    pub grants: Option<Vec<Grant>>,
    /// A connection.
    pub client: Option<Client>,
    /// Plain data, as JSON.
    pub json: Option<String>,
    /// Why it failed.
    pub failure: Option<Failure>,
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
    /// Plain data.
    pub(crate) fn json(value: impl Into<Value>) -> Settled {
        Settled { json: Some(value.into().to_string()), ..Settled::default() }
    }

    /// What was acquired.
    pub(crate) fn grants(grants: Vec<holdline_bindings::Grant>) -> Settled {
        let grants = grants.into_iter().map(Grant).collect();
        Settled { grants: Some(grants), ..Settled::default() }
    }
}

impl From<&LockError> for Settled {
    fn from(error: &LockError) -> Settled {
        let details = words::details(error).into_iter();
        let details: serde_json::Map<_, _> =
            details.map(|(name, detail)| (name.to_owned(), value_of(detail))).collect();
        let failure = Failure {
            kind: error.kind().word(),
            message: error.to_string(),
            certainty: error.certainty().word(),
            engine: error.engine().to_owned(),
            name: error.name().map(|name| name.as_str().to_owned()),
            details: Value::Object(details).to_string(),
        };
        Settled { failure: Some(failure), ..Settled::default() }
    }
}

impl From<Mistake> for Settled {
    fn from(mistake: Mistake) -> Settled {
        let message = match mistake {
            Mistake::Type { field, wanted, given } => {
                format!("`{}` is {wanted}, not {given}", camel_case(&field))
            }
            Mistake::Unknown(key) => format!("there is no option `{}`", camel_case(&key)),
            Mistake::Value(error) => return Settled::from(&error),
        };
        let failure = Failure {
            kind: "type",
            message,
            certainty: "not_applied",
            engine: "holdline".to_owned(),
            name: None,
            details: "{}".to_owned(),
        };
        Settled { failure: Some(failure), ..Settled::default() }
    }
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

/// The word and the text of a reason.
pub(crate) fn reason(reason: &Reason) -> Value {
    json!({ "word": reason.word, "text": reason.text })
}

/// Spells a name as JavaScript does.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut spelled = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        spelled.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        spelled.push_str(letters.as_str());
    }
    spelled
}
