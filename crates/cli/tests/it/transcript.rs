//! The same script of commands on every engine: what a script of a user sees does not depend on the
//! engine, but for what an engine cannot do, and that is said with exit 78.

use holdline_services::{
    ClusterConfig, EtcdConfig, EtcdServer, MariaDbConfig, MariaDbServer, PostgresConfig,
    PostgresServer, RedisCluster, RedisConfig, RedisServer, SentinelConfig, SentinelGroup,
    ZooKeeper, ZooKeeperConfig,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use crate::world::{CommandOutput, Running, World};

/// What an engine may lack, by the word of its capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Detach,
    Freeze,
    /// To report how long the lease of another client still lasts.
    Left,
    List,
    Permits,
    Raise,
    /// To know an id again that was refused, or granted for another time.
    Repeat,
    Shared,
}

use Needs::{Detach, Freeze, Left, List, Permits, Raise, Repeat, Shared};

/// One line of the script: `{1}` to `{c}` are lease ids, `{token NAME}` is the token of the only
/// holder of a name. `hold N NAME` starts a job, `end N` lets it end, `lost N` waits until it was
/// ended.
const SCRIPT: &[(&[Needs], &str)] = &[
    // Nothing is there yet.
    (&[], "who a"),
    (&[List], "ls"),
    (&[], "wait a --wait 20s"),
    (&[], "check a --lease-id {1}"),
    (&[Detach], "release a --lease-id {1}"),
    // A lease from its beginning to its end, each step also by one who has no right to it.
    (&[Detach], "acquire a --lease 30s --lease-id {1} --reason first --label team=blue"),
    (&[Detach], "acquire a --lease 30s --lease-id {1} --reason first --label team=blue"),
    (&[Detach, Repeat], "acquire a --lease 20s --lease-id {1}"),
    (&[Detach], "acquire a --try --lease-id {2}"),
    (&[Detach, Repeat], "acquire a --wait 3s --lease-id {3}"),
    (&[Detach], "run a --try -- true"),
    (&[Detach], "run a --skip -- true"),
    (&[Detach], "run a --try -E 3 -- true"),
    (&[Detach], "who a"),
    (&[Detach, List], "ls"),
    (&[Detach], "wait a --wait 3s"),
    (&[Detach], "check a --lease-id {1}"),
    (&[Detach], "check a --lease-id {2}"),
    (&[Detach], "renew a --lease-id {1}"),
    (&[Detach], "renew a --lease-id {2}"),
    (&[Detach], "release a --lease-id {2}"),
    (&[Detach], "check a --lease-id {1}"),
    (&[Detach], "release a --lease-id {1}"),
    (&[Detach], "release a --lease-id {1}"),
    (&[Detach], "check a --lease-id {1}"),
    (&[Detach], "renew a --lease-id {1}"),
    (&[Detach], "who a"),
    // A job under a lock.
    (&[], "run a --lease 30s -- sh -c 'exit 7'"),
    (&[], "run a --lease 30s -- sh -c 'kill -KILL $$'"),
    (&[], "run a --lease 30s -- no-such-program"),
    (&[], "run a --lease 30s -- sh -c 'echo $HOLDLINE_NAME ${#HOLDLINE_LEASE_ID}'"),
    (&[], "run a --lease 30s -- holdline run a --lease 30s -- true"),
    (&[], "run a --lease 30s --max-hold 50ms --grace 50ms -- sleep 30"),
    (&[], "run a --lease 1s -- true"),
    // Operators.
    (&[Detach], "acquire b --lease 30s --lease-id {4}"),
    (&[Detach], "revoke b --if-fencing-token 987654321 --reason moving"),
    (&[Detach], "revoke b --if-fencing-token {token b} --reason moving"),
    (&[Detach], "renew b --lease-id {4}"),
    (&[Detach], "who b"),
    (&[Detach], "release b --lease-id {4}"),
    (&[Detach], "acquire b --lease 30s --lease-id {5}"),
    (&[Detach], "revoke b --if-fencing-token {token b} --reason moving --now"),
    (&[Detach], "check b --lease-id {5}"),
    (&[Detach], "who b"),
    (&[Raise], "fence bump --to 12"),
    (&[Freeze], "freeze c --for 1m --reason moving"),
    (&[Freeze], "freeze c --for 1m --reason again"),
    (&[Freeze], "run c --try -- true"),
    (&[Freeze], "who c"),
    (&[Freeze], "unfreeze c"),
    (&[Freeze], "unfreeze c"),
    (&[Freeze], "run c --try --lease 30s -- true"),
    // Several at once.
    (&[Detach, Shared], "acquire d --shared --lease 30s --lease-id {6}"),
    (&[Detach, Shared], "acquire d --shared --lease 30s --lease-id {7}"),
    (&[Detach, Shared], "acquire d --try --lease-id {8}"),
    (&[Detach, Shared], "who d"),
    (&[Detach, Shared], "release d --lease-id {6}"),
    (&[Detach, Shared], "release d --lease-id {7}"),
    (&[Detach, Shared], "acquire d --try --lease 30s --lease-id {8}"),
    (&[Detach, Shared], "release d --lease-id {8}"),
    (&[Detach, Permits], "acquire e --permits 2/3 --lease 30s --lease-id {a}"),
    (&[Detach, Permits], "acquire e --permits 2/3 --try --lease-id {b}"),
    (&[Detach, Permits], "acquire e --permits 1/3 --try --lease 30s --lease-id {c}"),
    (&[Detach, Permits], "acquire e --permits 1/4 --try"),
    (&[Detach, Permits], "acquire e --try"),
    (&[Detach, Permits], "who e"),
    (&[Detach, Permits], "release e --lease-id {a}"),
    (&[Detach, Permits], "release e --lease-id {c}"),
    // The same, held by jobs, where no lease outlives its process.
    (&[], "hold 1 f --lease 30s --reason first --label team=blue"),
    (&[], "run f --try -- true"),
    (&[], "run f --skip -- true"),
    (&[], "run f --try -E 3 -- true"),
    (&[], "who f"),
    (&[List], "ls"),
    (&[], "wait f --wait 1s"),
    (&[], "revoke f --if-fencing-token 987654321 --reason moving"),
    (&[], "end 1"),
    (&[], "who f"),
    (&[], "hold 2 f --lease 30s"),
    (&[], "revoke f --if-fencing-token {token f} --reason moving --now"),
    (&[], "lost 2"),
    (&[], "who f"),
    (&[Shared], "hold 3 g --shared --lease 30s"),
    (&[Shared], "hold 4 g --shared --lease 30s"),
    (&[Shared], "run g --try -- true"),
    (&[Shared], "run g --shared --try --lease 30s -- true"),
    (&[Shared], "who g"),
    (&[Shared], "end 3"),
    (&[Shared], "end 4"),
    (&[Shared], "run g --try --lease 30s -- true"),
    (&[Permits], "hold 5 h --permits 2/3 --lease 30s"),
    (&[Permits], "run h --permits 2/3 --try -- true"),
    (&[Permits], "run h --permits 1/3 --try --lease 30s -- true"),
    (&[Permits], "run h --permits 1/4 --try -- true"),
    (&[Permits], "run h --try -- true"),
    (&[Permits], "who h"),
    (&[Permits], "end 5"),
    // What no engine is asked for.
    (&[], "run"),
    (&[], "acquire a --lease 1ms"),
    (&[], "acquire a --permits 4/3"),
    (&[], "revoke a --reason x"),
    (&[], "acquire '' --try"),
    (&[List], "ls"),
];

