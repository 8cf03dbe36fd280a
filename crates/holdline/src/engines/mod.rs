//! Connects to the engine that a URL names.

pub(crate) mod known;
pub(crate) mod url;

use std::collections::BTreeMap;
use std::sync::Arc;

use holdline_core::{
    Certainty, Checkup, Clock, ClockKind, Engine, ErrorKind, Finding, HealthFeed, LockError,
    accept_url, nearest,
};
use holdline_memory::{MemoryEngine, MemoryOptions};
use parking_lot::Mutex;

use crate::clock::SystemClock;
use crate::parker::block_on;
use known::{OTHER_NAMES, known_engine, schemes};
use url::{EngineUrl, foreign_scheme, foreign_text, no_scheme, unknown_parameter};

/// Returns the cargo feature that an engine URL needs and that this build lacks.
///
/// ```
/// // Every build has it.
/// assert_eq!(holdline::engine::missing_feature("memory:"), None);
/// assert_eq!(holdline::engine::missing_feature("no URL"), None);
/// ```
pub fn missing_feature(url: &str) -> Option<&'static str> {
    let url = accept_url(url).ok()?;
    let engine = known_engine(EngineUrl::split(&url)?.scheme)?;
    if engine.is_built { None } else { engine.feature }
}

/// An engine, and where it reports the state of its nodes if it is a quorum.
pub(crate) struct Connected {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) health: Option<HealthFeed>,
}

impl From<Arc<dyn Engine>> for Connected {
    fn from(engine: Arc<dyn Engine>) -> Connected {
        Connected { engine, health: None }
    }
}

/// Connects to the engine that a URL names.
pub(crate) async fn connect(url: &str) -> Result<Connected, LockError> {
    let url = &*accept_url(url).map_err(wrong_url)?;
    let split = EngineUrl::split(url).ok_or_else(|| no_scheme(url, schemes()))?;
    let engine = match known_engine(split.scheme).map(|engine| engine.name) {
        Some("memory") => memory(split),
        #[cfg(feature = "local")]
        Some("local") => local(url).await,
        #[cfg(feature = "etcd")]
        Some("etcd") => etcd(url).await,
        #[cfg(feature = "http")]
        Some("http") => http(url).await,
        #[cfg(feature = "redis")]
        Some("redis") => redis(url).await,
        #[cfg(feature = "redis")]
        Some("redlock") => return redlock(url).await,
        #[cfg(feature = "mysql")]
        Some("mysql") => mysql(url).await,
        #[cfg(feature = "postgres")]
        Some("postgres") => postgres(url).await,
        #[cfg(feature = "zookeeper")]
        Some("zookeeper") => zookeeper(url).await,
        _ => Err(unknown_scheme(split, url)),
    };
    engine.map(Connected::from)
}

/// Connects outside of the caller's runtime, so that the engine's own tasks continue while
/// something blocks the threads of that runtime.
pub(crate) async fn connect_apart(url: &str) -> Result<Connected, LockError> {
    let (sender, outcome) = tokio::sync::oneshot::channel();
    let url = url.to_owned();
    let work = move || drop(sender.send(block_on(connect(&url))));
    let started = std::thread::Builder::new().name("holdline-connect".to_owned()).spawn(work);
    let refused = |message: String| {
        let kind = ErrorKind::Refused { message };
        LockError::new("holdline", kind, Certainty::NotApplied)
    };
    started.map_err(|error| refused(format!("no thread to connect on: {error}")))?;
    outcome.await.unwrap_or_else(|_| Err(refused("the thread that connects has ended".to_owned())))
}

