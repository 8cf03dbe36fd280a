//! The peers behind one face. All of them block: `rslock` on a runtime of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

/// How long a waiting peer pauses between two tries at most.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Held {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

pub(crate) trait Peer: Send + Sync {
    /// Takes the lock; `None` when somebody else has it and we do not wait.
    fn acquire(&self, name: &str, lease: Duration, wait: bool) -> Result<Option<Held>, String>;

    /// Extends the lock; `None` when the peer cannot do that at all.
    fn extend(&self, held: &Held, lease: Duration) -> Result<Option<bool>, String>;

    fn release(&self, held: &Held);
}

/// Opens a peer by its name, and returns its version.
pub(crate) fn open(name: &str, urls: &[String]) -> Result<(Arc<dyn Peer>, &'static str), String> {
    match name {
        "rslock" => Ok((Arc::new(Rslock::open(urls)?), "0.10.0")),
        "redlock" => Ok((Arc::new(Redlock::open(urls)), "2.0.0")),
        _ => Err(format!("no peer is called `{name}`")),
    }
}

/// The crate `rslock`: the key is the name as it is.
struct Rslock {
    runtime: Runtime,
    once: rslock::LockManager,
}

impl Rslock {
    fn open(urls: &[String]) -> Result<Rslock, String> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let mut once = rslock::LockManager::new(urls.to_vec());
        once.set_retry(1, PAUSE);
        Ok(Rslock { runtime, once })
    }

    fn lock(&self, held: &Held) -> rslock::Lock {
        rslock::Lock {
            resource: held.key.clone(),
            val: held.value.clone(),
            validity_time: 0,
            lock_manager: self.once.clone(),
        }
    }
}

impl Peer for Rslock {
    fn acquire(&self, name: &str, lease: Duration, wait: bool) -> Result<Option<Held>, String> {
        let taken = self.runtime.block_on(async {
            loop {
                match self.once.lock(name, lease).await {
                    Err(rslock::LockError::Unavailable) if wait => tokio::time::sleep(PAUSE).await,
                    other => return other,
                }
            }
        });
        match taken {
            Ok(lock) => Ok(Some(Held { key: lock.resource, value: lock.val })),
            Err(rslock::LockError::Unavailable) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn extend(&self, held: &Held, lease: Duration) -> Result<Option<bool>, String> {
        match self.runtime.block_on(self.once.extend(&self.lock(held), lease)) {
            Ok(_) => Ok(Some(true)),
            Err(rslock::LockError::Unavailable) => Ok(Some(false)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn release(&self, held: &Held) {
        self.runtime.block_on(self.once.unlock(&self.lock(held)));
    }
}

/// The crate `redlock`: the key is the name as it is. It cannot extend.
struct Redlock {
    once: redlock::RedLock,
}

impl Redlock {
    fn open(urls: &[String]) -> Redlock {
        let mut once = redlock::RedLock::new(urls.iter().map(String::as_str).collect());
        // Also after its last try it pauses.
        once.set_retry(1, u32::try_from(PAUSE.as_millis()).unwrap_or(1));
        Redlock { once }
    }
}

impl Peer for Redlock {
    fn acquire(&self, name: &str, lease: Duration, wait: bool) -> Result<Option<Held>, String> {
        let ms = usize::try_from(lease.as_millis()).map_err(|_| "too long")?;
        loop {
            match self.once.lock(name.as_bytes(), ms) {
                Ok(Some(lock)) => return Ok(Some(Held { key: lock.resource, value: lock.val })),
                Ok(None) if wait => {}
                Ok(None) => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn extend(&self, _held: &Held, _lease: Duration) -> Result<Option<bool>, String> {
        Ok(None)
    }

    fn release(&self, held: &Held) {
        self.once.unlock(&redlock::Lock {
            resource: held.key.clone(),
            val: held.value.clone(),
            validity_time: 0,
            lock_manager: &self.once,
        });
    }
}
