//! Channel binding: the sign-in proves that both ends see the same TLS certificate, so that nobody
//! between them has ended the TLS connection and signs in with the client's proof.
//!
//! The rule is `tls-server-end-point` of RFC 5929, as in libpq: the hash of the server's
//! certificate, by the hash function of its signature, and SHA-256 in place of MD5 and SHA-1. The
//! client crate sends it if the server offers SCRAM-SHA-256-PLUS.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use holdline_net::der::{SEQUENCE, element};
use holdline_net::socket::ByteStream;
use sha2::{Digest, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The object identifiers of signature algorithms (RFC 4055, RFC 5758) that do not use SHA-256,
/// MD5 or SHA-1.
const RSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c];
const RSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const ECDSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04];
/// Those that do.
const RSA_MD5: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04];
const RSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

const OBJECT_IDENTIFIER: u8 = 0x06;

/// A stream to the server, and what a sign-in on it is bound to.
pub(crate) struct BoundStream {
    stream: Box<dyn ByteStream>,
    end_point: Option<Vec<u8>>,
}

impl BoundStream {
    /// A stream without TLS.
    pub(super) fn unbound(stream: impl ByteStream) -> BoundStream {
        BoundStream { stream: Box::new(stream), end_point: None }
    }

    /// A stream with TLS, and the server's certificate in DER.
    pub(super) fn of_certificate(
        stream: impl ByteStream,
        certificate: Option<&[u8]>,
    ) -> BoundStream {
        BoundStream { stream: Box::new(stream), end_point: certificate.and_then(end_point) }
    }
}

/// Hands a stream to the client crate as one on which TLS was negotiated already.
pub(super) struct Negotiated;

impl TlsConnect<BoundStream> for Negotiated {
    type Stream = BoundStream;
    type Error = io::Error;
    type Future = Ready<io::Result<BoundStream>>;

    fn connect(self, stream: BoundStream) -> Self::Future {
        ready(Ok(stream))
    }
}

impl TlsStream for BoundStream {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.end_point {
            Some(hash) => ChannelBinding::tls_server_end_point(hash.clone()),
            None => ChannelBinding::none(),
        }
    }
}

impl AsyncRead for BoundStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for BoundStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Returns the hash that stands for the server's certificate; `None` if RFC 5929 defines none for
/// its signature algorithm, such as Ed25519.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    match signature_algorithm(certificate)? {
        RSA_SHA384 | ECDSA_SHA384 => Some(Sha384::digest(certificate).to_vec()),
        RSA_SHA512 | ECDSA_SHA512 => Some(Sha512::digest(certificate).to_vec()),
        RSA_MD5 | RSA_SHA1 | RSA_SHA256 | ECDSA_SHA1 | ECDSA_SHA256 => {
            Some(Sha256::digest(certificate).to_vec())
        }
        _ => None,
    }
}

/// Returns the object identifier of the algorithm that signed a certificate. A certificate is a
/// sequence of its contents, the algorithm, and the signature; the algorithm is a sequence that
/// begins with the identifier.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let whole = element(certificate, SEQUENCE)?;
    let contents = element(whole.value, SEQUENCE)?;
    let algorithm = element(contents.rest, SEQUENCE)?;
    let identifier = element(algorithm.value, OBJECT_IDENTIFIER)?;
    Some(identifier.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate in outline: 200 bytes of contents, an algorithm, and no signature.
    fn certificate(algorithm: &[u8]) -> Vec<u8> {
        let length = u8::try_from(algorithm.len()).expect("short");
        let contents = [&[SEQUENCE, 0x81, 200][..], &[7; 200]].concat();
        let head = [SEQUENCE, length + 2, OBJECT_IDENTIFIER, length];
        let whole = [&contents, &head[..], algorithm].concat();
        let size = u16::try_from(whole.len()).expect("short").to_be_bytes();
        [&[SEQUENCE, 0x82], &size[..], &whole].concat()
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let size = |algorithm| end_point(&certificate(algorithm)).map(|hash| hash.len());
        assert_eq!(size(RSA_SHA1), Some(32));
        assert_eq!(size(ECDSA_SHA256), Some(32));
        assert_eq!(size(RSA_SHA384), Some(48));
        assert_eq!(size(ECDSA_SHA512), Some(64));
        let ed25519 = &[0x2b, 0x65, 0x70];
        assert_eq!(size(ed25519), None);
    }

    #[test]
    fn what_is_no_certificate_has_no_hash() {
        let whole = certificate(RSA_SHA256);
        let until_the_algorithm = whole.len() - 1;
        for length in 0..=until_the_algorithm {
            assert_eq!(end_point(&whole[..length]), None, "{length}");
        }
        assert_eq!(end_point(&[SEQUENCE, 0x85, 1, 1, 1, 1, 1]), None);
        assert_eq!(end_point(&[SEQUENCE, 0x80]), None);
    }
}
