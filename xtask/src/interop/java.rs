//! Drivers of Java: one of Redisson, compiled for two versions, and one of all peers of the
//! benchmark.
//!
//! A list of sums names the jars, and with them the version of Redisson: a jar that is not on the
//! list is on no class path.

use super::{LIMIT, Stamp, download, family, message_of, remove};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What copies a library with all that it needs, of a fixed version.
const COPIES: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Makes both versions ready.
pub(super) fn java(ground: &Path) -> Result<(), String> {
    version(ground, "3")?;
    version(ground, "4")
}

/// Makes `redisson-4/jars` and `redisson-4/classes`, for version 4.
pub(super) fn version(ground: &Path, number: &str) -> Result<(), String> {
    let from = family("java");
    let sums = from.join(format!("redisson/{number}.sha256"));
    build(&Program {
        place: ground.join(format!("redisson-{number}")),
        driver: from.join("RedissonDriver.java"),
        project: from.join("redisson/pom.xml"),
        sums,
    })
}

/// Makes the peers of the benchmark, of several libraries.
pub(super) fn peers(ground: &Path) -> Result<(), String> {
    let from = family("peers").join("java");
    build(&Program {
        place: ground.join("peers-java"),
        driver: from.join("Peers.java"),
        project: from.join("pom.xml"),
        sums: from.join("jars.sha256"),
    })
}

/// A driver, what it needs, and the directory that gets `jars` and `classes`.
struct Program {
    place: PathBuf,
    driver: PathBuf,
    project: PathBuf,
    sums: PathBuf,
}

fn build(Program { place, driver, project, sums }: &Program) -> Result<(), String> {
    let stamp = Stamp::of(place, &[driver, project, sums], "javac")?;
    if stamp.is_there() {
        return Ok(());
    }
    remove(place)?;
    let jars = place.join("jars");
    let classes = place.join("classes");
    std::fs::create_dir_all(&jars).map_err(|why| message_of(&jars, &why))?;
    // A copy, so that nothing that Maven writes beside it is in the tree.
    let copy = place.join("pom.xml");
    std::fs::copy(project, &copy).map_err(|why| message_of(&copy, &why))?;
    let list = std::fs::read_to_string(sums).map_err(|why| message_of(sums, &why))?;
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let version = version_of(&names).ok_or_else(|| format!("{} names none", sums.display()))?;
    download(|| {
        let mut maven = Command::new("mvn");
        maven.current_dir(place).args(["--quiet", "--batch-mode", "--file"]).arg(&copy);
        maven.arg(format!("-Dredisson.version={version}")).arg(COPIES);
        maven.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", jars.display()));
        maven
    })?;
    let mut check = Command::new("sha256sum");
    check.current_dir(&jars).args(["--check", "--strict", "--quiet"]).arg(sums);
    process::watch(&mut check, LIMIT, |_| ())?;
    let path: Vec<String> = names.iter().map(|name| format!("{}/{name}", jars.display())).collect();
    let mut javac = Command::new("javac");
    javac.args(["--release", "17", "-cp", &path.join(":"), "-d"]).arg(&classes).arg(driver);
    process::watch(&mut javac, LIMIT, |_| ())?;
    stamp.leave()
}

/// The version of Redisson that a list of jars has.
fn version_of<'a>(names: &[&'a str]) -> Option<&'a str> {
    names.iter().find_map(|name| name.strip_prefix("redisson-")?.strip_suffix(".jar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_sums_names_the_version() {
        let names = ["netty-common-4.2.16.Final.jar", "redisson-4.7.0.jar"];
        assert_eq!(version_of(&names), Some("4.7.0"));
        assert_eq!(version_of(&names[..1]), None);
    }
}
