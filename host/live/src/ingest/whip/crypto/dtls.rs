//! DTLS by dimpl, on `ring`: what all WebRTC peers have in common (RFC 8827, 6.5), and nothing else. DTLS 1.3 is not offered,
//! but dimpl asks for a suite of it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use aes::Aes128;
use aes::cipher::{BlockEncrypt as _, KeyInit as _};
use dimpl::crypto::{
    Aad, ActiveKeyExchange, Buf, Cipher, CryptoProvider, Dtls12CipherSuite, Dtls13CipherSuite, HashAlgorithm,
    HashContext, HashProvider, HmacProvider, KeyProvider, NamedGroup, Nonce, SecureRandom,
    SignatureAlgorithm, SignatureVerifier, SigningKey, SupportedDtls12CipherSuite,
    SupportedDtls13CipherSuite, SupportedKxGroup, TmpBuf,
};
use dimpl::{Config, CryptoError, CryptoOperation};
use ring::aead::{self, AES_128_GCM, LessSafeKey, UnboundKey};
use ring::agreement::{self, ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{self, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use ring::{digest, hmac};
use str0m::config::{DtlsCert, DtlsVersion};
use str0m::crypto::CryptoError as ProviderError;
use str0m::crypto::dtls::{DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, ProtocolVersion};

use super::der::{Curve, public_key};

const KEY_BYTES: usize = 16;
const TAG_BYTES: usize = 16;

fn failed<E>(operation: CryptoOperation) -> impl FnOnce(E) -> CryptoError {
    move |_| CryptoError::OperationFailed(operation)
}

#[derive(Debug)]
pub(super) struct Dtls;

impl Dtls {
    /// The settings of all connections. Made once, because making them tests the whole cryptography.
    fn config(mtu: Option<usize>) -> Result<Arc<Config>, ProviderError> {
        static CONFIG: OnceLock<Arc<Config>> = OnceLock::new();
        if let Some(config) = CONFIG.get() {
            return Ok(Arc::clone(config));
        }
        let provider = CryptoProvider {
            kx_groups: GROUPS,
            signature_verification: &Ring,
            key_provider: &Ring,
            secure_random: &Ring,
            hash_provider: &Ring,
            hmac_provider: &Ring,
            cipher_suites: SUITES,
            dtls13_cipher_suites: SUITES_13,
        };
        // The cookie proves the address of the peer: ICE lite asks nobody, and requests can come from forged addresses.
        let builder = Config::builder().with_crypto_provider(provider).use_server_cookie(true);
        let builder = mtu.into_iter().fold(builder, |builder, mtu| builder.mtu(mtu));
        let config = builder.build().map_err(|error| ProviderError::Other(error.to_string()))?;
        Ok(Arc::clone(CONFIG.get_or_init(|| Arc::new(config))))
    }
}

impl DtlsProvider for Dtls {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        None
    }

    fn new_dtls(
        &self,
        certificate: &DtlsCert,
        now: Instant,
        _version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, ProviderError> {
        Ok(Box::new(Instance(dimpl::Dtls::new_12(Self::config(mtu)?, certificate.clone(), now))))
    }
}

struct Instance(dimpl::Dtls);

/// Does not show keys.
impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").finish_non_exhaustive()
    }
}

impl DtlsInstance for Instance {
    fn set_active(&mut self, active: bool) {
        self.0.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.0.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        self.0.poll_output(buf)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.0.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.0.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.0.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.0.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.0.close()
    }
}

/// Everything that has no state.
#[derive(Debug)]
struct Ring;

static SUITES: &[&dyn SupportedDtls12CipherSuite] = &[&Ring];
static SUITES_13: &[&dyn SupportedDtls13CipherSuite] = &[&Ring];
static GROUPS: &[&dyn SupportedKxGroup] = &[&X25519_GROUP, &P256_GROUP];

