//! The user of this process, by the user database.
//!
//! A cron job, a service and a shell have different environments. What must be the same for all of
//! them is read here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// One entry of `/etc/passwd`.
#[derive(Debug, PartialEq, Eq)]
struct User {
    name: String,
    home: PathBuf,
}

/// Returns the user's home directory; `HOME` counts only for users without an entry.
pub(crate) fn home() -> Option<PathBuf> {
    listed()
        .map(|user| user.home)
        .or_else(|| std::env::var_os("HOME").map(PathBuf::from))
        .filter(|home| home.is_absolute())
}

/// Returns the user's name for display, or the number.
pub(crate) fn name() -> String {
    let from_variable = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    from_variable("USER")
        .or_else(|| from_variable("LOGNAME"))
        .or_else(|| listed().map(|user| user.name))
        .unwrap_or_else(|| format!("uid {}", rustix::process::geteuid().as_raw()))
}

fn listed() -> Option<User> {
    let passwd = std::fs::read("/etc/passwd").ok()?;
    find(&passwd, rustix::process::geteuid().as_raw())
}

/// Finds a user in lines of `name:password:uid:gid:comment:home:shell`.
fn find(passwd: &[u8], id: u32) -> Option<User> {
    let id = id.to_string();
    passwd.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let name = fields.first()?;
        let home = fields.get(5)?;
        (fields.get(2)? == &id.as_bytes()).then(|| User {
            name: String::from_utf8_lossy(name).into_owned(),
            home: PathBuf::from(OsStr::from_bytes(home)),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let passwd = b"root:x:0:0:r:/root:/bin/sh\nann:x:7:7::/srv/ann:/bin/sh\nshort:x:8\n";
        let ann = User { name: "ann".into(), home: "/srv/ann".into() };
        assert_eq!(find(passwd, 7), Some(ann));
        assert_eq!((find(passwd, 8), find(passwd, 70)), (None, None));
    }
}
