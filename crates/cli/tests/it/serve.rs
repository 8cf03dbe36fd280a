//! `holdline serve`: programs of any language, and servers that are killed, stopped and reloaded.

mod balanced;
mod clients;
mod packaged;
mod watching;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use holdline_services::{ZooKeeper, ZooKeeperConfig};
use rustix::process::Signal;

use crate::world::{Running, World, eventually, output};

/// A server on a port of its own, and its URL.
pub(crate) struct Served(Running, pub(crate) String);

impl Served {
    pub(crate) fn start(world: &World, listen: &str, more: &[&str]) -> Served {
        Served::started(world.start(&[&["serve", "--listen", listen], more].concat()))
    }

    /// Waits until a server has reported its address.
    fn started(server: Running) -> Served {
        loop {
            let line = server.said();
            if let Some((_, url)) = line.split_once("serves ") {
                let url = url.trim().to_owned();
                return Served(server, url);
            }
        }
    }

    /// Waits for a line of the log that has this text.
    fn says(&self, text: &str) {
        while !self.0.said().contains(text) {}
    }

    pub(crate) fn fresh(world: &World) -> Served {
        Served::start(world, "127.0.0.1:0", &[])
    }

    pub(crate) fn port(&self) -> &str {
        self.1.rsplit(':').next().expect("a port")
    }
}

#[test]
fn the_dashboard_is_served_unless_it_is_switched_off() {
    let world = World::new();
    for (more, statuses) in [(&[][..], ["200", "200"]), (&["--no-dashboard"][..], ["404", "200"])] {
        let server = Served::start(&world, "127.0.0.1:0", more);
        let status = |path: &str| {
            let url = format!("{}{path}", server.1);
            let curl = ["-s", "-o", "/dev/null", "-w", "%{http_code}", &url];
            output(Command::new("curl").args(curl)).stdout
        };
        assert_eq!(["/dashboard", "/v1/locks"].map(status), statuses, "{more:?}");
    }
}

/// The server records it, and this command does not do so again.
#[test]
fn an_action_through_a_server_is_recorded_once_and_shown_through_it() {
    let world = World::new();
    let server = Served::fresh(&world);
    let freeze = ["--url", &server.1, "freeze", "a", "--for", "1h", "--reason", "x"];
    let frozen = world.run(&freeze);
    assert!(frozen.code == 0 && !frozen.stderr.contains("not recorded"), "{frozen:?}");
    let through = world.run(&["--url", &server.1, "--json", "audit"]);
    let direct = world.run(&["--json", "audit"]);
    assert_eq!((through.code, through.stdout.lines().count()), (0, 1), "{through:?}");
    assert_eq!(through.stdout, direct.stdout);
    for has in ["\"action\":\"freeze\"", "\"from\":\"127.0.0.1\"", "\"reason\":\"x\""] {
        assert!(through.stdout.contains(has), "{through:?}");
    }
}

/// Names and reasons come from clients. Neither a line of the log nor an event can be made by one.
#[test]
fn hostile_texts_make_no_line_of_the_log_and_no_event() {
    let world = World::new();
    let server = Served::start(&world, "127.0.0.1:0", &["-v"]);
    let mut curl = Command::new("curl");
    let events = world.start_command(curl.args(["-sN", &format!("{}/v1/events", server.1)]));
    assert_eq!(events.line(), ": open");
    let hostile = "x\u{1b}[2J\u{202e}\n\ndata: {}\r\n\r\nholdline: all is well";
    let name = "n\u{202e}<b>";
    let through = ["--url", &server.1];
    let run = |arguments: &[&str]| world.run(&[&through, arguments].concat());
    assert_eq!(run(&["freeze", name, "--for", "1h", "--reason", hostile]).code, 0);
    assert_eq!(run(&["run", "--try", name, "--reason", hostile, "--", "true"]).code, 75);
    assert_eq!(run(&["unfreeze", name]).code, 0);
    // Not one of the server's paths, so its log may have it.
    let path = format!("{}/%1b%5b2J%0aholdline:%20all%20is%20well", server.1);
    output(Command::new("curl").args(["-s", &path]));
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.starts_with("event: unfrozen")) {
        lines.push(events.line());
    }
    for line in &lines {
        let known = ["", "id: ", "event: ", "data: {\"", ": "];
        assert!(
            known[1..].iter().any(|begin| line.starts_with(begin)) || line.is_empty(),
            "{line:?}"
        );
        assert!(!line.contains(['\u{1b}', '\r']), "{line:?}");
    }
    server.0.signal(Signal::TERM);
    let mut server = server.0;
    while let Some(line) = server.next_said() {
        assert!(!line.contains(['\u{1b}', '\r', '\u{202e}']), "{line:?}");
        assert!(!line.starts_with("holdline: all is well"), "{line:?}");
    }
    assert_eq!(server.code(), 0);
}

