//! What this process reports about itself.

use std::ffi::OsStr;
use std::path::Path;

use holdline_core::HolderFields;

/// Returns what a holder in this process reports about itself by default.
pub(crate) fn this_process() -> HolderFields {
    let named = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME"));
    let program = std::env::args_os().next().unwrap_or_default();
    HolderFields {
        host: short(&host(), 64),
        pid: Some(std::process::id()),
        user: short(&user.unwrap_or_else(listed_user), 32),
        program: short(&program_name(&program), 64),
        ..HolderFields::default()
    }
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(windows)]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// Returns the user's name by `/etc/passwd`, or the number: a service has no `USER`.
#[cfg(unix)]
fn listed_user() -> String {
    let id = rustix::process::geteuid().to_string();
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    let passwd = String::from_utf8_lossy(&passwd);
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid {id}"))
}

#[cfg(windows)]
fn listed_user() -> String {
    std::env::var("USERNAME").unwrap_or_default()
}

fn program_name(argument: &OsStr) -> String {
    Path::new(argument).file_name().unwrap_or(argument).to_string_lossy().into_owned()
}

/// Cuts a text to at most `bytes`, between two characters.
fn short(text: &str, bytes: usize) -> String {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_named() {
        let fields = this_process();
        assert_eq!(fields.pid, Some(std::process::id()));
        assert!(!fields.host.is_empty() && !fields.user.is_empty());
        assert!(fields.program.contains("holdline"), "{}", fields.program);
    }

    #[cfg(unix)]
    #[test]
    fn a_user_is_named_as_by_id() {
        let named = std::process::Command::new("id").arg("-un").output().expect("it runs");
        assert_eq!(listed_user(), String::from_utf8_lossy(&named.stdout).trim());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(short("aéb", 2), "a");
        assert_eq!(short("aéb", 3), "aé");
        assert_eq!(short("ab", 9), "ab");
    }
}
