//! What the tests share: engines, and contenders that ask by hand.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
pub(crate) use holdline_conformance::contender::{LONG, contender, hint, next_hint, until};
use holdline_core::LockError;
use holdline_etcd::{EtcdEngine, EtcdOptions};

pub(crate) type Contender = holdline_conformance::contender::Contender<EtcdEngine>;

/// An engine over this URL.
pub(crate) async fn engine(url: &str) -> EtcdEngine {
    connect(url).await.expect("connected")
}

pub(crate) async fn connect(url: &str) -> Result<EtcdEngine, LockError> {
    let mut options = EtcdOptions::from_url(url)?;
    if !url.contains("timeout_ms") {
        // Limits that a machine that is busy does not meet.
        options = options.with_command_timeout(LONG).with_connect_timeout(LONG);
    }
    EtcdEngine::connect(&options, Arc::new(MachineClock)).await
}
