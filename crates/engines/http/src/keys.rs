//! The paths of the requests. The engine stores nothing: the layout of the keys is that of the
//! engine behind the server.

/// The version of the messages. A server and a client of different versions refuse each other.
pub const PROTOCOL: u32 = 3;

/// Describes the engine behind the server.
pub(crate) const DESCRIBE: &str = "/v1/engine";
pub(crate) const ACQUIRE: &str = "/v1/engine/acquire";
pub(crate) const RENEW: &str = "/v1/engine/renew";
pub(crate) const RELEASE: &str = "/v1/engine/release";
pub(crate) const INSPECT: &str = "/v1/engine/inspect";
pub(crate) const LIST: &str = "/v1/engine/list";
pub(crate) const WATCH: &str = "/v1/engine/watch";
pub(crate) const OPERATE: &str = "/v1/engine/operate";
