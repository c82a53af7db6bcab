//! Encryption at rest of secrets that are shown or used again: stream keys, destination configs, public keys.
//!
//! XChaCha20-Poly1305 with a random nonce per message. The owner row's random uid is bound in as associated
//! data, so that a sealed value copied to another row does not open. A sealed value is
//! `format byte | 4 bytes key id | 24 bytes nonce | ciphertext and tag`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac as _};
use sha2::{Digest, Sha256};

use super::{Redacted, fill_random};

const FORMAT_V1: u8 = 1;
const KEY_ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 24;
const HEADER_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_BYTES;
const KEY_BYTES: usize = 32;
/// The block of SHA-256; a key of HMAC is filled up with zeros to it (RFC 2104).
const HMAC_BLOCK_BYTES: usize = 64;
/// The key in text: 64 hexadecimal digits.
const KEY_HEX_CHARS: usize = KEY_BYTES * 2;
/// A key file has 64 digits and a line end; a larger file is not one.
const KEY_FILE_MAX_BYTES: u64 = 1_024;

/// Why a key or a sealed value cannot be used; never contains a part of either.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The key file could not be read or written.
    #[error("cannot use the key file {path}: {source}; make it readable for the service's user")]
    File {
        /// The key file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is a database, but the key of its secrets is missing.
    #[error(
        "the key file {0} is missing, but there is a database; restore the secret.key that belongs to it, or move the \
         database away to start again"
    )]
    Missing(PathBuf),
    /// The key file is open to other users.
    #[error("the key file {path} can be read by other users (mode {mode:o}); run: chmod 600 {path}")]
    Exposed {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The text is not a key.
    #[error("{place} does not hold a key of 64 hexadecimal digits; restore it from your backup")]
    Malformed {
        /// The key file, or `secret_key`.
        place: String,
    },
    /// The value was sealed with another key.
    #[error(
        "the stored secret was encrypted with another key; restore the secret.key that belongs to this database"
    )]
    OtherKey,
    /// The value is damaged or belongs to another row.
    #[error(
        "the stored secret cannot be decrypted: it is damaged or was moved from another row; set the secret again, or restore a backup"
    )]
    Damaged,
}

/// Seals and opens secrets with the service's one key.
#[derive(Clone)]
pub struct Vault {
    cipher: XChaCha20Poly1305,
    key_id: [u8; KEY_ID_BYTES],
    root: Hmac<Sha256>,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vault(***)")
    }
}

impl Vault {
    /// A vault with the given key.
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        let digest = Sha256::digest(key);
        let mut key_id = [0; KEY_ID_BYTES];
        key_id.copy_from_slice(&digest[..KEY_ID_BYTES]);
        let mut block = [0; HMAC_BLOCK_BYTES];
        block[..KEY_BYTES].copy_from_slice(key);
        Self { cipher: XChaCha20Poly1305::new(key.into()), key_id, root: Hmac::new(&block.into()) }
    }

    /// A secret for one purpose, named by `label`: the same at every start. It reveals neither the key nor
    /// another purpose's secret.
    pub fn derive(&self, label: &str) -> Redacted<[u8; KEY_BYTES]> {
        let mut mac = self.root.clone();
        mac.update(label.as_bytes());
        Redacted::new(mac.finalize().into_bytes().into())
    }

    /// A vault with a key given as 64 hexadecimal digits; `place` names its origin in the error.
    ///
    /// # Errors
    /// [`VaultError::Malformed`] for anything else.
    pub fn from_hex(text: &Redacted<String>, place: &str) -> Result<Self, VaultError> {
        let malformed = || VaultError::Malformed { place: place.to_owned() };
        let key = parse_hex(text.expose().trim()).ok_or_else(malformed)?;
        Ok(Self::new(&key))
    }

    /// The vault of the key file, which is created with mode 600 if missing. Two processes that start
    /// at once get the same key, because the file is created atomically.
    ///
    /// # Errors
    /// The file cannot be read or written, is readable by others, or contains no key.
    pub fn load_or_create(path: &Path) -> Result<Self, VaultError> {
        let failed = |source| VaultError::File { path: path.to_owned(), source };
        match Self::load(path) {
            Err(VaultError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                create_key_file(path).map_err(failed)?;
                Self::load(path)
            }
            other => other,
        }
    }

    /// The vault of an existing key file.
    ///
    /// # Errors
    /// As [`Vault::load_or_create`], and when the file is missing.
    pub fn load(path: &Path) -> Result<Self, VaultError> {
        let failed = |source| VaultError::File { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(failed)?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(VaultError::Exposed { path: path.to_owned(), mode });
        }
        if metadata.len() > KEY_FILE_MAX_BYTES {
            return Err(VaultError::Malformed { place: path.display().to_string() });
        }
        let text = Redacted::new(fs::read_to_string(path).map_err(failed)?);
        Self::from_hex(&text, &path.display().to_string())
    }

    /// Encrypts `plain` for the row with this uid.
    pub fn seal(&self, row_uid: &str, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&mut nonce);
        let payload = Payload { msg: plain, aad: row_uid.as_bytes() };
        let sealed = match self.cipher.encrypt(&XNonce::from(nonce), payload) {
            Ok(sealed) => sealed,
            // The only failure is a message of more than 256 GiB, which no caller can hold.
            Err(_) => unreachable!("message longer than the cipher allows"),
        };
        let mut value = Vec::with_capacity(HEADER_BYTES + sealed.len());
        value.push(FORMAT_V1);
        value.extend_from_slice(&self.key_id);
        value.extend_from_slice(&nonce);
        value.extend_from_slice(&sealed);
        value
    }

    /// Decrypts what [`Vault::seal`] made for the row with this uid.
    ///
    /// # Errors
    /// [`VaultError::OtherKey`] or [`VaultError::Damaged`].
    pub fn open(&self, row_uid: &str, value: &[u8]) -> Result<Redacted<Vec<u8>>, VaultError> {
        if value.len() < HEADER_BYTES || value[0] != FORMAT_V1 {
            return Err(VaultError::Damaged);
        }
        let (header, sealed) = value.split_at(HEADER_BYTES);
        let (key_id, nonce) = header[1..].split_at(KEY_ID_BYTES);
        if key_id != self.key_id {
            return Err(VaultError::OtherKey);
        }
        let nonce = XNonce::try_from(nonce).map_err(|_| VaultError::Damaged)?;
        let payload = Payload { msg: sealed, aad: row_uid.as_bytes() };
        self.cipher.decrypt(&nonce, payload).map(Redacted::new).map_err(|_| VaultError::Damaged)
    }

    /// Decrypts text.
    ///
    /// # Errors
    /// As [`Vault::open`]; [`VaultError::Damaged`] also when the plain text is not UTF-8.
    pub fn open_text(&self, row_uid: &str, value: &[u8]) -> Result<Redacted<String>, VaultError> {
        let plain = self.open(row_uid, value)?.into_inner();
        String::from_utf8(plain).map(Redacted::new).map_err(|_| VaultError::Damaged)
    }
}

