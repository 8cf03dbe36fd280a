//! What users lock with. Each primitive has a file, which also adds to [`Client`](crate::Client)
//! the methods that describe it. Elections and jobs that run once have modules of their own.

pub(crate) mod all;
pub(crate) mod any_of;
pub mod by_mode;
pub(crate) mod counting_semaphore;
pub(crate) mod latch;
pub(crate) mod mutex;
pub(crate) mod owner;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
