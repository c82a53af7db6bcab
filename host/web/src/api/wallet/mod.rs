//! The wallet: balance and statement; the connected wallet and top-ups are in submodules.

pub(super) mod connection;
pub(super) mod topup;

use std::fmt::Write as _;
use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::Query;
use poem_openapi::payload::{Json, PlainText};
use poem_openapi::{ApiResponse, Enum, Object, OpenApi, ResponseContent};
use time::OffsetDateTime;

use super::app::{App, Tag};
use super::caller::Caller;
use super::null::Null;
use super::page::PageRequest;
use crate::base::{ApiError, Code};
use satcast_core::ids::MSAT_PER_SAT;
use satcast_core::ids::WalletKind;
use satcast_money::wallet::lightning::Fault;
use satcast_money::wallet::topups::TopUpError;
use satcast_store::StatementEntry;

/// Error for an invalid amount.
const NOT_SATS: &str = "must be a whole number of sats";
/// Header line of a statement as CSV.
const CSV_HEAD: &str = "id,createdAt,time,kind,amountMsat,amountSats,sessionId,destinationId,minute,hourStart,fileName,streamKeyId\r\n";

/// The account's balance.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct WalletBalance {
    /// Prepaid credit in sats, rounded down.
    balance: i64,
    /// Whether `walletSats` is an older value because the wallet did not respond.
    cached: bool,
    /// Sats in the connected wallet; null without a connected wallet.
    wallet_sats: Null<i64>,
    /// Time of the value in `walletSats` (without a wallet: in `balance`), Unix milliseconds.
    as_of: i64,
}

/// An entry of the ledger.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct LedgerEntry {
    /// Entry identifier; higher ones are newer.
    id: i64,
    /// Time of posting, Unix milliseconds.
    created_at: i64,
    /// Kind of the entry. Credits: `promotion`, `prepaid`, `topup`, `refill`, and `refund` of a charge. Charges: `minute` of a
    /// destination, `overage` of playback above the allowance, `recovery` of an upload. More kinds may be added.
    kind: String,
    /// Amount in thousandths of a sat: positive for a credit, negative for a charge.
    amount_msat: i64,
    /// Session identifier; null if the entry belongs to no session.
    session_id: Null<String>,
    /// Destination identifier, also of a deleted destination; null if the entry belongs to none.
    destination_id: Null<i64>,
    /// Minute of the session, from 0; null if the entry is not a charge by the minute.
    minute: Null<i64>,
    /// Start of the clock hour in which the bytes were sent, Unix milliseconds; null if the entry is not a charge by bytes.
    hour_start: Null<i64>,
    /// Recording whose recovery was charged or refunded; null for other entries.
    file_name: Null<String>,
    /// Identifier of the stream key of the session or destination, also of a deleted one; null if the entry belongs to none.
    stream_key_id: Null<i64>,
}

impl From<StatementEntry> for LedgerEntry {
    fn from(entry: StatementEntry) -> Self {
        Self {
            id: entry.id,
            created_at: entry.at.0,
            kind: entry.kind,
            amount_msat: entry.amount.0,
            session_id: Null(entry.session.map(|id| id.0)),
            destination_id: Null(entry.destination.map(|id| id.0)),
            minute: Null(entry.minute),
            hour_start: Null(entry.hour.map(|hour| hour.0)),
            file_name: Null(entry.file_name),
            stream_key_id: Null(entry.stream.map(|id| id.0)),
        }
    }
}

/// Format of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase")]
pub(super) enum LedgerFormat {
    /// A JSON array.
    Json,
    /// Comma-separated values with a header line.
    Csv,
}

#[derive(ResponseContent)]
enum Statement {
    Json(Json<Vec<LedgerEntry>>),
    #[oai(content_type = "text/csv")]
    Csv(PlainText<String>),
}

