//! What is over is still shown: holds, tokens, waits, contention.

use std::time::Duration;

use crate::ground::{DEADLINE, Ground};

#[tokio::test]
async fn a_hold_that_is_over_stays_in_the_history() {
    let ground = Ground::start().await;
    let options = holdline::LockOptions::default().with_reason("nightly report");
    let lock = ground.client.mutex_with("job", &options).expect("a name");
    let guard = lock.lock().await.expect("free");
    ground.until("/dashboard/lock?name=job", "<td>held</td>").await;
    let token = guard.fencing_token();
    let _ = guard.release().await;
    // The history may not know of the end yet.
    let lock = ground.get("/dashboard/lock?name=job").await.body;
    assert!(lock.contains("Free: nobody holds") && !lock.contains("<td>held</td>"), "{lock}");
    let lock = ground.until("/dashboard/lock?name=job", "<td>released</td>").await.body;
    assert!(lock.contains("Free: nobody holds"), "{lock}");
    assert!(lock.contains("<td class=\"prose\">nightly report</td>"), "why it was held: {lock}");
    assert!(lock.contains("How long it was held") && lock.contains("<svg"), "{lock}");
    assert!(lock.contains(&format!("scope=\"row\">{token}</th>")), "the token: {lock}");
    let timeline = ground.get("/dashboard/timeline").await.body;
    assert!(timeline.contains("job") && timeline.contains("class=\"bar\""), "{timeline}");
    let none = ground.get("/dashboard/timeline?lost=yes").await.body;
    assert!(none.contains("No hold was seen"), "{none}");
}

#[tokio::test]
async fn a_page_that_is_loaded_is_not_older_than_a_moment() {
    let ground = Ground::start().await;
    let empty = ground.until("/dashboard/locks", "No name that is held").await.body;
    assert!(!empty.contains("href=\"/dashboard/lock?"), "{empty}");
    let guard = ground.client.mutex("job").expect("a name").lock().await.expect("free");
    let old = Duration::from_millis(600); // the last round is too old, and the next one not due
    tokio::time::sleep(old).await; // event: only time makes a round old
    let page = ground.get("/dashboard/locks").await.body;
    assert!(page.contains("href=\"/dashboard/lock?"), "{page}");
    let _ = guard.release().await;
}

#[tokio::test]
async fn a_lease_that_ran_out_is_lost() {
    let ground = Ground::start().await;
    let options = holdline::LockOptions::default().with_lease_duration(Duration::from_secs(3));
    let lock = ground.client.mutex_with("job", &options).expect("a name");
    // A detached lease: nobody renews it.
    let lease = lock.lock().await.expect("free").detach().await.expect("detached");
    ground.until("/dashboard/lock?name=job", "<td>held</td>").await;
    let page = ground.until("/dashboard/lock?name=job", "perhaps expired").await.body;
    assert!(page.contains("class=\"lost\""), "it is red: {page}");
    ground.until("/dashboard/timeline?lost=yes", "perhaps expired").await;
    drop(lease);
}

#[tokio::test]
async fn waiting_is_charged_to_who_holds() {
    let ground = Ground::start().await;
    let guard = ground.client.mutex("job").expect("a name").lock().await.expect("free");
    let waiter = ground.client.mutex("job").expect("a name");
    let waiting = tokio::spawn(async move { waiter.lock().await });
    let page = ground.until("/dashboard/lock?name=job", "1 of 1").await.body;
    assert!(page.contains("likely wait is not known"), "{page}");
    let page = ground.until("/dashboard/contention", "By holder").await.body;
    assert!(page.contains("job"), "{page}");
    let _ = guard.release().await;
    let guard = tokio::time::timeout(DEADLINE, waiting).await.expect("in time").expect("no panic");
    ground.until("/dashboard/lock?name=job", "<td>released</td>").await;
    let _ = guard.expect("granted").release().await;
}
