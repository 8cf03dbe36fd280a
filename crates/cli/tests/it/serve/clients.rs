//! Clients of a server that are stopped and killed.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process_group};

use super::Served;
use crate::world::World;

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
