//! Programs of others read the description of the API.
//!
//! schemathesis sends what it allows and what it forbids, and compares each answer with it;
//! openapi-spec-validator compares it with the standard. `cargo xtask interop prepare` installs the
//! programs. Without them the tests fail.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use holdline_server::ServerConfig;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::rights::{S3CRET, config};

fn program(name: &str) -> Command {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a parent");
    let program = target.join("interop/schema/bin").join(name);
    assert!(program.is_file(), "it is not there: run `cargo xtask interop prepare`");
    Command::new(program)
}

/// How many operations the description has.
fn operations() -> usize {
    let document: Value = serde_json::from_str(&holdline_server::document()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").values();
    paths.map(|item| item.as_object().expect("an item").len()).sum()
}

/// Runs a program to its end, while the server answers it.
async fn ran(mut command: Command) -> (Output, String) {
    let ran = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
    let output = ran.expect("it starts");
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    (output, String::from_utf8_lossy(&text).into_owned())
}

/// Sends the cases of the schema's edges, drawn ones, and sequences of requests that belong
/// together. All are the same in each run.
fn schemathesis(address: &str) -> Command {
    let settings = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../interop/schema");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemathesis");
    std::fs::create_dir_all(&place).expect("a directory");
    let mut command = program("schemathesis");
    command.current_dir(place).arg("--config-file").arg(settings.join("schemathesis.toml"));
    command.args(["--no-color", "run", &format!("http://{address}/api/openapi.json")]);
    command.args(["--phases", "coverage,fuzzing,stateful", "--max-examples", "8"]);
    command.args(["--checks", "all", "--continue-on-failure", "--request-timeout", "60"]);
    // It takes every path below a resource for one that comes with it. A lock that is held is not
    // frozen, and 404 is right.
    command.args(["--exclude-checks", "ensure_resource_availability"]);
    command.args(["--output-sanitize", "false"]);
    command.env("PYTHONPATH", settings).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_as_the_description_says() {
    // A stream of events does not end by itself: here it is refused, and below it is read whole.
    let limits = "[server.limits]\nevent_streams = 0\nmax_wait_ms = 86400000\n";
    let ground = Ground::with(limits).await;
    let (output, said) = ran(schemathesis(&ground.address.to_string())).await;
    assert!(output.status.success(), "{}\n{said}", output.status);
    let all = operations();
    let (selected, tested) = (format!("Selected: {all}/{all}"), format!("Tested: {all}"));
    assert!(said.contains(&selected) && said.contains(&tested), "{said}");
}

/// A stream ends when its reader loses the right to view, which happens here again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stream_of_events_is_whole_and_as_the_description_says() {
    let with = |rights: &str| ServerConfig::from_toml(&config("ci", S3CRET, rights, ""));
    let viewer = with(r#"["admin"]"#).expect("good");
    let stranger = with(r#"["lock"]"#).expect("good");
    let ground = Ground::with(&config("ci", S3CRET, r#"["admin"]"#, "")).await;
    let mut command = schemathesis(&ground.address.to_string());
    command.args(["--include-path", "/v1/events", "--header", "Authorization: Bearer s3cret"]);
    let ends = async {
        loop {
            make_events(&ground).await;
            // event: streams stay open for a while, and end when the right is gone
            tokio::time::sleep(Duration::from_millis(100)).await; // event: see above
            ground.reloader.reload(&stranger).expect("good");
            tokio::time::sleep(Duration::from_millis(30)).await; // event: see above
            ground.reloader.reload(&viewer).expect("good");
        }
    };
    let (output, said) = tokio::select! {
        ran = ran(command) => ran,
        () = ends => unreachable!("it has no end"),
    };
    assert!(output.status.success(), "{}\n{said}", output.status);
    let selected = format!("Selected: 1/{}", operations());
    assert!(said.contains(&selected) && said.contains("Tested: 1"), "{said}");
}

/// Something for each kind of event.
async fn make_events(ground: &Ground) {
    const TOKEN: &str = "Authorization: Bearer s3cret\r\n";
    let body = r#"{"lease_duration_ms": 20000}"#;
    let freeze = r#"{"duration_ms": 60000, "reason": "why"}"#;
    let held = ground.ask_with("POST", "/v1/locks/a", TOKEN, body).await;
    let lease = format!("/v1/locks/a/leases/{}", held.text("lease_id"));
    for (method, path, body) in [
        ("POST", "/v1/locks/a", ""),
        ("PUT", "/v1/locks/b/freeze", freeze),
        ("DELETE", "/v1/locks/b/freeze", ""),
        ("DELETE", lease.as_str(), ""),
    ] {
        let answer = ground.ask_with(method, path, TOKEN, body).await;
        assert_ne!(answer.status, 403, "{answer:?}");
    }
}

#[tokio::test]
async fn the_description_is_as_the_standard_of_openapi_says() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openapi");
    std::fs::create_dir_all(&place).expect("a directory");
    let made = holdline_server::document();
    let mut wrong: Value = serde_json::from_str(&made).expect("JSON");
    wrong["paths"]["/healthz"]["get"]["responses"] = json!({});
    wrong["info"] = json!({ "title": "no version" });
    for (name, text, is_good) in
        [("good.json", made, true), ("wrong.json", wrong.to_string(), false)]
    {
        let file = place.join(name);
        std::fs::write(&file, text).expect("written");
        let mut validator = program("openapi-spec-validator");
        validator.args(["--schema", "3.1"]).arg(file);
        let (output, said) = ran(validator).await;
        assert_eq!(output.status.success(), is_good, "{name}: {said}");
    }
}
