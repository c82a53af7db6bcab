//! Valid and invalid invoices.

use std::time::Duration;

use bitcoin::hashes::{Hash as _, sha256};
use bitcoin::secp256k1::{PublicKey, Secp256k1, SecretKey};
use lightning_invoice::{
    Currency, Description, ExpiryTime, PayeePubKey, PositiveTimestamp, RawBolt11Invoice, RawDataPart, RawHrp,
    RawTaggedField, Sha256, SiPrefix, TaggedField,
};

use super::{EXPIRY, NOW};
use crate::wallet::bolt11::{self, Bolt11Error, EXPIRY_GRACE_MS, INVOICE_BYTES_MAX};
use satcast_core::ids::{JSON_INTEGER_MAX, Msat, UnixMillis};

/// A recipe for an invoice.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) currency: Currency,
    pub(super) amount: Option<(u64, Option<SiPrefix>)>,
    pub(super) hashes: Vec<[u8; 32]>,
    pub(super) made_at_secs: u64,
    pub(super) expiry: Option<Duration>,
    /// Whether it names a payee, and whether the payee signs.
    pub(super) payee: Option<bool>,
}

impl Recipe {
    /// Over `msat`, made now.
    pub(super) fn new(msat: i64) -> Self {
        let hash = sha256::Hash::hash(&msat.to_be_bytes()).to_byte_array();
        Self {
            currency: Currency::Regtest,
            amount: Some((u64::try_from(msat).unwrap() * 10, Some(SiPrefix::Pico))),
            hashes: vec![hash],
            made_at_secs: u64::try_from(NOW.to_secs_floor()).unwrap(),
            expiry: Some(EXPIRY),
            payee: None,
        }
    }

    pub(super) fn text(&self) -> String {
        let secp = Secp256k1::new();
        let key = SecretKey::from_slice(&[7; 32]).unwrap();
        let other = SecretKey::from_slice(&[8; 32]).unwrap();
        let mut fields = vec![TaggedField::Description(Description::empty())];
        fields.extend(
            self.hashes
                .iter()
                .map(|hash| TaggedField::PaymentHash(Sha256(sha256::Hash::from_byte_array(*hash)))),
        );
        fields.extend(self.expiry.map(|expiry| TaggedField::ExpiryTime(ExpiryTime::from_duration(expiry))));
        fields.extend(self.payee.map(|honest| {
            let named = PublicKey::from_secret_key(&secp, if honest { &key } else { &other });
            TaggedField::PayeePubKey(PayeePubKey(named))
        }));
        let raw = RawBolt11Invoice {
            hrp: RawHrp {
                currency: self.currency.clone(),
                raw_amount: self.amount.map(|amount| amount.0),
                si_prefix: self.amount.and_then(|amount| amount.1),
            },
            data: RawDataPart {
                timestamp: PositiveTimestamp::from_unix_timestamp(self.made_at_secs).unwrap(),
                tagged_fields: fields.into_iter().map(RawTaggedField::KnownSemantics).collect(),
            },
        };
        let signed = raw.sign(|hash| Ok::<_, ()>(secp.sign_ecdsa_recoverable(hash, &key))).unwrap();
        signed.to_string()
    }
}

#[test]
fn invoices_of_other_implementations_are_parsed() {
    // The example "a cup of coffee" of BOLT 11.
    let coffee = "lnbc2500u1pvjluezsp5zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zygspp5qqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqypqdq5xysxxatsyp3k7enxv4jsxqzpu9qrsgquk0rl77nj30yxdy8j9vdx85fkpmdla2087ne0xh8nhedh8w27kyke0lp53ut353s06fv3qfegext0eh0ymjpf39tuven09sam30g4vgpfna3rh";
    let read = bolt11::read(coffee).unwrap();
    assert_eq!(read.payment_hash, "0001020304050607080900010203040506070809000102030405060708090102");
    assert_eq!((read.amount, read.expires_at), (Msat(250_000_000), UnixMillis(1_496_314_718_000)));
    assert_eq!(bolt11::read(&coffee.to_uppercase()).unwrap(), read, "one spelling is kept");
    // LNbits' invented funding source names no features.
    let fake = "lnbc210n1p4symegdqz0qxqzjcsp5tu5eujqgpyfwun42vkzvpxfkpq3p7taa3jnlujw24x5mk289qgcspp5d8v8dr9wu208eeemr0ejsqxy7x8dxmnrf3zqtu7g2mygcvspph2qj4hm7e5t4rs8kg3klh3talckee25svfajpye93cfakv6apnea8ay4gmzxj3w3t2z76ru6npxlh8d764e245u7ng3g262l6605zwl88cq7dawwx";
    let read = bolt11::read(fake).unwrap();
    assert_eq!(read.payment_hash, "69d8768caee29e7ce73b1bf32800c4f18ed36e634c4405f3c856c88c32010dd4");
    assert_eq!((read.amount, read.expires_at), (Msat(21_000), UnixMillis(1_795_322_240_000)));
}

#[test]
fn every_network_is_read_and_the_default_end_is_an_hour() {
    for currency in
        [Currency::Bitcoin, Currency::BitcoinTestnet, Currency::Regtest, Currency::Simnet, Currency::Signet]
    {
        let recipe = Recipe { currency, expiry: None, payee: Some(true), ..Recipe::new(1_234) };
        let read = bolt11::read(&recipe.text()).unwrap();
        assert_eq!((read.amount, read.expires_at.0), (Msat(1_234), NOW.0 + 3_600_000));
    }
}

