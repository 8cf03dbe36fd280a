//! Writers at once, whose tokens interleave: what every fence makes of them.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use holdline_fence::FenceError;

use crate::support::soon;

pub(crate) const WRITERS: u64 = 4;
const ROUNDS: u64 = 50;
/// The largest token of all writers.
pub(crate) const LARGEST: u64 = WRITERS * ROUNDS;

/// How a writer of a database writes.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// The fence runs the write in a transaction of its own.
    Write,
    /// The writer seals, and writes in the same transaction.
    Seal,
}

impl Way {
    /// Half of the writers use each way, at the same time.
    pub(crate) fn of(writer: u64) -> Way {
        if writer.is_multiple_of(2) { Way::Write } else { Way::Seal }
    }
}

/// The tokens of one writer: those of all writers interleave, as if the name went round.
pub(crate) fn tokens_of(writer: u64) -> impl Iterator<Item = u64> {
    (0..ROUNDS).map(move |round| 1 + round * WRITERS + writer)
}

/// Whether a write was acknowledged; if not, it must have been refused as stale.
pub(crate) fn is_acknowledged(number: u64, answer: Result<(), FenceError>) -> bool {
    match answer {
        Ok(()) => true,
        Err(FenceError::Stale(stale)) => {
            assert!(stale.mine.get() == number && stale.seen > stale.mine, "{stale}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// What is stored is what was acknowledged, no more and no less, in the order of the tokens.
pub(crate) fn judge(stored: &[u64], acknowledged: &[u64]) {
    assert!(stored.is_sorted_by(|a, b| a < b), "out of order: {stored:?}");
    judge_acknowledged(acknowledged);
    let acknowledged: BTreeSet<u64> = acknowledged.iter().copied().collect();
    assert_eq!(stored.iter().copied().collect::<BTreeSet<u64>>(), acknowledged);
}

/// No token was acknowledged twice, and the largest was acknowledged.
pub(crate) fn judge_acknowledged(acknowledged: &[u64]) {
    let distinct: BTreeSet<u64> = acknowledged.iter().copied().collect();
    assert_eq!(distinct.len(), acknowledged.len(), "a token was acknowledged twice");
    assert!(distinct.contains(&LARGEST), "the largest token is never refused");
}

/// Runs a thread for each writer, which writes by what `open` returns for it. Returns the
/// acknowledged tokens.
pub(crate) fn in_threads<W>(open: impl Fn(u64) -> W + Sync) -> Vec<u64>
where
    W: FnMut(u64) -> Result<(), FenceError>,
{
    let open = &open;
    let run = |writer| {
        let mut write = open(writer);
        tokens_of(writer).filter(|n| is_acknowledged(*n, write(*n))).collect::<Vec<u64>>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || run(writer))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Writes by a connection for each writer, at once, and judges what is stored.
pub(crate) async fn in_tasks<D>(
    connect: impl AsyncFn() -> D,
    write: impl AsyncFn(&mut D, u64, Way) -> Result<(), FenceError>,
    stored: impl FnOnce() -> Vec<String>,
) {
    let connections = join_all((0..WRITERS).map(|_| connect())).await;
    let writers = (0..WRITERS).zip(connections).map(async |(writer, mut db)| {
        let mut acknowledged = Vec::new();
        for number in tokens_of(writer) {
            if is_acknowledged(number, write(&mut db, number, Way::of(writer)).await) {
                acknowledged.push(number);
            }
        }
        acknowledged
    });
    let acknowledged = soon("the writers", join_all(writers)).await.concat();
    let stored: Vec<u64> = stored().iter().map(|n| n.parse().expect("a number")).collect();
    judge(&stored, &acknowledged);
}
