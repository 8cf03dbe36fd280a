//! Writers at once, whose tokens interleave: what every fence of a database makes of them.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use holdline::fence::FenceError;

use crate::support::soon;

const WRITERS: usize = 4;
const ROUNDS: usize = 15;

/// Two ways to the same end.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// The fence runs the write in a transaction of its own.
    Write,
    /// The writer seals, and writes in the same transaction.
    Seal,
}

/// Has each connection write its numbers, each with itself for a token. What was refused is not
/// stored, and the rest is stored in the order of the tokens.
pub(crate) async fn store_in_the_order_of_their_tokens<D>(
    connections: [D; WRITERS],
    write: impl AsyncFn(&mut D, u64, Way) -> Result<(), FenceError>,
    stored: impl FnOnce() -> Vec<String>,
) {
    let numbers = |writer| (writer + 1..).step_by(WRITERS).take(ROUNDS);
    let writers = connections.into_iter().enumerate().map(async |(writer, mut db)| {
        // The ways stand side by side.
        let way = if writer % 2 == 0 { Way::Write } else { Way::Seal };
        let mut acknowledged = Vec::new();
        for number in numbers(writer) {
            let number = u64::try_from(number).expect("small");
            match write(&mut db, number, way).await {
                Ok(()) => acknowledged.push(number),
                Err(FenceError::Stale(stale)) => assert!(stale.seen > stale.mine),
                Err(error) => panic!("{error}"),
            }
        }
        acknowledged
    });
    let acknowledged = soon("the writers", join_all(writers)).await.concat();
    let stored: Vec<u64> = stored().iter().map(|n| n.parse().expect("a number")).collect();
    assert!(stored.is_sorted_by(|a, b| a < b), "out of order: {stored:?}");
    let acknowledged: BTreeSet<u64> = acknowledged.into_iter().collect();
    assert_eq!(stored.iter().copied().collect::<BTreeSet<u64>>(), acknowledged);
    let largest = u64::try_from(WRITERS * ROUNDS).expect("small");
    assert!(stored.contains(&largest), "the largest token is never refused");
}

/// A connection for each writer.
pub(crate) async fn connections<D>(connect: impl AsyncFn() -> D) -> [D; WRITERS] {
    [connect().await, connect().await, connect().await, connect().await]
}
