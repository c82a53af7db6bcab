//! The cryptography of WebRTC on `ring`, which TLS uses already: str0m brings none of its own. DTLS is in [`dtls`], SRTP in
//! [`srtp`]; [`der`] finds the key in a certificate.

mod der;
mod dtls;
mod srtp;

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use ring::{digest, hmac};
use str0m::config::DtlsCert;
use str0m::crypto::{CryptoProvider, Sha1HmacProvider, Sha1Provider, Sha256Provider};

/// Name in the certificate. Peers look at its fingerprint only.
const CERTIFICATE_NAME: &str = "satcast";

/// What all connections of the port share: the cryptography, and the certificate whose fingerprint every answer has.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) certificate: DtlsCert,
}

impl Identity {
    /// With a new key, which lives as long as the process.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub(super) fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([CERTIFICATE_NAME.to_owned()])?.self_signed(&key)?;
        let certificate =
            DtlsCert { certificate: certificate.der().to_vec(), private_key: key.serialize_der() };
        let provider = CryptoProvider {
            srtp_provider: &srtp::Srtp,
            sha1_hmac_provider: &Hashes,
            sha1_provider: &Hashes,
            sha256_provider: &Hashes,
            dtls_provider: &dtls::Dtls,
        };
        Ok(Self { provider: Arc::new(provider), certificate })
    }
}

#[derive(Debug)]
struct Hashes;

impl Sha1HmacProvider for Hashes {
    fn sha1_hmac(&self, key: &[u8], payloads: &[&[u8]]) -> [u8; 20] {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
        let mut context = hmac::Context::with_key(&key);
        payloads.iter().for_each(|payload| context.update(payload));
        array(context.sign().as_ref())
    }
}

impl Sha1Provider for Hashes {
    fn sha1(&self, data: &[u8]) -> [u8; 20] {
        array(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, data).as_ref())
    }
}

impl Sha256Provider for Hashes {
    fn sha256(&self, data: &[u8]) -> [u8; 32] {
        array(digest::digest(&digest::SHA256, data).as_ref())
    }
}

/// A digest, whose length its algorithm gives.
fn array<const BYTES: usize>(digest: &[u8]) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    out.copy_from_slice(digest);
    out
}
