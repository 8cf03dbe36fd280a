//! How a request travels: one connection to one member, and to the next when that one fails.
//!
//! - C1: a request is sent once. It is sent again only after a refusal of its token, which did
//!   nothing.
//! - C2: every request has a deadline. A member that does not answer in time, or has no leader,
//!   is left; the next request goes to the next member.
//! - C3: no connection, no request: what fails before is certain not to be applied. A crowd that
//!   waits for a connection is told together why there is none.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_core::Stream;
use holdline_core::{Certainty, LockError};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::error::{Trouble, deepest, protocol, trouble, unavailable};
use crate::options::EtcdOptions;
use crate::proto::{
    AuthenticateRequest, AuthenticateResponse, Empty, LeaseGrantRequest, LeaseRequest,
    LeaseResponse, MembersResponse, RangeRequest, RangeResponse, StatusResponse, TxnRequest,
    TxnResponse, WatchRequest, WatchResponse,
};

/// How long an idle connection may be silent before it is asked for a sign of life, and how long
/// the sign may take.
const PROBE: Duration = Duration::from_secs(3);
/// The longest answer: as many holders and contenders as are ever read at once.
const LONGEST_ANSWER: usize = 32 * 1024 * 1024;

type Token = MetadataValue<Ascii>;
/// A request on its way.
type Sending<A> = Pin<Box<dyn Future<Output = Result<A, Status>> + Send>>;

/// The members of a cluster. Clones share their connection.
#[derive(Clone)]
pub(crate) struct Client(Arc<Inner>);

struct Inner {
    members: Vec<(String, Endpoint)>,
    user: Option<(String, String)>,
    connect_timeout: Duration,
    deadline: Duration,
    /// The failures in the state, to be read without waiting for it.
    failures: AtomicU64,
    /// The runtime of the connection has ended.
    stale: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Which member is asked first.
    first: usize,
    connections: u64,
    connection: Option<Connection>,
    /// How often no member could be connected to, and why the last time.
    failures: u64,
    failure: Option<LockError>,
}

/// A connection as it was when a request left by it.
#[derive(Clone)]
struct Connection {
    number: u64,
    channel: Channel,
    token: Option<Token>,
}

