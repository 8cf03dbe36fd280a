//! What operators read in the log, in the world of [`super::world`].

use super::world::{SECOND, World};
use super::*;
use std::io::Write;
use tracing_subscriber::fmt::MakeWriter;

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

impl Log {
    fn mentions(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock()).contains(words)
    }
}

#[tokio::test]
async fn another_server_on_the_same_port_is_logged() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    // While there is only one subscriber, a thread without one decides for all what is logged.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let _guard = tracing::subscriber::set_default(subscriber);
    let world = World::new("redis://h?protocol=resp2");
    for (run_id, is_logged) in [("ab", false), ("ab", false), ("cd", true)] {
        let mut peer = world.accepts().await;
        peer.shakes_hands_as(run_id).await;
        world.settle().await;
        world.link.ready().await.expect("a connection");
        assert_eq!(log.mentions("another server than before"), is_logged, "{run_id}");
        drop(peer);
        world.settle().await;
        world.clock.advance(SECOND);
    }
}