/// Makes one transcript comparable with another's: what differs from run to run gets a name by the
/// order of its first appearance. Tokens are compared within a name: some engines count them so.
#[derive(Default)]
struct Names {
    known: BTreeMap<(&'static str, String), String>,
    /// The name of the lock that is spoken of.
    lock: String,
    without_left: bool,
}

fn is_of_script(lease_id: &Value) -> bool {
    let text = lease_id.as_str().unwrap_or_default();
    text.chars().all(|character| text.starts_with(character))
}

impl Names {
    fn of(&mut self, kind: &'static str, value: &Value) -> Value {
        let next = self.known.keys().filter(|(known, _)| *known == kind).count() + 1;
        let name = self.known.entry((kind, value.to_string()));
        name.or_insert_with(|| format!("{kind} {next}")).clone().into()
    }

    fn shape(&mut self, value: Value) -> Value {
        match value {
            Value::Array(all) => all.into_iter().map(|one| self.shape(one)).collect(),
            Value::Object(all) => {
                if let Some(Value::String(name)) = all.get("name") {
                    self.lock.clone_from(name);
                }
                let shaped = all.into_iter().map(|(key, value)| {
                    let value = self.field(&key, value);
                    (key, value)
                });
                shaped.collect::<Map<_, _>>().into()
            }
            other => other,
        }
    }

