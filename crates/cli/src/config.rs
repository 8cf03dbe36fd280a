//! Finds the engine's URL.
//!
//! The first source that has one wins: `--url`, the file of `--config`, `HOLDLINE_URL`, the file of
//! `HOLDLINE_CONFIG`. Without a named file: `./holdline.toml`, the user's and the system's file, in
//! this order. The default is `local:`. A file that exists and cannot be used is an error and is
//! never skipped: two contenders with different URLs would not exclude each other.
//!
//! A URL that was lost on the way would be `local:` in silence, and a job of a fleet would run on
//! each machine. So a flag, the environment, each file that was read and always the system's file
//! can require a server ([`Requirement`]); none of them can take that back.
//!
//! The user's file is found through the user database and not through `HOME`, so that a cron job
//! and a shell read the same file.

use std::ffi::OsString;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdline_core::{Escaped, accept_url};
use rustix::fs::OFlags;
use serde::Deserialize;

use crate::address::has_password;
use crate::failure::Failure;
use crate::user;

/// The engine if no source names one.
const DEFAULT_URL: &str = "local:";
/// The keys of a configuration file.
const KEYS: [&str; 3] = ["url", "require_server", "server"];
/// The system's file.
const SYSTEM_FILE: &str = "/etc/holdline/holdline.toml";
/// The variable that requires a server.
const REQUIRE_SERVER: &str = "HOLDLINE_REQUIRE_SERVER";
/// The largest configuration file that is read.
const MAX_SIZE: u64 = 64 * 1024;

/// Where a URL was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// On the command line.
    Flag,
    /// In the environment.
    Environment,
    /// In the file of `--config`.
    Named(PathBuf),
    /// In another file.
    File(PathBuf),
    /// The default.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => f.write_str("from the command line"),
            Source::Environment => f.write_str("from HOLDLINE_URL"),
            Source::File(path) | Source::Named(path) => {
                write!(f, "from {}", Escaped(&path.to_string_lossy()))
            }
            Source::Default => f.write_str("the default"),
        }
    }
}

/// The engine's URL and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The URL. It may hold a password: show it through [`holdline::redact_url`] only.
    pub(crate) url: String,
    /// Where it was found.
    pub(crate) source: Source,
}

/// What requires a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// `--require-server`.
    Flag,
    /// `HOLDLINE_REQUIRE_SERVER`.
    Environment,
    /// `require_server` in a file.
    File(PathBuf),
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Flag => f.write_str("--require-server"),
            Requirement::Environment => f.write_str(REQUIRE_SERVER),
            Requirement::File(path) => {
                write!(f, "require_server in {}", Escaped(&path.to_string_lossy()))
            }
        }
    }
}

/// The values of the command line and the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct UrlSources {
    /// `--url`.
    pub(crate) url_flag: Option<String>,
    /// `--config`.
    pub(crate) file_flag: Option<PathBuf>,
    /// `HOLDLINE_URL`.
    pub(crate) url_variable: Option<OsString>,
    /// `HOLDLINE_CONFIG`.
    pub(crate) file_variable: Option<OsString>,
    /// `--require-server`.
    pub(crate) require_flag: bool,
    /// `HOLDLINE_REQUIRE_SERVER`.
    pub(crate) require_variable: Option<OsString>,
}

/// A configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSettings {
    url: Option<String>,
    #[serde(default)]
    require_server: bool,
    /// The settings of `serve`, which reads them itself.
    #[serde(default, rename = "server")]
    _server: Option<toml::Value>,
}

/// Finds the engine's URL, and checks it against what requires a server.
pub(crate) fn address(sources: &UrlSources) -> Result<Address, Failure> {
    let mut requirement = required_by_caller(sources)?;
    let address = find(sources, usual_files, &mut requirement)?;
    if requirement.is_none() && has_no_server(&address.url) {
        requirement = required_by_system(Path::new(SYSTEM_FILE))?;
    }
    check_server(&address, requirement)?;
    Ok(address)
}

/// Finds the URL of an engine that the user only asks about.
pub(crate) fn address_to_ask_about(sources: &UrlSources) -> Result<Address, Failure> {
    find(sources, usual_files, &mut None)
}

fn has_no_server(url: &str) -> bool {
    url.starts_with("local:") || url.starts_with("memory:")
}

