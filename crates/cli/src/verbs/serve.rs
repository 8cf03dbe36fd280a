//! `holdline serve`.
//!
//! The default store is found as for every verb. Others have names: `--url NAME=URL`, or an entry
//! of `[server.stores]`.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use holdline_core::{Engine, Escaped};
use holdline_server::{DEFAULT_STORE, Reloader, Server, ServerConfig, ServerError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::address::has_password;
use crate::config::Address;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::named_urls;
use crate::open_store::{of_url, url_failure};
use crate::verb::{EngineChoice, Invocation, Verb};

/// The largest configuration file that is read.
const LARGEST: u64 = 1024 * 1024;
/// How often the configuration file is compared with what was read.
const LOOK: Duration = Duration::from_secs(2);

/// Serve the locks of the engine over HTTP
#[derive(Debug, Args)]
#[command(after_help = "The table [server] of the file of --config has tokens, TLS and limits; \
    SIGHUP reads it again. More stores have names: repeat --url as NAME=URL, or list them in \
    [server.stores]; their paths begin with /stores/NAME. See docs/server.md.\n\nExamples:\n  \
    holdline serve --url redis://localhost --listen 127.0.0.1:7654\n  holdline serve --url \
    redis://localhost --url billing=postgres://app@db/billing")]
pub(crate) struct ServeArgs {
    /// Where to listen; without authentication only on this machine [default: the file of
    /// --config, or 127.0.0.1:7654]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Listen on a socket of this machine, and on no address unless --listen or the file has one;
    /// only the user of the server may connect, unless [server.socket] has another mode
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Serve the API only, without the pages below /dashboard
    #[arg(long)]
    no_dashboard: bool,
}

/// Describes `serve`.
pub(crate) fn verb() -> Verb {
    Verb::new("serve", |arguments: ServeArgs, invocation| {
        let address = invocation.address(EngineChoice::DefaultOfSeveral, &invocation.console)?;
        run(&arguments, invocation, &address)
    })
}

/// Serves until SIGTERM or SIGINT.
fn run(arguments: &ServeArgs, invocation: &Invocation, address: &Address) -> Outcome {
    let console = &invocation.console;
    let file = invocation.global.config.as_deref();
    // First, so that a change from now on is noticed.
    let known = content(file);
    let config = with_stores(config(arguments, file)?, &invocation.global.url)?;
    raise_file_limit();
    log_to_stderr(console);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let engine = open(&address.url, console).await?;
        let mut others = Vec::new();
        let mut urls = BTreeMap::from([(DEFAULT_STORE.to_owned(), address.url.clone())]);
        for (name, url) in config.stores() {
            others.push((name.to_owned(), open(url, console).await?));
            urls.insert(name.to_owned(), url.to_owned());
        }
        // Before the address is reported: a program that reads it may send a signal.
        let stop = stop()?;
        let hangups = signal(SignalKind::hangup())?;
        let server = Server::bind_stores(engine, others, &config).await.map_err(failure)?;
        let server =
            if arguments.no_dashboard { server } else { holdline_dashboard::mount(server, &urls) };
        if let Some(address) = server.address() {
            console.info(&format!("serves {}://{address}", scheme(&config)));
        }
        if let Some(path) = server.socket() {
            console.info(&format!("serves {}", Escaped(&path.to_string_lossy())));
        }
        if let Some(address) = server.health_address() {
            console.info(&format!("answers probes at http://{address}"));
        }
        let reloader = server.reloader();
        tokio::select! {
            biased;
            () = server.run(stop) => {}
            () = reload(hangups, known, &reloader, arguments, file, console) => {}
        }
        Ok(Exit::Success)
    })
}

fn scheme(config: &ServerConfig) -> &'static str {
    if config.has_tls() { "https" } else { "http" }
}