    fn field(&mut self, key: &str, value: Value) -> Value {
        match key {
            _ if value.is_null() => value,
            "fencing_token" => {
                let of_lock = format!("{} {value}", self.lock).into();
                self.of("token", &of_lock)
            }
            "pid" => self.of("pid", &value),
            // One of the script's own is shown as it is.
            "lease_id" if !is_of_script(&value) => self.of("lease", &value),
            "left_ms" if self.without_left => Value::Null,
            // Not every store knows how old something is, and only a quorum has servers.
            "engine" | "message" | "held_for_ms" | "waited_ms" | "servers" => Value::Null,
            _ if key.ends_with("_ms") => "time".into(),
            _ => self.shape(value),
        }
    }
}

fn lacking(needs: &[Needs], lacks: &[Needs]) -> bool {
    needs.iter().any(|need| lacks.contains(need))
}

/// Returns whether a line asks an engine for what it lacks, and does not only follow from that.
fn is_asked(needs: &[Needs], lacks: &[Needs], line: &str) -> bool {
    let verb = line.split(' ').next().unwrap_or_default();
    let takes = matches!(verb, "acquire" | "run");
    needs.iter().filter(|need| lacks.contains(need)).any(|need| match need {
        Detach => verb == "acquire",
        Freeze => matches!(verb, "freeze" | "unfreeze"),
        Left | Repeat => false,
        List => verb == "ls",
        Permits => takes && line.contains("--permits"),
        Raise => verb == "fence",
        Shared => takes && line.contains("--shared"),
    })
}

/// Plays the script and writes down what it shows. For lines about what is lacking
/// it writes only the exit code, where the engine `asks` for them.
fn transcript(url: &str, lacks: &[Needs], asks: bool) -> Vec<String> {
    let names = Names { without_left: lacks.contains(&Left), ..Names::default() };
    let mut player = Player { world: World::new(), url, names, jobs: BTreeMap::new() };
    let step = |(needs, line): &(&[Needs], &str)| match lacking(needs, lacks) {
        false => player.step(line),
        // What would have come of it is not asked for, the verb itself is.
        true if asks && is_asked(needs, lacks, line) => {
            shell(&player.world, url, &with_ids(line)).code.to_string()
        }
        true => String::new(),
    };
    SCRIPT.iter().map(step).collect()
}

fn with_ids(line: &str) -> String {
    ["1", "2", "3", "4", "5", "6", "7", "8", "a", "b", "c"]
        .iter()
        .fold(line.to_owned(), |line, digit| {
            line.replace(&format!("{{{digit}}}"), &digit.repeat(32))
        })
}

struct Player<'a> {
    world: World,
    url: &'a str,
    names: Names,
    jobs: BTreeMap<String, Running>,
}

impl Player<'_> {
    fn step(&mut self, line: &str) -> String {
        let mut line = with_ids(line);
        if let Some((before, rest)) = line.clone().split_once("{token ") {
            let (name, after) = rest.split_once('}').expect("a place");
            let who = shell(&self.world, self.url, &format!("who {name}"));
            let who: Value = serde_json::from_str(&who.stdout).expect("JSON");
            line = format!("{before}{}{after}", who["holders"][0]["fencing_token"]);
        }
        let words: Vec<&str> = line.split(' ').collect();
        self.names.lock = words.get(1).copied().unwrap_or_default().to_owned();
        let output = match words.as_slice() {
            ["hold", job, name, options @ ..] => return self.hold(job, name, options),
            ["end" | "lost", job] => self.ended(job, words[0] == "end"),
            _ => shell(&self.world, self.url, &line),
        };
        let (out, err) = (self.shapes(&output.stdout), self.shapes(&output.stderr));
        format!("{}\n  out {}\n  err {}", output.code, out.join("\n      "), err.join("\n      "))
    }

    fn shapes(&mut self, text: &str) -> Vec<String> {
        let shape = |line: &str| match serde_json::from_str::<Value>(line) {
            Ok(value) => self.names.shape(value).to_string(),
            Err(_) => line.to_owned(),
        };
        text.lines().map(shape).collect()
    }

    fn hold(&mut self, job: &str, name: &str, options: &[&str]) -> String {
        let words = ["--", "sh", "-c", "echo up; read line; exit 7"];
        let words = [&["--json", "--quiet", "run", name], options, &words].concat();
        let mut command = self.world.command(&words);
        let running = self.world.start_command(command.env("HOLDLINE_URL", self.url));
        let line = running.line();
        self.jobs.insert(job.to_owned(), running);
        line
    }

    fn ended(&mut self, job: &str, by_itself: bool) -> CommandOutput {
        let mut running = self.jobs.remove(job).expect("it was started");
        if by_itself {
            running.let_go();
        }
        CommandOutput { code: running.code(), stdout: String::new(), stderr: running.rest() }
    }
}

