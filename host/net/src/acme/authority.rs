//! One order at the authority: account, proof of every name by TLS-ALPN-01 (RFC 8737), certificate.

use std::error::Error as StdError;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::header::RETRY_AFTER;
use hyper::{Request, Response};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType, Error,
    HttpClient, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tokio_rustls::rustls::pki_types::pem::{self as pem_file, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use url::Url;

use super::folder::{Folder, Stored};
use crate::certificates::{Challenges, pem};
use satcast_core::config;

/// Largest answer of an authority; a chain has some KiB.
pub(super) const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Longest wait that an authority can ask for.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest time of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for the validation, and again for the certificate.
const POLL_LIMIT: Duration = Duration::from_secs(90);
/// Characters of a reason that are kept: the authority may write anything.
const REASON_CHARS_MAX: usize = 500;
/// The authority does not know the account (RFC 8555 section 6.7).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

type AnyError = Box<dyn StdError + Send + Sync>;

/// Why there is no certificate.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// The wait that the authority asked for.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let reason = reason.into().chars().take(REASON_CHARS_MAX).map(plain).collect();
        Self { reason, retry_after: None }
    }
}

impl<E: StdError> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !reason.contains(&text) {
                reason = format!("{reason}: {text}");
            }
            source = cause.source();
        }
        Self::new(reason)
    }
}

/// Orders a certificate; its chain and key in PEM. What was answered to challenges is left for the caller to clear.
pub(super) async fn order(
    config: &config::Acme,
    folder: &Folder,
    challenges: &Challenges,
) -> Result<String, Failure> {
    let asked_wait = Arc::default();
    let ordered = order_with(config, folder, challenges, &asked_wait).await;
    ordered.map_err(|failure| Failure { retry_after: *asked_wait.lock(), ..failure })
}

async fn order_with(
    config: &config::Acme,
    folder: &Folder,
    challenges: &Challenges,
    asked_wait: &Arc<Mutex<Option<Duration>>>,
) -> Result<String, Failure> {
    let client = client(config.ca_file.as_deref())?;
    let http = Box::new(Http { client, asked_wait: asked_wait.clone() });
    let account = account(config, folder, http).await?;
    let names: Vec<_> = config.domains.iter().cloned().map(Identifier::Dns).collect();
    let mut order = match account.new_order(&NewOrder::new(&names)).await {
        Err(Error::Api(problem)) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => {
            folder.forget_account();
            return Err(problem.into());
        }
        other => other?,
    };
    let polls = RetryPolicy::new().timeout(POLL_LIMIT);
    prove(&mut order, challenges).await?;
    let ready = order.poll_ready(&polls).await;
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        let refused = refusal(&mut order).await;
        return Err(refused.unwrap_or_else(|| match ready {
            Err(error) => error.into(),
            Ok(_) => Failure::new("the authority refused the order"),
        }));
    }
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(config.domains.clone())?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&polls).await?;
    Ok(format!("{}{chain}", pem("PRIVATE KEY", &key.serialize_der())))
}

/// The account in the folder, or a new one, which is stored before anything is ordered.
async fn account(config: &config::Acme, folder: &Folder, http: Box<Http>) -> Result<Account, Failure> {
    let directory = config.directory.to_string();
    let builder = Account::builder_with_http(http);
    if let Some(stored) = folder.account::<AccountCredentials>()
        && (&stored.directory, &stored.contact) == (&directory, &config.contact)
    {
        return Ok(builder.from_credentials(stored.credentials).await?);
    }
    let contact: Vec<_> = config.contact.iter().map(|address| format!("mailto:{address}")).collect();
    let contact: Vec<_> = contact.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let (account, credentials) = builder.create(&new, directory.clone(), None).await?;
    let stored = Stored { directory, contact: config.contact.clone(), credentials };
    let folder = folder.clone();
    tokio::task::spawn_blocking(move || folder.store_account(&stored)).await??;
    Ok(account)
}

/// Answers a challenge for every name that the authority does not trust already.
async fn prove(order: &mut Order, challenges: &Challenges) -> Result<(), Failure> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            other => return Err(Failure::new(format!("the authority has a name as {other:?}"))),
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            return Err(Failure::new("the authority does not offer TLS-ALPN-01; use another one"));
        };
        let name = challenge.identifier().to_string();
        let answer = answer(&name, challenge.key_authorization().digest().as_ref())?;
        challenges.set(name, answer);
        challenge.set_ready().await?;
    }
    Ok(())
}

/// The certificate that proves `name` (RFC 8737 section 3).
fn answer(name: &str, digest: &[u8]) -> Result<CertifiedKey, Failure> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?;
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signer = ring::sign::any_supported_type(&der)?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], signer))
}

/// What the authority says about the first name that it could not validate.
async fn refusal(order: &mut Order) -> Option<Failure> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        let name = state.identifier().to_string();
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
            return Some(Failure::new(format!("{name} could not be validated: {problem}")));
        }
    }
    None
}

/// The HTTP client of one order. Its addresses are the operator's, so the guard of users' addresses is not asked.
fn client(ca_file: Option<&Path>) -> Result<reqwest::Client, Failure> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(file) => {
            let unreadable =
                |error| Failure::new(format!("cannot read [acme] ca_file {}: {error}", file.display()));
            for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
                roots.add(certificate.map_err(unreadable)?)?;
            }
            if roots.is_empty() {
                return Err(unreadable(pem_file::Error::NoItemsFound));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let tls =
        builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth();
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .timeout(REQUEST_LIMIT)
        .build()?)
}

/// The transport of the ACME library.
struct Http {
    client: reqwest::Client,
    asked_wait: Arc<Mutex<Option<Duration>>>,
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (client, asked_wait) = (self.client.clone(), self.asked_wait.clone());
        Box::pin(async move { ask(client, request, &asked_wait).await.map_err(Error::Other) })
    }
}

async fn ask(
    client: reqwest::Client,
    request: Request<BodyWrapper<Bytes>>,
    asked_wait: &Mutex<Option<Duration>>,
) -> Result<BytesResponse, AnyError> {
    let (head, body) = request.into_parts();
    let url = Url::parse(&head.uri.to_string())?;
    // The directory names the other addresses.
    if !config::Acme::is_safe(&url) {
        return Err("the authority names an address without TLS".into());
    }
    let body = body.collect().await?.to_bytes();
    let mut answer = client.request(head.method, url).headers(head.headers).body(body).send().await?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        headers.clone_from(answer.headers());
    }
    let asked = answer.headers().get(RETRY_AFTER).and_then(|value| wait_of(value.to_str().ok()?.trim()));
    if let Some(headers) = response.headers_mut()
        && headers.remove(RETRY_AFTER).is_some()
        && let Some(wait) = asked
    {
        // The library adds it to the clock without a check.
        headers.insert(RETRY_AFTER, wait.min(RETRY_AFTER_MAX).as_secs().into());
    }
    if answer.status().is_client_error() || answer.status().is_server_error() {
        let mut wait = asked_wait.lock();
        *wait = asked.or(*wait);
    }
    let mut bytes = BytesMut::new();
    while let Some(chunk) = answer.chunk().await? {
        if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err("an answer of the authority is larger than 256 KiB".into());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(BytesResponse::from(response.body(Full::new(bytes.freeze()))?))
}

/// The wait of a `Retry-After` header: seconds, or a date (RFC 9110 section 10.2.3).
fn wait_of(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).ok()
}
