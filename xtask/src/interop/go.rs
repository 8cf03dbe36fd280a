//! Programs of Go, built by a Go of a fixed version. Only the programs are kept: all else is six
//! hundred megabytes.

use super::{Stamp, download, family, message_of, pip_into, remove};
use crate::cargo::root;
use crate::process;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What checks the workflows. `interop/go/go.mod` pins it beside the peers: there is one Go.
const ACTIONLINT: &str = "github.com/rhysd/actionlint/cmd/actionlint";
/// What checks our client for Go. The same file pins it.
const STATICCHECK: &str = "honnef.co/go/tools/cmd/staticcheck";

/// Programs of one module.
struct Module {
    name: &'static str,
    from: &'static str,
    sources: &'static [&'static str],
    packages: &'static [&'static str],
}

/// Makes what the tests need.
pub(super) fn go(ground: &Path) -> Result<(), String> {
    let sources = &["mutex/main.go", "etcd/main.go", "walk/main.go", "guide/main.go"];
    let packages = &["./...", ACTIONLINT, STATICCHECK];
    build(ground, &Module { name: "go", from: "go", sources, packages })?;
    client(ground)
}

/// Checks our client for Go, and builds its tests with the race detector. It needs no module.
fn client(ground: &Path) -> Result<(), String> {
    let from = root().join("clients/go");
    let sources = ["go.mod", "client.go", "errors.go", "lock.go"];
    let tests = ["holdline_test.go", "faults_test.go", "clock_test.go", "example_test.go"];
    let inputs: Vec<PathBuf> = sources.iter().chain(&tests).map(|name| from.join(name)).collect();
    let place = ground.join("go-client");
    let Some(toolchain) = Toolchain::unless_made(&place, &inputs)? else { return Ok(()) };
    let run = |mut command: Command| process::watch(&mut command, None, |_| ());
    let go = |arguments: &[&str]| {
        let mut command = toolchain.go(&from, arguments);
        command.env("GOPROXY", "off");
        command
    };
    let mut format = toolchain.command("gofmt", &from);
    let unformatted = format.args(["-l", "."]).output();
    let unformatted = unformatted.map_err(|why| format!("gofmt does not start: {why}"))?;
    if !unformatted.status.success() || !unformatted.stdout.is_empty() {
        return Err("clients/go is not formatted: run `gofmt -w .` there".to_owned());
    }
    run(go(&["vet", "./..."]))?;
    let mut check = Command::new(ground.join("go/bin/staticcheck"));
    toolchain.settings(&mut check, &from);
    check.arg("./...").env("PATH", toolchain.path()?);
    run(check)?;
    let mut tests = go(&["test", "-c", "-race", "-o"]);
    // The race detector is in C.
    tests.arg(place.join("tests")).env("CGO_ENABLED", "1");
    run(tests)?;
    toolchain.leave()
}

/// Makes the peers of the benchmark.
pub(super) fn peers(ground: &Path) -> Result<(), String> {
    let sources = &["main.go", "redis.go", "etcd.go", "sql.go"];
    build(ground, &Module { name: "peers-go", from: "peers/go", sources, packages: &["./..."] })
}

fn build(ground: &Path, module: &Module) -> Result<(), String> {
    let place = ground.join(module.name);
    let from = family(module.from);
    let files = ["go.mod", "go.sum"].iter().chain(module.sources).map(|name| from.join(name));
    let inputs: Vec<PathBuf> = files.collect();
    let Some(toolchain) = Toolchain::unless_made(&place, &inputs)? else { return Ok(()) };
    // Fetches the modules that the programs are made of, and no others.
    let list = ["list", "-deps", "-f", "{{if .Error}}{{.Error}}{{end}}"];
    download(|| toolchain.go(&from, &[&list[..], module.packages].concat()))?;
    let bin = place.join("bin");
    std::fs::create_dir_all(&bin).map_err(|why| message_of(&bin, &why))?;
    let mut build = toolchain.go(&from, &["build", "-ldflags=-s -w", "-o"]);
    build.arg(&bin).args(module.packages).env("GOPROXY", "off");
    process::watch(&mut build, None, |_| ())?;
    toolchain.leave()
}

/// Go itself, while something is made by it.
struct Toolchain {
    work: PathBuf,
    stamp: Stamp,
}

impl Toolchain {
    /// Fetches Go, unless what is at this place was made of the same inputs.
    fn unless_made(place: &Path, inputs: &[PathBuf]) -> Result<Option<Toolchain>, String> {
        let requirements = family("go").join("requirements.txt");
        let wanted: Vec<&PathBuf> = std::iter::once(&requirements).chain(inputs).collect();
        let stamp = Stamp::of(place, &wanted, "python3")?;
        if stamp.is_there() {
            return Ok(None);
        }
        remove(place)?;
        let work = place.join("work");
        std::fs::create_dir_all(&work).map_err(|why| message_of(&work, &why))?;
        download(|| pip_into(&work.join("python"), &requirements))?;
        Ok(Some(Toolchain { work, stamp }))
    }

    fn bin(&self) -> PathBuf {
        self.work.join("python/go/bin")
    }

    fn go(&self, from: &Path, arguments: &[&str]) -> Command {
        let mut command = self.command("go", from);
        command.args(arguments);
        command
    }

    fn command(&self, program: &str, from: &Path) -> Command {
        let mut command = Command::new(self.bin().join(program));
        self.settings(&mut command, from);
        command
    }

    /// Nothing of the user's, but for where modules come from.
    fn settings(&self, command: &mut Command, from: &Path) {
        command.current_dir(from);
        command.env("GOPATH", self.work.join("path")).env("GOCACHE", self.work.join("cache"));
        command.env("GOENV", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
        command.env("GOFLAGS", "-mod=readonly -modcacherw -buildvcs=false -trimpath");
        command.env_remove("GOROOT").env_remove("GOMODCACHE");
    }

    /// The search path with Go first.
    fn path(&self) -> Result<OsString, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(self.bin()).chain(std::env::split_paths(&path));
        std::env::join_paths(all).map_err(|why| format!("PATH: {why}"))
    }

    /// Removes Go, and keeps what was made.
    fn leave(self) -> Result<(), String> {
        remove(&self.work)?;
        self.stamp.leave()
    }
}
