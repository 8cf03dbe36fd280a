//! The pages of a store's servers: Stores and Quorum.

use holdline_services::{RedisConfig, RedisServer};

use crate::access::log_in;
use crate::ground::{Ground, S3CRET, a_set, token};

#[tokio::test]
async fn a_quorum_shows_its_servers_and_how_many_more_may_fail() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start(RedisConfig::default())).collect();
    let url = a_set(&servers).await;
    let ground = Ground::of_urls(&[("default", &url), ("other", "memory:quorum-other")], "").await;
    let page = ground.until("/dashboard/quorum", "1 more may fail").await;
    for server in &servers {
        assert!(page.body.contains(&server.address().to_string()), "{}", page.body);
    }
    assert_eq!(page.body.matches(">votes<").count(), 3, "{}", page.body);

    servers[0].kill();
    let page = ground.until("/dashboard/quorum", "no more servers may fail").await;
    assert_eq!(page.body.matches(">down<").count(), 1, "{}", page.body);
    assert!(page.body.contains("What to do"), "{}", page.body);
    servers[1].kill();
    ground.until("/dashboard/quorum", "no lock can be acquired").await;

    let other = ground.get("/stores/other/dashboard/quorum").await;
    assert!(other.status == 200 && other.body.contains("it has no votes"), "{other:?}");
}

#[tokio::test]
async fn stores_show_the_checks_and_their_remedies() {
    let config = RedisConfig::default().with_maxmemory("64mb", "allkeys-lru");
    let server = RedisServer::start(config.with_password("hunter2"));
    let url = format!("redis://:hunter2@{}", server.address());
    let ground = Ground::of_urls(&[("default", &url), ("eu", "memory:stores-eu")], "").await;
    let page = ground.until("/dashboard/stores", "allkeys-lru").await;
    for has in [">error<", "It matters: ", "noeviction", ">eu<", "engine memory"] {
        assert!(page.body.contains(has), "{has}: {}", page.body);
    }
    assert!(!page.body.contains("hunter2"), "the password is on no page: {}", page.body);
    let frame = ground.get("/dashboard").await;
    assert!(!frame.body.contains("/dashboard/quorum"), "there is no quorum: {}", frame.body);
}

#[tokio::test]
async fn a_store_of_unknown_url_says_so() {
    let page = Ground::start().await.get("/dashboard/stores").await;
    assert!(page.status == 200 && page.body.contains("without the URL"), "{page:?}");
}

#[tokio::test]
async fn servers_are_shown_to_those_who_may_see_all_names() {
    let config = token("ana", S3CRET, r#"["view"]"#, "prefixes = [\"ci/\"]");
    let ground = Ground::with(&config).await;
    let cookie = log_in(&ground, "s3cret").await;
    for path in ["/dashboard/stores", "/dashboard/quorum"] {
        let page = ground.get_with(path, &cookie).await;
        assert_eq!(page.status, 403, "{path}: {page:?}");
    }
}