/// Adds the stores of the command line.
fn with_stores(config: ServerConfig, urls: &[String]) -> Result<ServerConfig, Failure> {
    named_urls::check(
        urls,
        "put the URL into `[server.stores]` of a configuration file of mode 0600",
    )?;
    let named = urls.iter().filter_map(|url| named_urls::split(url));
    let config = named.into_iter().try_fold(config, |config, (name, url)| {
        if config.stores().any(|(known, _)| known == name) {
            return Err(Failure::usage(format_args!("--url: there are two stores `{name}`")));
        }
        Ok(config.with_store(name, url))
    })?;
    config.validate().map_err(Failure::config)?;
    Ok(config)
}

async fn open(url: &str, console: &Console) -> Result<Arc<dyn Engine>, Failure> {
    if url.starts_with("memory:") {
        console.warn("memory: the locks end with this server; use it for tests only");
    }
    let client = holdline::Client::connect(url).await.map_err(|error| of_url(error, url))?;
    Ok(client.admin().engine().clone())
}

fn config(arguments: &ServeArgs, file: Option<&Path>) -> Result<ServerConfig, Failure> {
    let mut config = match file {
        Some(file) => {
            let wrong = |error: &dyn std::fmt::Display| {
                Failure::config(format_args!("{}: {error}", Escaped(&file.to_string_lossy())))
            };
            let about = std::fs::metadata(file).map_err(|error| wrong(&error))?;
            if !about.is_file() || about.len() > LARGEST {
                return Err(wrong(&"is no configuration file"));
            }
            let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
            let config = ServerConfig::from_toml(&text).map_err(|error| wrong(&error))?;
            let is_open = about.mode() & 0o077 != 0;
            if is_open && config.stores().any(|(_, url)| has_password(url)) {
                let message = "a URL holds a password and others may read the file";
                return Err(wrong(&message).fix("chmod 600 the file"));
            }
            config
        }
        None => ServerConfig::default(),
    };
    if let Some(listen) = arguments.listen {
        config = config.with_listen(listen);
    }
    if let Some(path) = &arguments.socket {
        config = config.with_socket(path);
    }
    config.validate().map_err(Failure::config)?;
    Ok(config)
}

fn failure(error: ServerError) -> Failure {
    match error {
        ServerError::Store(error) => url_failure(error),
        other => Failure::config(other),
    }
}

/// Becomes ready at SIGTERM or SIGINT.
fn stop() -> Result<impl Future<Output = ()>, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Reads the settings again at each SIGHUP, and when the file has changed: nobody sends a signal to
/// a process in an image without a shell. Wrong settings change nothing.
async fn reload(
    mut hangups: Signal,
    mut known: Option<Vec<u8>>,
    reloader: &Reloader,
    arguments: &ServeArgs,
    file: Option<&Path>,
    console: &Console,
) {
    let mut last_seen = known.clone();
    loop {
        let is_asked = tokio::select! {
            signal = hangups.recv() => signal.is_some(),
            () = tokio::time::sleep(LOOK) => false,
        };
        let now = content(file);
        // A file that is absent, or differs from the last look, may be half written.
        let is_settled = now.is_some() && now == last_seen;
        last_seen.clone_from(&now);
        if !is_asked && (!is_settled || now == known) {
            continue;
        }
        known = now;
        let done = config(arguments, file)
            .and_then(|config| reloader.reload(&config).map_err(Failure::config));
        match done {
            Ok(()) => console.info("the configuration was read again"),
            Err(failure) => console.warn(&format!("not reloaded: {}", failure.message)),
        }
    }
}

/// What a configuration file holds; `None` if it cannot be read or is no such file.
fn content(file: Option<&Path>) -> Option<Vec<u8>> {
    let file = file?;
    let about = std::fs::metadata(file).ok()?;
    let is_short = about.is_file() && about.len() <= LARGEST;
    is_short.then(|| std::fs::read(file).ok()).flatten()
}

/// Each connection is a descriptor: the limit that shells set is too low for many waiters.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, the listener waits for descriptors.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What a store says in its own words goes to standard error, and to no client.
fn log_to_stderr(console: &Console) {
    let level = if console.is_verbose() {
        tracing_subscriber::filter::LevelFilter::DEBUG
    } else {
        tracing_subscriber::filter::LevelFilter::WARN
    };
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level);
    // Another subscriber of this process would be one of a test.
    let _ = log.with_ansi(false).try_init();
}
