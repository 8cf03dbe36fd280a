//! The settings that packages bring are good for the server that they start.

use std::path::{Path, PathBuf};
use std::process::Command;

use holdline_services::{Certificates, Prometheus, RedisConfig, RedisServer};
use serde_json::Value;

use super::Served;
use crate::world::{World, eventually, output};

fn packaging(file: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join("packaging").join(file)).expect("it is there")
}

/// Starts a server with these settings.
fn serve(world: &World, settings: &str, url: Option<&str>) -> Served {
    let file = world.path("server.toml");
    std::fs::write(&file, settings).expect("writable");
    let mut command = world.command(&["--config", "server.toml", "serve"]);
    command.env_remove("HOLDLINE_URL");
    if let Some(url) = url {
        command.env("HOLDLINE_URL", url);
    }
    Served::started(world.start_command(&mut command))
}

fn status(server: &Served, ca: Option<&Path>, host: &str, path: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}"]);
    if let Some(ca) = ca {
        curl.arg("--cacert").arg(ca);
    }
    curl.args(["-H", &format!("Host: {host}"), &format!("{}{path}", server.1)]);
    output(&mut curl).stdout
}

#[test]
fn the_settings_of_the_debian_package_serve_one_machine() {
    let world = World::new();
    let settings = packaging("debian/server.toml");
    let directory = format!("local://{}", world.path("locks").display());
    let moved = settings.replace("local:///var/lib/holdline/locks", &directory);
    let moved = moved.replace("127.0.0.1:7654", "127.0.0.1:0");
    assert!(moved.contains(&directory) && moved.contains("127.0.0.1:0"), "{moved}");
    let server = serve(&world, &moved, None);
    assert_eq!(status(&server, None, "localhost", "/readyz"), "200");
}

/// Nobody asks a server of systemd whether it is ready.
#[test]
fn the_alert_of_a_store_that_is_away_fires_for_the_server_of_the_debian_package() {
    let world = World::new();
    let redis = RedisServer::start(RedisConfig::default());
    let settings = packaging("debian/server.toml").replace("127.0.0.1:7654", "127.0.0.1:0");
    let kept = settings.lines().filter(|line| !line.starts_with("url = "));
    let settings = kept.map(|line| format!("{line}\n")).collect::<String>();
    let server = serve(&world, &settings, Some(&redis.url()));
    let rules = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../ops/alerts.yml");
    let rules = std::fs::read_to_string(rules).expect("it is there");
    let (before, alert) = rules.split_once("alert: HoldlineStoreDown\n").expect("the alert");
    let soon = alert.replacen("for: 1m\n", "for: 1s\n", 1);
    assert!(soon != alert, "{alert}");
    let file = world.path("alerts.yml");
    std::fs::write(&file, format!("{before}alert: HoldlineStoreDown\n{soon}")).expect("writable");
    let target = format!("127.0.0.1:{}", server.port()).parse().expect("an address");
    let prometheus = Prometheus::start(&file, &[target]);
    let state = || {
        let answer: Value = serde_json::from_str(&prometheus.rules()).expect("JSON");
        let groups = answer["data"]["groups"].as_array().expect("groups").clone();
        let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        let mut rules = rules.filter(|rule| rule["name"] == "HoldlineStoreDown");
        rules.next().map(|rule| (rule["state"].clone(), rule["health"].clone()))
    };
    let is = |wanted: &str| state() == Some((wanted.into(), "ok".into()));
    eventually("the store is up", || {
        is("inactive") && prometheus.query("holdline_store_up == 1").contains("default")
    });
    redis.kill();
    eventually("the alert fires", || is("firing"));
    redis.restart();
    eventually("the alert is over", || is("inactive"));
}

#[test]
fn the_settings_for_kubernetes_serve_with_the_probes_of_the_manifest() {
    let world = World::new();
    let manifest = packaging("kubernetes/serve.yaml");
    let (_, rest) = manifest.split_once("  server.toml: |\n").expect("the settings");
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let settings: String = lines.map(|line| format!("{}\n", line.trim_start())).collect();
    let certificates = Certificates::write(&world.path("")).expect("certificates");
    let (cert, key) = certificates.server();
    let moved = settings.replace("/etc/holdline-tls/tls.crt", &cert.display().to_string());
    let moved = moved.replace("/etc/holdline-tls/tls.key", &key.display().to_string());
    let moved = moved.replace("0.0.0.0:7654", "127.0.0.1:0");
    let moved = moved.replace("0.0.0.0:7655", "127.0.0.1:0");
    let server = serve(&world, &moved, Some(&world.url()));
    let health = server.0.said();
    let (_, health) = health.split_once("answers probes at ").expect("the port of the probes");
    let ca = certificates.ca();
    for path in ["/healthz", "/readyz"] {
        assert!(
            manifest.contains(&format!("path: {path}\n              port: health\n")),
            "{path}"
        );
        assert_eq!(status(&server, Some(&ca), "holdline", path), "200", "{path}");
        let mut curl = Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: 10.0.0.7:7655"]);
        let probe = output(curl.arg(format!("{}{path}", health.trim()))).stdout;
        assert_eq!(probe, "200", "{path}: a probe names the address of the pod");
    }
    assert_eq!(status(&server, Some(&ca), "10.0.0.7:7654", "/healthz"), "421");
    assert_eq!(status(&server, Some(&ca), "holdline", "/v1/locks"), "401");
}
