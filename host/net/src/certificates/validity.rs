//! The times between which a certificate is valid, as the TLS library itself judges them: no second parser decides.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, CertificateError as Fault, RootCertStore, crypto::ring};

use satcast_core::ids::UnixMillis;

/// No certificate ends later, in seconds since 1970: the year 9999 (RFC 5280 section 4.1.2.5).
const TIME_MAX_SECS: u64 = 253_402_300_800;

/// The first and the last moment at which a certificate is valid, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub from: UnixMillis,
    /// The last moment.
    pub until: UnixMillis,
}

/// How a certificate stands to a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// It is not valid yet.
    Early,
    Valid,
    /// It has expired.
    Late,
}

impl Validity {
    /// When it should be renewed: after two thirds of its time.
    pub fn renewal(self) -> UnixMillis {
        let lifetime = self.until.0.saturating_sub(self.from.0);
        UnixMillis(self.from.0.saturating_add(lifetime / 3 * 2))
    }

    /// `None` when the chain is empty or its first certificate cannot be read.
    pub(super) fn of(chain: &[CertificateDer<'static>]) -> Option<Self> {
        let verifier = Verifier::of(chain)?;
        // The state only goes forward with time.
        let first = |is_reached: fn(State) -> bool| {
            let (mut least, mut most) = (0, TIME_MAX_SECS);
            while least < most {
                let middle = least + (most - least) / 2;
                if is_reached(verifier.state(middle)) { most = middle } else { least = middle + 1 }
            }
            least
        };
        let from = first(|state| state >= State::Valid);
        let until = first(|state| state == State::Late).saturating_sub(1);
        Some(Self { from: millis(from), until: millis(until) })
    }
}

fn millis(secs: u64) -> UnixMillis {
    UnixMillis(i64::try_from(secs).unwrap_or(i64::MAX).saturating_mul(1_000))
}

/// The state of the chain's first certificate at `now`; `None` if it cannot be read.
pub(super) fn state(chain: &[CertificateDer<'static>], now: UnixMillis) -> Option<State> {
    let secs = u64::try_from(now.0).unwrap_or_default() / 1_000;
    Some(Verifier::of(chain)?.state(secs))
}

/// Trusts the certificate itself, so it can only object to its validity period.
struct Verifier<'a> {
    verifier: Arc<WebPkiServerVerifier>,
    leaf: &'a CertificateDer<'static>,
    rest: &'a [CertificateDer<'static>],
    name: ServerName<'static>,
}

impl<'a> Verifier<'a> {
    fn of(chain: &'a [CertificateDer<'static>]) -> Option<Self> {
        let (leaf, rest) = chain.split_first()?;
        let mut roots = RootCertStore::empty();
        roots.add(leaf.clone()).ok()?;
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        let name = ServerName::try_from("satcast.invalid").ok()?;
        Some(Self { verifier, leaf, rest, name })
    }

    fn state(&self, secs: u64) -> State {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(secs));
        match self.verifier.verify_server_cert(self.leaf, self.rest, &self.name, &[], now) {
            Err(rustls::Error::InvalidCertificate(Fault::Expired | Fault::ExpiredContext { .. })) => {
                State::Late
            }
            Err(rustls::Error::InvalidCertificate(Fault::NotValidYet | Fault::NotValidYetContext { .. })) => {
                State::Early
            }
            _ => State::Valid,
        }
    }
}