#[derive(ApiResponse)]
enum LedgerAnswer {
    /// The entries, newest first.
    #[oai(status = 200)]
    Entries(Statement, #[oai(header = "Link")] Option<String>),
}

/// Operations on the wallet.
pub(super) struct WalletApi;

#[OpenApi(prefix_path = "/api/wallet", tag = "Tag::Wallet")]
impl WalletApi {
    /// Read the balance
    ///
    /// `balance` is the credit from which charges are taken. The service reads the balance of a connected wallet at most every few
    /// seconds. If the wallet does not respond within 2 seconds, a value up to 60 seconds old is shown with `cached`; without such a
    /// value the response is 503.
    #[oai(path = "/balance", method = "get", operation_id = "getWalletBalance")]
    async fn balance(&self, app: Data<&Arc<App>>, caller: Caller) -> Result<Json<WalletBalance>> {
        let held = app.wallets.held(caller.account).await.map_err(ApiError::from)?;
        let balance = app.store.balance(caller.account).await.map_err(ApiError::from)?.to_sats_floor().0;
        Ok(Json(WalletBalance {
            balance,
            cached: held.is_some_and(|held| held.cached),
            wallet_sats: Null(held.map(|held| held.amount.to_sats_floor().0)),
            as_of: held.map_or(app.clock.now(), |held| held.as_of).0,
        }))
    }