/// Refuses an engine without a server where one is required.
fn check_server(address: &Address, requirement: Option<Requirement>) -> Result<(), Failure> {
    let Some(requirement) = requirement.filter(|_| has_no_server(&address.url)) else {
        return Ok(());
    };
    let scheme = address.url.split_once(':').map_or("", |(scheme, _)| scheme);
    let found = match &address.source {
        Source::Default => "no URL is set".to_owned(),
        source => format!("the URL {source} is {scheme}:, which has none"),
    };
    let failure = Failure::config(format_args!("{requirement} requires a server, but {found}"));
    Err(failure.fix(
        "set HOLDLINE_URL, for example in the unit (systemd needs %% for each %) or behind sudo \
         (--preserve-env=HOLDLINE_URL), or write url into a configuration file",
    ))
}

/// Returns what of the command line and the environment requires a server.
fn required_by_caller(sources: &UrlSources) -> Result<Option<Requirement>, Failure> {
    if sources.require_flag {
        return Ok(Some(Requirement::Flag));
    }
    let value = sources.require_variable.as_deref().map(|value| value.to_string_lossy());
    match value.as_deref() {
        Some("1" | "true" | "yes" | "on") => Ok(Some(Requirement::Environment)),
        None | Some("" | "0" | "false" | "no" | "off") => Ok(None),
        Some(_) => {
            let message = format_args!("{REQUIRE_SERVER}: must be 1 or 0");
            Err(Failure::config(message))
        }
    }
}

/// Returns whether the system's file requires a server. A file that this user may not read requires
/// nothing: it may hold a password of another user.
fn required_by_system(file: &Path) -> Result<Option<Requirement>, Failure> {
    if std::fs::File::open(file).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    {
        return Ok(None);
    }
    let settings = settings_of(file, false)?;
    let required = settings.is_some_and(|settings| settings.require_server);
    Ok(required.then(|| Requirement::File(file.to_owned())))
}

/// Finds the engine's URL. `usual` returns the files to try when none was named; it is called only
/// then. A file that requires a server sets `requirement`.
fn find(
    sources: &UrlSources,
    usual: impl FnOnce() -> Result<Vec<PathBuf>, Failure>,
    requirement: &mut Option<Requirement>,
) -> Result<Address, Failure> {
    let mut url_of = |path: &Path, must_exist| {
        let Some(settings) = settings_of(path, must_exist)? else { return Ok(None) };
        if settings.require_server {
            requirement.get_or_insert_with(|| Requirement::File(path.to_owned()));
        }
        Ok::<_, Failure>(settings.url)
    };
    if let Some(url) = &sources.url_flag {
        if has_password(url) {
            return Err(Failure::usage(
                "--url: the URL holds a password, which every user of this machine can read in \
                 the list of processes",
            )
            .fix("put the URL into HOLDLINE_URL or into a configuration file of mode 0600"));
        }
        return Ok(Address { url: checked(url, &"--url")?, source: Source::Flag });
    }
    if let Some(file) = &sources.file_flag
        && let Some(url) = url_of(file, true)?
    {
        return Ok(Address { url, source: Source::Named(file.clone()) });
    }
    if let Some(url) = &sources.url_variable {
        let url = url.to_str().ok_or_else(|| Failure::config("HOLDLINE_URL: is not UTF-8"))?;
        return Ok(Address { url: checked(url, &"HOLDLINE_URL")?, source: Source::Environment });
    }
    let (files, must_exist) = match sources.file_variable.as_ref().filter(|file| !file.is_empty()) {
        Some(file) => (vec![PathBuf::from(file)], true),
        None if sources.file_flag.is_some() => (Vec::new(), true),
        None => (usual()?, false),
    };
    for file in files {
        if let Some(url) = url_of(&file, must_exist)? {
            return Ok(Address { url, source: Source::File(file) });
        }
    }
    Ok(Address { url: DEFAULT_URL.into(), source: Source::Default })
}

/// Returns the files that are tried when none was named.
fn usual_files() -> Result<Vec<PathBuf>, Failure> {
    let mut files = vec![PathBuf::from("holdline.toml")];
    if let Some(home) = user::home() {
        files.push(home.join(".config/holdline/holdline.toml"));
    }
    files.push(PathBuf::from(SYSTEM_FILE));
    Ok(files)
}

