//! Encryption (6): the key that a caller wraps with its passphrase, and AES in counter mode.

use aes::cipher::{BlockDecrypt as _, BlockEncrypt as _, KeyInit as _};
use aes::{Aes128, Aes192, Aes256};
use hmac::{Hmac, Mac as _};
use sha1::Sha1;

use super::wire::Parity;

/// Rounds of PBKDF2 (6.2.1).
const ROUNDS: u32 = 2_048;
const SALT_BYTES: usize = 16;
const BLOCK_BYTES: usize = 16;
/// Bytes of key material before the salt.
const HEAD_BYTES: usize = 16;
/// Bytes that wrapping adds, and what they are when the key fits (RFC 3394, 2.2.3.1).
const WRAP_BYTES: usize = 8;
const WRAP_IV: [u8; WRAP_BYTES] = [0xa6; WRAP_BYTES];
/// Version 1, packet type of key material, signature (3.2.2).
const HEAD: [u8; 3] = [0x12, 0x20, 0x29];
/// AES in counter mode.
const CIPHER_CTR: u8 = 2;
/// Transport stream over SRT.
const STREAM_SRT: u8 = 2;

/// Key material of a caller, not unwrapped.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyMaterial {
    bytes: Vec<u8>,
    has_even: bool,
    has_odd: bool,
    key_bytes: usize,
}

/// Does not show the wrapped keys.
impl std::fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyMaterial").field("key_bytes", &self.key_bytes).finish_non_exhaustive()
    }
}

/// Why key material cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Malformed,
    /// A cipher other than AES in counter mode.
    Cipher,
}

impl KeyMaterial {
    /// Reads the message (3.2.2).
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let head = bytes.first_chunk::<HEAD_BYTES>().ok_or(Fault::Malformed)?;
        let (has_even, has_odd) = (head[3] & 1 == 1, head[3] & 2 == 2);
        let (salt_bytes, key_bytes) = (usize::from(head[14]) * 4, usize::from(head[15]) * 4);
        if head[..3] != HEAD || !(has_even || has_odd) || salt_bytes != SALT_BYTES {
            return Err(Fault::Malformed);
        }
        if head[8] != CIPHER_CTR || ![16, 24, 32].contains(&key_bytes) {
            return Err(Fault::Cipher);
        }
        let material = Self { bytes: bytes.to_vec(), has_even, has_odd, key_bytes };
        (material.wrapped().len() == WRAP_BYTES + material.keys() * key_bytes)
            .then_some(material)
            .ok_or(Fault::Malformed)
    }

    /// The message as it came, which is also the answer to it.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of a key: 16, 24 or 32.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    fn keys(&self) -> usize {
        usize::from(self.has_even) + usize::from(self.has_odd)
    }

    fn salt(&self) -> &[u8] {
        &self.bytes[HEAD_BYTES..HEAD_BYTES + SALT_BYTES]
    }

    fn wrapped(&self) -> &[u8] {
        self.bytes.get(HEAD_BYTES + SALT_BYTES..).unwrap_or_default()
    }
}

#[derive(Clone)]
enum Cipher {
    Bits128(Box<Aes128>),
    Bits192(Box<Aes192>),
    Bits256(Box<Aes256>),
}

type Block = [u8; BLOCK_BYTES];

impl Cipher {
    fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Aes128::new_from_slice(key).ok().map(|cipher| Self::Bits128(Box::new(cipher))),
            24 => Aes192::new_from_slice(key).ok().map(|cipher| Self::Bits192(Box::new(cipher))),
            _ => Aes256::new_from_slice(key).ok().map(|cipher| Self::Bits256(Box::new(cipher))),
        }
    }

    fn encrypt(&self, block: &mut Block) {
        let mut cells = aes::Block::from(*block);
        match self {
            Self::Bits128(cipher) => cipher.encrypt_block(&mut cells),
            Self::Bits192(cipher) => cipher.encrypt_block(&mut cells),
            Self::Bits256(cipher) => cipher.encrypt_block(&mut cells),
        }
        *block = cells.into();
    }

    fn decrypt(&self, block: &mut Block) {
        let mut cells = aes::Block::from(*block);
        match self {
            Self::Bits128(cipher) => cipher.decrypt_block(&mut cells),
            Self::Bits192(cipher) => cipher.decrypt_block(&mut cells),
            Self::Bits256(cipher) => cipher.decrypt_block(&mut cells),
        }
        *block = cells.into();
    }
}

