//! The verbs on a MariaDB server: that they are wired to the engine.

use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::world::{CommandOutput, World, output};

fn run(world: &World, url: &str, arguments: &[&str]) -> CommandOutput {
    let mut command = world.command(arguments);
    output(command.env("HOLDLINE_URL", url))
}

#[test]
fn a_job_holds_the_name_and_tokens_grow() {
    let (server, world) = (MariaDbServer::start(MariaDbConfig::default()), World::new());
    for arguments in [&["who", "demo"][..], &["ls"], &["explain"], &["doctor"], &["wait", "demo"]] {
        let looked = run(&world, &server.url(), arguments);
        assert!(matches!(looked.code, 0..=2), "{looked:?}");
    }
    // A read-only command makes no tables.
    assert!(server.sql("show tables").is_empty());
    let job = ["run", "demo", "--", "sh", "-c", "echo $HOLDLINE_ENGINE $HOLDLINE_FENCING_TOKEN"];
    for expected in ["mysql 1\n", "mysql 2\n"] {
        // Asked again after a limit that a busy machine meets, it would have the token after.
        let url = format!("{}?command_timeout_ms=10000", server.url());
        let ran = run(&world, &url, &job);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, expected), "{ran:?}");
    }
    let explained = run(&world, &server.url(), &["explain"]);
    assert!(explained.stdout.contains("engine mysql"), "{explained:?}");
}

#[test]
fn errors_have_their_exit_codes() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let world = World::new();
    server.sql(
        "create user ann@'%' identified by 'hers'; grant select on locks.* to ann@'%'; \
         create table theirs_heads (a int) engine = InnoDB",
    );
    let at = server.address();
    let secret = MariaDbServer::PASSWORD;
    for (url, code, says) in [
        (format!("mysql://ann:CANARY@{at}/locks"), 77, "user or password is wrong"),
        (format!("mysql://ann:hers@{at}/locks"), 77, "this account may not"),
        (format!("mysql://holdline:{secret}@{at}/elsewhere"), 77, "the account lacks a right"),
        (format!("mysql://holdline:{secret}@{at}/locks?prefix=theirs_"), 65, "is not ours"),
        (format!("mysql://ann:hers@{at}/locks?prefx=x"), 78, "did you mean `prefix`"),
        (format!("mysql://{at}/locks"), 78, "names no user"),
    ] {
        let refused = run(&world, &url, &["run", "demo", "--", "true"]);
        assert_eq!(refused.code, code, "{url}: {refused:?}");
        assert!(refused.stderr.contains(says) && !refused.stderr.contains("CANARY"), "{refused:?}");
    }
    // Nothing was written.
    assert_eq!(server.sql("show tables"), ["theirs_heads"]);
    drop(server);
    // A short limit hides nothing of the first try.
    let url = format!("mysql://ann:hers@{at}/locks");
    for limit in [&["--try"][..], &["--wait", "30s"]] {
        let away = run(&world, &url, &[&["run"], limit, &["demo", "--", "true"]].concat());
        assert_eq!(away.code, 69, "{away:?}");
        assert!(away.stderr.contains("nobody listens there"), "{away:?}");
    }
    assert_eq!(run(&world, &url, &["doctor"]).code, 2);
}
