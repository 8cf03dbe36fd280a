//! Two versions of CPython with what the tests of the Python package need, and a type checker.
//!
//! The registry of Java has whole builds of CPython; that of Python has none. Debian's own
//! interpreter is neither the oldest nor the newest that the package supports. There is no 3.15
//! yet, and these builds are for x86-64 only.

use super::{LIMIT, Stamp, download, family, message_of, packages_of_npm, remove};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest and the newest version: `interop/cpython` has a list of sums and one of packages for
/// each.
pub(crate) const VERSIONS: [&str; 2] = ["oldest", "newest"];
/// What copies a file from the registry of Java, of a fixed version.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";

/// Makes both versions and the type checker ready.
pub(super) fn cpython(ground: &Path) -> Result<(), String> {
    pyright(ground)?;
    VERSIONS.iter().try_for_each(|which| environment(ground, which))
}

/// The virtual environment of a version.
pub(crate) fn environment_of(ground: &Path, which: &str) -> PathBuf {
    ground.join(format!("cpython-{which}")).join("environment")
}

fn environment(ground: &Path, which: &str) -> Result<(), String> {
    let place = ground.join(format!("cpython-{which}"));
    let from = family("cpython");
    let sums = from.join(format!("{which}.sha256"));
    let packages = from.join(format!("{which}.txt"));
    let stamp = Stamp::of(&place, &[&sums, &packages], "python3")?;
    if stamp.is_there() {
        return Ok(());
    }
    remove(&place)?;
    let python = interpreter(&place, &sums)?;
    let environment = environment_of(ground, which);
    let mut venv = Command::new(python);
    process::watch(venv.args(["-m", "venv"]).arg(&environment), LIMIT, |_| ())?;
    download(|| {
        let mut pip = Command::new(environment.join("bin/python"));
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install"]);
        pip.args(["--require-hashes", "--only-binary", ":all:", "--requirement"]).arg(&packages);
        pip
    })?;
    stamp.leave()
}

/// Fetches a build, and returns its program.
fn interpreter(place: &Path, sums: &Path) -> Result<PathBuf, String> {
    let list = std::fs::read_to_string(sums).map_err(|why| message_of(sums, &why))?;
    let named = list.split_whitespace().nth(1).and_then(|jar| Some((jar, version_of(jar)?)));
    let (jar, version) = named.ok_or_else(|| format!("{} names no build", sums.display()))?;
    let directory = place.display();
    download(|| {
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", COPY, "-Dmdep.useBaseVersion=true"]);
        maven.arg(format!("-Dartifact=org.bytedeco:cpython:{version}:jar:linux-x86_64"));
        maven.arg(format!("-DoutputDirectory={directory}"));
        maven
    })?;
    let mut check = Command::new("sha256sum");
    check.current_dir(place).args(["--check", "--strict", "--quiet"]).arg(sums);
    process::watch(&mut check, LIMIT, |_| ())?;
    let mut unzip = Command::new("python3");
    unzip.current_dir(place).args(["-m", "zipfile", "-e", jar, "build"]);
    process::watch(&mut unzip, LIMIT, |_| ())?;
    let minor: Vec<&str> = version.split('.').take(2).collect();
    let program = place
        .join("build/org/bytedeco/cpython/linux-x86_64/bin")
        .join(format!("python{}", minor.join(".")));
    // A zip file has no rights.
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, rights).map_err(|why| message_of(&program, &why))?;
    Ok(program)
}

/// The version that the name of a build has.
fn version_of(jar: &str) -> Option<&str> {
    jar.strip_prefix("cpython-")?.strip_suffix("-linux-x86_64.jar")
}

fn pyright(ground: &Path) -> Result<(), String> {
    let place = ground.join("pyright");
    let names = ["package.json", "package-lock.json"];
    let wanted = names.map(|name| family("cpython").join(name));
    let stamp = Stamp::of(&place, &[&wanted[0], &wanted[1]], "node")?;
    if stamp.is_there() {
        return Ok(());
    }
    remove(&place)?;
    packages_of_npm(&place, &wanted)?;
    stamp.leave()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_sums_names_the_version() {
        assert_eq!(version_of("cpython-3.14.3-1.5.13-linux-x86_64.jar"), Some("3.14.3-1.5.13"));
        assert_eq!(version_of("cpython-3.14.3-1.5.13.jar"), None);
    }
}