/// The keys of a connection, and what later ones are unwrapped with. `Debug` shows no key.
#[derive(Clone)]
pub struct Keys {
    passphrase: Vec<u8>,
    even: Option<(Cipher, Block)>,
    odd: Option<(Cipher, Block)>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl Keys {
    /// Unwraps the keys of a handshake; `None` if the passphrase is another one. Takes about a millisecond.
    pub fn unwrap(passphrase: &str, material: &KeyMaterial) -> Option<Self> {
        let mut keys = Self { passphrase: passphrase.as_bytes().to_vec(), even: None, odd: None };
        keys.renew(material).then_some(keys)
    }

    /// Takes further keys; false if they do not fit the passphrase.
    pub(super) fn renew(&mut self, material: &KeyMaterial) -> bool {
        let Some(plain) = unwrapped(&self.passphrase, material) else { return false };
        let iv = iv_of(material);
        let mut keys = plain.chunks_exact(material.key_bytes);
        for (is_sent, place) in [(material.has_even, &mut self.even), (material.has_odd, &mut self.odd)] {
            if is_sent {
                *place = keys.next().and_then(Cipher::new).map(|cipher| (cipher, iv));
            }
        }
        true
    }

    /// A new key of 16 or 32 bytes for a caller, and the message with it. Takes about a millisecond. `None`: another length.
    pub(super) fn wrap(passphrase: &str, salt: [u8; SALT_BYTES], key: &[u8]) -> Option<(Self, KeyMaterial)> {
        let message = wrapped(passphrase.as_bytes(), salt, 1, key, key.len())?;
        let material = KeyMaterial::parse(&message).ok()?;
        let even = Cipher::new(key).map(|cipher| (cipher, iv_of(&material)));
        Some((Self { passphrase: passphrase.as_bytes().to_vec(), even, odd: None }, material))
    }

    /// The key that this side encrypts with.
    pub(super) fn parity(&self) -> Parity {
        if self.even.is_some() { Parity::Even } else { Parity::Odd }
    }

    /// Decrypts or encrypts a payload in place, which is the same in counter mode; false if the key is not there.
    pub(super) fn decrypt(&self, parity: Parity, sequence: u32, payload: &mut [u8]) -> bool {
        let key = match parity {
            Parity::Even => &self.even,
            Parity::Odd => &self.odd,
        };
        let Some((cipher, iv)) = key else { return false };
        for (count, part) in (0u16..).zip(payload.chunks_mut(BLOCK_BYTES)) {
            let mut block = *iv;
            for (byte, number) in block[10..14].iter_mut().zip(sequence.to_be_bytes()) {
                *byte ^= number;
            }
            block[14..].copy_from_slice(&count.to_be_bytes());
            cipher.encrypt(&mut block);
            part.iter_mut().zip(block).for_each(|(byte, mask)| *byte ^= mask);
        }
        true
    }
}

/// Where the counter begins (6.2.2).
fn iv_of(material: &KeyMaterial) -> Block {
    let mut iv = [0; BLOCK_BYTES];
    iv[..BLOCK_BYTES - 2].copy_from_slice(&material.salt()[..BLOCK_BYTES - 2]);
    iv
}

/// Key for the wrapped keys (6.2.1): PBKDF2 with HMAC-SHA-1 over the last 8 bytes of the salt.
fn wrapping_key(passphrase: &[u8], material: &KeyMaterial) -> Option<Vec<u8>> {
    let keyed = <Hmac<Sha1> as hmac::KeyInit>::new_from_slice(passphrase).ok()?;
    let salt = &material.salt()[SALT_BYTES - 8..];
    let mut key = Vec::new();
    for number in 1u32.. {
        if key.len() >= material.key_bytes {
            break;
        }
        let mut last =
            keyed.clone().chain_update(salt).chain_update(number.to_be_bytes()).finalize().into_bytes();
        let mut sum = last;
        for _ in 1..ROUNDS {
            last = keyed.clone().chain_update(last).finalize().into_bytes();
            sum.iter_mut().zip(last).for_each(|(sum, byte)| *sum ^= byte);
        }
        key.extend_from_slice(&sum);
    }
    key.truncate(material.key_bytes);
    Some(key)
}

/// The keys in plain (RFC 3394, 2.2.2); `None` if the passphrase is another one.
fn unwrapped(passphrase: &[u8], material: &KeyMaterial) -> Option<Vec<u8>> {
    let cipher = Cipher::new(&wrapping_key(passphrase, material)?)?;
    let (head, rest) = material.wrapped().split_first_chunk::<WRAP_BYTES>()?;
    let (mut check, mut parts) = (*head, rest.to_vec());
    let count = parts.len() / WRAP_BYTES;
    for round in (0..6).rev() {
        for at in (0..count).rev() {
            let step = (count * round + at + 1) as u64;
            let part = &mut parts[at * WRAP_BYTES..(at + 1) * WRAP_BYTES];
            let mut block = [0; BLOCK_BYTES];
            let mixed = u64::from_be_bytes(check) ^ step;
            block[..WRAP_BYTES].copy_from_slice(&mixed.to_be_bytes());
            block[WRAP_BYTES..].copy_from_slice(part);
            cipher.decrypt(&mut block);
            check.copy_from_slice(&block[..WRAP_BYTES]);
            part.copy_from_slice(&block[WRAP_BYTES..]);
        }
    }
    (check == WRAP_IV).then_some(parts)
}

/// The message with these keys of one length (RFC 3394, 2.2.1); `kk` as in it: 1 even, 2 odd, 3 both. `None`: a length that
/// no key has.
fn wrapped(
    passphrase: &[u8],
    salt: [u8; SALT_BYTES],
    kk: u8,
    keys: &[u8],
    key_bytes: usize,
) -> Option<Vec<u8>> {
    let mut head = vec![HEAD[0], HEAD[1], HEAD[2], kk, 0, 0, 0, 0, CIPHER_CTR, 0, STREAM_SRT, 0, 0, 0];
    head.extend([(SALT_BYTES / 4) as u8, u8::try_from(key_bytes / 4).ok()?]);
    head.extend_from_slice(&salt);
    let shape = vec![0; WRAP_BYTES + keys.len()];
    let material = KeyMaterial::parse(&[&head[..], &shape].concat()).ok()?;
    let cipher = Cipher::new(&wrapping_key(passphrase, &material)?)?;
    let (mut check, mut parts) = (WRAP_IV, keys.to_vec());
    let count = parts.len() / WRAP_BYTES;
    for round in 0..6 {
        for at in 0..count {
            let part = &mut parts[at * WRAP_BYTES..(at + 1) * WRAP_BYTES];
            let mut block = [0; BLOCK_BYTES];
            block[..WRAP_BYTES].copy_from_slice(&check);
            block[WRAP_BYTES..].copy_from_slice(part);
            cipher.encrypt(&mut block);
            let step = (count * round + at + 1) as u64;
            let high = block.first_chunk().map(|high| u64::from_be_bytes(*high))?;
            check = (high ^ step).to_be_bytes();
            part.copy_from_slice(&block[WRAP_BYTES..]);
        }
    }
    Some([head, check.to_vec(), parts].concat())
}

/// Wraps keys as callers do; for tests.
#[cfg(test)]
pub(super) mod wrapping {
    use super::*;

