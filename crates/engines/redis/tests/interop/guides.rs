//! The programs of the guides in `docs/migrate` hold the same lock as ours.

use std::path::Path;
use std::process::Command;

use holdline::Client;
use holdline_services::RedisServer;

use crate::driver::ground;

/// Runs a program to its end, and returns what it printed.
fn prints(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{:?}: {error}. `./check interop` prepares it", command.get_program())
    });
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn the_programs_of_the_guides_are_excluded_by_ours_and_hold_after_it() {
    let server = RedisServer::start(Default::default());
    let url = format!("{}?dialect=plain&key_template={{name}}", server.url());
    let client = Client::connect(&url).await.expect("it connects");
    let address = server.address();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../interop/node/guide.cjs");

    let mut rslock = Command::new(ground().join("rust/debug/rslock_guide"));
    rslock.arg(server.url());
    let mut redlock = Command::new("node");
    redlock.env("NODE_PATH", ground().join("node/node_modules")).arg(guide);
    redlock.args([address.ip().to_string(), address.port().to_string()]);

    let in_go = |library: &str| {
        let mut command = Command::new(ground().join("go/bin/guide"));
        command.args([library.to_owned(), address.to_string()]);
        command
    };

    for program in &mut [rslock, redlock, in_go("redsync"), in_go("redislock")] {
        let guard = client.mutex("nightly-report").expect("a name").lock().await.expect("held");
        assert_eq!(prints(program), "busy", "{program:?}");
        let _ = guard.release().await;
        assert_eq!(prints(program), "held", "{program:?}");
    }
}
