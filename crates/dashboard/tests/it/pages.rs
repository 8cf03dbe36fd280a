//! Each page, its filters, hostile text, several stores, bad input.

use std::time::Duration;

use holdline::{Client, LockOptions};
use holdline_services::{RedisConfig, RedisServer};

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::ground::{DEADLINE, Ground, store};

const PAGES: [&str; 8] = [
    "/dashboard",
    "/dashboard/locks",
    "/dashboard/lock?name=a",
    "/dashboard/timeline",
    "/dashboard/contention",
    "/dashboard/quorum",
    "/dashboard/stores",
    "/dashboard/audit",
];

#[tokio::test]
async fn each_page_is_whole_and_loads_nothing_from_elsewhere() {
    let ground = Ground::start().await;
    for path in PAGES {
        let page = ground.get(path).await;
        assert_eq!(page.status, 200, "{path}: {page:?}");
        let policy = page.header("content-security-policy").expect("a policy");
        for says in ["default-src 'none'", "script-src 'self'", "style-src 'self'"] {
            assert!(policy.contains(says), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("data:"), "{policy}");
        assert_eq!(page.header("referrer-policy"), Some("same-origin"), "forms send an origin");
        assert_eq!(page.header("x-frame-options"), Some("DENY"));
        assert_eq!(page.header("cache-control"), Some("no-store"));
        let body = &page.body;
        for has in ["<main id=\"main\"", "href=\"#main\"", "<nav", "<h1>", "seen since"] {
            assert!(body.contains(has), "{path} lacks {has}");
        }
        for lacks in [" style=", "<style", " onclick", "http:", "https:", "<script>"] {
            assert!(!body.contains(lacks), "{path} has {lacks}");
        }
        for attribute in ["src=\"", "rel=\"stylesheet\" href=\"", "svg+xml\" href=\""] {
            let (_, rest) = body.split_once(attribute).expect("a file");
            let file = ground.get(rest.split('"').next().expect("a path")).await;
            assert_eq!(file.status, 200, "{file:?}");
            assert!(file.header("cache-control").expect("a header").contains("max-age"));
        }
    }
    let root = ground.get("/").await;
    assert_eq!((root.status, root.header("location")), (303, Some("/dashboard")));
}

#[tokio::test]
async fn locks_are_filtered_and_sorted_by_the_url() {
    let ground = Ground::start().await;
    for name in ["db/backup", "db/vacuum", "web/deploy"] {
        let options = LockOptions::default().with_reason(format!("for {name}"));
        let lease = ground.client.mutex_with(name, &options).expect("a name");
        std::mem::forget(lease.lock().await.expect("free"));
    }
    let all = ground.until("/dashboard/locks", "web/deploy").await.body;
    for shows in ["3 names", "db/backup", "db/vacuum", "for web/deploy", "<meter"] {
        assert!(all.contains(shows), "{shows}: {all}");
    }
    let pid = std::process::id().to_string();
    assert!(all.contains(&pid), "the pid of the holder");
    let names = |body: &str| -> Vec<&'static str> {
        let mut found: Vec<(usize, &str)> = ["db/backup", "db/vacuum", "web/deploy"]
            .into_iter()
            .filter_map(|name| Some((body.find(&format!(">{name}</a>"))?, name)))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, name)| name).collect()
    };
    for (query, shown) in [
        ("", vec!["db/backup", "db/vacuum", "web/deploy"]),
        ("?order=down", vec!["web/deploy", "db/vacuum", "db/backup"]),
        ("?sort=token&order=up", vec!["db/backup", "db/vacuum", "web/deploy"]),
        ("?q=DB/", vec!["db/backup", "db/vacuum"]),
        ("?q=reason%3Adeploy", vec!["web/deploy"]),
        ("?q=name%3Adb+backup", vec!["db/backup"]),
        ("?q=host%3Anowhere", vec![]),
        ("?state=waiting", vec![]),
        ("?state=held&q=web", vec!["web/deploy"]),
    ] {
        let body = ground.get(&format!("/dashboard/locks{query}")).await.body;
        assert_eq!(names(&body), shown, "{query}");
    }
}

