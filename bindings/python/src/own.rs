//! A value that only the process that made it may use or drop.
//!
//! A forked child has the parent's memory, but none of its threads: a mutex may be locked for ever.

use std::ops::Deref;

/// A value of this process. A forked child leaks it.
pub(crate) struct Own<T> {
    process: u32,
    /// There until the drop.
    value: Option<T>,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Own<T> {
        Own { process: std::process::id(), value: Some(value) }
    }

    /// Whether this process made the value.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("only the drop takes it"),
        }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}
