//! The settings that packages bring are good for the server that they start.

use std::path::{Path, PathBuf};
use std::process::Command;

use holdline_services::Certificates;

use super::Served;
use crate::world::{World, output};

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
    let server = serve(&world, &moved, Some(&world.url()));
    let ca = certificates.ca();
    for path in ["/healthz", "/readyz"] {
        assert!(manifest.contains(&format!("path: {path}\n")), "{path}");
        assert_eq!(status(&server, Some(&ca), "holdline", path), "200", "{path}");
    }
    assert!(manifest.contains("value: holdline\n"), "the probes send the name of the server");
    assert_eq!(status(&server, Some(&ca), "10.0.0.7:7654", "/healthz"), "421");
    assert_eq!(status(&server, Some(&ca), "holdline", "/v1/locks"), "401");
}
