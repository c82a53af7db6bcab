//! Ciphers of SRTP: AES in counter mode (RFC 3711), and AES-GCM (RFC 7714).

use std::fmt;

use aes::cipher::{BlockEncrypt as _, KeyInit as _};
use aes::{Aes128, Aes256};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, Tag, UnboundKey};
use str0m::crypto::{
    AeadAes128GcmCipher, AeadAes256GcmCipher, Aes128CmSha1_80Cipher, CryptoError, SrtpProvider,
    SupportedAeadAes128Gcm, SupportedAeadAes256Gcm, SupportedAes128CmSha1_80,
};

const BLOCK_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// Blocks of key stream that are made at once.
const BLOCKS: usize = 8;

#[derive(Debug)]
pub(super) struct Srtp;

impl SrtpProvider for Srtp {
    fn aes_128_cm_sha1_80(&self) -> &'static dyn SupportedAes128CmSha1_80 {
        &Counter
    }

    fn aead_aes_128_gcm(&self) -> &'static dyn SupportedAeadAes128Gcm {
        &Gcm
    }

    fn aead_aes_256_gcm(&self) -> &'static dyn SupportedAeadAes256Gcm {
        &Gcm
    }

    fn srtp_aes_128_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        round(&Aes128::new(key.into()), input, output);
    }

    fn srtp_aes_256_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        round(&Aes256::new(key.into()), input, output);
    }
}

/// One block with its padding, as the derivation of keys expects it.
fn round(
    cipher: &impl aes::cipher::BlockEncrypt<BlockSize = aes::cipher::consts::U16>,
    input: &[u8],
    output: &mut [u8],
) {
    for (block, out) in
        [input, &[BLOCK_BYTES as u8; BLOCK_BYTES]].into_iter().zip(output.chunks_mut(BLOCK_BYTES))
    {
        let mut cells = aes::Block::default();
        cells.copy_from_slice(block);
        cipher.encrypt_block(&mut cells);
        out.copy_from_slice(&cells);
    }
}

#[derive(Debug)]
struct Counter;

impl SupportedAes128CmSha1_80 for Counter {
    fn create_cipher(&self, key: [u8; 16], _encrypt: bool) -> Box<dyn Aes128CmSha1_80Cipher> {
        Box::new(CounterCipher(Aes128::new(&key.into())))
    }
}

struct CounterCipher(Aes128);

/// Does not show the key.
impl fmt::Debug for CounterCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterCipher").finish_non_exhaustive()
    }
}

impl Aes128CmSha1_80Cipher for CounterCipher {
    fn encrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let mut counter = u128::from_be_bytes(*iv);
        let parts = input.chunks(BLOCKS * BLOCK_BYTES).zip(output.chunks_mut(BLOCKS * BLOCK_BYTES));
        for (input, output) in parts {
            let mut stream = [aes::Block::default(); BLOCKS];
            for cells in &mut stream {
                *cells = counter.to_be_bytes().into();
                counter = counter.wrapping_add(1);
            }
            self.0.encrypt_blocks(&mut stream);
            let stream = stream.iter().flatten();
            input.iter().zip(stream).zip(output).for_each(|((byte, key), out)| *out = byte ^ key);
        }
        Ok(())
    }

    fn decrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.encrypt(iv, input, output)
    }
}

#[derive(Debug)]
struct Gcm;

impl SupportedAeadAes128Gcm for Gcm {
    fn create_cipher(&self, key: [u8; 16], _encrypt: bool) -> Box<dyn AeadAes128GcmCipher> {
        Box::new(GcmCipher::new(&AES_128_GCM, &key))
    }
}

impl SupportedAeadAes256Gcm for Gcm {
    fn create_cipher(&self, key: [u8; 32], _encrypt: bool) -> Box<dyn AeadAes256GcmCipher> {
        Box::new(GcmCipher::new(&AES_256_GCM, &key))
    }
}

#[derive(Debug)]
struct GcmCipher(LessSafeKey);

impl GcmCipher {
    fn new(algorithm: &'static Algorithm, key: &[u8]) -> Self {
        let key = UnboundKey::new(algorithm, key).expect("the array has the length of the key");
        Self(LessSafeKey::new(key))
    }

