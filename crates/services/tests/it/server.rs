//! Servers are started, stopped, killed and restarted, and never outlive us.

use holdline_services::{Raw, RedisConfig, RedisServer, Reply};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn is_alive(pid: u32) -> bool {
    // A zombie has no command line any more.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn a_server_answers_by_port_and_by_socket_and_goes_with_its_owner() {
    let server = RedisServer::start(RedisConfig::default());
    let mut tcp = Raw::connect(server.address()).unwrap();
    assert_eq!(tcp.say("SET a 1").unwrap(), ok());
    let mut unix = Raw::connect_unix(&server.socket()).unwrap();
    assert_eq!(unix.say("GET a").unwrap().text().as_deref(), Some("1"));
    assert_eq!(server.raw().say("DBSIZE").unwrap().integer(), Some(1));
    assert!(server.log().contains("Ready to accept connections"));
    let (pid, directory) = (server.pid(), server.directory().to_owned());
    drop(server);
    assert!(!is_alive(pid));
    assert!(!directory.exists());
}

#[test]
fn a_stopped_server_accepts_and_does_not_answer() {
    let server = RedisServer::start(RedisConfig::default());
    server.stop();
    let mut raw = Raw::connect(server.address()).unwrap();
    raw.set_timeout(Duration::from_millis(50)).unwrap();
    assert_eq!(raw.say("PING").unwrap_err().kind(), ErrorKind::WouldBlock);
    server.cont();
    raw.set_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(raw.read().unwrap(), Reply::Simple("PONG".to_owned()));
}

#[test]
fn a_killed_server_comes_back_on_its_port_without_its_data() {
    let server = RedisServer::start(RedisConfig::default());
    let (address, pid) = (server.address(), server.pid());
    server.raw().say("SET a 1").unwrap();
    server.kill();
    assert_eq!(Raw::connect(address).err().unwrap().kind(), ErrorKind::ConnectionRefused);
    server.restart();
    assert_eq!(server.address(), address);
    assert_ne!(server.pid(), pid);
    assert_eq!(Raw::connect(address).unwrap().say("GET a").unwrap(), Reply::Nil);
}

#[test]
fn an_append_only_file_survives_a_restart() {
    let server = RedisServer::start(RedisConfig::default().with_appendonly("always"));
    server.raw().say("SET a 1").unwrap();
    server.restart();
    assert_eq!(server.raw().say("GET a").unwrap().text().as_deref(), Some("1"));
}

#[test]
fn a_password_is_asked_of_all_but_the_observer() {
    for config in [RedisConfig::default(), RedisConfig::default().with_users_in_file()] {
        let config = config.with_password("secret").with_user("ann on >hers ~a* +get +acl");
        let server = RedisServer::start(config);
        let mut raw = Raw::connect(server.address()).unwrap();
        assert!(raw.say("PING").unwrap().error().unwrap().starts_with("NOAUTH"));
        assert_eq!(raw.say("AUTH secret").unwrap(), ok());
        assert_eq!(raw.say("AUTH ann hers").unwrap(), ok());
        assert_eq!(raw.say("ACL WHOAMI").unwrap().text().as_deref(), Some("ann"));
        assert!(raw.say("GET b").unwrap().error().unwrap().starts_with("NOPERM"));
        assert_eq!(server.raw().say("PING").unwrap(), Reply::Simple("PONG".to_owned()));
        assert_eq!(server.url(), format!("redis://:secret@{}", server.address()));
    }
}