#[test]
fn the_log_has_a_line_for_each_request_and_no_secret() {
    let world = World::new();
    // `printf s3cret | sha256sum`
    let text = "[[server.tokens]]\nname = \"ci\"\nsha256 = \
                \"1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0\"\n\
                rights = [\"lock\"]\n";
    let config = world.path("server.toml").display().to_string();
    std::fs::write(&config, text).expect("written");
    let ask = |server: &Served, token: &str, method: &str, path: &str| {
        let (token, url) =
            (format!("Authorization: Bearer {token}"), format!("{}{path}", server.1));
        output(Command::new("curl").args(["-s", "-X", method, "-H", &token, &url])).stdout
    };
    let ended = |server: Served| {
        let mut server = server.0;
        server.signal(Signal::TERM);
        let mut lines = Vec::new();
        while let Some(line) = server.next_said() {
            assert!(!line.contains("s3cret") && !line.contains("gu3ss"), "{line}");
            lines.push(line);
        }
        assert_eq!(server.code(), 0);
        lines
    };
    let server = Served::start(&world, "127.0.0.1:0", &["-v", "--config", &config]);
    let lease = ask(&server, "s3cret", "POST", "/v1/locks/a%2Fb");
    let (_, rest) = lease.split_once("\"lease_id\":\"").expect("a lease");
    let lease = &rest[..32];
    ask(&server, "s3cret", "DELETE", &format!("/v1/locks/a%2Fb/leases/{lease}"));
    let lines = ended(server);
    assert!(lines.iter().all(|line| !line.contains(lease)), "{lines:?}");
    let has = |words: &[&str]| {
        let found = lines.iter().filter(|line| words.iter().all(|word| line.contains(word)));
        assert_eq!(found.count(), 1, "{words:?}: {lines:?}");
    };
    let common = ["name=\"a%2Fb\"", "status=200", "who=\"ci\"", "from=127.0.0.1"];
    has(&[&["method=POST", "path=\"/v1/locks/{name}\""], &common[..]].concat());
    has(&[&["method=DELETE", "path=\"/v1/locks/{name}/leases/{lease_id}\""], &common[..]].concat());
    let server = Served::start(&world, "127.0.0.1:0", &["--config", &config]);
    for _ in 0..30 {
        ask(&server, "gu3ss", "GET", "/v1/locks/a");
    }
    let lines = ended(server);
    let wrong = lines.iter().filter(|line| line.contains("wrong proof was sent"));
    let count = wrong.inspect(|line| assert!(line.contains("from=127.0.0.1"), "{line}")).count();
    assert!((1..=29).contains(&count), "{count}: {lines:?}");
    assert!(lines.iter().all(|line| !line.contains("status=")), "{lines:?}");
}

const WALKED: [&str; 5] =
    ["locked walk/1", "renewed", "wrote with a token", "refused token 0", "released walk/1"];

fn walk(command: &mut Command, name: &str) {
    let walked = output(command);
    assert_eq!(walked.code, 0, "{walked:?}");
    let lines: Vec<String> =
        walked.stdout.lines().map(|line| line.replace(name, "walk/1")).collect();
    assert_eq!(lines, WALKED, "{walked:?}");
}

