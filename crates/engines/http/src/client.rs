//! Requests to the server. Each has a deadline.

use std::time::Duration;

use holdline_core::{Certainty, LockError};
use holdline_net::secret::Secret;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::error::{ENGINE, of_status, protocol, unavailable};
use crate::options::HttpOptions;
use crate::pool::{Connection, IDLE, Pool, Target};

/// Sends requests to one server.
#[derive(Debug)]
pub(crate) struct Client {
    pool: Pool,
    /// What precedes the paths of the API.
    base: String,
    host: HeaderValue,
    token: Secret,
    limit: Duration,
}

impl Client {
    pub(crate) fn new(options: &HttpOptions) -> Result<Client, LockError> {
        options.validate()?;
        let host = HeaderValue::try_from(options.host()).map_err(|_| {
            LockError::invalid(ENGINE, "url", "has a host that no HTTP header can carry")
        })?;
        let target = Target {
            place: options.place.clone(),
            tls: options.tls.clone(),
            limit: options.connect_timeout,
        };
        let pool = Pool::new(target, IDLE);
        let base = options.base.clone();
        let token = options.token.clone();
        let limit = options.command_timeout;
        Ok(Client { pool, base, host, token, limit })
    }

    /// Asks without a body.
    pub(crate) async fn get<R: DeserializeOwned>(&self, path: &str) -> Result<R, LockError> {
        self.answered(Method::GET, path, Bytes::new()).await
    }

    /// Asks with a body of JSON.
    pub(crate) async fn post<R: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<R, LockError> {
        self.answered(Method::POST, path, encoded(body)?).await
    }

    /// Asks for a response that does not end; it must begin within the deadline.
    pub(crate) async fn open(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<(Connection, Incoming), LockError> {
        let body = encoded(body)?;
        let mut token = self.token.last();
        loop {
            let request = self.request(Method::POST, path, body.clone(), token.as_deref())?;
            let begun = timeout(self.limit, self.pool.send(request)).await;
            let (connection, response) = begun.unwrap_or_else(|_| Err(self.nothing()))?;
            match response.status() {
                status if status.is_success() => return Ok((connection, response.into_body())),
                status if self.has_new_token(status, &mut token).await => {}
                status => return Err(of_status(status, b"")),
            }
        }
    }

    /// Returns whether the server refused a token in place of which there is another one now.
    async fn has_new_token(&self, status: StatusCode, token: &mut Option<String>) -> bool {
        if status != StatusCode::UNAUTHORIZED {
            return false;
        }
        let before = std::mem::replace(token, self.token.read().await);
        *token != before
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        token: Option<&str>,
    ) -> Result<Request<Full<Bytes>>, LockError> {
        let mut builder = Request::builder().method(method).uri(format!("{}{path}", self.base));
        builder = builder.header(HOST, &self.host);
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| {
                LockError::invalid(ENGINE, "token", "has characters that no HTTP header can carry")
            })?;
            value.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, value);
        }
        if !body.is_empty() {
            builder = builder.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        builder
            .body(Full::new(body))
            .map_err(|error| LockError::invalid(ENGINE, "url", format_args!("no URL: {error}")))
    }

    async fn answered<R: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<R, LockError> {
        let mut token = self.token.last();
        let response = loop {
            let request = self.request(method.clone(), path, body.clone(), token.as_deref())?;
            let response = timeout(self.limit, self.pool.exchange(request)).await;
            let response = response.unwrap_or_else(|_| Err(self.nothing()))?;
            match response.status() {
                status if status.is_success() => break response,
                status if self.has_new_token(status, &mut token).await => {}
                status => return Err(of_status(status, response.body())),
            }
        };
        serde_json::from_slice(response.body()).map_err(|error| {
            protocol(format!("the response is no answer: {error}"), Certainty::Unknown)
        })
    }

    fn nothing(&self) -> LockError {
        unavailable(format!("nothing within {:?}", self.limit), Certainty::Unknown)
    }
}

fn encoded(body: &impl Serialize) -> Result<Bytes, LockError> {
    let text = serde_json::to_vec(body);
    let text = text.map_err(|error| protocol(error.to_string(), Certainty::NotApplied))?;
    Ok(Bytes::from(text))
}
