//! The rules of fences, and the calls of a fence in Redis. The statements of databases are the
//! library's texts: Python sends them by the driver of the user.

use std::num::NonZeroU64;
use std::time::Duration;

use holdline::fence::{
    Access, Exclusive, FenceError, Proof, REDIS_GUARD, RedisCall, RedisFence, Rules, Shared, sql,
};
use holdline::{FencingToken, LockError, LockName, Mode};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::errors::raise;

/// The proof of a grant, as Python hands it on: its mode, its token, and the lock name if known.
type Shown = (String, u64, Option<String>);

fn proof<A: Access>(py: Python<'_>, shown: Shown) -> PyResult<Proof<A>>
where
    Proof<A>: TryFrom<(Mode, FencingToken), Error = holdline::fence::CannotFence>,
{
    let (mode, token, name) = shown;
    let invalid = |field, error: String| raise(py, &LockError::invalid("fence", field, error));
    let mode = match mode.as_str() {
        "exclusive" => Mode::Exclusive,
        "shared" => Mode::Shared,
        _ => Mode::Permits { count: 1, of: 1 },
    };
    let token = FencingToken::new(token).map_err(|why| invalid("token", why.to_string()))?;
    let proof = Proof::<A>::try_from((mode, token));
    let proof = proof.map_err(|why| PyTypeError::new_err(why.to_string()))?;
    let name = name.map(LockName::new).transpose();
    let name = name.map_err(|why| invalid("name", why.to_string()))?;
    Ok(name.map_or(proof.clone(), |name| proof.with_name(name)))
}

/// Makes the exception of an error: `holdline.fence.make(kind, message, certainty, details)`.
fn fence_error(py: Python<'_>, error: &FenceError) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let details = PyDict::new(py);
    let kind = match error {
        FenceError::Stale(stale) => numbers(&details, stale.mine, stale.seen).map(|()| "stale"),
        FenceError::TooFar { mine, seen, .. } => {
            numbers(&details, *mine, *seen).map(|()| "too_far")
        }
        FenceError::OtherName { .. } => Ok("other_name"),
        FenceError::Foreign { .. } => Ok("foreign"),
        FenceError::Busy { .. } => Ok("busy"),
        FenceError::Write { .. } => Ok("write"),
        _ => Ok("failed"),
    };
    let certainty = error.certainty().word();
    let made = kind.and_then(|kind| {
        let make = MAKE.import(py, "holdline.fence", "make")?;
        make.call1((kind, error.to_string(), certainty, details))
    });
    made.map_or_else(|failure| failure, PyErr::from_value)
}

fn numbers(details: &Bound<'_, PyDict>, mine: FencingToken, seen: FencingToken) -> PyResult<()> {
    details.set_item("mine", mine.get())?;
    details.set_item("seen", seen.get())
}

fn rules(py: Python<'_>, guarded_by: Option<&str>, max_jump: Option<u64>) -> PyResult<Rules> {
    let invalid = |field, error: String| raise(py, &LockError::invalid("fence", field, error));
    // It counts once there are metrics.
    let mut rules = Rules::default().with_observer(holdline::metrics::fence_observer());
    if let Some(name) = guarded_by {
        let name = LockName::new(name).map_err(|why| invalid("guarded_by", why.to_string()))?;
        rules = rules.guarded_by(name);
    }
    if let Some(limit) = max_jump {
        let limit = NonZeroU64::new(limit);
        rules = rules.max_jump(limit.ok_or_else(|| invalid("max_jump", "is 0".to_owned()))?);
    }
    Ok(rules)
}

/// The decision of a resource.
#[pyclass(frozen, module = "holdline._holdline", name = "FenceRules")]
pub(crate) struct FenceRules {
    resource: String,
    rules: Rules,
}

#[pymethods]
impl FenceRules {
    #[new]
    #[pyo3(signature = (resource, guarded_by = None))]
    fn new(py: Python<'_>, resource: String, guarded_by: Option<&str>) -> PyResult<FenceRules> {
        Ok(FenceRules { resource, rules: rules(py, guarded_by, None)? })
    }

    /// Raises the refusal of a reader, exclusive or shared, if the mark refuses it.
    fn check(&self, py: Python<'_>, mark: Option<u64>, shown: Shown) -> PyResult<()> {
        let mark = self.mark(py, mark)?;
        let checked = if shown.0 == "shared" {
            self.rules.check(mark, &proof::<Shared>(py, shown)?)
        } else {
            self.rules.check(mark, &proof::<Exclusive>(py, shown)?)
        };
        self.report(py, checked)
    }

    /// Raises the refusal of a writer, if the mark refuses it.
    fn raise_mark(&self, py: Python<'_>, mark: Option<u64>, shown: Shown) -> PyResult<()> {
        let mark = self.mark(py, mark)?;
        let raised = self.rules.raise(mark, &proof(py, shown)?);
        self.report(py, raised.map(drop))
    }
}

impl FenceRules {
    fn mark(&self, py: Python<'_>, mark: Option<u64>) -> PyResult<Option<FencingToken>> {
        let mark = mark.map(FencingToken::new).transpose();
        mark.map_err(|_| {
            let found = "a mark in the table holdline_fence is no fencing token".to_owned();
            fence_error(py, &FenceError::Foreign { found })
        })
    }

    fn report(&self, py: Python<'_>, answer: Result<(), FenceError>) -> PyResult<()> {
        self.rules.report(&self.resource, answer).map_err(|error| fence_error(py, &error))
    }
}

/// The statements of a fence: of PostgreSQL and SQLite, and those of MariaDB and MySQL.
#[pyfunction]
pub(crate) fn fence_sql(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let texts = PyDict::new(py);
    for (key, text) in [
        ("table", sql::TABLE),
        ("make_table", sql::MAKE_TABLE),
        ("raise", sql::RAISE),
        ("look", sql::LOOK),
        ("mysql_table", sql::mysql::TABLE),
        ("mysql_raise", sql::mysql::RAISE),
        ("mysql_look", sql::mysql::LOOK),
        ("redis_guard", REDIS_GUARD),
    ] {
        texts.set_item(key, text)?;
    }
    Ok(texts)
}

/// A key of Redis and its mark.
#[pyclass(frozen, module = "holdline._holdline", name = "RedisFence")]
pub(crate) struct NativeRedisFence(RedisFence);

#[pymethods]
impl NativeRedisFence {
    #[new]
    fn new(
        py: Python<'_>,
        key: Vec<u8>,
        mark: Option<Vec<u8>>,
        guarded_by: Option<&str>,
        max_jump: Option<u64>,
    ) -> PyResult<NativeRedisFence> {
        let made = RedisFence::new(key).and_then(|fence| match mark {
            Some(mark) => fence.with_mark(mark),
            None => Ok(fence),
        });
        let fence = made.map_err(|error| fence_error(py, &error))?;
        Ok(NativeRedisFence(fence.with_rules(rules(py, guarded_by, max_jump)?)))
    }

    #[getter]
    fn mark_key(&self) -> &[u8] {
        self.0.mark_key()
    }

    fn seal(&self, py: Python<'_>, shown: Shown) -> PyResult<NativeRedisCall> {
        call(py, self.0.seal(&proof(py, shown)?))
    }

    fn check(&self, py: Python<'_>, shown: Shown) -> PyResult<NativeRedisCall> {
        call(
            py,
            if shown.0 == "shared" {
                self.0.check(&proof::<Shared>(py, shown)?)
            } else {
                self.0.check(&proof::<Exclusive>(py, shown)?)
            },
        )
    }

    fn set(
        &self,
        py: Python<'_>,
        shown: Shown,
        value: Vec<u8>,
        lasts: Option<f64>,
    ) -> PyResult<NativeRedisCall> {
        let proof = proof(py, shown)?;
        call(
            py,
            match lasts {
                None => self.0.check_and_set(&proof, value),
                Some(lasts) => {
                    let lasts = Duration::try_from_secs_f64(lasts).unwrap_or_default();
                    self.0.check_and_set_for(&proof, value, lasts)
                }
            },
        )
    }

    fn delete(&self, py: Python<'_>, shown: Shown) -> PyResult<NativeRedisCall> {
        call(py, self.0.check_and_delete(&proof(py, shown)?))
    }

    fn script(
        &self,
        py: Python<'_>,
        shown: Shown,
        script: String,
        words: (Vec<Vec<u8>>, Vec<Vec<u8>>),
    ) -> PyResult<NativeRedisCall> {
        let (keys, arguments) = words;
        let proof = proof(py, shown)?;
        call(py, self.0.call_script(script, &proof, &slices(&keys), &slices(&arguments)))
    }
}

fn slices(words: &[Vec<u8>]) -> Vec<&[u8]> {
    words.iter().map(Vec::as_slice).collect()
}

fn call(py: Python<'_>, made: Result<RedisCall, FenceError>) -> PyResult<NativeRedisCall> {
    made.map(NativeRedisCall).map_err(|error| fence_error(py, &error))
}

/// A script with its keys and arguments.
#[pyclass(frozen, module = "holdline._holdline", name = "RedisCall")]
pub(crate) struct NativeRedisCall(RedisCall);

#[pymethods]
impl NativeRedisCall {
    #[getter]
    fn text(&self) -> &str {
        self.0.script()
    }

    #[getter]
    fn keys(&self) -> Vec<&[u8]> {
        self.0.keys().iter().map(Vec::as_slice).collect()
    }

    #[getter]
    fn arguments(&self) -> Vec<&[u8]> {
        self.0.arguments().iter().map(Vec::as_slice).collect()
    }

    /// Reads the answer; raises what it refuses.
    fn outcome(&self, py: Python<'_>, answer: &str) -> PyResult<()> {
        self.0.outcome(answer).map_err(|error| fence_error(py, &error))
    }

    /// The exception for an error of the server.
    fn server_error(&self, py: Python<'_>, words: &str) -> Py<PyAny> {
        fence_error(py, &self.0.server_error(words)).into_value(py).into_any()
    }
}