fn interop(path: &str) -> String {
    format!("{}/../../interop/{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_shell_and_node_walk_from_session_to_release() {
    let world = World::new();
    let server = Served::fresh(&world);
    // A shell has no percent-encoding, so the name has no slash.
    walk(Command::new("sh").args([&interop("walk/walk.sh"), &server.1, "walk"]), "walk");
    walk(Command::new("node").args([&interop("walk/walk.mjs"), &server.1, "walk/1"]), "walk/1");
}

/// The program is built by `cargo xtask interop prepare`.
#[test]
fn a_go_program_walks_from_session_to_release() {
    let target = Path::new(env!("CARGO_BIN_EXE_holdline")).ancestors().nth(2).expect("target");
    let program = target.join("interop/go/bin/walk");
    assert!(program.is_file(), "it is not there: run `cargo xtask interop prepare`");
    let world = World::new();
    let server = Served::fresh(&world);
    walk(Command::new(program).args([&server.1, "walk/1"]), "walk/1");
}

#[test]
fn a_job_runs_through_a_server_with_the_token_of_the_store() {
    let world = World::new();
    let server = Served::fresh(&world);
    let script = "echo token $HOLDLINE_FENCING_TOKEN";
    let run = world.run(&["--url", &server.1, "run", "a", "--", "sh", "-c", script]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "token 1\n"), "{run:?}");
    let next = world.run(&["run", "a", "--", "sh", "-c", script]);
    assert_eq!((next.code, next.stdout.as_str()), (0, "token 2\n"), "{next:?}");
}

/// A killed server frees nothing that its clients hold: leases live in the store.
#[test]
fn a_job_goes_on_when_its_server_is_killed_and_started_again() {
    let world = World::new();
    let mut server = Served::fresh(&world);
    let port = server.port().to_owned();
    let mut holder = world.hold(&["--url", &server.1, "--lease", "30s", "a"]);
    let token = world.token("a");
    server.0.signal(Signal::KILL);
    server.0.status();
    // A client of the store itself finds the name held, and the dead server's process changes
    // nothing about that.
    let busy = world.run(&["run", "--try", "a", "--", "true"]);
    assert_eq!(busy.code, 75, "{busy:?}");
    let server = Served::start(&world, &format!("127.0.0.1:{port}"), &[]);
    let left = || world.who("a")["holders"][0]["left_ms"].as_u64().expect("a number");
    let before = left();
    eventually("renewed through the new server", || left() > before);
    assert_eq!(world.token("a"), token, "the grant of before");
    holder.let_go();
    assert_eq!(holder.code(), 3);
    world.free("a");
    drop(server);
}

#[test]
fn waiters_survive_the_death_of_their_server() {
    let world = World::new();
    let mut server = Served::fresh(&world);
    let port = server.port().to_owned();
    let mut holder = world.hold(&["a"]);
    let waiter = world.start(&["--url", &server.1, "run", "a", "--", "echo", "mine"]);
    world.queued("a", 1);
    server.0.signal(Signal::KILL);
    server.0.status();
    let _server = Served::start(&world, &format!("127.0.0.1:{port}"), &[]);
    holder.let_go();
    assert_eq!(waiter.line(), "mine");
}

#[test]
fn a_client_that_is_killed_frees_its_name_within_its_lease() {
    let world = World::new();
    let server = Served::fresh(&world);
    let mut holder = world.hold(&["--url", &server.1, "--lease", "5s", "--grace", "500ms", "a"]);
    holder.signal(Signal::KILL);
    holder.status();
    let next = world.run(&["--url", &server.1, "run", "--wait", "60s", "a", "--", "true"]);
    assert_eq!(next.code, 0, "{next:?}");
}

#[test]
fn a_token_in_a_file_lets_in_and_a_reload_takes_it_back() {
    let world = World::new();
    let config = |digest: &str| {
        let text = format!(
            "[[server.tokens]]\nname = \"ci\"\nsha256 = \"{digest}\"\nrights = [\"lock\", \
             \"view\"]\n"
        );
        std::fs::write(world.path("server.toml"), text).expect("written");
    };
    // `printf s3cret | sha256sum`
    config("1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0");
    std::fs::write(world.path("token"), "s3cret\n").expect("written");
    let more = ["--config", &world.path("server.toml").display().to_string()];
    let server = Served::start(&world, "127.0.0.1:0", &more);
    let with = format!("{}?token_file={}", server.1, world.path("token").display());
    let good = world.run(&["--url", &with, "run", "a", "--", "true"]);
    assert_eq!(good.code, 0, "{good:?}");
    let bad = world.run(&["--url", &server.1, "run", "a", "--", "true"]);
    assert!(bad.code == 77 && bad.stderr.contains("token_file"), "{bad:?}");
    // The token changes while a job runs: the client reads the file again.
    let job = ["--url", &with, "run", "b", "--lease", "3s", "--grace", "300ms", "--"];
    let mut holder = world.start(&[&job[..], &["sh", "-c", "echo up; read line"]].concat());
    assert_eq!(holder.line(), "up");
    // `printf n3xt | sha256sum`
    config("49ecf4cb726cc63120eac2b075fcc2adb8c623d8b97ff612b46bae39620d5154");
    std::fs::write(world.path("token"), "n3xt\n").expect("written");
    server.0.signal(Signal::HUP);
    server.says("was read again");
    std::thread::sleep(Duration::from_secs(4)); // event: a lease that is not renewed has ended
    holder.let_go();
    assert_eq!(holder.code(), 0, "{}", holder.rest());
    config(&"0".repeat(64));
    server.0.signal(Signal::HUP);
    server.says("was read again");
    let gone = world.run(&["--url", &with, "run", "a", "--", "true"]);
    assert!(gone.code == 77 && !gone.stderr.contains("s3cret"), "{gone:?}");
    std::fs::write(world.path("server.toml"), "[server]\nfoo = 1\n").expect("written");
    server.0.signal(Signal::HUP);
    server.says("not reloaded");
    // In an image without a shell nobody sends a signal.
    config("49ecf4cb726cc63120eac2b075fcc2adb8c623d8b97ff612b46bae39620d5154");
    server.says("was read again");
    let good = world.run(&["--url", &with, "run", "a", "--", "true"]);
    assert_eq!(good.code, 0, "{good:?}");
}

