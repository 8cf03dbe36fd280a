//! Server programs, and scripts, that come packed for Node, with all that they need beside them.
//!
//! As in `wheel`: what is unpacked has the hash that stands in our source, it is there whole or not
//! at all, and a failed download is reported.

use crate::Failure;
use crate::wheel::{retried, run_or, target_directory};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory inside of a package of a fixed version.
pub(crate) struct NpmPackage {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// Of the file, which for programs is that for x86-64.
    pub(crate) sha256: &'static str,
    /// Its path in the package.
    pub(crate) directory: &'static str,
    /// Whether it has programs, and so is good for one kind of machine only.
    pub(crate) has_programs: bool,
}

impl NpmPackage {
    /// Where the directory lies; downloads and unpacks it if it is not there yet.
    pub(crate) fn directory(&self) -> Result<PathBuf, Failure> {
        self.directory_in(&target_directory().join("tools").join("servers"))
    }

    fn directory_in(&self, home: &Path) -> Result<PathBuf, Failure> {
        let name = self.package.trim_start_matches('@').replace('/', "-");
        let place = home.join(format!("{name}-{}", self.version));
        if place.is_dir() {
            return Ok(place);
        }
        let cannot = |why: io::Error| Failure::because("cannot keep a downloaded server", why);
        std::fs::create_dir_all(home).map_err(cannot)?;
        let lock = File::create(home.join("npm-lock")).map_err(cannot)?;
        lock.lock().map_err(cannot)?;
        // Somebody else may have fetched it while we waited.
        if !place.is_dir() {
            let unfinished = home.join("npm-unfinished");
            let _ = std::fs::remove_dir_all(&unfinished);
            std::fs::create_dir(&unfinished).map_err(cannot)?;
            self.fetch(&unfinished)?;
            let found = unfinished.join(self.directory);
            if self.has_programs {
                link_libraries(&found.join("lib")).map_err(cannot)?;
            }
            std::fs::rename(found, &place).map_err(cannot)?;
            std::fs::remove_dir_all(&unfinished).map_err(cannot)?;
        }
        Ok(place)
    }

    /// Downloads and unpacks the package into `into`.
    fn fetch(&self, into: &Path) -> Result<(), Failure> {
        let Self { package, version, .. } = self;
        if self.has_programs && !cfg!(target_arch = "x86_64") {
            return Err(Failure::new(format!("{package} {version} is pinned for x86-64 only")));
        }
        let says = |what: &str| format!("{what} of {package} {version}");
        let missing = "npm (Debian package npm) does not start";
        retried(|| run_or(&mut self.download(into), missing))
            .map_err(|(times, why)| Failure::because(says(&times), why))?;
        self.unpack(into).map_err(|why| Failure::because(says("cannot unpack the file"), why))
    }

    fn download(&self, into: &Path) -> Command {
        let mut npm = Command::new("npm");
        npm.args(["pack", "--silent", "--ignore-scripts", "--pack-destination"]).arg(into);
        npm.arg(format!("{}@{}", self.package, self.version)).current_dir(into);
        npm
    }

    fn unpack(&self, into: &Path) -> Result<(), String> {
        let files = std::fs::read_dir(into).map_err(|why| why.to_string())?;
        let packed = files
            .filter_map(|file| Some(file.ok()?.path()))
            .find(|path| path.extension().is_some_and(|end| end == "tgz"))
            .ok_or("nothing was downloaded")?;
        let sums = into.join("sums");
        let wanted = format!("{}  {}\n", self.sha256, packed.display());
        std::fs::write(&sums, wanted).map_err(|why| why.to_string())?;
        let mut sum = Command::new("sha256sum");
        run_or(sum.args(["--check", "--strict", "--quiet"]).arg(sums), "no sha256sum")
            .map_err(|why| format!("it is not the file that we know: {why}"))?;
        let mut tar = Command::new("tar");
        run_or(tar.arg("-xzf").arg(packed).arg("-C").arg(into), "tar does not start")
    }
}

/// A package cannot hold the links by which libraries find each other: `liba.so.6.18` is looked for
/// as `liba.so.6`.
fn link_libraries(directory: &Path) -> io::Result<()> {
    for file in std::fs::read_dir(directory)? {
        let name = file?.file_name();
        let Some(name) = name.to_str() else { continue };
        let Some((library, version)) = name.split_once(".so.") else { continue };
        if let Some((major, _)) = version.split_once('.') {
            let link = directory.join(format!("{library}.so.{major}"));
            if !link.exists() {
                std::os::unix::fs::symlink(name, link)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn another_file_than_the_one_we_know_is_refused() {
        let scratch = Scratch::new("npm").unwrap();
        std::fs::write(scratch.path().join("a-1.tgz"), "not it").unwrap();
        let sha256 = "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2";
        let package = "a";
        let version = "1";
        let directory = "package";
        let package = NpmPackage { package, version, sha256, directory, has_programs: true };
        let why = package.unpack(scratch.path()).unwrap_err();
        assert!(why.contains("not the file that we know"), "{why}");
    }

    #[test]
    fn libraries_are_found_by_their_first_number() {
        let scratch = Scratch::new("npm").unwrap();
        let lib = scratch.path().join("lib");
        std::fs::create_dir(&lib).unwrap();
        for name in ["liba.so.6.18", "libb.so.1", "c.so"] {
            std::fs::write(lib.join(name), name).unwrap();
        }
        link_libraries(&lib).unwrap();
        assert_eq!(std::fs::read_to_string(lib.join("liba.so.6")).unwrap(), "liba.so.6.18");
        assert_eq!(std::fs::read_dir(&lib).unwrap().count(), 4);
    }
}
