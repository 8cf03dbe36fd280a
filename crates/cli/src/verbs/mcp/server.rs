//! The calls of tools: arguments in, one JSON object out.
//!
//! Invariant C1: an agent that cancels a call holds nothing of it. Invariant C2: a call ends soon
//! after the client has gone, so that [`Server::end`] finds all leases in the table.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdline::{Client, LockOptions};
use holdline_core::lease::DEFAULT_LEASE;
use holdline_core::{Backoff, HolderFields, LockError};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::holders::{ASKED_LABEL, Blockers, SECONDS_LABEL, TARGETS_LABEL, now};
use super::leases::{Lease, Leases};
use super::repository::Repository;
use super::targets::{Targets, prefix};
use super::tools::{self, LeaseArgs, LockArgs, WaitArgs, WhoArgs};
use crate::failure::Failure;
use crate::holder::cut;
use crate::view::moment;

/// How many calls run at once.
const MAX_CALLS: u32 = 64;

/// The shortest and the longest pause between two looks of `wait`.
const LOOK_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The longest text of a holder's targets.
const MAX_TARGETS_TEXT: usize = 300;

/// What an agent can do next when it was refused.
const NEXT: &str = "Do not change these targets. Do other work, or call `lock` again with \
    wait_seconds (at most 300) to wait in the queue; `who` shows the state.";

/// What an agent can do next that is in its own way.
const OWN_NEXT: &str = "Work on with what you hold: nobody else changes it. If you need more, \
    `release` the lease, and lock all targets in one call.";

/// A server for one agent. Clones are the same server.
#[derive(Clone)]
pub(super) struct Server(Arc<ToolRunner>);

/// Runs the calls of tools.
struct ToolRunner {
    client: Client,
    repository: Repository,
    /// What the holder reports; the program is the agent's.
    holder: HolderFields,
    agent: Option<String>,
    leases: Mutex<Leases>,
    calls: Semaphore,
    /// Is cancelled when the client has gone.
    gone: CancellationToken,
}

/// What a tool answers: an object, or what was wrong.
type ToolAnswer = Result<Value, Value>;

/// The arguments of a call, as they arrive.
type Arguments = Option<JsonObject>;

impl Server {
    /// Makes a server. `agent` is the name that others see, the client's own unless given.
    pub(super) fn new(
        client: Client,
        repository: Repository,
        holder: HolderFields,
        agent: Option<String>,
        gone: CancellationToken,
    ) -> Server {
        let leases = Mutex::default();
        let calls = Semaphore::new(MAX_CALLS as usize);
        Server(Arc::new(ToolRunner { client, repository, holder, agent, leases, calls, gone }))
    }

    /// Waits for the running calls, which end because the client has gone, and releases all leases.
    pub(super) async fn end(&self) {
        self.0.gone.cancel();
        let _all = self.0.calls.acquire_many(MAX_CALLS).await;
        let leases = self.0.leases.lock().await.take(None);
        let released = leases.into_iter().map(|(_, lease)| lease.release());
        futures_util::future::join_all(released).await;
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("holdline", env!("CARGO_PKG_VERSION")))
            .with_instructions(tools::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()?))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let runner = &self.0;
        let Ok(_call) = runner.calls.try_acquire() else {
            let message = format!("{MAX_CALLS} calls run already: wait for one of them");
            return Ok(answer(Err(json!({"error": "too_many", "message": message}))));
        };
        let agent = context.client_info().map(|client| client.name).unwrap_or_default();
        let call = runner.call(&request.name, request.arguments, agent);
        tokio::select! {
            biased;
            () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
            () = runner.gone.cancelled() => Err(ErrorData::internal_error("the server ends", None)),
            answered = call => answered.map(answer),
        }
    }
}

fn answer(answer: ToolAnswer) -> CallToolResponse {
    match answer {
        Ok(value) => CallToolResult::structured(value).into(),
        Err(value) => CallToolResult::structured_error(value).into(),
    }
}

fn wrong(message: String) -> Value {
    let mut object = json!({"error": "invalid"});
    object["message"] = message.into();
    object
}

fn failed(error: LockError) -> Value {
    let failure = Failure::from(error);
    json!({"error": failure.kind, "message": failure.message, "next": failure.fix})
}

