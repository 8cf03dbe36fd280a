//! `holdline mcp`: locks for coding agents, by the Model Context Protocol.
//!
//! The protocol runs on standard input and output, so nothing else is printed there. Reading
//! order: [`targets`] has the rule by which files become lock names, [`leases`] what an agent
//! holds, [`holders`] who is in its way, [`tools`] what a model reads, [`server`] the calls.

mod holders;
mod leases;
mod repository;
mod server;
mod targets;
mod tools;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use clap::Args;
use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio_pipes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::Address;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::{self, OpenStore, StoreOptions};
use crate::verb::{AtStake, EngineChoice, Verb};
use repository::Repository;
use server::Server;

/// How long the end waits for a store that does not answer.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// Serve locks of files and branches to a coding agent, by the Model Context Protocol
#[derive(Debug, Args)]
#[command(after_help = "A client starts it and speaks the Model Context Protocol on standard \
    input and output. All leases end when the input ends. See docs/agents.md.\n\nExample, in the \
    configuration of a client:\n  {\"mcpServers\": {\"holdline\": {\"command\": \"holdline\", \
    \"args\": [\"mcp\"]}}}")]
pub(crate) struct McpArgs {
    /// The name of the repository; agents share locks if it is the same [default: the directory
    /// of the Git clone around the current directory, or the current directory]
    #[arg(long, value_name = "NAME")]
    repository: Option<String>,
    /// The names of the store that the agent may lock by `name:` begin with this; may be given
    /// several times [default: all names]
    #[arg(long, value_name = "PREFIX")]
    names: Vec<String>,
    /// The name of the agent, for others [default: what the client reports]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
}

/// Describes `mcp`.
pub(crate) fn verb() -> Verb {
    Verb::on_engine("mcp", EngineChoice::Used, AtStake::Names, run)
}

/// Serves one client until its input ends, or until SIGTERM or SIGINT.
pub(crate) async fn run(arguments: &McpArgs, address: Address, console: &Console) -> Outcome {
    let directory = std::env::current_dir()?;
    let repository = Repository::around(&directory, arguments.repository.as_deref())?;
    let repository = Repository { names: arguments.names.clone(), ..repository };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let store = OpenStore::open(address, StoreOptions::default()).await?;
    check(&store)?;
    console.detail(&format!("repository {}", holdline_core::Escaped(&repository.name)));
    let gone = CancellationToken::new();
    let holder = open_store::holder(None, false);
    let agent = arguments.agent.clone();
    let server = Server::new(store.client().clone(), repository, holder, agent, gone.clone());
    let (input, output) = stdio_pipes();
    let input = Input { inner: input, gone };
    let served = async {
        let service = server.clone().serve((input, output)).await.map_err(Box::new)?;
        // Why it ends makes no difference.
        let _ = service.waiting().await;
        Ok(())
    };
    let served: Result<(), Box<ServerInitializeError>> = tokio::select! {
        served = served => served,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    server.end().await;
    store.client().shutdown(CLOSE_LIMIT).await;
    match served.map_err(|error| *error) {
        Ok(()) | Err(ServerInitializeError::ConnectionClosed(_)) => Ok(Exit::Success),
        Err(error) => Err(Failure::internal(error).kind("protocol").exit(Exit::Protocol)),
    }
}

/// Refuses an engine on which a refusal could not say who holds what.
fn check(store: &OpenStore) -> Result<(), Failure> {
    let can = store.capabilities();
    if can.shared && can.metadata && can.list {
        return Ok(());
    }
    let message = "the engine lacks shared locks, metadata or listing, which agents need";
    Err(Failure::config(message).fix("use another engine; docs/agents.md lists them"))
}

/// The client's messages. Their end is noticed at once, also while calls wait.
struct Input<R> {
    inner: R,
    gone: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for Input<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if matches!(&read, Poll::Ready(read) if read.is_err() || buffer.filled().len() == before) {
            self.gone.cancel();
        }
        read
    }
}
