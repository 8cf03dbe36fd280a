//! The `holdline` command line: hold a lock, run a program, release.
//!
//! Reading order: [`cli`] defines the command line, [`verbs`] carries it out, [`verbs::run`] is the
//! main verb, [`child`] runs a job, [`console`] prints, [`exit`] has the exit codes. The rules
//! about locks are in the library, none is here.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the command line needs Linux: when `holdline run` is killed, the kernel kills its job \
     (PR_SET_PDEATHSIG)"
);

mod address;
mod child;
mod cli;
mod config;
mod console;
mod descriptors;
mod duration;
mod exit;
mod failure;
mod groups;
mod holder;
mod idle;
#[cfg(any(feature = "server", feature = "top"))]
mod named_urls;
mod outer_locks;
mod record;
mod session;
mod table;
mod user;
mod verbs;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use cli::{Cli, Global, Unparsed, Verb};
use config::{Address, Source, UrlSources};
use console::Console;
use exit::Exit;
use failure::{Failure, Outcome};
use session::{NoStore, Session, SessionOptions};
use verbs::waiting::WaitStatus;

/// How long a request that is still in flight at the end may take.
const LAST_ANSWER: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    catch_panic(run)
}

/// Turns a panic into exit code 125. The standard library's 101 could be a job's own code. The
/// panic hook has printed the message, and unwinding has released the guards.
fn catch_panic(work: fn() -> ExitCode) -> ExitCode {
    std::panic::catch_unwind(work).unwrap_or_else(|_| ExitCode::from(Exit::Internal.code()))
}

fn run() -> ExitCode {
    if let Some(code) = child::hidden_verb() {
        return code;
    }
    #[cfg(feature = "torture")]
    if let Some(code) = verbs::torture::hidden_verb() {
        return code;
    }
    child::survive_file_size_limit();
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(unparsed) => return print_unparsed(unparsed),
    };
    let console = cli.global.console();
    finish(dispatch(&cli, &console), &console).leave()
}

fn print_unparsed(unparsed: Unparsed) -> ExitCode {
    match unparsed {
        Unparsed::Shown(text, console) => {
            finish(console.data(&text).map(|()| Exit::Success), &console).leave()
        }
        Unparsed::Wrong { failure, console } => finish(Err(failure), &console).leave(),
    }
}

fn finish(outcome: Outcome, console: &Console) -> Exit {
    outcome.unwrap_or_else(|failure| {
        console.failure(&failure);
        failure.exit
    })
}

