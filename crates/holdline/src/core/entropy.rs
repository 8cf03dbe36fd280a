//! The source of lease ids.

use holdline_core::{ClientId, Entropy, LeaseId};
use parking_lot::Mutex;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};

/// Random bytes from a generator of its own, seeded by the machine.
///
/// It is not the thread's generator: a forked child would repeat the lease ids of its parent.
pub(crate) struct SystemEntropy(StdRng);

impl SystemEntropy {
    /// Draws a seed from the machine.
    pub(crate) fn new() -> Result<SystemEntropy, impl std::error::Error + Send + Sync + 'static> {
        StdRng::try_from_rng(&mut SysRng).map(SystemEntropy)
    }
}

impl Entropy for SystemEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

/// A client's source of random bytes.
pub(crate) struct Source(Mutex<Box<dyn Entropy + Send>>);

impl Source {
    pub(crate) fn new(entropy: Box<dyn Entropy + Send>) -> Source {
        Source(Mutex::new(entropy))
    }

    pub(crate) fn lease_id(&self) -> LeaseId {
        LeaseId::random(&mut **self.0.lock())
    }

    pub(crate) fn client_id(&self) -> ClientId {
        ClientId::random(&mut **self.0.lock())
    }

    pub(crate) fn number(&self) -> u32 {
        let mut bytes = [0; 4];
        self.0.lock().fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }
}
