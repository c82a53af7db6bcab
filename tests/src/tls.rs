//! Certificate authorities of the tests, and certificates signed by them.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};

/// Characters of a line of PEM.
const LINE_CHARS: usize = 64;
/// Longest wait for a server in a handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// An authority with a folder of its own.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate and its key, in files.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
}

impl Authority {
    /// A new authority with this name.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters without names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let folder = tempfile::tempdir().expect("a folder for certificates");
        write(&folder.path().join("root.pem"), "CERTIFICATE", issuer.der());
        Self { issuer, folder }
    }

    /// The file with its own certificate, for `SSL_CERT_FILE`.
    #[must_use]
    pub fn root_file(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// Signs a certificate for `names`, in files called after `name`.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn pair(&self, name: &str, names: &[&str]) -> Pair {
        let cert = self.folder.path().join(format!("{name}.pem"));
        let pair = Pair { cert, key: self.folder.path().join(format!("{name}-key.pem")) };
        self.renew(&pair, names);
        pair
    }

    /// Signs another certificate into the same files, as a renewal does.
    ///
    /// # Panics
    /// When it cannot.
    pub fn renew(&self, pair: &Pair, names: &[&str]) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names of a certificate");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        write(&pair.cert, "CERTIFICATE", certificate.der());
        write(&pair.key, "PRIVATE KEY", &key.serialize_der());
    }

    /// Whether the server at `address` shows a certificate that this authority signed for its address.
    ///
    /// # Panics
    /// When no server listens there.
    #[must_use]
    pub fn vouches_for(&self, address: SocketAddr) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("an authority's certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("TLS 1.2 and 1.3");
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let session = ClientConnection::new(config, ServerName::from(address.ip())).expect("a TLS client");
        let socket = TcpStream::connect(address).expect("a server that listens");
        socket.set_read_timeout(Some(HANDSHAKE_LIMIT)).expect("a limit");
        let mut stream = StreamOwned::new(session, socket);
        // The first byte of RTMP: the server's answer shows that it accepts RTMP.
        stream.write_all(&[3]).and_then(|()| stream.flush()).is_ok() && !stream.conn.is_handshaking()
    }
}

/// One connection to a server of https.
pub struct Visitor {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    name: String,
}

impl Visitor {
    /// Connects to `address` and requires a certificate for `name` that the authority in the file `root` signed.
    ///
    /// # Errors
    /// Nobody listens, or the certificate is another one.
    ///
    /// # Panics
    /// When the file or the name cannot be used.
    pub fn connect(root: &Path, address: SocketAddr, name: &str) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(root).expect("a certificate"))
            .expect("an authority's certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("TLS 1.2 and 1.3");
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let server = ServerName::try_from(name.to_owned()).expect("a name");
        let session = ClientConnection::new(config, server).expect("a TLS client");
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(HANDSHAKE_LIMIT))?;
        let mut stream = StreamOwned::new(session, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self { stream: BufReader::new(stream), name: name.to_owned() })
    }

    /// The certificate of the server.
    #[must_use]
    pub fn certificate(&self) -> Vec<u8> {
        let chain = self.stream.get_ref().conn.peer_certificates().unwrap_or_default();
        chain.first().map(|certificate| certificate.to_vec()).unwrap_or_default()
    }

    /// The status of a GET; the connection can be used again.
    ///
    /// # Errors
    /// The connection ended, or the answer is not HTTP.
    pub fn get(&mut self, path: &str) -> io::Result<u16> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.name);
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.stream.get_mut().flush()?;
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest.split(' ').next().and_then(|code| code.parse().ok());
            } else if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().map_err(io::Error::other)?;
            }
        }
        self.stream.read_exact(&mut vec![0; length])?;
        status.ok_or(io::ErrorKind::InvalidData.into())
    }
}

/// A server without TLS: it reads once and answers with other bytes.
///
/// # Panics
/// When it cannot listen.
#[must_use]
pub fn no_tls() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            // A client that leaves at once needs no answer.
            let _ = socket.read(&mut [0; 64]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    address
}

fn write(path: &Path, kind: &str, der: &[u8]) {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {kind}-----\n");
    for (index, character) in text.chars().enumerate() {
        if index > 0 && index.is_multiple_of(LINE_CHARS) {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem.push_str(&format!("\n-----END {kind}-----\n"));
    std::fs::write(path, pem).expect("a file of a certificate");
}