impl Client {
    /// Makes a client that has no connection yet.
    pub(crate) fn new(options: &EtcdOptions) -> Result<Client, LockError> {
        let tls = options.tls_config()?;
        let mut members = Vec::new();
        for member in options.members() {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let bad = |error: tonic::transport::Error| {
                LockError::invalid(crate::error::ENGINE, "url", format!("{member}: {error}"))
            };
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))
                .map_err(bad)?
                .tcp_nodelay(true)
                .tcp_keepalive(Some(PROBE))
                .http2_keep_alive_interval(PROBE)
                .keep_alive_timeout(PROBE)
                .keep_alive_while_idle(true);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(bad)?;
            }
            members.push((member.to_string(), endpoint));
        }
        Ok(Client(Arc::new(Inner {
            members,
            user: options.credentials(),
            connect_timeout: options.connect_timeout(),
            deadline: options.command_timeout(),
            failures: AtomicU64::new(0),
            stale: AtomicBool::new(false),
            state: Mutex::default(),
        })))
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Trouble> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Trouble> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Makes a lease; of number 0 the server chooses one.
    pub(crate) async fn grant(&self, id: i64, ttl: i64) -> Result<LeaseResponse, Trouble> {
        self.call("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl, id }).await
    }

    /// Tells how many seconds a lease lasts yet, not above zero when it is gone.
    pub(crate) async fn time_to_live(&self, id: i64) -> Result<i64, Trouble> {
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let reply: LeaseResponse = self.call(path, LeaseRequest { id }).await?;
        Ok(reply.ttl)
    }

    /// Keeps a lease; returns for how many seconds from when the server did it, not above zero
    /// when it is gone.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<i64, Trouble> {
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let send = move |mut grpc: Grpc<Channel>, token: Option<Token>| -> Sending<_> {
            let request = dress(futures_util::stream::iter([LeaseRequest { id }]), token);
            let path = path.clone();
            Box::pin(async move {
                ready(&mut grpc).await?;
                let codec = ProstCodec::<LeaseRequest, LeaseResponse>::new();
                let mut replies = grpc.streaming(request, path, codec).await?.into_inner();
                replies.message().await
            })
        };
        match self.with_connection(send).await? {
            Some(reply) => Ok(reply.ttl),
            None => Err(protocol("a keepalive was not answered").into()),
        }
    }

    /// Opens a stream of watches. It has no deadline.
    pub(crate) async fn watch(
        &self,
        requests: impl Stream<Item = WatchRequest> + Send + 'static,
    ) -> Result<Streaming<WatchResponse>, Trouble> {
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let requests = std::sync::Mutex::new(Some(requests));
        let send = move |mut grpc: Grpc<Channel>, token: Option<Token>| -> Sending<_> {
            let taken = requests.lock().ok().and_then(|mut requests| requests.take());
            let path = path.clone();
            Box::pin(async move {
                let Some(requests) = taken else {
                    return Err(Status::unauthenticated("refused twice"));
                };
                ready(&mut grpc).await?;
                let codec = ProstCodec::<WatchRequest, WatchResponse>::new();
                Ok(grpc.streaming(dress(requests, token), path, codec).await?.into_inner())
            })
        };
        self.with_connection(send).await
    }

    /// Asks the member that we are connected to how it stands.
    pub(crate) async fn status(&self) -> Result<StatusResponse, Trouble> {
        self.call("/etcdserverpb.Maintenance/Status", Empty {}).await
    }

    /// Lists the members.
    pub(crate) async fn member_list(&self) -> Result<MembersResponse, Trouble> {
        self.call("/etcdserverpb.Cluster/MemberList", Empty {}).await
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Trouble>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(path);
        let send = move |mut grpc: Grpc<Channel>, token: Option<Token>| -> Sending<_> {
            let (request, path) = (dress(request.clone(), token), path.clone());
            Box::pin(async move {
                ready(&mut grpc).await?;
                let codec = ProstCodec::<Q, A>::new();
                Ok(grpc.unary(request, path, codec).await?.into_inner())
            })
        };
        self.with_connection(send).await
    }

    /// Sends by the connection, and again by another when our token was refused.
    async fn with_connection<A, F>(&self, send: F) -> Result<A, Trouble>
    where
        F: Fn(Grpc<Channel>, Option<Token>) -> Sending<A>,
    {
        let mut refused_token = false;
        loop {
            let connection = self.connection().await?;
            let grpc =
                Grpc::new(connection.channel.clone()).max_decoding_message_size(LONGEST_ANSWER);
            let why = match timeout(self.0.deadline, send(grpc, connection.token.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => trouble(&status),
                Err(_) => {
                    let message = format!("no answer within {:?}", self.0.deadline);
                    Trouble::Elsewhere(unavailable(message, Certainty::Unknown))
                }
            };
            match why {
                Trouble::Unauthenticated(_) if self.0.user.is_some() && !refused_token => {
                    refused_token = true;
                    self.forget(connection.number, 0).await;
                }
                Trouble::Elsewhere(error) => {
                    self.forget(connection.number, 1).await;
                    return Err(Trouble::Elsewhere(error));
                }
                other => return Err(other),
            }
        }
    }

    /// Says that the connection cannot be used any more: what drives it is gone.
    pub(crate) fn leave_connection(&self) {
        self.0.stale.store(true, Ordering::SeqCst);
    }

    /// Drops a connection, unless another has taken its place, and moves on by some members.
    async fn forget(&self, number: u64, on: usize) {
        let mut state = self.0.state.lock().await;
        if state.connection.as_ref().is_some_and(|known| known.number == number) {
            state.connection = None;
            state.first += on;
        }
    }

    /// Returns the connection; makes one if there is none, to the first member that serves.
    async fn connection(&self) -> Result<Connection, LockError> {
        let before = self.0.failures.load(Ordering::Relaxed);
        let mut state = self.0.state.lock().await;
        if self.0.stale.swap(false, Ordering::SeqCst) {
            state.connection = None;
        }
        if let Some(connection) = &state.connection {
            return Ok(connection.clone());
        }
        // Whoever waited while another tried has what that one was told: or a crowd would try one
        // after the other.
        if let Some(failure) = state.failure.as_ref().filter(|_| state.failures > before) {
            return Err(failure.clone());
        }
        let outcome = self.connect_to_any(&mut state).await;
        if let Err(error) = &outcome {
            state.failures += 1;
            state.failure = Some(error.clone());
            self.0.failures.store(state.failures, Ordering::Relaxed);
        }
        outcome
    }

    async fn connect_to_any(&self, state: &mut State) -> Result<Connection, LockError> {
        let count = self.0.members.len();
        let mut told = Vec::new();
        for step in 0..count {
            let place = (state.first + step) % count;
            match self.connect(place).await {
                Ok((channel, token)) => {
                    state.connections += 1;
                    let connection = Connection { number: state.connections, channel, token };
                    (state.first, state.connection) = (place, Some(connection.clone()));
                    return Ok(connection);
                }
                // A wrong password is wrong everywhere.
                Err(Trouble::Error(error)) => return Err(error),
                Err(trouble) => told.push(format!(
                    "{}: {}",
                    self.0.members[place].0,
                    without_head(&trouble.into_error())
                )),
            }
        }
        Err(unavailable(told.join("; "), Certainty::NotApplied))
    }

    async fn connect(&self, place: usize) -> Result<(Channel, Option<Token>), Trouble> {
        let cannot = |why: String| Trouble::Elsewhere(unavailable(why, Certainty::NotApplied));
        let limit = self.0.connect_timeout;
        let channel = within(limit, self.0.members[place].1.connect())
            .await
            .ok_or_else(|| cannot(format!("no connection within {limit:?}")))?
            .map_err(|error| cannot(deepest(&error)))?;
        let Some((name, password)) = self.0.user.clone() else { return Ok((channel, None)) };
        let path = PathAndQuery::from_static("/etcdserverpb.Auth/Authenticate");
        let codec = ProstCodec::<AuthenticateRequest, AuthenticateResponse>::new();
        let mut grpc = Grpc::new(channel.clone());
        let asking = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let request = Request::new(AuthenticateRequest { name, password });
            grpc.unary(request, path, codec).await
        };
        let reply = within(limit, asking)
            .await
            .ok_or_else(|| cannot(format!("no answer to the password within {limit:?}")))?;
        let token = reply.map_err(|status| trouble(&status))?.into_inner().token;
        let bad = |_| Trouble::Error(protocol("the server's token cannot be sent back"));
        Ok((channel, Some(MetadataValue::try_from(token).map_err(bad)?)))
    }
}

/// Says who we are, and that a member without a leader must not answer.
fn dress<T>(message: T, token: Option<Token>) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        metadata.insert("token", token);
    }
    request
}

/// Waits until the connection takes a request.
async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(deepest(&error)))
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    timeout(limit, work).await.ok()
}

/// What an error says, without engine and kind, for a list of members.
fn without_head(error: &LockError) -> String {
    match error.kind() {
        holdline_core::ErrorKind::Unavailable { message } => message.clone(),
        _ => error.to_string(),
    }
}
