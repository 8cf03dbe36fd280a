//! The faults that only the owner of the servers can inject.

use std::fmt;

use crate::Fault;

/// One strike at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// What is to be done.
    pub fault: Fault,
    /// The node, by its position in the URL.
    pub node: usize,
    /// A number of the seed's, for what has a size or a direction.
    pub dice: u64,
}

/// Has power over the servers behind a URL.
///
/// The calls block, one at a time, on a thread of their own.
pub trait Nemesis: Send + Sync + 'static {
    /// Returns the faults of servers that it can do.
    fn faults(&self) -> Vec<Fault>;

    /// Does one. Returns when it is done: after a restart, when the node answers.
    ///
    /// # Errors
    /// It could not be done, in words; the run ends with them.
    fn strike(&self, injection: Injection) -> Result<(), String>;

    /// Heals a fault that [lasts](Fault::lasts).
    ///
    /// # Errors
    /// It could not be healed; the run ends with this message.
    fn heal(&self, injection: Injection) -> Result<(), String>;
}

impl fmt::Debug for dyn Nemesis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nemesis({:?})", self.faults())
    }
}

/// Has no power over any server.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithoutServers;

impl Nemesis for WithoutServers {
    fn faults(&self) -> Vec<Fault> {
        Vec::new()
    }

    fn strike(&self, injection: Injection) -> Result<(), String> {
        Err(format!("no nemesis for {}", injection.fault))
    }

    fn heal(&self, _injection: Injection) -> Result<(), String> {
        Ok(())
    }
}