/// A page without its hidden fields, which hold names as they are.
fn shown(page: &str) -> String {
    let mut parts = page.split("<input type=\"hidden\"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('>').expect("an end").1)
}

#[tokio::test]
async fn hostile_text_is_shown_and_is_no_markup() {
    let ground = Ground::start().await;
    let name = format!("<script>alert(1)</script>\u{202e}\"'{}", "x".repeat(400));
    let options =
        LockOptions::default().with_reason("</main><img src=x onerror=y>\u{202e}\u{1b}[2J");
    let lock = ground.client.mutex_with(&name, &options).expect("a good name");
    let guard = lock.lock().await.expect("free");
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    ground.until("/dashboard/locks", "&lt;script&gt;alert(1)").await;
    let lock_page = format!("/dashboard/lock?name={encoded}");
    for path in ["/dashboard", "/dashboard/locks", "/dashboard/timeline", &lock_page] {
        let body = shown(&ground.get(path).await.body);
        for bad in ["<script>alert", "<img", "\u{202e}", "\u{1b}"] {
            assert!(!body.contains(bad), "{path} has {bad:?}: {body}");
        }
    }
    let body = ground.get(&lock_page).await.body;
    assert!(body.contains("\\u{202e}") && body.contains("&lt;/main&gt;&lt;img"), "{body}");
    let twisted = ground.get("/dashboard/locks?q=%3Cscript%3E%E2%80%AE").await.body;
    assert!(!twisted.contains("<script>") && twisted.contains("value=\"&lt;script&gt;"));
    let _ = guard.release().await;
}

#[tokio::test]
async fn bad_input_names_the_field_and_the_fix() {
    let ground = Ground::start().await;
    let long = format!("/dashboard/locks?q={}", "a".repeat(600));
    for (path, status, says) in [
        ("/dashboard/locks?page=0", 422, "from 1 to"),
        ("/dashboard/locks?sort=age", 422, "one of name, program"),
        ("/dashboard/locks?state=lost", 422, "one of all, held"),
        ("/dashboard/locks?q=a&q=b", 422, "twice"),
        ("/dashboard/locks?nonsense=1", 400, "`nonsense`"),
        ("/dashboard/locks?q=%FF", 422, "UTF-8"),
        (&long, 422, "at most 512"),
        ("/dashboard/lock", 422, "missing"),
        ("/dashboard/lock?name=%00", 422, "control character"),
        ("/dashboard/timeline?period=1y", 422, "one of 10min"),
        ("/dashboard/contention?x=1", 400, "`x`"),
        ("/dashboard?x=%3Cb%3E", 400, "&lt;b&gt;"),
    ] {
        let path = path.replace("?x=%3Cb%3E", "?%3Cb%3E=1");
        let page = ground.get(&path).await;
        assert_eq!(page.status, status, "{path}: {page:?}");
        assert!(page.body.contains(says), "{path}: {}", page.body);
        assert!(page.body.contains("What to do"), "{path}");
        assert!(page.header("content-security-policy").expect("one").contains("style-src"));
    }
    assert_eq!(ground.get("/dashboard/nonsense").await.status, 404);
    assert_eq!(ground.post("/dashboard/locks", "", "").await.status, 405);
}

#[tokio::test]
async fn each_store_has_its_own_pages() {
    let ground = Ground::of(store().await, vec![("eu", store().await)], "").await;
    let guard = ground.client.mutex("only-here").expect("a name").lock().await.expect("free");
    let page = ground.until("/dashboard/locks", "only-here").await.body;
    assert!(page.contains("href=\"/stores/eu/dashboard/locks\""), "{page}");
    let other = ground.get("/stores/eu/dashboard/locks").await;
    assert_eq!(other.status, 200);
    assert!(!other.body.contains("only-here") && other.body.contains("0 names"), "{}", other.body);
    assert!(other.body.contains("href=\"/dashboard/locks\""), "back to the default store");
    assert_eq!(ground.get("/stores/us/dashboard").await.status, 404);
    let _ = guard.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_said_so_and_comes_back() {
    let server = RedisServer::start(RedisConfig::default());
    let port = server.url().rsplit(':').next().expect("a port").to_owned();
    let client = Client::connect(&server.url()).await.expect("connects");
    let ground = Ground::of(client, Vec::new(), "").await;
    let options = LockOptions::default().with_lease_duration(Duration::from_secs(3));
    let lock = ground.client.mutex_with("a", &options).expect("a name");
    let guard = lock.lock().await.expect("free");
    ground.until("/dashboard/locks", "lock?name=a\"").await;
    ground.until("/dashboard", "answers").await;
    server.kill();
    let page = ground.until("/dashboard", "The store cannot be read").await;
    assert!(page.body.contains("holdline doctor"), "{}", page.body);
    assert!(
        !page.body.contains(&port) && !page.body.contains("os error"),
        "no words of the store: {}",
        page.body
    );
    let lock = ground.get("/dashboard/lock?name=a").await;
    assert_eq!(lock.status, 503, "{lock:?}");
    // Its figures are not new, and its leases run out all the same.
    ground.until("/dashboard/locks", "The table is as of <time").await;
    ground.until("/dashboard/locks", "aria-label=\"Lease left\"></meter> 0 s").await;
    server.restart();
    ground.until("/dashboard", "answers").await;
    drop(guard);
}

#[tokio::test]
async fn a_large_store_is_paged() {
    let ground = Ground::start().await;
    for number in 0..1_050 {
        let lock = ground.client.mutex(format!("n{number:05}")).expect("a name");
        std::mem::forget(lock.lock().await.expect("free"));
    }
    let first = ground.until("/dashboard/locks", "1050 names, page 1 of 11").await.body;
    assert!(first.contains("n00099") && !first.contains("n00100"));
    let last = ground.get("/dashboard/locks?page=11").await.body;
    assert!(last.contains("n01049") && !last.contains("n00999"));
    let beyond = ground.get("/dashboard/locks?page=99").await.body;
    assert!(beyond.contains("page 11 of 11"), "the last page stands for those beyond it");
}

#[tokio::test]
async fn the_stream_says_that_a_page_is_out_of_date_and_no_more() {
    let ground = Ground::start().await;
    let guard = ground.client.mutex("secret-name").expect("a name").lock().await.expect("free");
    let text = ground.follow("/dashboard/live", "event: changed").await;
    assert!(text.to_ascii_lowercase().contains("content-type: text/event-stream"), "{text}");
    assert!(!text.contains("secret-name"), "{text}");
    let _ = guard.release().await;
}

#[tokio::test]
async fn an_open_page_keeps_no_server_from_its_end_and_one_client_cannot_have_all_streams() {
    let limits = "[server.limits]\nevent_streams_per_client = 2\n";
    let mut ground = Ground::with(limits).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(ground.open("/dashboard/live", "event: changed").await.1);
    }
    let refused = ground.get("/dashboard/live").await;
    assert_eq!(refused.status, 429, "{refused:?}");
    ground.stop().await;
    for mut stream in open {
        let mut rest = Vec::new();
        timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("in time").expect("ends");
        assert!(rest.ends_with(b"0\r\n\r\n"), "the stream ends in order");
    }
}
