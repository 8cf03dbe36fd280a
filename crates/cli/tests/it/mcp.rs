//! Coding agents share a repository through `holdline mcp`. Each agent is a process with the
//! official client of the protocol, which `cargo xtask interop prepare` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{Running, World, eventually};

/// The lock of `src/parser` in the repository `shop`.
const PARSER: &str = "shop:file/src/parser";

/// An agent and its server.
struct Agent {
    process: Running,
    calls: u64,
    /// What the server has said at the beginning.
    server: Value,
}

impl Agent {
    fn start(world: &World, mode: &str, name: &str) -> Agent {
        Agent::start_at(world, &world.url(), mode, name)
    }

    fn start_at(world: &World, url: &str, mode: &str, name: &str) -> Agent {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a parent");
        let python = target.join("interop/mcp/bin/python");
        assert!(python.is_file(), "it is not there: run `cargo xtask interop prepare`");
        let driver = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../interop/mcp/agent.py");
        let mut command = Command::new(python);
        command.arg(driver).args([mode, name, env!("CARGO_BIN_EXE_holdline"), "mcp"]);
        command.args(["--repository", "shop"]).current_dir(world.path(""));
        let environment = world.command::<&str>(&[]);
        command.env_clear();
        command.envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let process = world.start_command(command.env("HOLDLINE_URL", url));
        let server = serde_json::from_str(&process.line()).expect("JSON");
        Agent { process, calls: 0, server }
    }

    /// Starts a call, and returns its number.
    fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        self.calls += 1;
        let call = vec![self.calls.into(), "call".into(), tool.into(), arguments];
        self.process.send(&Value::Array(call).to_string());
        self.calls
    }

    /// The outcome of the call that ends next.
    fn outcome(&self) -> Value {
        serde_json::from_str(&self.process.line()).expect("JSON")
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let number = self.begin(tool, arguments);
        let outcome = self.outcome();
        assert_eq!(outcome["id"], number, "{outcome}");
        outcome
    }

    /// Calls a tool that succeeds.
    fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let outcome = self.call(tool, arguments);
        assert_eq!(outcome["error"], false, "{outcome}");
        outcome["answer"].clone()
    }

    /// Calls a tool that fails, as its answer says.
    fn refused(&mut self, tool: &str, arguments: Value) -> Value {
        let outcome = self.call(tool, arguments);
        assert_eq!(outcome["error"], true, "{outcome}");
        outcome["answer"].clone()
    }

    fn lock(&mut self, targets: &[&str]) -> Value {
        self.done("lock", json!({"targets": targets, "purpose": "refactor the parser"}))
    }
}

/// What two agents see of each other, on any engine.
fn two_agents(world: &World, url: &str, mode: &str) {
    let mut ana = Agent::start_at(world, url, mode, "ana");
    let mut ben = Agent::start_at(world, url, mode, "ben");
    assert_eq!(ana.lock(&["src/parser/**", "branch:main"])["lease"], "lease-1");
    let asked = json!({"targets": ["src/parser/lexer.rs"], "purpose": "fix a typo"});
    let refusal = ben.refused("lock", asked);
    assert_eq!(refusal["error"], "busy", "{refusal}");
    let holder = &refusal["held_by"][0];
    assert_eq!(holder["agent"], "ana", "{refusal}");
    assert_eq!(holder["purpose"], "refactor the parser");
    assert_eq!(holder["targets"], "src/parser/**, branch:main");
    let left = holder["seconds_left"].as_u64().expect("a number");
    assert!((30..=600).contains(&left), "a whole lease, not the first grant: {left}");
    let until = holder["until"].as_str().expect("a text");
    assert!(until.len() == 20 && until.starts_with("20") && until.ends_with('Z'), "{until}");
    let says = refusal["message"].as_str().expect("a text");
    assert!(says.starts_with("src/parser/**, branch:main is held by ana until "), "{says}");
    assert!(refusal["next"].as_str().expect("a text").contains("wait_seconds"));
    // What does not overlap is free, also beside a held directory.
    assert_eq!(ben.lock(&["src/main.rs"])["locked"], true);
    let all = ben.done("who", json!({}));
    let seen = |key: &str| -> Vec<&Value> {
        all["held_by"].as_array().expect("a list").iter().map(|holder| &holder[key]).collect()
    };
    assert_eq!(seen("agent"), ["ana", "ben"], "{all}");
    assert_eq!(seen("your_lease"), [&Value::Null, &json!("lease-1")], "{all}");
    // The whole repository is held by both; ben is in the way of himself.
    let whole = ben.refused("lock", json!({"targets": ["**"], "purpose": "format"}));
    assert_eq!(whole["held_by"].as_array().expect("a list").len(), 2, "{whole}");
    // He does not wait for himself, however long he would.
    let patient = json!({"targets": ["**"], "purpose": "format", "wait_seconds": 300});
    let own = ben.refused("lock", patient);
    assert_eq!((&own["error"], &own["your_leases"]), (&json!("own_lease"), &json!(["lease-1"])));
    assert!(own["next"].as_str().expect("a text").contains("release"), "{own}");
    let waited = ben.done("wait", json!({"targets": ["src"], "wait_seconds": 300}));
    assert_eq!((&waited["free"], &waited["your_leases"]), (&json!(false), &json!(["lease-1"])));
    // A call that waits gets the targets when they are released.
    let targets = json!({"targets": ["src/parser/lexer.rs"], "purpose": "fix a typo",
        "wait_seconds": 300, "lease_seconds": 20});
    let waits = ben.begin("lock", targets);
    eventually("ben waits", || {
        world.shell_on(url, &format!("holdline who {PARSER}")).stdout.contains("1 waiting")
    });
    let renewed = ana.done("renew", json!({"lease": "lease-1"}));
    assert_eq!(renewed["renewed"][0]["lease"], "lease-1", "{renewed}");
    let released = ana.done("release", json!({}));
    assert_eq!(released["released"][0]["held_until_now"], true, "{released}");
    let granted = ben.outcome();
    assert_eq!((&granted["id"], &granted["answer"]["lease"]), (&json!(waits), &json!("lease-2")));
    assert!(granted["answer"]["seconds_left"].as_u64().expect("a number") <= 20, "{granted}");
    assert_eq!(ana.done("who", json!({"targets": ["branch:main"]}))["free"], true);
    assert_eq!(ana.done("wait", json!({"targets": ["tests/**"]}))["free"], true);
    let gone = ana.refused("renew", json!({"lease": "lease-1"}));
    assert_eq!(gone["error"], "lost", "{gone}");
}

