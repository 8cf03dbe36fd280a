//! Programs of Go, built by a Go of a fixed version. Only the programs are kept: all else is six
//! hundred megabytes.

use super::{Stamp, download, family, message_of, pip_into, remove};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What checks the workflows. `interop/go/go.mod` pins it beside the peers: there is one Go.
const ACTIONLINT: &str = "github.com/rhysd/actionlint/cmd/actionlint";

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
    let packages = &["./...", ACTIONLINT];
    build(ground, &Module { name: "go", from: "go", sources, packages })
}

/// Makes the peers of the benchmark.
pub(super) fn peers(ground: &Path) -> Result<(), String> {
    let sources = &["main.go", "redis.go", "etcd.go", "sql.go"];
    build(ground, &Module { name: "peers-go", from: "peers/go", sources, packages: &["./..."] })
}

fn build(ground: &Path, module: &Module) -> Result<(), String> {
    let place = ground.join(module.name);
    let from = family(module.from);
    let requirements = family("go").join("requirements.txt");
    let files = ["go.mod", "go.sum"].iter().chain(module.sources).map(|name| from.join(name));
    let wanted: Vec<PathBuf> = std::iter::once(requirements.clone()).chain(files).collect();
    let inputs: Vec<&PathBuf> = wanted.iter().collect();
    let stamp = Stamp::of(&place, &inputs, "python3")?;
    if stamp.is_there() {
        return Ok(());
    }
    remove(&place)?;
    let work = place.join("work");
    std::fs::create_dir_all(&work).map_err(|why| message_of(&work, &why))?;
    download(|| pip_into(&work.join("python"), &requirements))?;
    let go = |arguments: &[&str]| {
        let mut command = Command::new(work.join("python/go/bin/go"));
        command.current_dir(&from).args(arguments);
        // Nothing of the user's, but for where modules come from.
        command.env("GOPATH", work.join("path")).env("GOCACHE", work.join("cache"));
        command.env("GOENV", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
        command.env("GOFLAGS", "-mod=readonly -modcacherw -buildvcs=false -trimpath");
        command.env_remove("GOROOT").env_remove("GOMODCACHE");
        command
    };
    // Fetches the modules that the programs are made of, and no others.
    let list = ["list", "-deps", "-f", "{{if .Error}}{{.Error}}{{end}}"];
    download(|| go(&[&list[..], module.packages].concat()))?;
    let bin = place.join("bin");
    std::fs::create_dir_all(&bin).map_err(|why| message_of(&bin, &why))?;
    let mut build = go(&["build", "-ldflags=-s -w", "-o"]);
    build.arg(&bin).args(module.packages).env("GOPROXY", "off");
    process::watch(&mut build, None, |_| ())?;
    remove(&work)?;
    stamp.leave()
}