impl SupportedDtls12CipherSuite for Ring {
    fn suite(&self) -> Dtls12CipherSuite {
        Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    /// Of the keys for authentication and encryption, and of the fixed part of a nonce (RFC 5288, 3).
    fn key_lengths(&self) -> (usize, usize, usize) {
        (0, KEY_BYTES, 4)
    }

    fn explicit_nonce_len(&self) -> usize {
        8
    }

    fn tag_len(&self) -> usize {
        TAG_BYTES
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
        Gcm::boxed(key)
    }
}

impl SupportedDtls13CipherSuite for Ring {
    fn suite(&self) -> Dtls13CipherSuite {
        Dtls13CipherSuite::AES_128_GCM_SHA256
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn key_len(&self) -> usize {
        KEY_BYTES
    }

    fn iv_len(&self) -> usize {
        aead::NONCE_LEN
    }

    fn tag_len(&self) -> usize {
        TAG_BYTES
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
        Gcm::boxed(key)
    }

    fn encrypt_sn(&self, key: &[u8], sample: &[u8; 16]) -> [u8; 16] {
        let mut block = (*sample).into();
        Aes128::new(key.into()).encrypt_block(&mut block);
        block.into()
    }
}

#[derive(Debug)]
struct Gcm(LessSafeKey);

impl Gcm {
    fn boxed(key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
        let key = UnboundKey::new(&AES_128_GCM, key).map_err(failed(CryptoOperation::CreateCipher))?;
        Ok(Box::new(Self(LessSafeKey::new(key))))
    }
}

impl Cipher for Gcm {
    fn encrypt(&mut self, text: &mut Buf, aad: Aad, nonce: Nonce) -> Result<(), CryptoError> {
        let nonce = aead::Nonce::assume_unique_for_key(nonce.0);
        let sealed = self.0.seal_in_place_append_tag(nonce, aead::Aad::from(aad.0.as_slice()), text);
        sealed.map_err(failed(CryptoOperation::Encrypt))
    }

    fn decrypt(&mut self, text: &mut TmpBuf<'_>, aad: Aad, nonce: Nonce) -> Result<(), CryptoError> {
        let nonce = aead::Nonce::assume_unique_for_key(nonce.0);
        let opened = self.0.open_in_place(nonce, aead::Aad::from(aad.0.as_slice()), text.as_mut());
        let bytes = opened.map_err(failed(CryptoOperation::Decrypt))?.len();
        text.truncate(bytes);
        Ok(())
    }
}

impl HashProvider for Ring {
    fn create_hash(&self, algorithm: HashAlgorithm) -> Box<dyn HashContext> {
        let algorithm = if algorithm == HashAlgorithm::SHA384 { &digest::SHA384 } else { &digest::SHA256 };
        Box::new(Hash(digest::Context::new(algorithm)))
    }
}

struct Hash(digest::Context);

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hash").finish_non_exhaustive()
    }
}

impl HashContext for Hash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn clone_and_finalize(&self, out: &mut Buf) {
        out.clear();
        out.extend_from_slice(self.0.clone().finish().as_ref());
    }
}

impl HmacProvider for Ring {
    fn hmac(
        &self,
        hash: HashAlgorithm,
        key: &[u8],
        data: &[u8],
        out: &mut [u8],
    ) -> Result<usize, CryptoError> {
        let algorithm = match hash {
            HashAlgorithm::SHA256 => hmac::HMAC_SHA256,
            HashAlgorithm::SHA384 => hmac::HMAC_SHA384,
            other => return Err(CryptoError::UnsupportedHmacHash(other)),
        };
        let tag = hmac::sign(&hmac::Key::new(algorithm, key), data);
        let place = out.get_mut(..tag.as_ref().len());
        let place = place.ok_or(CryptoError::OperationFailed(CryptoOperation::ComputeHmac))?;
        place.copy_from_slice(tag.as_ref());
        Ok(place.len())
    }
}

impl SecureRandom for Ring {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), CryptoError> {
        SystemRandom::new().fill(buffer).map_err(failed(CryptoOperation::FillRandom))
    }
}

/// A group for the exchange of keys.
struct Group(NamedGroup, &'static agreement::Algorithm);

static X25519_GROUP: Group = Group(NamedGroup::X25519, &X25519);
static P256_GROUP: Group = Group(NamedGroup::Secp256r1, &ECDH_P256);

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Group").field(&self.0).finish()
    }
}