fn dispatch(cli: &Cli, console: &Console) -> Outcome {
    match &cli.verb {
        Verb::Completions(arguments) => verbs::completions::run(arguments, cli::command(), console),
        Verb::Man(arguments) => verbs::man::run(arguments, cli::command(), console),
        Verb::Fence(arguments) if !arguments.needs_engine() => {
            verbs::fence::at_resource(arguments, console)
        }
        verb => {
            let holds = matches!(verb, Verb::Run(_) | Verb::Acquire(_) | Verb::Elect(_));
            let console = &if holds { console.non_blocking() } else { *console };
            let address = address(&cli.global, verb)?;
            let url = holdline::redact_url(&address.url);
            console.detail(&format!("engine {url}, {}", address.source));
            descriptors::check().map_err(|(message, fix)| Failure::internal(message).fix(fix))?;
            #[cfg(feature = "server")]
            if let Verb::Serve(arguments) = verb {
                return verbs::serve::run(
                    arguments,
                    (&cli.global.url, cli.global.config.as_deref()),
                    &address,
                    console,
                );
            }
            // The screen is this thread's, so that no store can block a key.
            #[cfg(feature = "top")]
            if let Verb::Top(arguments) = verb {
                return verbs::top::run(arguments, &cli.global.url, address, console);
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let outcome = runtime.block_on(Box::pin(on_engine(verb, address, console)));
            // A store that does not answer must not delay the exit: requests that wait for it are
            // abandoned, as if this process were killed.
            runtime.shutdown_timeout(LAST_ANSWER);
            outcome
        }
    }
}

fn address(global: &Global, verb: &Verb) -> Result<Address, Failure> {
    let url_flag = match verb {
        Verb::Explain(verbs::explain::ExplainArgs { url: Some(_) })
        | Verb::Doctor(verbs::doctor::DoctorArgs { url: Some(_) })
            if !global.url.is_empty() =>
        {
            let message = "--url: the engine is given twice";
            return Err(Failure::usage(message).fix("give the URL once, with or without --url"));
        }
        Verb::Explain(verbs::explain::ExplainArgs { url: Some(url) })
        | Verb::Doctor(verbs::doctor::DoctorArgs { url: Some(url) }) => Some(url.clone()),
        #[cfg(feature = "server")]
        Verb::Serve(_) => named_urls::default_url(&global.url),
        #[cfg(feature = "top")]
        Verb::Top(_) => named_urls::default_url(&global.url),
        _ if global.url.len() > 1 => {
            let message = "--url: only `serve` and `top` have more than one engine";
            return Err(Failure::usage(message).fix("give --url once"));
        }
        _ => global.url.first().cloned(),
    };
    let sources = UrlSources {
        url_flag,
        file_flag: global.config.clone(),
        url_variable: std::env::var_os("HOLDLINE_URL"),
        file_variable: std::env::var_os("HOLDLINE_CONFIG"),
        require_flag: global.require_server,
        require_variable: std::env::var_os("HOLDLINE_REQUIRE_SERVER"),
    };
    match verb {
        // An engine that is named to be explained or checked is not used; a demo brings its own.
        Verb::Demo(_)
        | Verb::Explain(verbs::explain::ExplainArgs { url: Some(_) })
        | Verb::Doctor(verbs::doctor::DoctorArgs { url: Some(_) }) => {
            config::address_to_ask_about(&sources)
        }
        _ => config::address(&sources),
    }
}

async fn on_engine(verb: &Verb, address: Address, console: &Console) -> Outcome {
    let holds_nothing = match verb {
        Verb::Explain(_) | Verb::Doctor(_) | Verb::Demo(_) => true,
        #[cfg(feature = "torture")]
        Verb::Torture(_) => true,
        _ => false,
    };
    if address.url.starts_with("memory:") && !holds_nothing {
        console.warn("memory: exists in this one process only: it excludes no other process");
    }
    let among_machines = match verb {
        Verb::Run(arguments) => arguments.is_once_per_slot().then_some("--once-per"),
        Verb::Elect(_) => Some("elect"),
        _ => None,
    };
    if let (Some(what), Source::Default) = (among_machines, &address.source) {
        console.warn(&format!(
            "{what}: no URL is set, so other machines and users do not count; name a server \
             (HOLDLINE_URL), or write --url local: if this is meant"
        ));
    }
    match verb {
        Verb::Run(arguments) => return verbs::run::run(arguments, address, console).await,
        Verb::Elect(arguments) => {
            return verbs::run::elect::run(arguments, address, console).await;
        }
        Verb::Acquire(arguments) => return acquire(arguments, address, console).await,
        #[cfg(feature = "mcp")]
        Verb::Mcp(arguments) => return verbs::mcp::run(arguments, address, console).await,
        Verb::Doctor(_) => return verbs::doctor::run(&address, console).await,
        #[cfg(feature = "torture")]
        Verb::Torture(arguments) => return verbs::torture::run(arguments, &address, console).await,
        Verb::Watch(arguments) => return verbs::watch::run(arguments, address, console).await,
        Verb::Demo(arguments) => return verbs::demo::run(arguments, address, console).await,
        Verb::Quorum(arguments) => return verbs::quorum::run(arguments, &address, console).await,
        _ => {}
    }
    if let Some(outcome) = without_store(verb, &address, console)? {
        return Ok(outcome);
    }
    let (wait, progress) = match verb {
        Verb::Wait(arguments) => (arguments.wait(), Some(console)),
        Verb::Latch(arguments) if arguments.wait().is_some() => (arguments.wait(), Some(console)),
        _ => (None, None),
    };
    let read_only = matches!(
        verb,
        Verb::Who(_)
            | Verb::Check(_)
            | Verb::Wait(_)
            | Verb::Ls(_)
            | Verb::Explain(_)
            | Verb::Audit(_)
    );
    let options = SessionOptions { wait, progress, read_only, ..SessionOptions::default() };
    let session = Session::open(address, options).await?;
    let outcome = on_session(verb, &session, console).await;
    session.flush().await;
    outcome
}

async fn on_session(verb: &Verb, session: &Session, console: &Console) -> Outcome {
    match verb {
        Verb::Renew(arguments) => verbs::renew::run(arguments, session, console).await,
        Verb::Release(arguments) => verbs::release::run(arguments, session, console).await,
        Verb::Check(arguments) => verbs::check::run(arguments, session, console).await,
        Verb::Who(arguments) => verbs::who::run(arguments, session, console).await,
        Verb::Ls(arguments) => verbs::ls::run(arguments, session, console).await,
        Verb::Wait(arguments) => verbs::wait::run(arguments, session, console).await,
        Verb::Latch(arguments) => verbs::latch::run(arguments, session, console).await,
        Verb::Revoke(arguments) => verbs::revoke::run(arguments, session, console).await,
        Verb::Freeze(arguments) => verbs::freeze::freeze(arguments, session, console).await,
        Verb::Unfreeze(arguments) => verbs::freeze::unfreeze(arguments, session, console).await,
        Verb::Audit(arguments) => verbs::audit::run(arguments, session, console).await,
        Verb::Explain(_) => verbs::explain::run(session, console),
        Verb::Fence(arguments) => verbs::fence::bump(arguments, session, console).await,
        Verb::Run(_)
        | Verb::Elect(_)
        | Verb::Acquire(_)
        | Verb::Doctor(_)
        | Verb::Quorum(_)
        | Verb::Demo(_)
        | Verb::Watch(_)
        | Verb::Completions(_)
        | Verb::Man(_) => Err(Failure::internal("this verb does not use a session")),
        #[cfg(feature = "mcp")]
        Verb::Mcp(_) => Err(Failure::internal("mcp opens its own session")),
        #[cfg(feature = "top")]
        Verb::Top(_) => Err(Failure::internal("top has a runtime of its own")),
        #[cfg(feature = "server")]
        Verb::Serve(_) => Err(Failure::internal("serve has a runtime of its own")),
        #[cfg(feature = "torture")]
        Verb::Torture(_) => Err(Failure::internal("torture opens its own sessions")),
    }
}

/// Answers the verbs that must not create a store, if there is none; `None` if there is one.
fn without_store(
    verb: &Verb,
    address: &Address,
    console: &Console,
) -> Result<Option<Exit>, Failure> {
    // Freezing a name, raising the fence and a latch create a store; all others find nothing to act
    // on.
    let acts = matches!(verb, Verb::Freeze(_) | Verb::Fence(_) | Verb::Latch(_));
    let no_store = if acts { None } else { NoStore::at(address)? };
    let Some(no_store) = no_store else { return Ok(None) };
    let outcome = match verb {
        Verb::Who(arguments) => verbs::who::without_store(arguments, console),
        Verb::Wait(arguments) => verbs::wait::without_store(arguments, console),
        Verb::Explain(_) => verbs::explain::without_store(address, &no_store, console),
        Verb::Renew(arguments) => verbs::renew::without_store(arguments),
        Verb::Release(arguments) => verbs::release::without_store(arguments),
        Verb::Check(arguments) => verbs::check::without_store(arguments),
        Verb::Revoke(arguments) => Err(verbs::revoke::not_held(arguments)),
        Verb::Unfreeze(arguments) => Err(verbs::freeze::without_store(arguments)),
        _ => Ok(Exit::Success),
    };
    let is_usage = outcome.as_ref().is_err_and(|failure| failure.exit == Exit::Usage);
    if !is_usage && !matches!(verb, Verb::Explain(_)) {
        console.info(&no_store.to_string());
    }
    outcome.map(Some)
}

async fn acquire(
    arguments: &verbs::acquire::AcquireArgs,
    address: Address,
    console: &Console,
) -> Outcome {
    let waiting = std::sync::Arc::new(WaitStatus::default());
    let program = Some("holdline acquire".to_owned());
    let wait = arguments.wait();
    let progress = arguments.waits().then_some(console);
    let options = SessionOptions {
        observer: Some(waiting.clone()),
        program,
        detached: true,
        wait,
        keeps_trying: false,
        progress,
        read_only: false,
    };
    // The session starts threads, so the signals come first.
    let mut signals = child::Signals::listen()?;
    let session = match Session::open_unless_ended(address, options, &mut signals).await {
        Ok(session) => session?,
        Err(signal) => return Ok(Exit::Job(child::Exit::before_start(signal))),
    };
    let outcome = verbs::acquire::run(arguments, &mut signals, &session, &waiting, console).await;
    session.close().await;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_as_our_own_failure() {
        assert_eq!(catch_panic(|| panic!("on purpose")), ExitCode::from(125));
        assert_eq!(catch_panic(|| ExitCode::from(3)), ExitCode::from(3));
    }
}