fn parse_hex(text: &str) -> Option<[u8; KEY_BYTES]> {
    if text.len() != KEY_HEX_CHARS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(key)
}

/// Writes a new key to a temporary file and links it into place, which fails harmlessly if another process was first.
fn create_key_file(path: &Path) -> io::Result<()> {
    let mut key = [0; KEY_BYTES];
    fill_random(&mut key);
    let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let temporary = path.with_extension(format!("{}.new", super::new_uid()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written =
        file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all()).and_then(|()| {
            match fs::hard_link(&temporary, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                other => other,
            }
        });
    fs::remove_file(&temporary)?;
    written?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_values_open_only_with_their_key_and_row() {
        let vault = Vault::new(&[7; 32]);
        let sealed = vault.seal("row1", b"rtmp key");
        assert_eq!(vault.open("row1", &sealed).unwrap().expose(), b"rtmp key");
        assert!(matches!(vault.open("row2", &sealed), Err(VaultError::Damaged)));
        assert!(matches!(Vault::new(&[8; 32]).open("row1", &sealed), Err(VaultError::OtherKey)));
        assert_ne!(vault.seal("row1", b"rtmp key"), sealed, "the nonce is random");
    }

    #[test]
    fn every_damaged_byte_and_every_truncation_is_detected() {
        let vault = Vault::new(&[7; 32]);
        let sealed = vault.seal("row", b"secret");
        for index in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[index] ^= 1;
            assert!(vault.open("row", &damaged).is_err(), "byte {index}");
            assert!(vault.open("row", &sealed[..index]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn derived_secrets_depend_on_key_and_label_and_never_change() {
        let of = |key: u8, label: &str| Vault::new(&[key; 32]).derive(label).into_inner();
        assert_eq!(of(7, "a"), of(7, "a"));
        assert_ne!(of(7, "a"), of(7, "b"));
        assert_ne!(of(7, "a"), of(8, "a"));
        // RFC 4231, test case 1, whose key of 20 bytes is filled up with zeros like any other.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let known = Vault::new(&key).derive("Hi There").into_inner();
        assert_eq!(known[..8], [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]);
    }

    #[test]
    fn key_file_is_made_once_private_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        let sealed = Vault::load_or_create(&path).unwrap().seal("row", b"x");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Vault::load_or_create(&path).unwrap().open("row", &sealed).unwrap().expose(), b"x");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn processes_that_start_together_agree_on_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        let ids: Vec<_> = std::thread::scope(|scope| {
            let tries: Vec<_> =
                (0..8).map(|_| scope.spawn(|| Vault::load_or_create(&path).unwrap().key_id)).collect();
            tries.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]));
    }

    #[test]
    fn an_open_or_broken_key_file_is_refused_with_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        Vault::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Vault::load_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "abc", &"g".repeat(64), &"a".repeat(2_000)] {
            fs::write(&path, text).unwrap();
            assert!(matches!(Vault::load_or_create(&path), Err(VaultError::Malformed { .. })));
        }
        let nowhere = folder.path().join("missing/secret.key");
        assert!(matches!(Vault::load_or_create(&nowhere), Err(VaultError::File { .. })));
    }

    #[test]
    fn lost_and_wrong_keys_texts() {
        assert_eq!(
            VaultError::OtherKey.to_string(),
            "the stored secret was encrypted with another key; restore the secret.key that belongs to this database"
        );
        assert_eq!(
            VaultError::Missing("data/secret.key".into()).to_string(),
            "the key file data/secret.key is missing, but there is a database; restore the secret.key that belongs to \
             it, or move the database away to start again"
        );
    }
}