/// Checks the engine that a URL names: its server or files, its settings, its clock.
///
/// It creates nothing and locks nothing. An engine that cannot be reached is a finding, not an
/// error. The call may block on files or wait for a server for a few seconds.
///
/// # Errors
/// `Invalid`: the URL names no engine of this build, or has a wrong parameter.
pub async fn checkup(url: &str) -> Result<Checkup, LockError> {
    let url = &*accept_url(url).map_err(wrong_url)?;
    let engine = EngineUrl::split(url).and_then(|split| known_engine(split.scheme));
    match engine.map(|engine| engine.name) {
        #[cfg(feature = "local")]
        Some("local") => Ok(holdline_local::checkup(&holdline_local::LocalOptions::from_url(url)?)),
        #[cfg(feature = "etcd")]
        Some("etcd") => holdline_etcd::checkup(&holdline_etcd::EtcdOptions::from_url(url)?).await,
        #[cfg(feature = "http")]
        Some("http") => holdline_http::checkup(&holdline_http::HttpOptions::from_url(url)?).await,
        #[cfg(feature = "redis")]
        Some("redis") => {
            let options = holdline_redis::RedisOptions::from_url(url)?;
            holdline_redis::checkup(&options, clock(ClockKind::Boottime, "redis")?).await
        }
        #[cfg(feature = "redis")]
        Some("redlock") => {
            let options = holdline_redis::QuorumOptions::from_url(url)?;
            holdline_redis::quorum_checkup(&options, clock(ClockKind::Boottime, "redlock")?).await
        }
        #[cfg(feature = "mysql")]
        Some("mysql") => {
            let options = holdline_mysql::MysqlOptions::from_url(url)?;
            holdline_mysql::checkup(&options, clock(ClockKind::Boottime, "mysql")?).await
        }
        #[cfg(feature = "postgres")]
        Some("postgres") => {
            let options = holdline_postgres::PostgresOptions::from_url(url)?;
            holdline_postgres::checkup(&options, clock(ClockKind::Boottime, "postgres")?).await
        }
        #[cfg(feature = "zookeeper")]
        Some("zookeeper") => {
            let options = holdline_zookeeper::ZooKeeperOptions::from_url(url)?;
            holdline_zookeeper::checkup(&options, clock(ClockKind::Boottime, "zookeeper")?).await
        }
        // All others are checked by opening them.
        _ => {
            let engine = connect(url).await?.engine;
            let mut checkup = Checkup::new(engine.capabilities().engine);
            let matters = "its names die with this process, which nobody else can reach";
            checkup.add(Finding::ok("scope", matters, "this process"));
            Ok(checkup)
        }
    }
}

fn wrong_url(why: String) -> LockError {
    LockError::invalid("holdline", "url", why)
}

/// Returns the error for a scheme that this build does not have. The text before a `:` may be a
/// part of another program's connection string, or a password: it is never shown.
fn unknown_scheme(url: EngineUrl<'_>, text: &str) -> LockError {
    let scheme = url.scheme;
    if let Some(feature) = known_engine(scheme).and_then(|engine| engine.feature) {
        let message =
            format!("`{scheme}:` needs the cargo feature `{feature}`, which this build lacks");
        return LockError::invalid("holdline", "url", message);
    }
    if let Some((other, ours)) = OTHER_NAMES.iter().find(|(name, _)| *name == scheme) {
        let message = format!("no engine '{other}:': write '{ours}:'");
        return LockError::invalid("holdline", "url", message);
    }
    let advice = foreign_scheme(scheme, url.rest)
        .or_else(|| foreign_text(text).map(|advice| format!("no engine of that scheme: {advice}")));
    let message = match (advice, nearest(scheme, schemes())) {
        (Some(advice), _) => advice,
        (None, Some(near)) => format!("no engine of that scheme: did you mean '{near}:'?"),
        (None, None) => {
            let known = schemes().collect::<Vec<_>>().join(", ");
            format!("no engine of that scheme in this build, which has {known}")
        }
    };
    LockError::invalid("holdline", "url", message)
}

/// The memory engines of this process, by name. They are never removed, so that tokens keep
/// growing.
static TABLES: Mutex<BTreeMap<String, MemoryEngine>> = Mutex::new(BTreeMap::new());

fn memory(url: EngineUrl<'_>) -> Result<Arc<dyn Engine>, LockError> {
    if let Some(parameters) = url.parameters {
        return Err(unknown_parameter("memory", parameters, &[]));
    }
    let mut tables = TABLES.lock();
    if let Some(engine) = tables.get(url.rest) {
        return Ok(Arc::new(engine.clone()));
    }
    let clock = clock(ClockKind::Monotonic, "memory")?;
    let identity = format!("memory:{}", url.rest);
    let engine = MemoryEngine::new(identity, clock, &MemoryOptions::default());
    tables.insert(url.rest.to_owned(), engine.clone());
    Ok(Arc::new(engine))
}