#[test]
fn faults_of_an_invoice_are_reported() {
    let good = Recipe::new(1_000);
    let most = u64::try_from(JSON_INTEGER_MAX).unwrap();
    let with = |amount: Option<(u64, Option<SiPrefix>)>| Recipe { amount, ..good.clone() };
    for (recipe, error) in [
        (Recipe { payee: Some(false), ..good.clone() }, Bolt11Error::Signature),
        (with(None), Bolt11Error::NoAmount),
        (with(Some((0, Some(SiPrefix::Milli)))), Bolt11Error::NoAmount),
        (with(Some((15, Some(SiPrefix::Pico)))), Bolt11Error::NoAmount),
        (with(Some((u64::MAX, None))), Bolt11Error::NoAmount),
        (with(Some((most.saturating_mul(10) + 10, Some(SiPrefix::Pico)))), Bolt11Error::NoAmount),
        (Recipe { hashes: Vec::new(), ..good.clone() }, Bolt11Error::NoHash),
        (Recipe { hashes: vec![[1; 32], [2; 32]], ..good.clone() }, Bolt11Error::NoHash),
        (Recipe { expiry: Some(Duration::from_secs(u64::MAX)), ..good.clone() }, Bolt11Error::NoEnd),
        (Recipe { expiry: Some(Duration::from_secs(most / 1_000)), ..good.clone() }, Bolt11Error::NoEnd),
    ] {
        assert_eq!(bolt11::read(&recipe.text()).unwrap_err(), error);
    }
    let text = good.text();
    let long = format!("{text}{}", "q".repeat(INVOICE_BYTES_MAX - text.len()));
    assert_eq!(bolt11::read(&long), Err(Bolt11Error::Malformed), "of the largest length");
    assert_eq!(bolt11::read(&format!("{long}q")), Err(Bolt11Error::TooLong));
}

#[test]
fn an_invoice_is_compared_with_the_request() {
    let text = Recipe::new(1_000).text();
    let invoice = bolt11::read(&text).unwrap();
    let hash = invoice.payment_hash.clone();
    let upper = hash.to_uppercase();
    let made = |amount, hash, now| bolt11::made(&text, Msat(amount), hash, UnixMillis(now));
    assert_eq!(made(1_000, Some(&*hash), NOW.0), Ok(invoice.clone()));
    assert_eq!(made(1_000, Some(&*upper), NOW.0), Ok(invoice.clone()));
    assert_eq!(made(1_000, None, invoice.expires_at.0 - 1), Ok(invoice.clone()));
    assert_eq!(made(1_000, None, invoice.expires_at.0), Err(Bolt11Error::Expired));
    assert_eq!(made(1_001, None, NOW.0), Err(Bolt11Error::WrongAmount));
    assert_eq!(made(1_000, Some("00"), NOW.0), Err(Bolt11Error::WrongHash));

    assert_eq!(bolt11::payable(&invoice, NOW), Ok(()));
    let changed = [
        (
            crate::wallet::lightning::Invoice { amount: Msat(2_000), ..invoice.clone() },
            Bolt11Error::WrongAmount,
        ),
        (
            crate::wallet::lightning::Invoice { payment_hash: "00".to_owned(), ..invoice.clone() },
            Bolt11Error::WrongHash,
        ),
        (
            crate::wallet::lightning::Invoice { expires_at: UnixMillis(NOW.0 + 1), ..invoice.clone() },
            Bolt11Error::WrongHash,
        ),
    ];
    for (invoice, error) in changed {
        assert_eq!(bolt11::payable(&invoice, NOW), Err(error));
    }
    let end = invoice.expires_at.0;
    assert!(!bolt11::has_ended(&text, &hash, UnixMillis(end + EXPIRY_GRACE_MS)));
    assert!(bolt11::has_ended(&text, &hash, UnixMillis(end + EXPIRY_GRACE_MS + 1)));
    assert!(!bolt11::has_ended(&text, "00", UnixMillis(i64::MAX)), "the expiry of another invoice");
    assert!(!bolt11::has_ended("no invoice", &hash, UnixMillis(i64::MAX)));
}

/// One character changed, removed or inserted, at every position, and random data: never parsed as the original, and
/// never a panic.
#[test]
fn garbage_is_refused() {
    let text = Recipe::new(1_000).text();
    let good = bolt11::read(&text).unwrap();
    let mut state = 0x9e37_79b9_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        usize::try_from(state >> 16).unwrap_or_default()
    };
    let alphabet: Vec<char> = "qpzry9x8gf2tvdw0s3jn54khce6mua7l1bio äé\0~".chars().collect();
    for at in 0..text.len() {
        let (head, tail) = text.split_at(at);
        let other = alphabet[random() % alphabet.len()];
        let rest: String = tail.chars().skip(1).collect();
        for changed in
            [format!("{head}{other}{rest}"), format!("{head}{rest}"), format!("{head}{other}{tail}")]
        {
            if changed != text {
                assert!(bolt11::read(&changed).is_err(), "{changed}");
            }
        }
    }
    for _ in 0..2_000 {
        let length = random() % 400;
        let noise: String = (0..length).map(|_| alphabet[random() % alphabet.len()]).collect();
        for start in ["", "ln", "lnbc1", "lnbcrt10u1"] {
            assert!(bolt11::read(&format!("{start}{noise}")).is_err());
        }
    }
    for hash in ["", "00", &"g".repeat(64), &"A".repeat(64), &"a".repeat(65), "../../../../etc/passwd"] {
        assert!(!bolt11::is_payment_hash(hash), "{hash}");
    }
    assert!(bolt11::is_payment_hash(&good.payment_hash));
}
