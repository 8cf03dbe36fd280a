//! The verbs on a PostgreSQL server: that they are wired to the engine.

use std::time::{Duration, Instant};

use holdline_services::{PgBouncer, PostgresConfig, PostgresServer, steady};

use crate::world::{CommandOutput, World, output};

fn run(world: &World, url: &str, arguments: &[&str]) -> CommandOutput {
    let mut command = world.command(arguments);
    output(command.env("HOLDLINE_URL", url))
}

#[test]
fn a_job_holds_the_name_and_tokens_grow() {
    let (server, world) = (PostgresServer::start(PostgresConfig::default()), World::new());
    let job = ["run", "demo", "--", "sh", "-c", "echo $HOLDLINE_ENGINE $HOLDLINE_FENCING_TOKEN"];
    for expected in ["postgres 1\n", "postgres 2\n"] {
        // Asked again after a limit that a busy machine meets, it would have the token after.
        let url = format!("{}?command_timeout_ms=10000", server.url());
        let ran = run(&world, &url, &job);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, expected), "{ran:?}");
    }
    let explained = run(&world, &server.url(), &["explain"]);
    assert!(explained.stdout.contains("engine postgres"), "{explained:?}");
}

#[test]
fn reading_verbs_create_no_schema() {
    let (server, world) = (PostgresServer::start(PostgresConfig::default()), World::new());
    let doctor: &[&str] = &["doctor", "--longest-hold", "1h"];
    for arguments in [&["who", "demo"][..], &["ls"], &["explain"], doctor, &["wait", "demo"]] {
        let looked = run(&world, &server.url(), arguments);
        assert!(matches!(looked.code, 0..=2), "{looked:?}");
    }
    let made = server.sql("select count(*) from pg_namespace where nspname = 'holdline'");
    assert_eq!(made, ["0"]);
}

#[test]
fn a_password_of_libpq_is_used_and_white_space_in_it_is_refused() {
    let server = PostgresServer::start(PostgresConfig::default().with_passwords());
    let world = World::new();
    server.sql("create role ann login password 'CANARY'");
    let (host, port) = (server.address().ip(), server.address().port());
    let file = world.path("pgpass");
    let line = format!("other:1:x:ann:wrong\n{host}:{port}:postgres:ann:CANARY\n");
    std::fs::write(&file, line).expect("written");
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&file, mode).expect("set");
    };
    mode(0o600);
    let url = format!("postgres://ann@{host}:{port}/postgres");
    let ls = |name: &str, value: &str| {
        let mut command = world.command(&["ls"]);
        output(command.env("HOLDLINE_URL", &url).env(name, value))
    };
    let path = file.display().to_string();
    for (name, value, code) in [
        ("PGPASSWORD", "CANARY", 0),
        ("PGPASSWORD", "wrong", 77),
        ("PGPASSWORD", "CANARY\n", 78),
        ("PGPASSFILE", &*path, 0),
        ("PGPASSFILE", "/no/such/file", 77),
    ] {
        let seen = ls(name, value);
        assert_eq!(seen.code, code, "{name}={value:?}: {seen:?}");
        assert!(!format!("{seen:?}").contains("CANARY"), "{seen:?}");
    }
    mode(0o644);
    assert_eq!(ls("PGPASSFILE", &path).code, 77, "others may read it");
}

#[test]
fn a_pooler_of_statements_is_an_error_of_configuration() {
    let (server, world) = (PostgresServer::start(PostgresConfig::default()), World::new());
    let pooler = PgBouncer::start_for_statements(&server);
    let refused = run(&world, &pooler.url(), &["run", "demo", "--", "true"]);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.stderr.contains("set `pool_mode = transaction`"), "{refused:?}");
}

#[test]
fn errors_have_their_exit_codes() {
    let server = PostgresServer::start(PostgresConfig::default().with_passwords());
    let world = World::new();
    server.sql("create role ann login password 'hers'; create table public.theirs (a int)");
    let at = server.address();
    for (url, code, says) in [
        (format!("postgres://ann:CANARY@{at}/postgres"), 77, "user or password is wrong"),
        (format!("postgres://ann:hers@{at}/postgres"), 77, "this role may not"),
        (format!("postgres://ann:hers@{at}/elsewhere"), 77, "no such database"),
        (format!("postgres://ann:hers@{at}/postgres?schema=public"), 65, "is not ours"),
        (format!("postgres://ann:hers@{at}/postgres?shema=x"), 78, "did you mean `schema`"),
        (format!("postgres://{at}/postgres"), 78, "names no user"),
    ] {
        let refused = run(&world, &url, &["run", "demo", "--", "true"]);
        assert_eq!(refused.code, code, "{url}: {refused:?}");
        assert!(refused.stderr.contains(says) && !refused.stderr.contains("CANARY"), "{refused:?}");
    }
    drop(server);
    // A short limit hides nothing of the first try.
    let url = format!("postgres://ann:hers@{at}/postgres");
    for limit in [&["--try"][..], &["--wait", "30s"]] {
        let away = run(&world, &url, &[&["run"], limit, &["demo", "--", "true"]].concat());
        assert_eq!(away.code, 69, "{away:?}");
        assert!(away.stderr.contains("nobody listens there"), "{away:?}");
    }
    assert_eq!(run(&world, &url, &["doctor"]).code, 2);
}

#[test]
fn a_release_that_the_server_does_not_answer_ends_as_unavailable_within_its_bound() {
    steady(|| {
        let (server, world) = (PostgresServer::start(PostgresConfig::default()), World::new());
        let acquired = run(&world, &server.url(), &["acquire", "demo", "--lease", "1m"]);
        assert_eq!(acquired.code, 0, "{acquired:?}");
        let id = acquired.stdout.split_whitespace().find_map(|word| word.strip_prefix("lease_id="));
        let line = ["release", "demo", "--lease-id", id.expect("an id")];
        server.stop();
        let begun = Instant::now();
        let output = run(&world, &server.url(), &[&["--json"], &line[..]].concat());
        let took = begun.elapsed();
        server.cont();
        assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{output:?}");
        // 5 s for the answer, and what connecting takes.
        assert!(took < Duration::from_secs(9), "{took:?}: {output:?}");
        assert_eq!(run(&world, &server.url(), &line).code, 0, "nothing was released");
    });
}
