//! Login, sessions, rights, prefixes, stores.

use crate::ground::{Ground, OTHER, S3CRET, token};

/// Logs in, and returns the header with the cookie.
pub(crate) async fn log_in(ground: &Ground, token: &str) -> String {
    let form = format!("token={token}&next=%2Fdashboard%2Flocks");
    let response = ground.post("/dashboard/login", "", &form).await;
    assert_eq!(response.status, 303, "{response:?}");
    assert_eq!(response.header("location"), Some("/dashboard/locks"));
    let cookie = response.header("set-cookie").expect("a cookie");
    for has in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(cookie.contains(has), "{cookie}");
    }
    assert!(!cookie.contains(token), "the token is not the cookie: {cookie}");
    format!("Cookie: {}\r\n", cookie.split(';').next().expect("a pair"))
}

#[tokio::test]
async fn a_page_asks_for_a_token_and_a_session_replaces_it() {
    let ground = Ground::with(&token("ana", S3CRET, r#"["view", "operate"]"#, "")).await;
    let page = ground.get("/dashboard/locks?q=a").await;
    assert_eq!(page.status, 401, "{page:?}");
    assert!(page.body.contains("type=\"password\""), "{}", page.body);
    assert!(page.body.contains("value=\"/dashboard/locks?q=a\""), "where to go then");
    for path in ["/dashboard", "/dashboard/live", "/dashboard/lock?name=a"] {
        assert_eq!(ground.get(path).await.status, 401, "{path}");
    }
    let wrong = ground.post("/dashboard/login", "", "token=wrong").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    assert!(!wrong.body.contains("wrong"), "the token is on no page: {}", wrong.body);

    let cookie = log_in(&ground, "s3cret").await;
    let page = ground.get_with("/dashboard", &cookie).await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("You are ana") && !page.body.contains("s3cret"), "{}", page.body);
    let other = cookie.replace('=', "=0");
    assert_eq!(ground.get_with("/dashboard", &other).await.status, 401);

    let form = format!("form_token={}", page.form_token());
    let out = ground.post("/dashboard/logout", &cookie, &form).await;
    assert_eq!(out.status, 303, "{out:?}");
    assert!(out.header("set-cookie").expect("one").contains("Max-Age=0"));
    assert_eq!(ground.get_with("/dashboard", &cookie).await.status, 401, "the session is over");
}

#[tokio::test]
async fn a_cookie_goes_over_tls_only_if_the_browser_came_by_tls() {
    let ground = Ground::with(&token("ana", S3CRET, r#"["view"]"#, "")).await;
    for (origin, is_secure) in [
        ("", false),
        ("Origin: http://localhost\r\n", false),
        ("Origin: https://localhost\r\n", true),
    ] {
        let response = ground.post("/dashboard/login", origin, "token=s3cret").await;
        let cookie = response.header("set-cookie").expect("a cookie");
        assert_eq!(cookie.ends_with("; Secure"), is_secure, "{origin}{cookie}");
    }
}

#[tokio::test]
async fn a_login_leads_nowhere_else() {
    let ground = Ground::with(&token("ana", S3CRET, r#"["view"]"#, "")).await;
    for next in ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2Fdashboard%5C.."] {
        let form = format!("token=s3cret&next={next}");
        let response = ground.post("/dashboard/login", "", &form).await;
        assert_eq!(response.header("location"), Some("/dashboard"), "{next}");
    }
    let evil = "Origin: http://evil.example\r\n";
    let refused = ground.post("/dashboard/login", evil, "token=s3cret").await;
    assert_eq!((refused.status, refused.header("set-cookie")), (403, None));
}

#[tokio::test]
async fn rights_are_those_of_the_api() {
    let tokens = token("viewer", S3CRET, r#"["view"]"#, "prefixes = [\"ci/\"]")
        + &token("locker", OTHER, r#"["lock"]"#, "");
    let ground = Ground::with(&tokens).await;
    for name in ["ci/build", "prod"] {
        std::mem::forget(ground.client.mutex(name).expect("a name").lock().await.expect("free"));
    }
    let viewer = log_in(&ground, "s3cret").await;
    let locks = loop {
        let page = ground.get_with("/dashboard/locks", &viewer).await;
        assert_eq!(page.status, 200, "{page:?}");
        if page.body.contains("ci/build") {
            break page;
        }
    };
    assert!(!locks.body.contains("prod"), "names outside the prefixes: {}", locks.body);
    for path in ["/dashboard/timeline", "/dashboard/contention", "/dashboard"] {
        let page = ground.get_with(path, &viewer).await;
        assert!(page.status == 200 && !page.body.contains("prod"), "{path}: {page:?}");
    }
    assert_eq!(ground.get_with("/dashboard/lock?name=prod", &viewer).await.status, 403);
    let lock = ground.get_with("/dashboard/lock?name=ci/build", &viewer).await;
    assert!(lock.status == 200 && !lock.body.contains("/lock/revoke"), "no form: {lock:?}");
    let form = format!("form_token={}&name=ci/build&minutes=5&reason=x", locks.form_token());
    let refused = ground.post("/dashboard/lock/freeze", &viewer, &form).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.body.contains("operate"), "{}", refused.body);
    let locker = log_in(&ground, "other").await;
    assert_eq!(ground.get_with("/dashboard", &locker).await.status, 403, "no right to view");
}

#[tokio::test]
async fn a_token_is_good_for_its_stores() {
    let config = token("eu", S3CRET, r#"["view"]"#, "stores = [\"eu\"]");
    let (first, eu) = (crate::ground::store().await, crate::ground::store().await);
    let ground = Ground::of(first, vec![("eu", eu)], &config).await;
    let cookie = log_in(&ground, "s3cret").await;
    let page = ground.get_with("/stores/eu/dashboard", &cookie).await;
    assert_eq!(page.status, 200);
    assert!(!page.body.contains(">default<"), "no name of a store that is not theirs: {page:?}");
    assert_eq!(ground.get_with("/dashboard", &cookie).await.status, 403);
}