#[test]
fn agents_exclude_each_other_and_say_why() {
    for mode in ["auto", "legacy"] {
        let world = World::new();
        two_agents(&world, &world.url(), mode);
    }
}

#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
crate::stores::on_stores! {
    agents_on_several_machines_share_a_store: redis, sentinel, postgres, mysql, etcd, zookeeper;
}

#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
fn agents_on_several_machines_share_a_store(kind: crate::stores::Kind) {
    let store = crate::stores::Store::start(kind);
    two_agents(&store.world, store.url(), "auto");
}

#[cfg(feature = "redis")]
#[test]
fn agents_share_a_cluster_and_no_store_without_shared_locks() {
    let world = World::new();
    let calm = holdline_services::ClusterConfig::default().with_size(3, 0);
    let cluster = holdline_services::RedisCluster::start(&calm);
    two_agents(&world, &format!("{}?command_timeout_ms=10000", cluster.url()), "auto");
    let redis = holdline_services::RedisServer::start(holdline_services::RedisConfig::default());
    let plain = format!("{}?dialect=plain", redis.url());
    let refused = world.shell_on(&plain, "holdline mcp");
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.stderr.contains("lacks shared locks"), "{refused:?}");
}

#[cfg(feature = "server")]
#[test]
fn agents_without_rights_on_the_store_share_a_server() {
    let world = World::new();
    let server = crate::serve::Served::fresh(&world);
    two_agents(&world, &server.1, "auto");
}

#[test]
fn a_lease_that_is_not_renewed_ends() {
    let world = World::new();
    let mut ana = Agent::start(&world, "auto", "ana");
    let mut ben = Agent::start(&world, "auto", "ben");
    let short = json!({"targets": ["src/parser"], "purpose": "x", "lease_seconds": 1});
    ana.done("lock", short);
    let waits = json!({"targets": ["src/parser"], "purpose": "x", "wait_seconds": 300});
    assert_eq!(ben.done("lock", waits)["locked"], true);
    assert_eq!(ana.refused("renew", json!({}))["error"], "lost");
    assert_eq!(ana.done("release", json!({}))["released"], json!([]));
}

#[test]
fn the_tools_explain_themselves() {
    let world = World::new();
    let agent = Agent::start(&world, "auto", "ana");
    assert_eq!(agent.server["version"], "2026-07-28", "{}", agent.server);
    assert!(agent.server["instructions"].as_str().expect("a text").contains("call `lock`"));
    let tools = agent.server["tools"].as_object().expect("an object");
    let names: Vec<&String> = tools.keys().collect();
    assert_eq!(names, ["lock", "release", "renew", "wait", "who"]);
    assert_eq!(tools["lock"]["required"], json!(["targets", "purpose"]));
    assert_eq!(tools["lock"]["properties"]["lease_seconds"]["default"], 600);
}

#[test]
fn a_cancelled_call_leaves_the_queue() {
    for mode in ["auto", "legacy"] {
        let world = World::new();
        let mut ana = Agent::start(&world, mode, "ana");
        let mut ben = Agent::start(&world, mode, "ben");
        ana.lock(&["src/parser/**"]);
        // `docs` comes first, and is held while ben waits for the parser.
        let targets = json!({"targets": ["docs", "src/parser"], "purpose": "x",
            "wait_seconds": 300});
        let number = ben.begin("lock", targets);
        world.queued(PARSER, 1);
        ben.process.send(&json!([number, "cancel"]).to_string());
        assert_eq!(ben.outcome()["cancelled"], true);
        world.queued(PARSER, 0);
        world.free("shop:file/docs");
        ana.done("release", json!({}));
        world.free(PARSER);
        assert_eq!(ben.done("who", json!({}))["free"], true, "nothing of ben is left");
    }
}

