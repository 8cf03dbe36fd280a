//! The raw floor of an etcd server: one write over one connection.

use std::net::SocketAddr;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::rounds::Failure;

/// To put a value, or, without one, to delete: the fields that count have the same numbers.
#[derive(Clone, PartialEq, prost::Message)]
struct Write {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct Written {}

/// One connection.
pub(super) struct Raw(Grpc<Channel>);

impl Raw {
    pub(super) async fn connect(address: SocketAddr) -> Result<Raw, Failure> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        Ok(Raw(Grpc::new(channel)))
    }

    pub(super) async fn put(&mut self, key: &str) -> Result<(), Failure> {
        self.write("/etcdserverpb.KV/Put", key, b"value").await
    }

    pub(super) async fn delete(&mut self, key: &str) -> Result<(), Failure> {
        self.write("/etcdserverpb.KV/DeleteRange", key, b"").await
    }

    async fn write(&mut self, path: &'static str, key: &str, value: &[u8]) -> Result<(), Failure> {
        self.0.ready().await?;
        let write = Write { key: key.as_bytes().to_vec(), value: value.to_vec() };
        let codec = ProstCodec::<Write, Written>::new();
        let path = PathAndQuery::from_static(path);
        self.0.unary(tonic::Request::new(write), path, codec).await?;
        Ok(())
    }
}