#[test]
fn limits_and_debug_commands_are_as_asked() {
    let config = RedisConfig::default().with_maxmemory("1mb", "noeviction").with_maxclients(2);
    let server = RedisServer::start(config.with_debug_command());
    let mut raw = server.raw();
    let memory = raw.say("CONFIG GET maxmemory*").unwrap();
    let texts: Vec<_> = memory.items().unwrap().iter().filter_map(Reply::text).collect();
    assert!(texts.contains(&"1048576".to_owned()) && texts.contains(&"noeviction".to_owned()));
    assert_eq!(raw.say("DEBUG SLEEP 0").unwrap(), ok());
    let mut second = Raw::connect(server.address()).unwrap();
    assert_eq!(second.say("PING").unwrap(), Reply::Simple("PONG".to_owned()));
    let reply = Raw::connect(server.address()).unwrap().read().unwrap();
    assert!(reply.error().unwrap().contains("max number of clients"), "{reply:?}");
}

#[test]
fn a_server_is_available_while_it_still_loads() {
    // It looks at its connections after each 1024 keys: here five times a second, for 6 s.
    let config = RedisConfig::default().with_appendonly("always");
    let config = config.with_line("key-load-delay 200").with_start_while_loading();
    let server = RedisServer::start(config);
    let fill = "for i = 1, 30000 do redis.call('SET', i, 1) end";
    server.raw().send(&["EVAL", fill, "0"]).unwrap();
    server.kill();
    server.restart();
    let reply = Raw::connect(server.address()).unwrap().say("GET a").unwrap();
    assert!(reply.error().unwrap().starts_with("LOADING"), "{reply:?}");
}

#[test]
fn a_replica_follows_its_master() {
    let master = RedisServer::start(RedisConfig::default());
    let replica = RedisServer::start(RedisConfig::default().with_replica_of(master.address()));
    let mut raw = master.raw();
    let all = |raw: &mut Raw| raw.say("WAIT 1 1000").unwrap().integer();
    raw.say("SET a 1").unwrap();
    // The first link may take a while to be set up; each look waits for up to a second.
    assert!((0..30).any(|_| all(&mut raw) == Some(1)));
    assert_eq!(replica.raw().say("GET a").unwrap().text().as_deref(), Some("1"));
}

#[test]
fn a_server_that_cannot_start_reports_why() {
    let config = RedisConfig::default().with_line("no-such-directive yes");
    let reply = RedisServer::try_start(config).err().unwrap().to_string();
    assert!(reply.contains("ended at once") && reply.contains("no-such-directive"), "{reply}");
}

#[test]
fn many_servers_start_at_once_on_ports_of_their_own() {
    let threads = (0..8).map(|_| {
        std::thread::spawn(|| {
            let server = RedisServer::start(RedisConfig::default());
            server.raw().say("SET a 1").unwrap();
            server
        })
    });
    let threads: Vec<_> = threads.collect();
    // The threads that started them are gone: the servers are not.
    let servers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut ports: Vec<_> = servers.iter().map(|s| s.address().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 8);
    for server in &servers {
        assert_eq!(server.raw().say("DBSIZE").unwrap().integer(), Some(1));
    }
}

/// Run by the test below in a process of its own.
const PARENT: &str = "HOLDLINE_TEST_PARENT";

#[test]
fn a_server_dies_with_a_process_that_is_killed() {
    if std::env::var_os(PARENT).is_some() {
        let server = RedisServer::start(RedisConfig::default());
        println!("\nserver {} {}", server.pid(), server.directory().display());
        loop {
            std::thread::park();
        }
    }
    let name = "server::a_server_dies_with_a_process_that_is_killed";
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(PARENT, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let words =
        lines.map_while(Result::ok).find_map(|l| l.strip_prefix("server ").map(str::to_owned));
    let words = words.unwrap();
    let (pid, directory) = words.split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    assert!(is_alive(pid));
    parent.kill().unwrap();
    parent.wait().unwrap();
    let gone = (0..5000).any(|_| {
        std::thread::sleep(Duration::from_millis(2)); // event: polls until the kernel killed it
        !is_alive(pid)
    });
    // Nobody else can: a killed process removes nothing.
    std::fs::remove_dir_all(Path::new(directory)).unwrap();
    assert!(gone, "{pid} outlived its parent");
}
