//! The directory of the user, from the user database and never from the environment.
//!
//! A cron job, a service and a shell have different environments and must use the same directory.
//! So the home directory comes from the user's passwd entry: from the file, and if the user is not
//! in it, from `getent`, which also queries network directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Fault;

const PASSWD: &str = "/etc/passwd";
const GETENT: [&str; 2] = ["/usr/bin/getent", "/bin/getent"];
const OF_ROOT: &str = "/var/lib/holdline";
const BELOW_HOME: &str = ".local/state/holdline";

/// Returns the directory of this process's user.
pub(crate) fn directory() -> Result<PathBuf, Fault> {
    let user = rustix::process::geteuid().as_raw();
    if user == 0 {
        return Ok(PathBuf::from(OF_ROOT));
    }
    let listed = std::fs::read(PASSWD).ok().and_then(|text| home_of(&text, user));
    let home = listed.or_else(|| from_getent(user)).ok_or_else(|| {
        Fault::refused(format!(
            "user {user} has no passwd entry with a home directory, so there is no directory to \
             share with other processes: name a directory with `local:///DIRECTORY`"
        ))
    })?;
    Ok(home.join(BELOW_HOME))
}

/// Queries the system's name service, with an empty environment.
fn from_getent(user: u32) -> Option<PathBuf> {
    let program = GETENT.iter().find(|path| Path::new(path).exists())?;
    let mut command = Command::new(program);
    command.args(["passwd", &user.to_string()]).env_clear();
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    home_of(&output.stdout, user)
}

/// Finds the home directory of a user in lines of `name:password:uid:gid:comment:home:shell`.
fn home_of(passwd: &[u8], user: u32) -> Option<PathBuf> {
    let user = user.to_string();
    passwd.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let id = fields.get(2)?;
        let home = fields.get(5)?;
        let home = Path::new(OsStr::from_bytes(home));
        (*id == user.as_bytes() && home.is_absolute()).then(|| home.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_is_that_of_the_user_id() {
        let passwd = b"root:x:0:0:root:/:/bin/sh\nann:x:1000:1000:Ann,,,:/srv/ann:/bin/sh\n\
            bob:x:1001:1001::relative:/bin/sh\nshort:x:1002\n+::::::\n";
        assert_eq!(home_of(passwd, 1000), Some(PathBuf::from("/srv/ann")));
        assert_eq!(home_of(passwd, 0), Some(PathBuf::from("/")));
        for nobody in [1001, 1002, 1003, 100] {
            assert_eq!(home_of(passwd, nobody), None, "{nobody}");
        }
    }
}