/// Returns a URL with its scheme in lower case; an error names where the URL is from.
fn checked(url: &str, from: &dyn fmt::Display) -> Result<String, Failure> {
    if url.is_empty() {
        return Err(Failure::config(format_args!("{from}: the URL is empty")).fix(
            "write one such as local: or local:/path/to/a/directory, or unset it; inside \
             `holdline run` it is empty when a password could not be taken out of it",
        ));
    }
    let accepted =
        accept_url(url).map_err(|why| Failure::config(format_args!("{from}: the URL {why}")))?;
    Ok(accepted.into_owned())
}

/// Reads the settings of one file; `None` if the file does not exist.
fn settings_of(path: &Path, must_exist: bool) -> Result<Option<FileSettings>, Failure> {
    let wrong = |what: &dyn std::fmt::Display| {
        let path = path.to_string_lossy();
        Failure::config(format_args!("{}: {what}", Escaped(&path)))
    };
    // Opening a pipe would wait for a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) => {
            let absent =
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            return if absent && !must_exist { Ok(None) } else { Err(wrong(&error)) };
        }
    };
    let about = file.metadata().map_err(|error| wrong(&error))?;
    if !about.is_file() {
        return Err(wrong(&"is not a file"));
    }
    if about.len() > MAX_SIZE {
        return Err(wrong(&"is too large for a configuration file (64 KiB)"));
    }
    let me = rustix::process::geteuid().as_raw();
    if !must_exist && about.uid() != me && about.uid() != 0 {
        return Err(wrong(&"belongs to another user, who could choose your engine")
            .fix("name it with --config to use it all the same"));
    }
    let mut text = String::new();
    file.by_ref().take(MAX_SIZE).read_to_string(&mut text).map_err(|error| wrong(&error))?;
    let mut settings = parsed(&text).map_err(|why| wrong(&why))?;
    let Some(url) = settings.url.take() else { return Ok(Some(settings)) };
    if url.is_empty() {
        return Err(wrong(&"url: is empty"));
    }
    if has_password(&url) && about.mode() & 0o077 != 0 {
        return Err(wrong(&"the URL holds a password and others may read the file")
            .fix("chmod 600 the file"));
    }
    settings.url = Some(checked(&url, &Escaped(&path.to_string_lossy()))?);
    Ok(Some(settings))
}

