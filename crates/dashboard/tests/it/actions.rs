//! Revoke, freeze and unfreeze by forms.

use holdline::{LockName, Mutex, RiskReason};

use crate::ground::Ground;

const LOCK: &str = "/dashboard/lock?name=deploy";

fn mutex(ground: &Ground) -> Mutex {
    ground.client.mutex("deploy").expect("a name")
}

#[tokio::test]
async fn a_revoke_compares_the_token_that_was_shown() {
    let ground = Ground::start().await;
    let guard = mutex(&ground).lock().await.expect("free");
    let page = ground.get(LOCK).await;
    let token = guard.fencing_token().to_string();
    assert!(page.body.contains(&format!("name=\"token\" value=\"{token}\"")), "{}", page.body);
    let form = |token: &str, more: &str| {
        let form_token = page.form_token();
        format!("form_token={form_token}&name=deploy&token={token}&reason=stuck{more}")
    };
    let stale = ground.post("/dashboard/lock/revoke", "", &form("999", "")).await;
    assert_eq!(stale.status, 409, "{stale:?}");
    assert!(stale.body.contains("fencing token") && stale.body.contains("What to do"));
    assert!(guard.is_valid(), "nothing was changed");
    let done = ground.post("/dashboard/lock/revoke", "", &form(&token, "")).await;
    let to = done.header("location").expect("a page").to_owned();
    assert_eq!((done.status, to.as_str()), (303, "/dashboard/lock?name=deploy&done=notified"));
    assert!(matches!(guard.at_risk().await, RiskReason::Revoked { .. }));
    let after = ground.get(&to).await.body;
    assert!(after.contains("The holder is notified"), "{after}");
}

#[tokio::test]
async fn a_name_is_freed_at_once_only_when_that_was_asked() {
    let ground = Ground::start().await;
    let guard = mutex(&ground).lock().await.expect("free");
    let form = format!(
        "form_token={}&name=deploy&token={}&reason=gone&force=yes",
        ground.get(LOCK).await.form_token(),
        guard.fencing_token()
    );
    let done = ground.post("/dashboard/lock/revoke", "", &form).await;
    assert_eq!(done.header("location"), Some("/dashboard/lock?name=deploy&done=revoked"));
    let name = LockName::new("deploy").expect("a name");
    assert!(!ground.client.admin().inspect(&name).await.expect("a store").is_held());
}

#[tokio::test]
async fn a_waiter_is_removed_by_the_form_of_its_lock() {
    let ground = Ground::start().await;
    let guard = mutex(&ground).lock().await.expect("free");
    assert!(!ground.get(LOCK).await.body.contains("Remove a waiter"), "nobody waits");
    let other = mutex(&ground);
    let waits = tokio::spawn(async move { other.lock().await });
    let name = LockName::new("deploy").expect("a name");
    let waiter = loop {
        let queue = ground.client.admin().inspect(&name).await.expect("a store").queue;
        if let Some(waiter) = queue.first() {
            break waiter.lease_id;
        }
        tokio::task::yield_now().await;
    };
    let page = ground.get(LOCK).await;
    assert!(page.body.contains(&format!("option value=\"{waiter}\"")), "{}", page.body);
    let form = |id: &str| {
        format!("form_token={}&name=deploy&waiter={id}&reason=drained", page.form_token())
    };
    let path = "/dashboard/lock/remove-waiter";
    for (id, status) in [("00000000", 404), ("nobody", 422)] {
        assert_eq!(ground.post(path, "", &form(id)).await.status, status, "{id}");
    }
    let done = ground.post(path, "", &form(&waiter.to_string())).await;
    let to = done.header("location").expect("a page").to_owned();
    assert_eq!((done.status, to.as_str()), (303, "/dashboard/lock?name=deploy&done=removed"));
    assert!(ground.get(&to).await.body.contains("The waiter is removed"));
    assert!(waits.await.expect("no panic").is_err_and(|error| error.is_lost()));
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_freeze_is_set_shown_and_ended() {
    let ground = Ground::start().await;
    let token = ground.get("/dashboard/lock?name=deploy").await.form_token();
    let form = format!("form_token={token}&name=deploy&minutes=90&reason=%3Cb%3E+release");
    let done = ground.post("/dashboard/lock/freeze", "", &form).await;
    assert_eq!(done.header("location"), Some("/dashboard/lock?name=deploy&done=frozen"));
    let page = ground.get(LOCK).await.body;
    assert!(page.contains("Frozen") && page.contains("&lt;b&gt; release"), "{page}");
    ground.until("/dashboard", "is frozen for").await;
    assert!(mutex(&ground).try_lock().await.is_err(), "nobody gets it");
    let form = format!("form_token={token}&name=deploy");
    let done = ground.post("/dashboard/lock/unfreeze", "", &form).await;
    assert_eq!(done.header("location"), Some("/dashboard/lock?name=deploy&done=unfrozen"));
    assert!(mutex(&ground).try_lock().await.is_ok());
    let again = ground.post("/dashboard/lock/unfreeze", "", &form).await;
    assert_eq!(again.status, 404, "{again:?}");
}

#[tokio::test]
async fn a_form_of_another_page_changes_nothing() {
    let ground = Ground::start().await;
    let token = ground.get(LOCK).await.form_token();
    let good = format!("form_token={token}&name=deploy&minutes=5&reason=x");
    let evil = "Origin: http://evil.example\r\n";
    for (headers, form, status) in [
        ("", good.replace(&token, "0"), 403),
        ("", good.replacen("form_token", "other", 1), 403),
        (evil, good.clone(), 403),
        ("Origin: null\r\n", good.clone(), 403),
        ("", good.replace("minutes=5", "minutes=0"), 422),
        ("", good.replace("minutes=5", "minutes=soon"), 422),
        ("", good.replace("&reason=x", ""), 422),
        ("", good.replace("reason=x", &format!("reason={}", "é".repeat(300))), 422),
        ("", good.clone() + "&more=1", 400),
        ("", good.clone() + &"a".repeat(20_000), 413),
    ] {
        let response = ground.post("/dashboard/lock/freeze", headers, &form).await;
        assert_eq!(response.status, status, "{headers}{form:.80}: {response:?}");
        let name = LockName::new("deploy").expect("a name");
        let lock = ground.client.admin().inspect(&name).await.expect("a store");
        assert!(lock.freeze.is_none(), "{form:.80}");
    }
    let ours = "Origin: http://localhost\r\n";
    assert_eq!(ground.post("/dashboard/lock/freeze", ours, &good).await.status, 303);
}