#[test]
fn curl_takes_a_lock_over_a_socket_of_this_machine() {
    let world = World::new();
    let path = world.path("server.sock").display().to_string();
    let mut server = Served::started(world.start(&["serve", "--socket", &path]));
    assert_eq!(server.1, path);
    let curl = |method: &str, name: &str| {
        let url = format!("http://localhost/v1/locks/{name}");
        let mut curl = Command::new("curl");
        output(curl.args(["-s", "--unix-socket", &path, "-X", method, &url])).stdout
    };
    assert!(curl("POST", "a").contains("\"fencing_token\":1"));
    assert!(curl("POST", "a").contains("\"kind\":\"busy\""));
    server.0.signal(Signal::TERM);
    assert_eq!(server.0.code(), 0);
    assert!(!Path::new(&path).exists());
    let both = world.run(&["serve", "--socket", &path, "--listen", "127.0.0.1:0"]);
    assert!(both.code == 78 && both.stderr.contains("past the mode"), "{both:?}");
}

/// The system says who asks: no token is needed.
#[test]
fn our_programs_use_a_socket_as_the_user_that_the_system_names() {
    let world = World::new();
    let path = world.path("a server.sock").display().to_string();
    let url = format!("http+unix://{}", path.replace('/', "%2F").replace(' ', "%20"));
    let own = rustix::process::geteuid().as_raw();
    let serve = |uid: u32| {
        let users = format!(
            "[server.socket]\npath = \"{path}\"\nusers = [{{ name = \"deploy\", uid = {uid}, \
             rights = [\"view\", \"lock\"], prefixes = [\"ci/\"] }}]\n[server.limits]\n\
             leases_per_client = 1\n"
        );
        let config = world.path("server.toml");
        std::fs::write(&config, users).expect("written");
        let config = config.display().to_string();
        Served::started(world.start(&["--config", &config, "serve"]))
    };
    let stop = |mut server: Served| {
        server.0.signal(Signal::TERM);
        assert_eq!(server.0.code(), 0);
    };
    let run = |name: &str| world.run(&["--url", &url, "run", name, "--", "true"]);

    let server = serve(own);
    let (inside, outside) = (run("ci/a"), run("prod"));
    assert_eq!(inside.code, 0, "{inside:?}");
    assert!(outside.code == 77 && outside.stderr.contains("prefix"), "{outside:?}");
    // The waiters and hints of another program, over the same socket.
    let waits = ["--url", &url, "run", "ci/b", "--wait", "60s", "--"];
    let holder = world.start(&[&waits[..], &["sh", "-c", "echo held >&2; read _"]].concat());
    while !holder.said().contains("held") {}
    let who = world.run(&["--url", &url, "--json", "who", "ci/b"]);
    assert!(who.code == 0 && who.stdout.contains("\"pid\""), "{who:?}");
    let more = world.run(&["--url", &url, "run", "--try", "ci/c", "--", "true"]);
    assert!(more.code == 69 && more.stderr.contains("raise `leases_per_client`"), "{more:?}");
    let doctor = world.run(&["--url", &url, "doctor"]);
    assert!(doctor.stdout.contains("none, on this machine"), "{doctor:?}");
    drop(holder);
    stop(server);

    let stranger = serve(own + 1);
    let refused = run("ci/a");
    assert!(refused.code == 77 && refused.stderr.contains("`socket.users`"), "{refused:?}");
    stop(stranger);

    let nobody = run("ci/a");
    assert!(nobody.code == 69 && nobody.stderr.contains("a server.sock"), "{nobody:?}");
    let plain = world.run(&["--url", "http+unix:///run/s.sock", "run", "a", "--", "true"]);
    assert!(plain.code == 78 && plain.stderr.contains("%2F"), "{plain:?}");
}

