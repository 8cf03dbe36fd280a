//! What a verb is, and what the program does for it.
//!
//! A verb describes itself in its own file: its arguments with their help, and a function `verb`,
//! which has its name, what it needs and what runs. Invariant V1: no answer has a default, so the
//! compiler asks each new verb for all of them. [`crate::verbs::all`] lists the verbs.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgMatches, Args};

use crate::config::{self, Address, Source, UrlSources};
use crate::console::Console;
use crate::descriptors;
use crate::failure::{Failure, Outcome};
use crate::global::Global;
#[cfg(any(feature = "server", feature = "top"))]
use crate::named_urls;
use crate::open_store::{NoStore, OpenStore, StoreOptions};

/// How long a request that is still in flight at the end may take.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// A verb that was read from the command line, ready to be carried out.
pub(crate) type Start = Box<dyn FnOnce(&Invocation) -> Outcome>;

/// Reads the arguments of a verb.
pub(crate) type Read = dyn FnOnce(&mut ArgMatches) -> Result<Start, clap::Error>;

/// A verb.
pub(crate) struct Verb {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Adds its arguments and its help to a command.
    pub(crate) define: fn(clap::Command) -> clap::Command,
    pub(crate) read: Box<Read>,
}

impl Verb {
    /// Describes a verb with the arguments `A`, whose comment is its help. `start` carries it out.
    pub(crate) fn new<A: Args + 'static>(
        name: &'static str,
        start: impl FnOnce(A, &Invocation) -> Outcome + 'static,
    ) -> Verb {
        let read = move |matches: &mut ArgMatches| -> Result<Start, clap::Error> {
            let arguments = A::from_arg_matches_mut(matches)?;
            Ok(Box::new(move |invocation| start(arguments, invocation)))
        };
        Verb { name, define: A::augment_args, read: Box::new(read) }
    }

    /// Describes a verb that works on the address of an engine.
    pub(crate) fn on_engine<A: Args + 'static>(
        name: &'static str,
        engine: EngineChoice<'static>,
        at_stake: AtStake,
        run: impl AsyncFnOnce(&A, Address, &Console) -> Outcome + 'static,
    ) -> Verb {
        Verb::new(name, move |arguments, invocation| {
            invocation.on_engine(&arguments, engine, at_stake, run)
        })
    }

    /// Describes a verb that works on one open store, and does not wait for it.
    pub(crate) fn on_store<A: Args + 'static>(
        name: &'static str,
        store: StoreUse<A>,
        run: impl AsyncFnOnce(&A, &OpenStore, &Console) -> Outcome + 'static,
    ) -> Verb {
        Verb::new(name, move |arguments, invocation| {
            invocation.on_store(&arguments, StoreOptions::default(), &store, run)
        })
    }
}

/// One call of the program.
pub(crate) struct Invocation {
    /// The arguments of every verb.
    pub(crate) global: Global,
    /// The whole command line, as it was typed.
    pub(crate) words: Vec<OsString>,
    /// The definition of the whole command line.
    pub(crate) command: fn() -> clap::Command,
    pub(crate) console: Console,
}

/// Which engine a verb works on.
#[derive(Clone, Copy)]
pub(crate) enum EngineChoice<'a> {
    /// The one that the command line, the environment or a file names.
    Used,
    /// The same for a demonstration, which nobody relies on: a server is never required.
    Demonstration,
    /// Only asked about, and named by the verb's own argument: a server is never required.
    AskedAbout(&'a str),
    /// Several may be named: the default one.
    #[cfg(any(feature = "server", feature = "top"))]
    DefaultOfSeveral,
}

