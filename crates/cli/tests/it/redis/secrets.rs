//! What a job must not learn.

use holdline_services::{RedisConfig, RedisServer};

use crate::world::{World, output};

#[test]
fn the_variable_of_a_password_is_kept_from_the_job() {
    let server = RedisServer::start(RedisConfig::default().with_password("CANARY"));
    let world = World::new();
    let file = world.path("password");
    std::fs::write(&file, "CANARY\n").expect("written");
    let place = server.address();
    let by_variable = format!("redis://{place}?password_env=MY_PASSWORD");
    let by_file = format!("redis://{place}?password_file={}", file.display());
    let run = |url: &str, job: &str| {
        let mut command = world.command(&["run", "demo", "--", "sh", "-c", job]);
        command.env("BINARY", env!("CARGO_BIN_EXE_holdline"));
        output(command.env("HOLDLINE_URL", url).env("MY_PASSWORD", "CANARY").env("OTHER", "kept"))
    };
    let job = run(&by_variable, "env");
    let seen = &job.stdout;
    assert!(seen.contains("OTHER=kept\n") && seen.contains(&by_variable), "{job:?}");
    assert!(!seen.contains("CANARY"), "{job:?}");
    let nested = "$BINARY who other";
    let lacks = run(&by_variable, nested);
    assert_eq!(lacks.code, 78, "{lacks:?}");
    assert!(lacks.stderr.contains("password_file"), "{lacks:?}");
    let has = run(&by_file, nested);
    assert_eq!((has.code, has.stdout.contains("other")), (1, true), "{has:?}");
}