impl SupportedKxGroup for Group {
    fn name(&self) -> NamedGroup {
        self.0
    }

    fn start_exchange(&self, mut public: Buf) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let private = EphemeralPrivateKey::generate(self.1, &SystemRandom::new())
            .map_err(failed(CryptoOperation::GenerateEphemeralKey))?;
        let key = private.compute_public_key().map_err(failed(CryptoOperation::ComputePublicKey))?;
        public.clear();
        public.extend_from_slice(key.as_ref());
        Ok(Box::new(Exchange { group: self.0, algorithm: self.1, private, public }))
    }
}

struct Exchange {
    group: NamedGroup,
    algorithm: &'static agreement::Algorithm,
    private: EphemeralPrivateKey,
    public: Buf,
}

/// Does not show the private key.
impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("group", &self.group).finish_non_exhaustive()
    }
}

impl ActiveKeyExchange for Exchange {
    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn complete(self: Box<Self>, peer: &[u8], out: &mut Buf) -> Result<(), CryptoError> {
        let peer = UnparsedPublicKey::new(self.algorithm, peer);
        let agreed = agree_ephemeral(self.private, &peer, |secret| {
            out.clear();
            out.extend_from_slice(secret);
        });
        agreed.map_err(|_| CryptoError::InvalidPublicKey(self.group))
    }

    fn group(&self) -> NamedGroup {
        self.group
    }
}

impl KeyProvider for Ring {
    fn load_private_key(&self, key: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key, &SystemRandom::new());
        Ok(Box::new(Signer(pair.map_err(|_| CryptoError::InvalidPrivateKey)?)))
    }
}

#[derive(Debug)]
struct Signer(EcdsaKeyPair);

impl SigningKey for Signer {
    fn sign(&mut self, data: &[u8], hash: HashAlgorithm, out: &mut Buf) -> Result<(), CryptoError> {
        if hash != HashAlgorithm::SHA256 {
            let key_hash = HashAlgorithm::SHA256;
            return Err(CryptoError::SigningKeyHashMismatch { key_hash, requested: hash });
        }
        let signed = self.0.sign(&SystemRandom::new(), data).map_err(failed(CryptoOperation::Sign))?;
        out.clear();
        out.extend_from_slice(signed.as_ref());
        Ok(())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn supported_hash_algorithms(&self) -> &[HashAlgorithm] {
        &[HashAlgorithm::SHA256]
    }
}

impl SignatureVerifier for Ring {
    fn verify_signature(
        &self,
        certificate: &[u8],
        data: &[u8],
        signed: &[u8],
        hash: HashAlgorithm,
        algorithm: SignatureAlgorithm,
    ) -> Result<(), CryptoError> {
        if algorithm != SignatureAlgorithm::ECDSA {
            return Err(CryptoError::UnsupportedSignatureAlgorithm(algorithm));
        }
        let (curve, point) = public_key(certificate).ok_or(CryptoError::UnsupportedPublicKeyAlgorithm)?;
        let (group, scheme) = match (curve, hash) {
            (Curve::P256, HashAlgorithm::SHA256) => {
                (NamedGroup::Secp256r1, &signature::ECDSA_P256_SHA256_ASN1)
            }
            (Curve::P256, HashAlgorithm::SHA384) => {
                (NamedGroup::Secp256r1, &signature::ECDSA_P256_SHA384_ASN1)
            }
            (Curve::P384, HashAlgorithm::SHA256) => {
                (NamedGroup::Secp384r1, &signature::ECDSA_P384_SHA256_ASN1)
            }
            (Curve::P384, HashAlgorithm::SHA384) => {
                (NamedGroup::Secp384r1, &signature::ECDSA_P384_SHA384_ASN1)
            }
            _ => return Err(CryptoError::UnsupportedSignatureAlgorithm(algorithm)),
        };
        let verified = signature::UnparsedPublicKey::new(scheme, point).verify(data, signed);
        verified.map_err(|_| CryptoError::SignatureVerificationFailed { signature: algorithm, hash, group })
    }
}
