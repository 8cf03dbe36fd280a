//! Clients of a server that are stopped and killed.

use std::os::unix::process::CommandExt as _;
#[cfg(feature = "redis")]
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process_group};

use super::Served;
use crate::world::World;
#[cfg(feature = "redis")]
use crate::world::output;

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// Waits through the server for the name, and returns when it was granted.
fn granted_at(world: &World, server: &Served) -> Duration {
    let run = ["--url", &server.1, "run", "--wait", "60s", "a", "--", "date", "+%s%3N"];
    let run = world.run(&run);
    assert_eq!(run.code, 0, "{run:?}");
    Duration::from_millis(run.stdout.trim().parse().expect("milliseconds"))
}

#[test]
fn a_job_that_is_stopped_past_its_lease_has_lost_it_and_not_too_early() {
    let world = World::new();
    let server = Served::fresh(&world);
    let mut holder = world.hold(&["--url", &server.1, "--lease", "5s", "--grace", "500ms", "a"]);
    let token = world.token("a");
    holder.signal(Signal::STOP);
    let asked = now();
    let left = world.who("a")["holders"][0]["left_ms"].as_u64().expect("a number");
    let granted = granted_at(&world, &server);
    // A clock of milliseconds rounds down.
    assert!(granted + Duration::from_millis(1) >= asked + Duration::from_millis(left), "too early");
    holder.signal(Signal::CONT);
    assert_eq!(holder.code(), 79);
    let after = world.run(&["--url", &server.1, "run", "a", "--", "true"]);
    assert_eq!(after.code, 0, "{after:?}");
    assert_eq!(token, "1");
}

/// A client of curl and a shell, which sends heartbeats until one is refused.
const CLIENT: &str = r#"
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
ask() { curl -s -H 'Content-Type: application/json' "$@"; }
session=$(ask -d '{"duration_ms": 3000}' "$url/v1/sessions" | field session)
id=$(ask -d "{\"session\": \"$session\"}" "$url/v1/locks/a" | field lease_id)
echo "held"
while
    code=$(ask -o /dev/null -w '%{http_code}' -X POST "$url/v1/sessions/$session/heartbeat")
    [ "$code" = 200 ]
do sleep 0.2; done
echo "heartbeat $code"
ask -o /dev/null -w 'renew %{http_code}\n' -X PUT -d '{}' "$url/v1/locks/a/leases/$id"
ask -o /dev/null -w 'release %{http_code}\n' -X DELETE "$url/v1/locks/a/leases/$id"
"#;

#[test]
fn a_client_that_is_stopped_past_its_session_learns_that_its_lease_is_lost() {
    let world = World::new();
    let server = Served::fresh(&world);
    let mut command = Command::new("sh");
    command.args(["-c", CLIENT]).env("url", &server.1).process_group(0);
    let client = world.start_command(&mut command);
    assert_eq!(client.line(), "held");
    let group = Pid::from_raw(i32::try_from(client.pid()).expect("a pid")).expect("a pid");
    kill_process_group(group, Signal::STOP).expect("it runs");
    let asked = now();
    let left = world.who("a")["holders"][0]["left_ms"].as_u64().expect("a number");
    let granted = granted_at(&world, &server);
    assert!(granted + Duration::from_millis(1) >= asked + Duration::from_millis(left), "too early");
    kill_process_group(group, Signal::CONT).expect("it is there");
    for line in ["heartbeat 404", "renew 410", "release 410"] {
        assert_eq!(client.line(), line);
    }
}

#[test]
fn a_client_that_is_killed_while_it_waits_gives_its_place_up() {
    let world = World::new();
    let server = Served::fresh(&world);
    let mut holder = world.hold(&["a"]);
    let url = format!("{}/v1/locks/a", server.1);
    let mut curl = Command::new("curl");
    curl.args(["-s", "-d", r#"{"wait_ms": 600000}"#, "-H", "Content-Type: application/json", &url]);
    let mut waiting = curl.stdout(Stdio::null()).spawn().expect("curl starts");
    world.queued("a", 1);
    waiting.kill().expect("it runs");
    waiting.wait().expect("it ends");
    world.queued("a", 0);
    holder.let_go();
    assert_eq!(holder.code(), 3);
}

/// The settings are read again while a session is open and a request waits.
#[test]
fn a_reload_costs_no_session_and_no_wait() {
    let world = World::new();
    // `printf s3cret | sha256sum`
    let digest = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";
    let config = |more: &str| {
        let text = format!(
            "[[server.tokens]]\nname = \"ci\"\nsha256 = \"{digest}\"\nrights = [\"lock\"]\n{more}"
        );
        std::fs::write(world.path("server.toml"), text).expect("written");
    };
    config("");
    let more = ["--config", &world.path("server.toml").display().to_string()];
    let server = Served::start(&world, "127.0.0.1:0", &more);
    let ask = |path: &str, body: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-w", "%{http_code}", "-H", "Authorization: Bearer s3cret", "-d", body]);
        curl.args(["-H", "Content-Type: application/json", &format!("{}{path}", server.1)]);
        curl.stdout(Stdio::piped()).spawn().expect("curl starts")
    };
    let read = |curl: std::process::Child| {
        let output = curl.wait_with_output().expect("it ends");
        String::from_utf8(output.stdout).expect("text")
    };
    let opened = read(ask("/v1/sessions", "{}"));
    let session = opened.split('"').skip_while(|word| *word != "session").nth(2).expect("an id");
    let locked = read(ask("/v1/locks/s", &format!(r#"{{"session": "{session}"}}"#)));
    assert!(locked.ends_with("200"), "{locked}");
    let mut holder = world.hold(&["a"]);
    let waiting = ask("/v1/locks/a", r#"{"wait_ms": 60000}"#);
    world.queued("a", 1);
    config("prefixes = [\"\"]\n");
    server.0.signal(Signal::HUP);
    assert!(server.0.said().contains("was read again"));
    let beat = read(ask(&format!("/v1/sessions/{session}/heartbeat"), ""));
    assert!(beat.contains("renewed") && beat.ends_with("200"), "{beat}");
    holder.let_go();
    let granted = read(waiting);
    assert!(granted.ends_with("200"), "{granted}");
}

/// The tests of `clients/go`, built with the race detector by `cargo xtask interop prepare`.
#[test]
#[cfg(feature = "redis")]
fn the_client_for_go_passes_its_tests_on_a_real_store() {
    let holdline = env!("CARGO_BIN_EXE_holdline");
    let target = Path::new(holdline).ancestors().nth(2).expect("target");
    let tests = target.join("interop/go-client/tests");
    assert!(tests.is_file(), "it is not there: run `cargo xtask interop prepare`");
    let store = holdline_services::RedisServer::start(holdline_services::RedisConfig::default());
    let world = World::new();
    let mut command = Command::new(tests);
    command.arg("-test.v").current_dir(world.path(""));
    command.env("HOLDLINE_BIN", holdline);
    command.env("HOLDLINE_TEST_URL", format!("redis://{}", store.address()));
    let tested = output(&mut command);
    assert_eq!(tested.code, 0, "{}{}", tested.stdout, tested.stderr);
    assert!(tested.stdout.contains("--- PASS: TestALostAnswer"), "{}", tested.stdout);
}
