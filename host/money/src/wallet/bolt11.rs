//! Reads invoices (BOLT 11). Pure: no clock, no network.
//!
//! The parser is that of the Lightning Development Kit, without its check of feature bits: some wallets write invoices
//! without any, and the payer checks them anyway. Invoices of every network are accepted, because the owner chooses the
//! network of a wallet: two wallets on different networks cannot pay each other, and only money that the receiving
//! wallet got is ever credited.

use lightning_invoice::{RawBolt11Invoice, SignedRawBolt11Invoice, TaggedField};

use super::lightning::Invoice;
use satcast_core::ids::{JSON_INTEGER_MAX, Msat, UnixMillis};

/// Largest accepted invoice, in bytes; usual ones have 200 to 700.
pub const INVOICE_BYTES_MAX: usize = 4_096;
/// Default expiry of an invoice, in seconds (BOLT 11).
const EXPIRY_SECS_DEFAULT: u64 = 3_600;
/// How long after its expiry an invoice still counts as open: a payment that came in time may still be settling.
pub const EXPIRY_GRACE_MS: i64 = 60_000;
/// The unit of amounts in parts of a millisat: 10^-12 bitcoin.
const PICO_PER_MSAT: u64 = 10;

/// Reason why an invoice is refused. Repeats no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bolt11Error {
    /// Longer than [`INVOICE_BYTES_MAX`].
    #[error("is longer than {INVOICE_BYTES_MAX} bytes")]
    TooLong,
    /// Not readable, or its checksum is wrong.
    #[error("cannot be read")]
    Malformed,
    /// Not signed, or not by the payee that it names.
    #[error("has a wrong signature")]
    Signature,
    /// No amount, zero, a part of a millisat, or more than all bitcoin.
    #[error("has no usable amount")]
    NoAmount,
    /// No payment hash, or several.
    #[error("must have exactly one payment hash")]
    NoHash,
    /// Its times are out of range.
    #[error("has an expiry out of range")]
    NoEnd,
    /// Over another amount than requested.
    #[error("has a different amount than requested")]
    WrongAmount,
    /// With another payment hash than the wallet or the caller gave.
    #[error("does not match its payment hash")]
    WrongHash,
    /// It has expired.
    #[error("has expired")]
    Expired,
}

/// Parses an invoice: checksum, signature, amount, payment hash and expiry.
///
/// # Errors
/// [`Bolt11Error`]; never one of the last three.
pub fn read(text: &str) -> Result<Invoice, Bolt11Error> {
    if text.len() > INVOICE_BYTES_MAX {
        return Err(Bolt11Error::TooLong);
    }
    let signed: SignedRawBolt11Invoice = text.parse().map_err(|_| Bolt11Error::Malformed)?;
    if !signed.check_signature() {
        return Err(Bolt11Error::Signature);
    }
    let invoice = signed.raw_invoice();
    Ok(Invoice {
        bolt11: text.to_lowercase(),
        payment_hash: payment_hash(invoice)?,
        amount: amount(invoice)?,
        expires_at: end(invoice)?,
    })
}

/// Parses an invoice that a wallet made, and compares it with the request and with the wallet's answer.
pub(super) fn made(
    text: &str,
    amount: Msat,
    hash: Option<&str>,
    now: UnixMillis,
) -> Result<Invoice, Bolt11Error> {
    let invoice = read(text)?;
    if invoice.amount != amount {
        return Err(Bolt11Error::WrongAmount);
    }
    if hash.is_some_and(|hash| !hash.eq_ignore_ascii_case(&invoice.payment_hash)) {
        return Err(Bolt11Error::WrongHash);
    }
    if invoice.expires_at <= now {
        return Err(Bolt11Error::Expired);
    }
    Ok(invoice)
}

/// Whether an invoice may be paid: the stored fields match its text, and it has not expired.
pub(super) fn payable(invoice: &Invoice, now: UnixMillis) -> Result<(), Bolt11Error> {
    let read = made(&invoice.bolt11, invoice.amount, Some(&invoice.payment_hash), now)?;
    if read.expires_at != invoice.expires_at {
        return Err(Bolt11Error::WrongHash);
    }
    Ok(())
}

/// Whether the invoice of that hash has finally expired: it cannot be paid, and no payment is in progress.
pub(super) fn has_ended(text: &str, payment_hash: &str, now: UnixMillis) -> bool {
    read(text).is_ok_and(|invoice| {
        let end = invoice.expires_at.0.saturating_add(EXPIRY_GRACE_MS);
        invoice.payment_hash == payment_hash && end < now.0
    })
}

/// Whether a text has the form of a payment hash as [`Invoice`] holds it.
pub(super) fn is_payment_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn payment_hash(invoice: &RawBolt11Invoice) -> Result<String, Bolt11Error> {
    let mut hashes = invoice.known_tagged_fields().filter_map(|field| match field {
        TaggedField::PaymentHash(hash) => Some(hash.0.to_string()),
        _ => None,
    });
    match (hashes.next(), hashes.next()) {
        (Some(hash), None) => Ok(hash),
        _ => Err(Bolt11Error::NoHash),
    }
}

fn amount(invoice: &RawBolt11Invoice) -> Result<Msat, Bolt11Error> {
    let pico = invoice.amount_pico_btc().filter(|pico| *pico > 0).ok_or(Bolt11Error::NoAmount)?;
    if !pico.is_multiple_of(PICO_PER_MSAT) {
        return Err(Bolt11Error::NoAmount);
    }
    let msat = i64::try_from(pico / PICO_PER_MSAT).map_err(|_| Bolt11Error::NoAmount)?;
    if msat > JSON_INTEGER_MAX {
        return Err(Bolt11Error::NoAmount);
    }
    Ok(Msat(msat))
}

fn end(invoice: &RawBolt11Invoice) -> Result<UnixMillis, Bolt11Error> {
    let made = invoice.data.timestamp.as_unix_timestamp();
    let lasts = invoice.expiry_time().map_or(EXPIRY_SECS_DEFAULT, |expiry| expiry.as_seconds());
    let end = made.checked_add(lasts).and_then(|secs| secs.checked_mul(1_000));
    let end = end.and_then(|end| i64::try_from(end).ok()).filter(|end| *end <= JSON_INTEGER_MAX);
    end.map(UnixMillis).ok_or(Bolt11Error::NoEnd)
}