/// Parses the settings. An error never shows the line itself, which may hold a password.
fn parsed(text: &str) -> Result<FileSettings, String> {
    let settings: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        format!("line {line}: not TOML: {}", Escaped(error.message()))
    })?;
    if let Some(key) = settings.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let near = holdline_core::nearest(key, KEYS)
            .map_or_else(String::new, |near| format!("; did you mean {near}?"));
        return Err(format!("unknown setting {}{near}", Escaped(key)));
    }
    if settings.get("require_server").is_some_and(|value| !value.is_bool()) {
        return Err("require_server: must be true or false".to_owned());
    }
    settings.try_into().map_err(|_| "url: must be a text in quotes".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn none() -> Result<Vec<PathBuf>, Failure> {
        Ok(Vec::new())
    }

    fn address(
        sources: &UrlSources,
        usual: impl FnOnce() -> Result<Vec<PathBuf>, Failure>,
    ) -> Result<Address, Failure> {
        let mut requirement = required_by_caller(sources)?;
        let address = find(sources, usual, &mut requirement)?;
        check_server(&address, requirement)?;
        Ok(address)
    }

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let path = std::env::temp_dir().join(format!("hl-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a temporary directory");
            Dir(path)
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
            path
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_first_source_with_a_url_wins() {
        let dir = Dir::new("order");
        let named = dir.file("named", "url = 'n:'");
        let here = dir.file("here", "url = 'h:'");
        let empty = dir.file("empty", "# nothing");
        let absent = dir.0.join("absent");
        let mut sources = UrlSources {
            url_flag: Some("f:".into()),
            file_flag: Some(named.clone()),
            url_variable: Some("e:".into()),
            file_variable: Some("/nowhere".into()),
            ..UrlSources::default()
        };
        let mut found = Vec::new();
        let usual = || Ok(vec![absent.clone(), empty.clone(), here.clone()]);
        found.push(address(&sources, usual).expect("flag").url);
        sources.url_flag = None;
        found.push(address(&sources, usual).expect("file of the flag").url);
        sources.file_flag = Some(empty.clone());
        found.push(address(&sources, usual).expect("variable").url);
        sources.url_variable = Some("".into());
        assert!(address(&sources, usual).is_err(), "a file that was named must be there");
        sources.file_flag = None;
        sources.file_variable = Some(named.into());
        let failure = address(&sources, usual).expect_err("an empty variable is no default");
        assert_eq!((failure.exit.code(), failure.message.contains("is empty")), (78, true));
        sources.url_variable = None;
        found.push(address(&sources, usual).expect("file of the variable").url);
        sources.file_variable = None;
        found.push(address(&sources, usual).expect("usual file").url);
        found.push(address(&sources, none).expect("default").url);
        assert_eq!(found, ["f:", "n:", "e:", "n:", "h:", "local:"]);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_never_skipped() {
        let dir = Dir::new("bad");
        let large = "#".repeat(70_000);
        for (name, text, expected) in [
            ("toml", "url = ", "line 1: not TOML"),
            ("key", "ulr = 'local:'", "did you mean url?"),
            ("type", "url = 5", "must be a text"),
            ("require", "require_server = 'yes'", "must be true or false"),
            ("empty", "url = ''", "is empty"),
            ("large", large.as_str(), "too large"),
        ] {
            let file = dir.file(name, text);
            let failure = address(&UrlSources::default(), || Ok(vec![file])).expect_err(name);
            assert!(failure.message.contains(expected), "{}", failure.message);
            assert_eq!(failure.exit.code(), 78);
        }
        let sources = UrlSources { file_flag: Some(dir.0.join("absent")), ..UrlSources::default() };
        assert!(address(&sources, none).is_err());
        assert!(address(&UrlSources::default(), || Ok(vec![dir.0.clone()])).is_err());
    }

    #[test]
    fn passwords_stay_out_of_sight() {
        let dir = Dir::new("secret");
        let sources =
            UrlSources { url_flag: Some("redis://u:CANARY@h".into()), ..UrlSources::default() };
        let failure = address(&sources, none).expect_err("in argv");
        assert!(!format!("{failure:?}").contains("CANARY"));
        let file = dir.file("open", "url = 'redis://u:CANARY@h'");
        let usual = || Ok(vec![file.clone()]);
        assert_eq!(address(&UrlSources::default(), usual).expect("0600").url, "redis://u:CANARY@h");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("mode");
        let failure = address(&UrlSources::default(), usual).expect_err("others may read it");
        assert!(!format!("{failure:?}").contains("CANARY"));
        let broken = dir.file("broken", "url = 'redis://u:CANARY@h");
        let failure = address(&UrlSources::default(), || Ok(vec![broken])).expect_err("not TOML");
        assert!(!format!("{failure:?}").contains("CANARY"), "{failure:?}");
    }

    #[test]
    fn a_server_can_be_required_from_each_place_and_a_missing_url_is_an_error() {
        let dir = Dir::new("require");
        let required = dir.file("required", "require_server = true");
        let local = dir.file("local", "url = 'local:'\nrequire_server = true");
        let served = dir.file("served", "url = 'redis://h'\nrequire_server = true");
        let usual = |file: &PathBuf| Ok(vec![file.clone()]);
        let from_default = UrlSources::default();
        let failure = address(&from_default, || usual(&required)).expect_err("no URL");
        assert_eq!(failure.exit.code(), 78);
        assert!(failure.message.contains("no URL is set"), "{}", failure.message);
        assert!(address(&from_default, || usual(&local)).is_err());
        assert_eq!(address(&from_default, || usual(&served)).expect("a server").url, "redis://h");
        for sources in [
            UrlSources { require_flag: true, ..UrlSources::default() },
            UrlSources { require_variable: Some("1".into()), ..UrlSources::default() },
        ] {
            assert!(address(&sources, none).is_err());
            for (url, good) in [("local:", false), ("memory:a", false), ("etcd://h", true)] {
                let sources = UrlSources { url_variable: Some(url.into()), ..sources.clone() };
                assert_eq!(address(&sources, none).is_ok(), good, "{url}");
            }
        }
        let variable = |value: &str| UrlSources {
            require_variable: Some(value.into()),
            ..UrlSources::default()
        };
        assert!(address(&variable("0"), none).is_ok() && address(&variable(""), none).is_ok());
        assert!(address(&variable("maybe"), none).is_err());
        // The system's file is asked even if the URL is from elsewhere.
        assert!(required_by_system(&required).expect("read").is_some());
        assert!(required_by_system(&dir.0.join("absent")).expect("none").is_none());
    }
}
