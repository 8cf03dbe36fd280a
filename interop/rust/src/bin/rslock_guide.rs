//! The program of the guide for rslock (`docs/migrate/rslock.md`), run by the interop tests.
//!
//! Usage: `rslock_guide redis://host:port`.

use std::time::Duration;

fn main() {
    let url = std::env::args().nth(1).expect("the URL of a server");
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(report(url));
}

async fn report(url: String) {
    let manager = rslock::LockManager::new(vec![url]);
    let lock = match manager.lock("nightly-report", Duration::from_secs(30)).await {
        Ok(lock) => lock,
        Err(rslock::LockError::Unavailable) => return println!("busy"),
        Err(error) => panic!("{error}"),
    };
    println!("held");
    manager.unlock(&lock).await;
}
