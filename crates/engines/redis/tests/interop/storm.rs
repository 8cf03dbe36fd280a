//! Contenders of both sides on one name.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::driver::Driver;
use crate::observer::{Observer, Seen};
use crate::ours::{Ours, contend, told};

/// By when all must have had their turns.
const LIMIT: Duration = Duration::from_secs(60);

/// So many of ours and as many of theirs, each so many times.
pub(crate) struct Storm {
    pub(crate) contenders: usize,
    pub(crate) rounds: usize,
    /// The lease of theirs.
    pub(crate) lease: Duration,
}

impl Storm {
    /// All enter, and nobody beside another.
    pub(crate) async fn of_both(
        &self,
        name: &str,
        ours: &Ours,
        driver: &mut Driver,
    ) -> Result<(), String> {
        let Storm { contenders, rounds, lease } = self;
        let observer = Observer::start();
        let port = observer.port;
        let words = format!("{} {contenders} {rounds} {port}", lease.as_millis());
        driver.send(&format!("contend {name} {words}"))?;
        let mut running = JoinSet::new();
        for _ in 0..*contenders {
            running.spawn(contend(ours.mutex(name)?, *rounds, port));
        }
        let ends = async {
            while let Some(ended) = running.join_next().await {
                ended.map_err(told)??;
            }
            Ok::<(), String>(())
        };
        let ended = tokio::time::timeout(LIMIT, ends).await;
        ended.map_err(|_| format!("ours did not end: {:?}", observer.seen()))??;
        let heard = driver.answer().await?;
        ensure!(heard == format!("done {}", contenders * rounds), "it ended with `{heard}`");
        let wanted = Seen { inside: 0, entered: 2 * contenders * rounds, overlaps: 0 };
        ensure!(observer.seen() == wanted, "{:?} instead of {wanted:?}", observer.seen());
        Ok(())
    }
}