/// Makes the clock that an engine requires.
pub(crate) fn clock(kind: ClockKind, engine: &'static str) -> Result<Arc<dyn Clock>, LockError> {
    match SystemClock::new(kind) {
        Ok(clock) => Ok(Arc::new(clock)),
        Err(error) => {
            let message = format!("the machine gives no timer: {error}");
            Err(LockError::new(engine, ErrorKind::Refused { message }, Certainty::NotApplied))
        }
    }
}

/// Connects to a ZooKeeper ensemble. Its timers run on while this machine sleeps.
#[cfg(feature = "zookeeper")]
async fn zookeeper(url: &str) -> Result<Arc<dyn Engine>, LockError> {
    let options = holdline_zookeeper::ZooKeeperOptions::from_url(url)?;
    let clock = clock(ClockKind::Boottime, "zookeeper")?;
    Ok(Arc::new(holdline_zookeeper::ZooKeeperEngine::connect(&options, clock).await?))
}

/// Connects to a Holdline server.
#[cfg(feature = "http")]
async fn http(url: &str) -> Result<Arc<dyn Engine>, LockError> {
    let options = holdline_http::HttpOptions::from_url(url)?;
    Ok(Arc::new(holdline_http::HttpEngine::connect(&options).await?))
}

/// Connects to an etcd cluster. Its timers run on while this machine sleeps.
#[cfg(feature = "etcd")]
async fn etcd(url: &str) -> Result<Arc<dyn Engine>, LockError> {
    let options = holdline_etcd::EtcdOptions::from_url(url)?;
    let clock = clock(ClockKind::Boottime, "etcd")?;
    Ok(Arc::new(holdline_etcd::EtcdEngine::connect(&options, clock).await?))
}

/// Connects to a Redis server. Its timers run on while this machine sleeps.
#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<Arc<dyn Engine>, LockError> {
    let options = holdline_redis::RedisOptions::from_url(url)?;
    let clock = clock(ClockKind::Boottime, "redis")?;
    holdline_redis::connect(&options, clock).await
}

/// Connects to a quorum of Redis servers. Their timers run on while this machine sleeps.
#[cfg(feature = "redis")]
async fn redlock(url: &str) -> Result<Connected, LockError> {
    let options = holdline_redis::QuorumOptions::from_url(url)?;
    let clock = clock(ClockKind::Boottime, "redlock")?;
    let engine = holdline_redis::QuorumEngine::connect(&options, clock).await?;
    let health = Some(engine.health().clone());
    Ok(Connected { engine: Arc::new(engine), health })
}

/// Connects to a MariaDB server. Its clock runs on while this machine sleeps.
#[cfg(feature = "mysql")]
async fn mysql(url: &str) -> Result<Arc<dyn Engine>, LockError> {
    let options = holdline_mysql::MysqlOptions::from_url(url)?;
    let clock = clock(ClockKind::Boottime, "mysql")?;
    holdline_mysql::connect(&options, clock).await
}

/// Connects to a PostgreSQL server. Its clock runs on while this machine sleeps.
#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<Arc<dyn Engine>, LockError> {
    let options = holdline_postgres::PostgresOptions::from_url(url)?;
    let clock = clock(ClockKind::Boottime, "postgres")?;
    holdline_postgres::connect(&options, clock).await
}

/// Opens the local engine on a blocking thread: another process may be stopped inside a
/// transaction, and opening then waits for it.
#[cfg(feature = "local")]
async fn local(url: &str) -> Result<Arc<dyn Engine>, LockError> {
    let options = holdline_local::LocalOptions::from_url(url)?;
    let open = move || holdline_local::LocalEngine::open(&options);
    let engine = match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(open).await.map_err(|error| {
            let message = format!("the engine could not be opened: {error}");
            LockError::new("local", ErrorKind::Unavailable { message }, Certainty::NotApplied)
        })??,
        Err(_) => open()?,
    };
    Ok(Arc::new(engine))
}
