//! The wallet: what a charge can take.

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::payload::Json;
use poem_openapi::{Object, OpenApi};

use super::null::Null;
use super::{ApiError, App, Caller, Tag};

/// What a charge can take.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct WalletBalance {
    /// Prepaid credit in sats, rounded down.
    balance: i64,
    /// Whether `walletSats` is an older value because the wallet did not answer.
    cached: bool,
    /// Sats in the connected wallet; null without one.
    wallet_sats: Null<i64>,
    /// When this was true, Unix milliseconds.
    as_of: i64,
}

/// Operations on the wallet.
pub(super) struct WalletApi;

#[OpenApi(prefix_path = "/api/wallet", tag = "Tag::Wallet")]
impl WalletApi {
    /// Read the balance
    #[oai(path = "/balance", method = "get", operation_id = "getWalletBalance")]
    async fn balance(&self, app: Data<&Arc<App>>, caller: Caller) -> Result<Json<WalletBalance>> {
        let as_of = app.clock.now().0;
        let balance = app.store.balance(caller.account).await.map_err(ApiError::from)?.to_sats_floor().0;
        Ok(Json(WalletBalance { balance, cached: false, wallet_sats: Null(None), as_of }))
    }
}
