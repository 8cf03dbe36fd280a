//! The grants of a client that are held by owners.

use std::collections::HashMap;
use std::sync::Arc;

use holdline_core::LockName;
use parking_lot::Mutex;

use super::registry::Key;
use crate::grant::Grant;

/// The name and the number of the owner.
pub(crate) type NestKey = (LockName, u64);

/// The grants of one client that are held by an owner.
#[derive(Default)]
pub(crate) struct Nests(pub(crate) Mutex<HashMap<NestKey, SharedNest>>);

/// A nest, as long as a guard or an attempt uses it.
#[derive(Default)]
pub(crate) struct SharedNest {
    pub(crate) nest: Arc<Nest>,
    /// The number of its handles.
    pub(crate) users: usize,
}

/// What the guards and attempts of one owner for one name share.
#[derive(Default)]
pub(crate) struct Nest {
    /// Allows one attempt of an owner at a time; the others share its grant.
    pub(crate) attempt_lock: tokio::sync::Mutex<()>,
    pub(crate) inside: Mutex<Inside>,
}

/// The guards inside a nest, and their grant.
#[derive(Default)]
pub(crate) struct Inside {
    pub(crate) depth: usize,
    pub(crate) grant: Option<(Arc<Grant>, Key)>,
}