#[test]
fn leases_end_with_the_agent() {
    let world = World::new();
    let mut ana = Agent::start(&world, "auto", "ana");
    let mut ben = Agent::start(&world, "auto", "ben");
    ana.lock(&["src/parser/**"]);
    let targets = json!({"targets": ["src/parser"], "purpose": "x", "wait_seconds": 300});
    ben.begin("lock", targets);
    world.queued(PARSER, 1);
    // The server of a killed agent reads the end of its input, also while a call waits.
    ben.process.signal(Signal::KILL);
    world.queued(PARSER, 0);
    ana.process.signal(Signal::KILL);
    world.free(PARSER);
}

#[test]
fn a_killed_server_frees_the_locks_of_this_machine() {
    let world = World::new();
    for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
        let mut server = world.start(&["mcp", "--repository", "shop"]);
        raw_handshake(&mut server);
        server.send(&raw_call(2, "lock", json!({"targets": ["src/parser"], "purpose": "x"})));
        let locked = server.line();
        assert!(locked.contains("lease-1"), "{locked}");
        server.signal(signal);
        world.free(PARSER);
        let expected = if signal == Signal::KILL { 137 } else { 0 };
        assert_eq!(server.code(), expected, "{signal:?}");
    }
}

/// What a client sends first, without a client.
fn raw_handshake(server: &mut Running) {
    server.send(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"}}})
        .to_string(),
    );
    let reply: Value = serde_json::from_str(&server.line()).expect("JSON");
    assert_eq!(reply["result"]["serverInfo"]["name"], "holdline", "{reply}");
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
}

fn raw_call(id: u64, tool: &str, arguments: Value) -> String {
    let mut call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"});
    call["params"] = json!({"name": tool});
    call["params"]["arguments"] = arguments;
    call.to_string()
}

#[test]
fn bad_input_is_answered_and_harms_nothing() {
    let world = World::new();
    let mut server = world.start(&["mcp", "--repository", "shop"]);
    server.send("no JSON at all");
    server.send("{\"jsonrpc\": \"2.0\"");
    raw_handshake(&mut server);
    for (line, says) in [
        (raw_call(2, "steal", json!({})), "\"code\":-32602"),
        ("[1,2,3]".to_owned(), "\"code\":-32600"),
        (json!({"jsonrpc": "2.0", "id": 3, "method": "no/such"}).to_string(), "\"code\":-32601"),
        (raw_call(4, "lock", json!(["src"])), "\"code\":-32"),
        (raw_call(5, "lock", json!({"targets": ["src"]})), "missing field `purpose`"),
        (raw_call(6, "who", json!({"target": "src"})), "unknown field `target`"),
        (raw_call(7, "who", json!({"targets": [7]})), "expected a string"),
        (raw_call(8, "who", json!({"targets": ["../x"]})), "`..` is not allowed"),
        (raw_call(9, "who", json!({"targets": ["/etc/passwd"]})), "outside of the repository"),
        (raw_call(10, "wait", json!({"targets": ["a"], "wait_seconds": 301})), "from 0 to 300"),
        (
            raw_call(11, "lock", json!({"targets": ["a"], "purpose": "x", "lease_seconds": 0})),
            "from 1 to 86400",
        ),
        (raw_call(12, "lock", json!({"targets": ["a"], "purpose": " "})), "1 to 200 bytes"),
        (raw_call(13, "lock", json!({"targets": ["a"], "purpose": "\u{1b}[2J"})), "control"),
        (raw_call(14, "renew", json!({"lease": "lease-9"})), "you have no such lease"),
        (raw_call(15, "release", json!({"lease": "lease-9"})), "you have no such lease"),
    ] {
        server.send(&line);
        let reply = server.line();
        assert!(reply.contains(says), "{line}: {reply}");
    }
    server.send("\u{fffd}\u{0}");
    server.send(&raw_call(16, "lock", json!({"targets": ["a"], "purpose": "it still works"})));
    let reply = server.line();
    assert!(reply.contains("lease-1"), "{reply}");
    server.let_go();
    assert_eq!(server.code(), 0);
    world.free("shop:file/a");
}

#[test]
fn all_worktrees_of_a_clone_are_one_repository() {
    let world = World::new();
    let made = world.shell(
        "git init -q clone && cd clone && mkdir src
         git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first
         git worktree add -q ../worktree 2>&1",
    );
    assert_eq!(made.code, 0, "{made:?}");
    let clone = world.path("clone").canonicalize().expect("it is there");
    for directory in ["clone", "clone/src", "worktree"] {
        let mut command = world.command(&["-v", "mcp"]);
        let server = world.start_command(command.current_dir(world.path(directory)));
        let said = [server.said(), server.said()].concat();
        assert!(said.contains(&format!("repository {}", clone.display())), "{directory}: {said}");
    }
}
