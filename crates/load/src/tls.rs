//! TLS, the client's side, by rustls.
//!
//! Certificates are not verified unless the user gives authorities to verify them by: what is loaded is most
//! often a server of one's own with a certificate of its own making. wrk and ab verify none either.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::target::{PlanError, refuse};

/// How to open TLS connections to one server.
#[derive(Clone, Debug)]
pub(crate) struct TlsPlan {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// One TLS connection, apart from its socket.
#[derive(Debug)]
pub(crate) struct Tls(ClientConnection);

impl TlsPlan {
    /// For the server `name`; `authorities` are certificates in PEM, to verify the server's by.
    pub(crate) fn new(name: &str, authorities: Option<&[u8]>) -> Result<Self, PlanError> {
        let name = match ServerName::try_from(name.trim_matches(['[', ']']).to_owned()) {
            Ok(name) => name,
            Err(_) => return refuse(format!("{name:?} is no name that a certificate could have")),
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring has the suites of both versions");
        let mut config = match authorities {
            Some(pem) => builder.with_root_certificates(roots(pem)?).with_no_client_auth(),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), name })
    }

    pub(crate) fn connect(&self) -> io::Result<Tls> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map(Tls).map_err(io::Error::other)
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, PlanError> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| store.add(certificate).map_err(|error| error.to_string()));
        if let Err(error) = added {
            return refuse(format!("the certificates to verify by cannot be read: {error}"));
        }
    }
    if store.is_empty() {
        return refuse("there is no certificate in the file of those to verify by");
    }
    Ok(store)
}

impl Tls {
    /// Whether the handshake is over.
    pub(crate) fn is_ready(&self) -> bool {
        !self.0.is_handshaking()
    }

    /// Encrypt `plain` behind what is in `out`.
    pub(crate) fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut rest = plain;
        while !rest.is_empty() {
            // The writer takes up to its own limit (64 KB) before its records must be fetched.
            let taken = self.0.writer().write(rest)?;
            rest = &rest[taken..];
            self.output(out)?;
        }
        Ok(())
    }

    /// Put what TLS itself has to send behind what is in `out`.
    pub(crate) fn output(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(out)?;
        }
        Ok(())
    }

    /// Put what `records` hold behind what is in `plain`.
    pub(crate) fn decrypt(&mut self, mut records: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        while !records.is_empty() {
            if self.0.read_tls(&mut records)? == 0 {
                // Behind the peer's close_notify nothing is taken any more.
                break;
            }
            let state = self.0.process_new_packets().map_err(io::Error::other)?;
            let before = plain.len();
            plain.resize(before + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[before..])?;
        }
        Ok(())
    }
}

/// Takes every certificate, but holds the server to the signatures made with it.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_authorities_are_checked_before_anything_is_opened() {
        for good in ["localhost", "127.0.0.1", "[::1]", "a.example"] {
            assert!(TlsPlan::new(good, None).is_ok(), "{good}");
        }
        assert!(TlsPlan::new("a b", None).is_err());
        for bad in [&b""[..], b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            assert!(TlsPlan::new("localhost", Some(bad)).is_err());
        }
    }

    #[test]
    fn garbage_in_place_of_a_handshake_is_an_error() {
        let mut tls = TlsPlan::new("localhost", None).expect("good").connect().expect("good");
        let mut hello = Vec::new();
        tls.output(&mut hello).expect("a Vec takes all");
        assert_eq!(hello[0], 22, "a handshake record");
        assert!(tls.decrypt(b"HTTP/1.1 400 Bad Request\r\n\r\n", &mut Vec::new()).is_err());
    }
}