/// What others rely on while a verb works.
pub(crate) enum AtStake {
    /// Nothing.
    Nothing,
    /// The names of the engine: it warns of one that excludes no other process.
    Names,
    /// A name that it holds. A message that would block must not delay the end of its job.
    Hold,
    /// The same, and this flag or verb excludes other machines too: it warns if no URL is set.
    HoldAmongMachines(&'static str),
}

/// What a verb with the arguments `A` does with the store of its engine.
pub(crate) enum StoreUse<A> {
    /// It changes nothing, not even the membership of a quorum. This is its outcome if the local
    /// store does not exist yet: it must not make one.
    Reads(fn(&A, &Console) -> Outcome),
    /// It changes what is there. It makes no store either.
    Changes(fn(&A, &Console) -> Outcome),
    /// It makes the local store if that does not exist yet.
    Makes,
}

impl Invocation {
    /// Runs a verb on the address of its engine.
    pub(crate) fn on_engine<A>(
        &self,
        arguments: &A,
        engine: EngineChoice<'_>,
        at_stake: AtStake,
        run: impl AsyncFnOnce(&A, Address, &Console) -> Outcome,
    ) -> Outcome {
        let console = &match at_stake {
            AtStake::Hold | AtStake::HoldAmongMachines(_) => self.console.non_blocking(),
            AtStake::Nothing | AtStake::Names => self.console,
        };
        let address = self.address(engine, console)?;
        if address.url.starts_with("memory:") && !matches!(at_stake, AtStake::Nothing) {
            console.warn("memory: exists in this one process only: it excludes no other process");
        }
        if let (AtStake::HoldAmongMachines(what), Source::Default) = (at_stake, &address.source) {
            console.warn(&format!(
                "{what}: no URL is set, so other machines and users do not count; name a server \
                 (HOLDLINE_URL), or write --url local: if this is meant"
            ));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(Box::pin(run(arguments, address, console)));
        // A store that does not answer must not delay the exit: requests that wait for it are
        // abandoned, as if this process were killed.
        runtime.shutdown_timeout(LAST_ANSWER);
        outcome
    }

    /// Runs a verb on a store that is opened with these options.
    pub(crate) fn on_store<A>(
        &self,
        arguments: &A,
        options: StoreOptions<'_>,
        store: &StoreUse<A>,
        run: impl AsyncFnOnce(&A, &OpenStore, &Console) -> Outcome,
    ) -> Outcome {
        let read_only = matches!(store, StoreUse::Reads(_));
        let run = async |arguments: &A, address: Address, console: &Console| {
            if let StoreUse::Reads(answer) | StoreUse::Changes(answer) = store
                && let Some(no_store) = NoStore::at(&address)?
            {
                return no_store.answered(answer(arguments, console), console);
            }
            let open_store =
                OpenStore::open(address, StoreOptions { read_only, ..options }).await?;
            let outcome = run(arguments, &open_store, console).await;
            open_store.flush().await;
            outcome
        };
        self.on_engine(arguments, EngineChoice::Used, AtStake::Names, run)
    }

    /// Returns the address of the engine, and checks that this process can open one.
    pub(crate) fn address(
        &self,
        engine: EngineChoice<'_>,
        console: &Console,
    ) -> Result<Address, Failure> {
        let sources = UrlSources {
            url_flag: self.url_flag(engine)?,
            file_flag: self.global.config.clone(),
            url_variable: std::env::var_os("HOLDLINE_URL"),
            file_variable: std::env::var_os("HOLDLINE_CONFIG"),
            require_flag: self.global.require_server,
            require_variable: std::env::var_os("HOLDLINE_REQUIRE_SERVER"),
        };
        let address = match engine {
            EngineChoice::AskedAbout(_) | EngineChoice::Demonstration => {
                config::address_to_ask_about(&sources)
            }
            // An engine that is used must be a server where one is required.
            _ => config::address(&sources),
        }?;
        let url = holdline::redact_url(&address.url);
        console.detail(&format!("engine {url}, {}", address.source));
        descriptors::check().map_err(|(message, fix)| Failure::internal(message).fix(fix))?;
        Ok(address)
    }

    fn url_flag(&self, engine: EngineChoice<'_>) -> Result<Option<String>, Failure> {
        let urls = &self.global.url;
        match engine {
            EngineChoice::AskedAbout(url) if urls.is_empty() => Ok(Some(url.to_owned())),
            EngineChoice::AskedAbout(_) => {
                let message = "--url: the engine is given twice";
                Err(Failure::usage(message).fix("give the URL once, with or without --url"))
            }
            #[cfg(any(feature = "server", feature = "top"))]
            EngineChoice::DefaultOfSeveral => Ok(named_urls::default_url(urls)),
            EngineChoice::Used | EngineChoice::Demonstration if urls.len() > 1 => {
                let message = "--url: only `serve` and `top` have more than one engine";
                Err(Failure::usage(message).fix("give --url once"))
            }
            EngineChoice::Used | EngineChoice::Demonstration => Ok(urls.first().cloned()),
        }
    }
}
