//! The audit trail: by the API, the engine protocol, and the file.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use holdline::Client;
use holdline_server::ServerConfig;
use holdline_services::{RedisConfig, RedisServer};
use serde_json::Value;

use crate::ground::{Ground, Response};
use crate::rights::{OTHER, S3CRET, config};

const ADMIN: &str = "Authorization: Bearer s3cret\r\n";
const CI: &str = "Authorization: Bearer other\r\n";

/// The records of an answer, the newest first: action, name, outcome.
fn shown(response: &Response) -> Vec<(String, String, String)> {
    let json = response.json();
    let records = json["records"].as_array().unwrap_or_else(|| panic!("{response:?}"));
    let text = |record: &Value, field: &str| record[field].as_str().unwrap_or("-").to_owned();
    let one = |record| (text(record, "action"), text(record, "name"), text(record, "outcome"));
    records.iter().map(one).collect()
}

#[tokio::test]
async fn each_action_is_recorded_once_whichever_way_it_came() {
    let text = config("ann", S3CRET, r#"["admin"]"#, "")
        + &config("ci", OTHER, r#"["view", "lock", "operate"]"#, r#"prefixes = ["ci/"]"#);
    let ground = Ground::with(&text).await;
    let ask = async |method, path, who, body: &str, status| {
        let response = ground.ask_with(method, path, who, body).await;
        assert_eq!(response.status, status, "{method} {path}: {response:?}");
        response
    };
    let granted = ask("POST", "/v1/locks/ci%2Fa", CI, "", 200).await;
    let token = granted.token();
    let revoke = format!(r#"{{"fencing_token": {token}, "reason": "why", "force": true}}"#);
    ask("POST", "/v1/locks/ci%2Fa/revoke", CI, &revoke, 200).await;
    ask("POST", "/v1/locks/ci%2Fa/revoke", CI, &revoke, 409).await;
    let long = format!(r#"{{"duration_ms": 1000, "reason": "{}"}}"#, "x".repeat(513));
    ask("PUT", "/v1/locks/prod/freeze", ADMIN, &long, 422).await;
    let unfreeze = r#"{"operation": {"unfreeze": {"name": "prod"}}}"#;
    ask("POST", "/v1/engine/operate", ADMIN, unfreeze, 200).await;
    ask("POST", "/v1/fence", ADMIN, r#"{"above": 7}"#, 204).await;
    // Who may not do it is not recorded.
    ask("DELETE", "/v1/locks/prod/freeze", CI, "", 403).await;
    let all = ask("GET", "/v1/audit", ADMIN, "", 200).await;
    let is = |(action, name, outcome): &(&str, &str, &str)| {
        ((*action).to_owned(), (*name).to_owned(), (*outcome).to_owned())
    };
    let expected = [
        ("fence_bump", "-", "done"),
        ("unfreeze", "prod", "nothing_there"),
        ("freeze", "prod", "refused"),
        ("revoke_now", "ci/a", "nothing_there"),
        ("revoke_now", "ci/a", "done"),
    ];
    assert_eq!(shown(&all), expected.iter().map(is).collect::<Vec<_>>(), "{all:?}");
    let record = &all.json()["records"][4];
    assert_eq!(record["fencing_token"], token, "{record}");
    for (field, value) in [("who", "ci"), ("from", "127.0.0.1"), ("reason", "why")] {
        assert_eq!(record[field], value, "{record}");
    }
    let own = ask("GET", "/v1/audit", CI, "", 200).await;
    assert_eq!(shown(&own), expected[3..].iter().map(is).collect::<Vec<_>>(), "{own:?}");
    let page = ask("GET", "/v1/audit?limit=2", ADMIN, "", 200).await;
    let next = format!("/v1/audit?limit=2&before={}", page.text("before"));
    let next = ask("GET", &next, ADMIN, "", 200).await;
    assert_eq!(shown(&next), expected[2..4].iter().map(is).collect::<Vec<_>>(), "{next:?}");
    let none = ask("GET", "/v1/audit?since_ms=9999999999999", ADMIN, "", 200).await;
    assert!(shown(&none).is_empty(), "{none:?}");
    for bad in [
        "limit=0",
        "limit=501",
        "before=x",
        "before=",
        "since_ms=-1",
        "since_ms=253402300800000",
        "more=1",
    ] {
        let refused = ground.ask_with("GET", &format!("/v1/audit?{bad}"), ADMIN, "").await;
        assert!((400..500).contains(&refused.status), "{bad}: {refused:?}");
    }
}

#[tokio::test]
async fn only_operators_read_the_trail() {
    let ground = Ground::with(&config("ci", OTHER, r#"["view", "lock"]"#, "")).await;
    assert_eq!(ground.ask_with("GET", "/v1/audit", CI, "").await.status, 403);
    let read = r#"{"audit_read": {"since_ms": 0, "before": null, "limit": 10}}"#;
    assert_eq!(ground.ask_with("POST", "/v1/engine/operate", CI, read).await.status, 403);
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_does_not_keep_goes_to_the_file_which_a_reload_opens_anew() {
    let directory = std::env::temp_dir().join(format!("holdline-audit-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let scratch = Scratch(directory);
    let (file, moved) = (scratch.0.join("audit.jsonl"), scratch.0.join("audit.jsonl.1"));
    let text = format!("[server]\naudit_file = \"{}\"\n", file.display());
    let server = RedisServer::start(RedisConfig::default());
    let url = format!("{}?dialect=redisson", server.url());
    let ground = Ground::on(Client::connect(&url).await.expect("connects"), &text).await;
    let freeze = r#"{"duration_ms": 1000, "reason": "why"}"#;
    let refused = ground.ask("PUT", "/v1/locks/a/freeze", freeze).await;
    assert_eq!(refused.text("kind"), "unsupported", "{refused:?}");
    let [line] = &lines(&file)[..] else { panic!("{:?}", lines(&file)) };
    for (field, value) in [
        ("store", "default"),
        ("action", "freeze"),
        ("name", "a"),
        ("who", "127.0.0.1"),
        ("reason", "why"),
        ("outcome", "refused"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert_eq!(std::fs::metadata(&file).expect("a file").mode() & 0o777, 0o600);
    let listed = ground.ask("GET", "/v1/audit", "").await;
    assert_eq!(listed.text("kind"), "unsupported", "{listed:?}");
    std::fs::rename(&file, &moved).expect("moved");
    let reload =
        || ServerConfig::from_toml(&text).and_then(|config| ground.reloader.reload(&config));
    reload().expect("good");
    ground.ask("DELETE", "/v1/locks/a/freeze", "").await;
    assert_eq!((lines(&moved).len(), lines(&file).len()), (1, 1));
    let directory = format!("[server]\naudit_file = \"{}\"\n", scratch.0.display());
    let wrong = ServerConfig::from_toml(&directory).expect("read");
    let error = ground.reloader.reload(&wrong).expect_err("no file").to_string();
    assert!(error.contains("audit_file"), "{error}");
    let metrics = ground.ask("GET", "/metrics", "").await.body;
    assert!(metrics.contains("holdline_audit_unrecorded_total{store=\"default\"} 0"), "{metrics}");

    let without = ground.reloader.reload(&ServerConfig::from_toml("").expect("read"));
    without.expect("good");
    ground.ask("DELETE", "/v1/locks/a/freeze", "").await;
    let metrics = ground.ask("GET", "/metrics", "").await.body;
    assert!(metrics.contains("holdline_audit_unrecorded_total{store=\"default\"} 1"), "{metrics}");
}