    /// Read the ledger
    ///
    /// All entries of the account, newest first; the balance is their sum. CSV with `format=csv` or the header `Accept: text/csv`.
    /// The `Link` header has the next page.
    #[oai(path = "/ledger", method = "get", operation_id = "getWalletLedger")]
    async fn ledger(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        request: &poem::Request,
        /// Format of the response; overrides `Accept`.
        format: Query<Option<LedgerFormat>>,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<LedgerAnswer> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let found = app.store.statement(caller.account, page.to_store()).await;
        let mut entries = found.map_err(ApiError::from)?;
        let address = format!("{}/api/wallet/ledger", app.config().public_base());
        let link = page.finish_query(&mut entries, &address, request.uri().query(), |entry| entry.id);
        let accepted = request.header("accept").unwrap_or_default();
        let statement = match format.0.unwrap_or_else(|| accepted_format(accepted)) {
            LedgerFormat::Json => Statement::Json(Json(entries.into_iter().map(LedgerEntry::from).collect())),
            LedgerFormat::Csv => Statement::Csv(PlainText(csv(&entries))),
        };
        Ok(LedgerAnswer::Entries(statement, link))
    }
}

impl From<TopUpError> for ApiError {
    fn from(error: TopUpError) -> Self {
        match error {
            TopUpError::NotOffered => {
                let text = "This service has no wallet to receive payments; ask its operator for credit";
                Self::conflict(Code::WalletNotOffered, text)
            }
            TopUpError::Wallet(error) => Self::wallet_failed(fault_code(error.fault), error.message),
            TopUpError::Silent => Self::wallet_silent(),
            TopUpError::Receiver => {
                let text = "The service's wallet did not create an invoice; try again in a moment, then tell the operator";
                Self::wallet_failed(Code::ServiceWalletFailed, text)
            }
            TopUpError::Store(error) => error.into(),
        }
    }
}

/// Error for a wallet that cannot be connected: 422 naming the field if other values can help, 502 if the wallet fails.
fn wallet_refused(error: TopUpError, kind: WalletKind) -> ApiError {
    let TopUpError::Wallet(failure) = error else { return error.into() };
    let secret = if kind == WalletKind::Nwc { "url" } else { "secret" };
    let reason = format!("is refused: {}", failure.message);
    let refused = |field: &str, code| ApiError::refused(code, format!("Field `{field}` {reason}"));
    match failure.fault {
        Fault::AddressRefused => refused("url", Code::WalletAddressRefused),
        Fault::Unauthorized => refused(secret, Code::WalletUnauthorized),
        Fault::Restricted => refused(secret, Code::WalletRestricted),
        Fault::NotSupported => refused(secret, Code::WalletNotSupported),
        _ => TopUpError::Wallet(failure).into(),
    }
}

fn fault_code(fault: Fault) -> Code {
    match fault {
        Fault::AddressRefused => Code::WalletAddressRefused,
        Fault::Unreachable => Code::WalletUnreachable,
        Fault::Timeout => Code::WalletTimeout,
        Fault::Unauthorized => Code::WalletUnauthorized,
        Fault::Restricted => Code::WalletRestricted,
        Fault::InsufficientBalance => Code::WalletInsufficientBalance,
        Fault::QuotaExceeded => Code::WalletQuotaExceeded,
        Fault::RateLimited => Code::WalletRateLimited,
        Fault::PaymentFailed => Code::WalletPaymentFailed,
        Fault::NotSupported => Code::WalletNotSupported,
        Fault::Internal => Code::WalletInternal,
    }
}

/// CSV only if `Accept` names it: `*/*` is sent by every client.
fn accepted_format(accept: &str) -> LedgerFormat {
    let wants_csv = accept
        .split(',')
        .any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/csv")));
    if wants_csv { LedgerFormat::Csv } else { LedgerFormat::Json }
}

/// A value chosen by a driver, quoted as in RFC 4180.
fn quoted(value: &str) -> String {
    let is_plain = !value.contains([',', '"']);
    if is_plain { value.to_owned() } else { format!("\"{}\"", value.replace('"', "\"\"")) }
}

/// The entries with a header line. Only names of recordings may need quotes; the rest are numbers, times, ids and fixed words.
fn csv(entries: &[StatementEntry]) -> String {
    let mut text = CSV_HEAD.to_owned();
    let number = |number: Option<i64>| number.map_or_else(String::new, |number| number.to_string());
    for entry in entries {
        let amount = entry.amount.0;
        let (sign, whole) = (if amount < 0 { "-" } else { "" }, amount.unsigned_abs());
        let sats = MSAT_PER_SAT.unsigned_abs();
        let written = writeln!(
            text,
            "{},{},{},{},{amount},{sign}{}.{:03},{},{},{},{},{},{}\r",
            entry.id,
            entry.at,
            iso(entry.at.0),
            entry.kind,
            whole / sats,
            whole % sats,
            entry.session.as_ref().map_or("", |id| id.as_str()),
            number(entry.destination.map(|id| id.0)),
            number(entry.minute),
            number(entry.hour.map(|hour| hour.0)),
            quoted(entry.file_name.as_deref().unwrap_or_default()),
            number(entry.stream.map(|id| id.0)),
        );
        // Writing to a string cannot fail.
        debug_assert!(written.is_ok());
    }
    text
}

/// ISO 8601 in UTC with milliseconds; empty for a time outside the calendar.
fn iso(millis: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000);
    let Ok(time) = time else { return String::new() };
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second, milli) = time.to_hms_milli();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::ids::{DestinationId, Msat, SessionId, StreamId, UnixMillis};

    #[test]
    fn a_statement_as_csv_has_exact_amounts() {
        let charge = StatementEntry {
            id: 7,
            at: UnixMillis(1_800_000_000_123),
            kind: "minute".to_owned(),
            amount: Msat(-2_005),
            session: Some(SessionId("ses_a".to_owned())),
            stream: Some(StreamId(5)),
            destination: Some(DestinationId(3)),
            minute: Some(0),
            hour: None,
            file_name: None,
        };
        let credit = StatementEntry {
            id: 1,
            amount: Msat(999),
            kind: "prepaid".to_owned(),
            session: None,
            stream: None,
            destination: None,
            minute: None,
            ..charge.clone()
        };
        let recovery = StatementEntry {
            id: 0,
            kind: "recovery".to_owned(),
            file_name: Some("a, \"b\".mp4".to_owned()),
            ..credit.clone()
        };
        let text = csv(&[charge, credit, recovery]);
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines[0], CSV_HEAD.trim_end());
        assert_eq!(lines[1], "7,1800000000123,2027-01-15T08:00:00.123Z,minute,-2005,-2.005,ses_a,3,0,,,5");
        assert_eq!(lines[2], "1,1800000000123,2027-01-15T08:00:00.123Z,prepaid,999,0.999,,,,,,");
        assert!(lines[3].ends_with(r#",recovery,999,0.999,,,,,"a, ""b"".mp4","#), "{}", lines[3]);
        assert_eq!(lines[4], "", "the last line is terminated");
    }

    #[test]
    fn csv_is_sent_only_if_accept_names_it() {
        for (accept, format) in [
            ("", LedgerFormat::Json),
            ("*/*", LedgerFormat::Json),
            ("application/json", LedgerFormat::Json),
            ("text/csv", LedgerFormat::Csv),
            ("text/html, Text/CSV;q=0.9", LedgerFormat::Csv),
        ] {
            assert_eq!(accepted_format(accept), format, "{accept}");
        }
    }
}