    /// Ciphertext and tag into `output`, which is longer than `input` by the tag.
    fn seal(&self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let failed = || CryptoError::Other("cannot encrypt".to_owned());
        let (text, tag) = output.split_at_mut_checked(input.len()).ok_or_else(failed)?;
        text.copy_from_slice(input);
        let nonce = Nonce::assume_unique_for_key(*iv);
        let made = self.0.seal_in_place_separate_tag(nonce, Aad::from(aad), text).map_err(|_| failed())?;
        tag.get_mut(..TAG_BYTES).ok_or_else(failed)?.copy_from_slice(made.as_ref());
        Ok(())
    }

    /// The text into `output`; returns its length.
    fn open(
        &self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        let failed = || CryptoError::Other("cannot decrypt".to_owned());
        let (text, tag) = input.split_last_chunk::<TAG_BYTES>().ok_or_else(failed)?;
        let place = output.get_mut(..text.len()).ok_or_else(failed)?;
        place.copy_from_slice(text);
        let nonce = Nonce::assume_unique_for_key(*iv);
        let joined;
        let aad: &[u8] = match aads {
            [one] => one,
            several => {
                joined = several.concat();
                &joined
            }
        };
        let opened = self.0.open_in_place_separate_tag(nonce, Aad::from(aad), Tag::from(*tag), place, 0..);
        opened.map(|text| text.len()).map_err(|_| failed())
    }
}

impl AeadAes128GcmCipher for GcmCipher {
    fn encrypt(
        &mut self,
        iv: &[u8; 12],
        aad: &[u8],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CryptoError> {
        self.seal(iv, aad, input, output)
    }

    fn decrypt(
        &mut self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        self.open(iv, aads, input, output)
    }
}

impl AeadAes256GcmCipher for GcmCipher {
    fn encrypt(
        &mut self,
        iv: &[u8; 12],
        aad: &[u8],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CryptoError> {
        self.seal(iv, aad, input, output)
    }

    fn decrypt(
        &mut self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        self.open(iv, aads, input, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of RFC 3711, B.2 (AES-CM).
    #[test]
    fn counter_mode_makes_the_key_stream_of_its_standard() {
        let key = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
        let iv = 0xf0f1_f2f3_f4f5_f6f7_f8f9_fafb_fcfd_0000_u128.to_be_bytes();
        let mut cipher = Counter.create_cipher(key, true);
        let mut stream = vec![0; 0x0f02 * BLOCK_BYTES];
        cipher.encrypt(&iv, &vec![0; stream.len()], &mut stream).unwrap();
        let block = |number: usize| {
            let bytes = *stream[number * BLOCK_BYTES..].first_chunk::<BLOCK_BYTES>().unwrap();
            u128::from_be_bytes(bytes)
        };
        assert_eq!(block(0), 0xe03e_ad09_35c9_5e80_e166_b16d_d92b_4eb4);
        assert_eq!(block(1), 0xd235_1316_2b02_d0f7_2a43_a2fe_4a5f_97ab);
        let mut back = [0xff; 5];
        cipher.decrypt(&iv, &stream[..5], &mut back).unwrap();
        assert_eq!(back, [0; 5]);
    }

    #[test]
    fn what_gcm_seals_it_opens_and_changes_show() {
        let (iv, aad, text) = ([7; 12], [1, 2, 3], [9; 40]);
        let cipher = GcmCipher::new(&AES_256_GCM, &[5; 32]);
        let mut sealed = [0; 40 + TAG_BYTES];
        cipher.seal(&iv, &aad, &text, &mut sealed).unwrap();
        let mut out = [0; 40];
        assert_eq!(cipher.open(&iv, &[&aad[..1], &aad[1..]], &sealed, &mut out).unwrap(), 40);
        assert_eq!(out, text);
        sealed[3] ^= 1;
        assert!(cipher.open(&iv, &[&aad], &sealed, &mut out).is_err());
        assert!(cipher.open(&iv, &[&aad], &sealed[..8], &mut out).is_err());
    }
}
