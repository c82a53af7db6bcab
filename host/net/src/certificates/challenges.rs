//! Answers to the challenges of a certificate authority on the https port (TLS-ALPN-01, RFC 8737).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

/// Name of the protocol by which an authority asks; a connection with it carries nothing (RFC 8737 section 4).
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// The certificate that answers for each name while it is being validated; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Challenges(Arc<RwLock<HashMap<String, Arc<CertifiedKey>>>>);

impl Challenges {
    /// From now on `name` is answered with `key`.
    pub fn set(&self, name: String, key: CertifiedKey) {
        self.0.write().insert(name, Arc::new(key));
    }

    /// Nothing is answered any more.
    pub fn clear(&self) {
        self.0.write().clear();
    }

    /// `config` that answers the authority as well.
    pub(super) fn beside(&self, config: &ServerConfig) -> Arc<ServerConfig> {
        let mut config = config.clone();
        let usual = Arc::clone(&config.cert_resolver);
        config.cert_resolver = Arc::new(Resolver { usual, challenges: self.clone() });
        if !config.alpn_protocols.iter().any(|known| known == ACME_TLS) {
            config.alpn_protocols.push(ACME_TLS.to_owned());
        }
        Arc::new(config)
    }
}

/// Tells the authority by the one protocol that it offers.
#[derive(Debug)]
struct Resolver {
    usual: Arc<dyn ResolvesServerCert>,
    challenges: Challenges,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asks = hello
            .alpn()
            .is_some_and(|mut offered| offered.next() == Some(ACME_TLS) && offered.next().is_none());
        if !asks {
            return self.usual.resolve(hello);
        }
        self.challenges.0.read().get(hello.server_name()?).cloned()
    }
}