#[test]
fn several_stores_are_served_by_name() {
    let world = World::new();
    let file = |mode: u32, url: &str| {
        let path = world.path("server.toml");
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, format!("[server.stores]\nus = \"{url}\"\n")).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, mode).expect("ours");
        path.display().to_string()
    };
    let local = |name: &str| format!("local://{}", world.path(name).display());
    let [here, eu, us] = ["here", "eu", "us"].map(local);
    let config = file(0o644, &us);
    let eu_named = format!("eu={eu}");
    let more = ["--url", &here, "--url", &eu_named, "--config", &config];
    let server = Served::start(&world, "127.0.0.1:0", &more);
    for (path, store) in [("", &here), ("/stores/eu", &eu), ("/stores/us", &us)] {
        let url = format!("{}{path}", server.1);
        let mut holder = world.hold(&["--url", &url, "a"]);
        let busy = world.run(&["--url", store, "run", "--try", "a", "--", "true"]);
        assert_eq!(busy.code, 75, "{path}: {busy:?}");
        holder.let_go();
        assert_eq!(holder.code(), 3);
    }
    let secret = "redis://:s3cret@127.0.0.1:1";
    let config = file(0o644, secret);
    for (more, code, says) in [
        (vec!["--url", &here, "--url", &eu], 64, "NAME=URL"),
        (vec!["--url", &eu_named, "--url", &eu_named], 64, "two stores `eu`"),
        (vec!["--url", "eu=redis://:s3cret@127.0.0.1:1"], 64, "0600"),
        (vec!["--url", "A=local:"], 78, "a-z"),
        (vec!["--config", &config], 78, "chmod 600"),
    ] {
        let refused = world.run(&[&["serve", "--listen", "127.0.0.1:0"], &more[..]].concat());
        assert_eq!(refused.code, code, "{more:?}: {refused:?}");
        assert!(refused.stderr.contains(says), "{more:?}: {refused:?}");
        assert!(!refused.stderr.contains("s3cret"), "{refused:?}");
    }
    let twice = world.run(&["--url", &here, "--url", &eu, "run", "a", "--", "true"]);
    assert!(twice.code == 64 && twice.stderr.contains("only `serve`"), "{twice:?}");
}

/// The death of the server would end its session, and so what its clients hold.
#[test]
fn zookeeper_is_refused_with_the_reason_and_the_fix() {
    let (world, zookeeper) = (World::new(), ZooKeeper::start(&ZooKeeperConfig::default()));
    let refused = world.run(&["--url", &zookeeper.url(), "serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, 78, "{refused:?}");
    for says in ["`zookeeper`", "clients would lose their locks", "postgres://", "without a server"]
    {
        assert!(refused.stderr.contains(says), "{refused:?}");
    }
}

#[test]
fn strangers_are_not_let_in_by_mistake() {
    let world = World::new();
    let open = world.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert!(open.code == 78 && open.stderr.contains("nobody is authenticated"), "{open:?}");
}

#[test]
fn a_server_ends_well_at_sigterm() {
    let world = World::new();
    let mut server = Served::fresh(&world);
    let mut holder = world.hold(&["a"]);
    let url = format!("{}/v1/locks/a", server.1);
    let mut curl = Command::new("curl");
    curl.args(["-s", "-d", r#"{"wait_ms": 60000}"#, "-H", "Content-Type: application/json", &url]);
    let waiting = curl.stdout(Stdio::piped()).spawn().expect("curl starts");
    world.queued("a", 1);
    server.0.signal(Signal::TERM);
    assert_eq!(server.0.code(), 0);
    let output = waiting.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&output.stdout).contains("stopping"), "{output:?}");
    holder.let_go();
}
