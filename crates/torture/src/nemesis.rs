//! Who does to the servers what only their owner can.

use std::fmt;

use crate::Fault;

/// One strike at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blow {
    /// What is to be done.
    pub fault: Fault,
    /// To which node, by its place in the URL.
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
    fn strike(&self, blow: Blow) -> Result<(), String>;

    /// Mends what [lasts](Fault::lasts).
    ///
    /// # Errors
    /// It could not be mended, in words; the run ends with them.
    fn mend(&self, blow: Blow) -> Result<(), String>;
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

    fn strike(&self, blow: Blow) -> Result<(), String> {
        Err(format!("nobody can do {}", blow.fault))
    }

    fn mend(&self, _blow: Blow) -> Result<(), String> {
        Ok(())
    }
}