impl ToolRunner {
    async fn call(
        self: &Arc<ToolRunner>,
        tool: &str,
        arguments: Arguments,
        agent: String,
    ) -> Result<ToolAnswer, ErrorData> {
        match tool {
            "lock" => Ok(self.lock(arguments, agent).await),
            "renew" => Ok(self.renew(arguments).await),
            "release" => Ok(self.release(arguments).await),
            "who" => Ok(self.who(arguments).await),
            "wait" => Ok(self.wait(arguments).await),
            _ => {
                let message = "no such tool: there are lock, renew, release, who and wait";
                Err(ErrorData::invalid_params(message, None))
            }
        }
    }

    async fn lock(self: &Arc<ToolRunner>, arguments: Arguments, agent: String) -> ToolAnswer {
        let arguments: LockArgs = tools::arguments(arguments).map_err(wrong)?;
        arguments.check().map_err(wrong)?;
        let wait = tools::wait_of(arguments.wait_seconds).map_err(wrong)?;
        let targets = Targets::read(&arguments.targets, &self.repository).map_err(wrong)?;
        self.drop_ended().await;
        // The agent would wait for itself.
        let own = self.leases.lock().await.in_the_way_of(&targets.needs);
        if !own.is_empty() {
            return Err(self.own_lease(&targets, &own).await);
        }
        let duration = Duration::from_secs(arguments.lease_seconds);
        let longest = self.client.capabilities().lease.max;
        let program = self.agent.clone().unwrap_or(agent);
        let holder = HolderFields { program: cut(&program, 64), ..self.holder.clone() };
        let options = LockOptions::default()
            .with_lease_duration(DEFAULT_LEASE.min(longest))
            .with_holder(holder)
            .with_reason(&arguments.purpose)
            .with_label(ASKED_LABEL, now().as_secs().to_string())
            .with_label(SECONDS_LABEL, arguments.lease_seconds.to_string())
            .with_label(TARGETS_LABEL, cut(&targets.shown.join(", "), MAX_TARGETS_TEXT));
        match Lease::acquire(&self.client, targets.clone(), &options, duration, wait).await {
            Ok(lease) => {
                let mut object = of_lease(&lease);
                let name = self.leases.lock().await.add(lease);
                tokio::spawn(self.clone().end_in_time(name.clone()));
                object["locked"] = true.into();
                object["lease"] = name.into();
                object["next"] = "Release it when you are done, or renew it before it ends.".into();
                Ok(object)
            }
            Err(error) if error.is_contended() => Err(self.refusal(&targets, &error).await),
            Err(error) => Err(failed(error)),
        }
    }

    /// Explains that the agent itself is in its way.
    async fn own_lease(&self, targets: &Targets, own: &[String]) -> Value {
        // Without the store's answer, the agent's own leases are known.
        let mut object = self.blockers(targets).await.map_or_else(|_| json!({}), seen);
        let leases = own.join(", ");
        object["error"] = "own_lease".into();
        object["locked"] = false.into();
        object["your_leases"] = own.into();
        object["message"] =
            format!("you hold these targets, or a part of them, by {leases}").into();
        object["next"] = OWN_NEXT.into();
        object
    }

    /// Explains why targets were not granted.
    async fn refusal(&self, targets: &Targets, error: &LockError) -> Value {
        let mut object = match self.blockers(targets).await {
            Ok(blockers) => {
                let ahead = "another agent is ahead in the queue, or has just released it";
                let message = blockers.first.clone().unwrap_or_else(|| ahead.to_owned());
                let mut object = seen(blockers);
                object["message"] = message.into();
                object
            }
            // The refusal itself is known.
            Err(_) => json!({"message": error.to_string()}),
        };
        object["error"] = error.kind().word().into();
        object["locked"] = false.into();
        object["next"] = NEXT.into();
        object
    }

    async fn renew(&self, arguments: Arguments) -> ToolAnswer {
        let arguments: LeaseArgs = tools::arguments(arguments).map_err(wrong)?;
        self.drop_ended().await;
        let mut leases = self.leases.lock().await;
        let mut renewed = Vec::new();
        for (name, lease) in leases.named(arguments.lease.as_deref()) {
            lease.renew().await.map_err(failed)?;
            let mut object = of_lease(lease);
            object["lease"] = name.into();
            renewed.push(object);
        }
        if renewed.is_empty() { Err(no_lease()) } else { Ok(json!({"renewed": renewed})) }
    }

