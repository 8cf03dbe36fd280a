//! Contenders of both sides on one name.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::driver::Driver;
use crate::observer::{Observations, Observer};
use crate::ours::{Ours, contend, message_of};

/// The time limit for all turns.
const LIMIT: Duration = Duration::from_secs(60);

/// The number of contenders of each side, and of their turns.
pub(crate) struct Storm {
    pub(crate) contenders: usize,
    pub(crate) rounds: usize,
    /// The lease of the other side.
    pub(crate) lease: Duration,
}

impl Storm {
    /// All enter, and no two at once.
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
                ended.map_err(message_of)??;
            }
            Ok::<(), String>(())
        };
        let ended = tokio::time::timeout(LIMIT, ends).await;
        ended.map_err(|_| format!("ours did not end: {:?}", observer.seen()))??;
        let answer = driver.answer().await?;
        ensure!(answer == format!("done {}", contenders * rounds), "it ended with `{answer}`");
        let wanted = Observations { inside: 0, entered: 2 * contenders * rounds, overlaps: 0 };
        ensure!(observer.seen() == wanted, "{:?} instead of {wanted:?}", observer.seen());
        Ok(())
    }
}
