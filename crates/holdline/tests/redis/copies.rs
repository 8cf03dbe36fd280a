//! A copy of this process by `fork`. The tests of other engines use it too.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fork::{Fork, fork, waitpid};
use rustix::process::{Signal, getpid, kill_process};

/// Runs `work` in a copy of this process, which then dies without a word to anybody, and returns
/// what it has written.
pub(crate) fn in_a_copy(work: impl FnOnce() -> String) -> String {
    let (mut here, mut there) = UnixStream::pair().expect("a pair");
    match fork().expect("a copy") {
        Fork::Child => {
            let result = catch_unwind(AssertUnwindSafe(work));
            let text = result.unwrap_or_else(|_| "it panicked".to_owned());
            // A failure to write cannot be reported to anybody.
            let _ = there.write_all(text.as_bytes());
            // No destructor and no handler of the parent's may run here.
            let _ = kill_process(getpid(), Signal::KILL);
            unreachable!("killed");
        }
        Fork::Parent(copy) => {
            drop(there);
            let mut written = String::new();
            here.read_to_string(&mut written).expect("text");
            waitpid(copy).expect("our copy");
            written
        }
    }
}