    async fn release(&self, arguments: Arguments) -> ToolAnswer {
        let arguments: LeaseArgs = tools::arguments(arguments).map_err(wrong)?;
        let leases = self.leases.lock().await.take(arguments.lease.as_deref());
        let mut released = Vec::new();
        for (name, lease) in leases {
            let targets = lease.targets.shown.clone();
            let held = lease.release().await;
            released.push(json!({"lease": name, "targets": targets, "held_until_now": held}));
        }
        match (released.is_empty(), arguments.lease) {
            (true, Some(_)) => Err(no_lease()),
            _ => Ok(json!({"released": released})),
        }
    }

    async fn who(&self, arguments: Arguments) -> ToolAnswer {
        let arguments: WhoArgs = tools::arguments(arguments).map_err(wrong)?;
        let blockers = if arguments.targets.is_empty() {
            let own = self.leases.lock().await.by_lock();
            let prefix = prefix(&self.repository);
            Blockers::of_repository(prefix, &self.client, |id| own.get(&id).cloned()).await
        } else {
            let targets = Targets::read(&arguments.targets, &self.repository).map_err(wrong)?;
            self.blockers(&targets).await
        };
        let blockers = blockers.map_err(failed)?;
        let free = blockers.is_free();
        let mut object = seen(blockers);
        object["free"] = free.into();
        Ok(object)
    }

    async fn wait(&self, arguments: Arguments) -> ToolAnswer {
        let arguments: WaitArgs = tools::arguments(arguments).map_err(wrong)?;
        let targets = Targets::read(&arguments.targets, &self.repository).map_err(wrong)?;
        let end = Instant::now() + tools::wait_of(arguments.wait_seconds).map_err(wrong)?;
        let mut pause = Backoff::new(LOOK_PAUSE.0, LOOK_PAUSE.1);
        loop {
            let blockers = self.blockers(&targets).await.map_err(failed)?;
            let left = end.saturating_duration_since(Instant::now());
            let free = blockers.is_free();
            // A wait for an own lease would last as long as the lease.
            let own = self.leases.lock().await.in_the_way_of(&targets.needs);
            if free || left.is_zero() || !own.is_empty() {
                let mut object = seen(blockers);
                object["free"] = free.into();
                if !own.is_empty() {
                    object["your_leases"] = own.into();
                    object["next"] = OWN_NEXT.into();
                }
                return Ok(object);
            }
            let random = self.client.leases().draw_id().as_bytes()[0];
            let pause = pause.next_pause(u32::from(random) << 24).max(LOOK_PAUSE.0);
            tokio::time::sleep(left.min(pause)).await;
        }
    }

    async fn blockers(&self, targets: &Targets) -> Result<Blockers, LockError> {
        let own = self.leases.lock().await.by_lock();
        Blockers::of(targets, &self.client, |id| own.get(&id).cloned()).await
    }

    /// Releases a lease when it ends, unless it is renewed.
    async fn end_in_time(self: Arc<ToolRunner>, name: String) {
        loop {
            let Some(ends) = self.leases.lock().await.ends(&name) else { return };
            tokio::select! {
                () = self.gone.cancelled() => return,
                () = tokio::time::sleep_until(ends) => {}
            }
            // As a call: the end of the server waits for it.
            let Ok(_call) = self.calls.acquire().await else { return };
            self.drop_ended().await;
        }
    }

    /// Forgets leases that have ended, and releases what remains of them.
    async fn drop_ended(&self) {
        let ended = self.leases.lock().await.take_ended();
        for (_, lease) in ended {
            let _ = lease.release().await;
        }
    }
}

fn seen(blockers: Blockers) -> Value {
    let mut object = json!({});
    object["held_by"] = blockers.held_by.into();
    object["waiting"] = blockers.waiting.into();
    object
}

fn no_lease() -> Value {
    json!({"error": "lost", "message": "you have no such lease: it was released, or it has ended",
        "next": "Another agent may have changed the targets: call `lock` again, and read them."})
}

fn of_lease(lease: &Lease) -> Value {
    let left = lease.left();
    json!({"targets": lease.targets.shown, "seconds_left": left.as_secs(),
        "until": moment(SystemTime::now() + left)})
}
