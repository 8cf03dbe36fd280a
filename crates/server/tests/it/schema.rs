//! schemathesis, a program of others, reads the description of the API, sends what it allows and
//! what it forbids, and compares each answer with it.
//!
//! `cargo xtask interop prepare` installs the program. Without it the test fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::ground::Ground;

/// Sends the cases of the schema's edges, drawn ones, and sequences of requests that belong
/// together. All are the same in each run.
fn schemathesis(address: &str) -> Command {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = target.parent().expect("a parent").join("interop/schema/bin/schemathesis");
    assert!(program.is_file(), "it is not there: run `cargo xtask interop prepare`");
    let settings = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../interop/schema");
    let place = target.join("schemathesis");
    std::fs::create_dir_all(&place).expect("a directory");
    let mut command = Command::new(program);
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
    // A stream of events does not end, and schemathesis waits for the end: here it is refused.
    let limits = "[server.limits]\nevent_streams = 0\nmax_wait_ms = 86400000\n";
    let ground = Ground::with(limits).await;
    let mut command = schemathesis(&ground.address.to_string());
    let ran = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
    let Output { status, stdout, stderr } = ran.expect("it starts");
    let (said, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{status}\n{said}\n{errors}");
    assert!(said.contains("Selected: 19/19") && said.contains("Tested: 19"), "{said}");
}
