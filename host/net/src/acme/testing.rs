//! A small certificate authority with ACME (RFC 8555) for tests. It validates by connecting to the service's port, as a
//! real one does, and checks nonces, addresses and proofs; it does not check signatures of requests.

use std::collections::HashSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, SignatureAlgorithm, date_time_ymd,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};

use crate::certificates::{ACME_TLS, pem};

/// Longest wait for a peer.
const LIMIT: Duration = Duration::from_secs(10);
/// The header of a public key of P-256 (RFC 5480), before its 65 bytes.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const P256_BYTES: usize = 65;
/// The extension of a proof (RFC 8737 section 3) up to its 32 bytes: its name, critical.
const PROOF: [u8; 17] =
    [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f, 0x01, 0x01, 0xff, 0x04, 0x22, 0x04, 0x20];
const TOKEN: &str = "a-token-of-the-authority-of-tests";

/// How the authority behaves; the counts go down with each request.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Requests that it refuses as `badNonce`.
    pub bad_nonces: u32,
    /// New orders that it refuses as `rateLimited`.
    pub limited: u32,
    /// The `Retry-After` of those, in seconds.
    pub retry_after: u64,
    /// Seconds that certificates are valid.
    pub lifetime: u64,
    /// The directory names no address for nonces.
    pub broken: bool,
    /// `Retry-After` of orders that are not valid yet, in seconds.
    pub poll_after: Option<u64>,
    /// Seconds that its clock is ahead of this machine's.
    pub ahead: u64,
    /// Spaces after the body of every answer.
    pub padding: usize,
    /// The wait before every answer.
    pub delay: Duration,
    /// It has forgotten all accounts.
    pub forgets: bool,
}

impl Default for Rules {
    fn default() -> Self {
        let lifetime = 90 * 24 * 3600;
        Self {
            bad_nonces: 0,
            limited: 0,
            retry_after: 0,
            lifetime,
            ahead: 0,
            broken: false,
            poll_after: None,
            padding: 0,
            delay: Duration::ZERO,
            forgets: false,
        }
    }
}

#[derive(Default)]
struct State {
    nonces: HashSet<String>,
    thumbprint: String,
    orders: Vec<Order>,
    accounts: u64,
}

struct Order {
    names: Vec<String>,
    /// Per name: not asked yet, or whether the proof was right.
    proofs: Vec<Option<bool>>,
    chain: Option<String>,
}

