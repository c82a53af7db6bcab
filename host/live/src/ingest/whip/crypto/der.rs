//! Finds the public key in a certificate (X.690, RFC 5280 4.1). Peers sign their certificates themselves, in any version, and
//! its fingerprint in the offer is all that is checked.

/// Tags: BOOLEAN and longer ones are skipped by their length.
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const OBJECT: u8 = 0x06;
/// `[0]`, the version in front of the serial number.
const VERSION: u8 = 0xa0;
/// Fields of a certificate between its version and its key: serial number, algorithm, issuer, validity, subject.
const BEFORE_KEY: usize = 5;
/// id-ecPublicKey, prime256v1 and secp384r1 (RFC 5480, 2.1.1).
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];

/// Curve of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Curve {
    P256,
    P384,
}

/// The curve and the point of the key in a certificate; `None` for other keys, and for bytes that are no certificate.
pub(super) fn public_key(certificate: &[u8]) -> Option<(Curve, &[u8])> {
    let mut outer = inside(&mut &certificate[..], SEQUENCE)?;
    let mut fields = inside(&mut outer, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        element(&mut fields)?;
    }
    for _ in 0..BEFORE_KEY {
        element(&mut fields)?;
    }
    let mut key = inside(&mut fields, SEQUENCE)?;
    let mut algorithm = inside(&mut key, SEQUENCE)?;
    if inside(&mut algorithm, OBJECT)? != EC_PUBLIC_KEY {
        return None;
    }
    let curve = match inside(&mut algorithm, OBJECT)? {
        P256 => Curve::P256,
        P384 => Curve::P384,
        _ => return None,
    };
    // The first byte counts unused bits.
    let (0, point) = inside(&mut key, BIT_STRING)?.split_first().map(|(unused, point)| (*unused, point))?
    else {
        return None;
    };
    Some((curve, point))
}

/// Takes an element of this tag, and gives its content.
fn inside<'a>(rest: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, content) = element(rest)?;
    (found == tag).then_some(content)
}

/// Takes an element: its tag and its content.
fn element<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (tag, behind) = rest.split_first()?;
    let (first, behind) = behind.split_first()?;
    let (length, behind) = match first {
        0..=0x7f => (usize::from(*first), behind),
        0x81 => behind.split_first().map(|(byte, behind)| (usize::from(*byte), behind))?,
        0x82 => behind
            .split_first_chunk::<2>()
            .map(|(bytes, behind)| (usize::from(u16::from_be_bytes(*bytes)), behind))?,
        _ => return None,
    };
    let (content, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some((*tag, content))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    use super::*;

    fn certificate(key: &KeyPair) -> Vec<u8> {
        CertificateParams::new(["x".to_owned()]).unwrap().self_signed(key).unwrap().der().to_vec()
    }

    #[test]
    fn keys_of_both_curves_are_found_and_others_are_not() {
        let p256 = KeyPair::generate().unwrap();
        let (p384, other) = (
            KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap(),
            KeyPair::generate_for(&PKCS_ED25519).unwrap(),
        );
        for (key, curve) in [(&p256, Curve::P256), (&p384, Curve::P384)] {
            let certificate = certificate(key);
            assert_eq!(public_key(&certificate), Some((curve, key.public_key_raw())));
        }
        assert_eq!(public_key(&certificate(&other)), None);
    }

    #[test]
    fn damaged_certificates_give_no_key_and_no_panic() {
        let whole = certificate(&KeyPair::generate().unwrap());
        for end in 0..whole.len() {
            assert_eq!(public_key(&whole[..end]), None, "cut at {end}");
        }
        for at in 0..whole.len() {
            for value in [0, 0x30, 0x7f, 0x80, 0x82, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _any = public_key(&damaged);
            }
        }
    }
}