/// Without the talk while something is waited for, which depends on how long that takes.
fn shell(world: &World, url: &str, line: &str) -> CommandOutput {
    world.shell_on(url, &format!("holdline --json --quiet {line}"))
}

/// With a limit that a machine that is busy does not meet.
fn unhurried(url: &str) -> String {
    format!("{url}?command_timeout_ms=10000")
}

fn compare(engine: &str, url: &str, lacks: &[Needs]) {
    let world = World::new();
    let local = transcript(&world.url(), lacks, false);
    let other = transcript(url, lacks, true);
    let mut differ = Vec::new();
    for (((needs, line), local), other) in SCRIPT.iter().zip(local).zip(other) {
        if lacking(needs, lacks) {
            let expected = if is_asked(needs, lacks, line) { "78" } else { "" };
            assert_eq!(other, expected, "$ holdline {line}");
        } else if local != other {
            differ.push(format!("$ holdline {line}\nlocal: {local}\n{engine}: {other}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
}

#[test]
fn redis_prints_what_local_prints() {
    let server = RedisServer::start(RedisConfig::default());
    compare("redis", &unhurried(&server.url()), &[]);
}

#[test]
fn a_redis_cluster_prints_what_local_prints_except_for_what_it_lacks() {
    let calm = ClusterConfig::default().with_node_timeout(std::time::Duration::from_secs(90));
    let cluster = RedisCluster::start(&calm.with_size(3, 0));
    compare("redis-cluster", &unhurried(&cluster.url()), &[Raise]);
}

#[test]
fn redis_with_sentinels_prints_what_local_prints() {
    let group = SentinelGroup::start(&SentinelConfig::default());
    group.settle(0);
    compare("redis with sentinels", &unhurried(&group.url()), &[]);
}

#[test]
fn a_quorum_of_redis_servers_prints_what_local_prints_except_for_what_it_lacks() {
    let servers = [(); 3].map(|()| RedisServer::start(RedisConfig::default()));
    let hosts: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    let url = unhurried(&format!("redlock://{}", hosts.join(",")));
    let output = World::new().shell_on(&url, "holdline quorum init && holdline quorum vouch --yes");
    assert_eq!(output.code, 0, "{output:?}");
    compare("redlock", &url, &[Freeze, List, Permits, Repeat, Shared]);
}

#[test]
fn postgres_prints_what_local_prints() {
    let server = PostgresServer::start(PostgresConfig::default());
    compare("postgres", &unhurried(&server.url()), &[]);
}

#[test]
fn mariadb_prints_what_local_prints() {
    let (server, world) = (MariaDbServer::start(MariaDbConfig::default()), World::new());
    // A password in the URL would be kept from the jobs, and so from what they run.
    let secret = world.path("password");
    std::fs::write(&secret, MariaDbServer::PASSWORD).expect("written");
    let url = format!("mysql://holdline@{}/locks?password_file=", server.address());
    let url = format!("{url}{}&command_timeout_ms=10000", secret.display());
    compare("mariadb", &url, &[]);
}

#[test]
fn etcd_prints_what_local_prints_except_for_what_it_lacks() {
    let server = EtcdServer::start(EtcdConfig::default());
    compare("etcd", &unhurried(&server.url()), &[Freeze, Raise]);
}

#[test]
fn zookeeper_prints_what_local_prints_except_for_what_it_lacks() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    compare("zookeeper", &unhurried(&server.url()), &[Detach, Freeze, Left, Raise]);
}