/// The authority; it serves until the process ends.
pub struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    port: Mutex<Option<SocketAddr>>,
    rules: Mutex<Rules>,
    state: Mutex<State>,
    issued: AtomicU64,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Answer {
    fn json(status: u16, body: &Value) -> Self {
        Self { status, headers: Vec::new(), body: body.to_string() }
    }

    fn problem(status: u16, kind: &str) -> Self {
        Self::json(status, &json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": kind}))
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl TestAuthority {
    /// Starts one that is asked over https, with a certificate of its own for 127.0.0.1.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn start() -> Arc<Self> {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "authority of tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an issuer");
        let tls = tls(&issuer);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let authority = Arc::new(Self {
            issuer,
            address: listener.local_addr().expect("an address"),
            tls,
            port: Mutex::default(),
            rules: Mutex::default(),
            state: Mutex::default(),
            issued: AtomicU64::new(0),
        });
        let serving = authority.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let serving = serving.clone();
                // A client that leaves early needs no answer.
                std::thread::spawn(move || serving.greet(socket));
            }
        });
        authority
    }

    /// The address of the directory.
    #[must_use]
    pub fn directory(&self) -> String {
        self.url("/directory")
    }

    /// The certificate of the authority in PEM.
    #[must_use]
    pub fn root(&self) -> String {
        pem("CERTIFICATE", self.issuer.der())
    }

    /// The port at which every name is validated.
    pub fn validate_at(&self, port: SocketAddr) {
        *self.port.lock() = Some(port);
    }

    /// Changes how it behaves.
    pub fn rule(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules.lock());
    }

    /// Certificates issued.
    pub fn issued(&self) -> u64 {
        self.issued.load(Ordering::Relaxed)
    }

    /// Orders begun, and accounts made.
    pub fn counts(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.orders.len(), state.accounts)
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    fn greet(&self, socket: TcpStream) -> io::Result<()> {
        socket.set_read_timeout(Some(LIMIT))?;
        let session = ServerConnection::new(self.tls.clone()).map_err(io::Error::other)?;
        let mut reader = BufReader::new(StreamOwned::new(session, socket));
        self.serve(&mut reader)?;
        let stream = reader.get_mut();
        stream.conn.send_close_notify();
        stream.flush()
    }

    fn serve<T: io::Read + io::Write>(&self, reader: &mut BufReader<T>) -> io::Result<()> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split(' ');
        let (method, path) =
            (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut answer = match path.as_str() {
            "/directory" => Answer::json(200, &self.addresses()),
            "/nonce" => Answer { status: 200, headers: Vec::new(), body: String::new() },
            _ => self.signed(&path, &body),
        };
        let Rules { padding, delay, .. } = *self.rules.lock();
        answer.body.push_str(&" ".repeat(padding));
        std::thread::sleep(delay);
        let mut text = format!(
            "HTTP/1.1 {} Told\r\nReplay-Nonce: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            answer.status,
            self.nonce(),
            answer.body.len()
        );
        for (name, value) in &answer.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        if method != "HEAD" {
            text.push_str(&answer.body);
        }
        let stream = reader.get_mut();
        stream.write_all(text.as_bytes())?;
        stream.flush()
    }

    fn addresses(&self) -> Value {
        let nonce = if self.rules.lock().broken { "not an address".to_owned() } else { self.url("/nonce") };
        json!({"newNonce": nonce, "newAccount": self.url("/account"), "newOrder": self.url("/order"),
            "revokeCert": self.url("/revoke"), "keyChange": self.url("/key")})
    }

    fn nonce(&self) -> String {
        let nonce = format!("n{}", rand::random::<u64>());
        self.state.lock().nonces.insert(nonce.clone());
        nonce
    }

    /// A request with a signature around it (RFC 8555 section 6.2).
    fn signed(&self, path: &str, body: &[u8]) -> Answer {
        let part = |name: &str| {
            let outer: Value = serde_json::from_slice(body).ok()?;
            let bytes = URL_SAFE_NO_PAD.decode(outer[name].as_str()?).ok()?;
            if bytes.is_empty() { Some(Value::Null) } else { serde_json::from_slice(&bytes).ok() }
        };
        let (Some(head), Some(payload)) = (part("protected"), part("payload")) else {
            return Answer::problem(400, "malformed");
        };
        if head["url"] != self.url(path) {
            return Answer::problem(401, "unauthorized");
        }
        let is_known = self.state.lock().nonces.remove(head["nonce"].as_str().unwrap_or_default());
        if !is_known || counted(&mut self.rules.lock().bad_nonces) {
            return Answer::problem(400, "badNonce");
        }
        let mut parts = path.trim_start_matches('/').split('/');
        let what = parts.next().unwrap_or_default();
        let mut number = || parts.next().and_then(|text| text.parse::<usize>().ok());
        let (order, name) = (number(), number());
        match (what, order, name) {
            ("account", None, None) => self.account(&head),
            ("order", None, None) => self.new_order(&payload),
            ("order", Some(order), None) => self.order(order, 200),
            ("authz", Some(order), Some(name)) => self.authorization(order, name),
            ("challenge", Some(order), Some(name)) => self.challenge(order, name),
            ("finalize", Some(order), None) => self.finalize(order, &payload),
            ("cert", Some(order), None) => {
                let body = self.state.lock().orders[order].chain.clone().unwrap_or_default();
                Answer { status: 200, headers: Vec::new(), body }
            }
            _ => Answer::problem(404, "malformed"),
        }
    }

    fn account(&self, head: &Value) -> Answer {
        let text = |name: &str| head["jwk"][name].as_str().unwrap_or_default().to_owned();
        let key =
            format!("{{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"{}\",\"y\":\"{}\"}}", text("x"), text("y"));
        let mut state = self.state.lock();
        state.thumbprint = URL_SAFE_NO_PAD.encode(Sha256::digest(key.as_bytes()));
        state.accounts += 1;
        self.rules.lock().forgets = false;
        Answer::json(201, &json!({"status": "valid"})).with("Location", self.url("/known/1"))
    }

    fn new_order(&self, payload: &Value) -> Answer {
        let mut rules = self.rules.lock();
        if rules.forgets {
            return Answer::problem(400, "accountDoesNotExist");
        }
        if counted(&mut rules.limited) {
            return Answer::problem(429, "rateLimited").with("Retry-After", rules.retry_after.to_string());
        }
        drop(rules);
        let names = payload["identifiers"].as_array().into_iter().flatten();
        let names: Vec<_> = names.filter_map(|name| Some(name["value"].as_str()?.to_owned())).collect();
        let proofs = vec![None; names.len()];
        let number = {
            let mut state = self.state.lock();
            state.orders.push(Order { names, proofs, chain: None });
            state.orders.len() - 1
        };
        self.order(number, 201).with("Location", self.url(&format!("/order/{number}")))
    }

    fn order(&self, number: usize, status: u16) -> Answer {
        let state = self.state.lock();
        let Some(order) = state.orders.get(number) else { return Answer::problem(404, "malformed") };
        let standing = match &order.chain {
            Some(_) => "valid",
            None if order.proofs.contains(&Some(false)) => "invalid",
            None if order.proofs.contains(&None) => "pending",
            None => "ready",
        };
        let identifiers: Vec<_> =
            order.names.iter().map(|name| json!({"type": "dns", "value": name})).collect();
        let authorizations: Vec<_> =
            (0..order.names.len()).map(|name| self.url(&format!("/authz/{number}/{name}"))).collect();
        let mut shown = json!({"status": standing, "identifiers": identifiers, "authorizations": authorizations,
            "finalize": self.url(&format!("/finalize/{number}"))});
        if order.chain.is_some() {
            shown["certificate"] = json!(self.url(&format!("/cert/{number}")));
        }
        let answer = Answer::json(status, &shown);
        match self.rules.lock().poll_after {
            Some(secs) if standing != "valid" => answer.with("Retry-After", secs.to_string()),
            _ => answer,
        }
    }

    fn shown_challenge(&self, order: usize, name: usize, proof: Option<bool>) -> Value {
        let standing = proof.map_or("pending", |right| if right { "valid" } else { "invalid" });
        let mut shown = json!({"type": "tls-alpn-01", "status": standing, "token": TOKEN,
            "url": self.url(&format!("/challenge/{order}/{name}"))});
        if proof == Some(false) {
            shown["error"] = json!({"type": "urn:ietf:params:acme:error:tls", "detail": "no proof"});
        }
        shown
    }

    fn authorization(&self, order: usize, name: usize) -> Answer {
        let state = self.state.lock();
        let (proof, value) = (state.orders[order].proofs[name], state.orders[order].names[name].clone());
        let challenge = self.shown_challenge(order, name, proof);
        Answer::json(
            200,
            &json!({"status": challenge["status"], "identifier": {"type": "dns", "value": value},
                "challenges": [challenge]}),
        )
    }

    fn challenge(&self, order: usize, name: usize) -> Answer {
        let (value, thumbprint) = {
            let state = self.state.lock();
            (state.orders[order].names[name].clone(), state.thumbprint.clone())
        };
        let digest = Sha256::digest(format!("{TOKEN}.{thumbprint}").as_bytes());
        let right = self.proof(&value).is_ok_and(|der| {
            let wanted = [&PROOF[..], &digest[..]].concat();
            der.windows(wanted.len()).any(|window| window == wanted)
        });
        self.state.lock().orders[order].proofs[name] = Some(right);
        // The connection that asked for the validation does not see its outcome.
        Answer::json(200, &self.shown_challenge(order, name, None))
    }

    /// The certificate that the service shows for `name` (RFC 8737 section 3).
    fn proof(&self, name: &str) -> io::Result<Vec<u8>> {
        let port = self.port.lock().ok_or(io::ErrorKind::NotConnected)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let verifier = Arc::new(AnyCertificate(provider));
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = vec![ACME_TLS.to_owned()];
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let client = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let socket = TcpStream::connect_timeout(&port, LIMIT)?;
        socket.set_read_timeout(Some(LIMIT))?;
        let mut stream = StreamOwned::new(client, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        if stream.conn.alpn_protocol() != Some(ACME_TLS) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let chain = stream.conn.peer_certificates().unwrap_or_default();
        chain.first().map(|certificate| certificate.to_vec()).ok_or(io::ErrorKind::InvalidData.into())
    }

    fn finalize(&self, number: usize, payload: &Value) -> Answer {
        let request =
            payload["csr"].as_str().and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).unwrap_or_default();
        let at = request.windows(P256.len()).position(|window| window == P256).map(|at| at + P256.len());
        let Some(key) = at.and_then(|at| request.get(at..at + P256_BYTES)) else {
            return Answer::problem(400, "badCSR");
        };
        let names = {
            let state = self.state.lock();
            let order = &state.orders[number];
            if order.proofs.iter().any(|proof| *proof != Some(true)) {
                return Answer::problem(403, "orderNotReady");
            }
            order.names.clone()
        };
        let mut params = CertificateParams::new(names).expect("names of an order");
        let Rules { lifetime, ahead, .. } = *self.rules.lock();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() + ahead;
        let at = |secs| date_time_ymd(1970, 1, 1) + Duration::from_secs(secs);
        (params.not_before, params.not_after) = (at(now), at(now + lifetime));
        let certificate = params.signed_by(&PublicKey(key.to_vec()), &self.issuer).expect("a certificate");
        self.state.lock().orders[number].chain = Some(pem("CERTIFICATE", certificate.der()));
        self.issued.fetch_add(1, Ordering::Relaxed);
        self.order(number, 200)
    }
}

/// What the authority shows for itself.
fn tls(issuer: &CertifiedIssuer<'static, KeyPair>) -> Arc<ServerConfig> {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().expect("TLS 1.2 and 1.3").with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = builder.with_single_cert(vec![certificate.der().clone()], key.into());
    Arc::new(config.expect("a certificate with its key"))
}

/// Whether one of `left` was taken.
fn counted(left: &mut u32) -> bool {
    let any = *left > 0;
    *left = left.saturating_sub(1);
    any
}

struct PublicKey(Vec<u8>);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// A proof is in the certificate itself, which nobody signed.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    // The verifiers of rustls refuse a certificate with an extension that is critical and unknown to them.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