    /// Key material with these keys of one length; `kk` as in the message: 1 even, 2 odd, 3 both.
    pub(crate) fn message(
        passphrase: &str,
        salt: [u8; SALT_BYTES],
        kk: u8,
        keys: &[u8],
        key_bytes: usize,
    ) -> Vec<u8> {
        wrapped(passphrase.as_bytes(), salt, kk, keys, key_bytes).expect("a length that keys have")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: [u8; SALT_BYTES] = *b"0123456789abcdef";

    #[test]
    fn keys_of_every_length_are_unwrapped_with_their_passphrase_only() {
        for key_bytes in [16, 24, 32] {
            let plain: Vec<u8> = (0..2 * key_bytes as u8).collect();
            let message = wrapping::message("a passphrase", SALT, 3, &plain, key_bytes);
            let material = KeyMaterial::parse(&message).expect("valid");
            assert_eq!(unwrapped(b"a passphrase", &material), Some(plain));
            assert!(Keys::unwrap("another passphrase", &material).is_none());
            let keys = Keys::unwrap("a passphrase", &material).expect("unwrapped");
            let mut text = *b"something longer than a block";
            assert!(keys.decrypt(Parity::Even, 5, &mut text));
            assert_ne!(&text, b"something longer than a block");
            let mut other = text;
            assert!(keys.decrypt(Parity::Odd, 5, &mut other) && keys.decrypt(Parity::Even, 5, &mut text));
            assert_eq!(&text, b"something longer than a block", "the counter mode undoes itself");
            assert_ne!(other, text);
        }
    }

    #[test]
    fn a_key_that_was_not_sent_decrypts_nothing_until_it_comes() {
        let even = wrapping::message("a passphrase", SALT, 1, &[1; 16], 16);
        let mut keys =
            Keys::unwrap("a passphrase", &KeyMaterial::parse(&even).expect("valid")).expect("unwrapped");
        assert!(!keys.decrypt(Parity::Odd, 1, &mut [0; 4]));
        let odd =
            KeyMaterial::parse(&wrapping::message("a passphrase", SALT, 2, &[2; 16], 16)).expect("valid");
        assert!(keys.renew(&odd) && keys.decrypt(Parity::Odd, 1, &mut [0; 4]));
        assert!(keys.decrypt(Parity::Even, 1, &mut [0; 4]), "the earlier key stays");
    }

    #[test]
    fn malformed_material_and_other_ciphers_are_refused() {
        let good = wrapping::message("a passphrase", SALT, 1, &[1; 16], 16);
        for end in 0..good.len() {
            assert_eq!(KeyMaterial::parse(&good[..end]), Err(Fault::Malformed), "{end}");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            KeyMaterial::parse(&bytes)
        };
        for (at, byte, fault) in [
            (0, 0x22, Fault::Malformed),
            (1, 0, Fault::Malformed),
            (3, 0, Fault::Malformed),
            (3, 3, Fault::Malformed),
            (8, 4, Fault::Cipher),
            (14, 5, Fault::Malformed),
            (15, 5, Fault::Cipher),
            (15, 8, Fault::Malformed),
        ] {
            assert_eq!(with(at, byte), Err(fault), "{at}: {byte}");
        }
    }

    /// The vector of FIPS 197, C.1. Derivation and wrapping are tried with libsrt, in the end-to-end tests.
    #[test]
    fn a_block_is_that_of_the_standard() {
        let cipher = Cipher::new(&(0..16).collect::<Vec<u8>>()).expect("a cipher");
        let mut block =
            [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
        cipher.encrypt(&mut block);
        assert_eq!(block[..4], [0x69, 0xc4, 0xe0, 0xd8]);
        cipher.decrypt(&mut block);
        assert_eq!(block[15], 0xff);
    }
}
