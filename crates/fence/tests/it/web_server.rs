//! A real HTTP server behind the layer, and a plain client that reads its answers off the wire.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use ::http::request::Parts;
use ::http::{Request, Response, StatusCode};
use holdline_fence::http::{CheckedToken, FencingLayer, MemoryMarks};
use holdline_fence::{Fenced, FencedCell};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tower::{Layer, service_fn};

use crate::support::LONG;

pub(crate) fn by_path(parts: &Parts) -> Option<String> {
    parts.uri.path().starts_with("/stock/").then(|| parts.uri.path().to_owned())
}

/// A real server: what it answers is what a plain client reads off the wire.
pub(crate) struct WebServer {
    pub(crate) address: SocketAddr,
    pub(crate) stock: Arc<FencedCell<String>>,
}

impl WebServer {
    /// Serves `/stock/17`: the handler writes by check-and-write with the token that the layer has
    /// checked.
    pub(crate) async fn start() -> WebServer {
        let stock = Arc::new(FencedCell::new("10".to_owned()));
        let handler = service_fn({
            let stock = stock.clone();
            move |request: Request<Incoming>| handle(stock.clone(), request)
        });
        let service = FencingLayer::new(MemoryMarks::new(100), by_path).layer(handler);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(service.clone());
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        WebServer { address, stock }
    }
}

async fn handle(
    stock: Arc<FencedCell<String>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let answer = |status: StatusCode, text: String| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        Ok(response)
    };
    let checked = request.extensions().get::<CheckedToken>().cloned();
    let Some(proof) = checked.as_ref().and_then(CheckedToken::proof) else {
        return answer(StatusCode::OK, "nobody".to_owned());
    };
    let Ok(body) = request.into_body().collect().await else {
        return answer(StatusCode::BAD_REQUEST, String::new());
    };
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let write = |stored: &mut String| {
        *stored = text;
        Ok(())
    };
    match stock.check_and_write(proof, write) {
        Ok(()) => answer(StatusCode::OK, "written".to_owned()),
        Err(error) => answer(StatusCode::PRECONDITION_FAILED, error.to_string()),
    }
}

/// Sends one request as a plain text and returns the whole response.
pub(crate) fn plain(address: SocketAddr, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(LONG)).expect("a limit");
    let length = body.len();
    let text = format!(
        "{head} HTTP/1.1\r\nHost: stock\r\nConnection: close\r\nContent-Length: {length}\r\n"
    );
    let (line, headers) = text.split_once("\r\n").expect("two lines");
    let (line, token) = match line.split_once(" token=") {
        Some((line, rest)) => {
            let (token, version) = rest.split_once(' ').expect("a version");
            (format!("{line} {version}"), format!("holdline-FENCING-token: {token}\r\n"))
        }
        None => (line.to_owned(), String::new()),
    };
    write!(stream, "{line}\r\n{headers}{token}\r\n{body}").expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}
