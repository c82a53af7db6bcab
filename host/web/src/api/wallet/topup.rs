//! Top-ups: invoices that anyone can pay to credit the account.

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::Path;
use poem_openapi::payload::Json;
use poem_openapi::{Enum, Object, OpenApi};

use super::NOT_SATS;
use crate::api::app::{App, Tag};
use crate::api::body::{Body, body, whole};
use crate::api::caller::Caller;
use crate::api::null::Null;
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::ids::Sats;
use satcast_money::wallet::topups::TopUpError;
use satcast_store::{InvoiceRecord, Stage};

/// State of a top-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename = "TopUpState", rename_all = "lowercase")]
enum State {
    /// The invoice can be paid.
    Open,
    /// The invoice was paid and the account was credited.
    Settled,
    /// The invoice was not paid in time. A late payment is still credited.
    Expired,
}

/// An invoice that buys credit.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
struct TopUp {
    /// Invoice identifier.
    invoice_id: i64,
    /// The invoice (BOLT11); any Lightning wallet can pay it.
    bolt11: String,
    /// Payment hash of the invoice.
    payment_hash: String,
    /// Amount of the invoice in sats.
    amount_sats: i64,
    /// Expiry of the invoice, Unix milliseconds.
    expires_at: i64,
    /// State of the top-up.
    state: State,
    /// Credited sats, rounded down; more than `amountSats` if more was paid. Null before the payment.
    credited_sats: Null<i64>,
    /// Time of the credit, Unix milliseconds. Null before the payment.
    settled_at: Null<i64>,
}

impl TopUp {
    /// `None` if the wallet has not created the invoice.
    fn of(invoice: InvoiceRecord) -> Option<Self> {
        let made = invoice.made?;
        let state = match invoice.stage {
            Stage::Created | Stage::Open | Stage::Paying => State::Open,
            Stage::Settled => State::Settled,
            Stage::Expired | Stage::Failed => State::Expired,
        };
        Some(Self {
            invoice_id: invoice.id,
            bolt11: made.bolt11,
            payment_hash: made.payment_hash,
            amount_sats: invoice.amount.to_sats_floor().0,
            expires_at: made.expires_at.0,
            state,
            credited_sats: Null(invoice.credited.map(|credit| credit.to_sats_floor().0)),
            settled_at: Null(invoice.settled_at.map(|at| at.0)),
        })
    }
}

body! {
    /// A top-up to create.
    pub(super) struct TopUpInput: "NewTopUp" {
        /// Amount in sats, within the service's limits.
        amount_sats "amountSats": i64 = whole(|place| place.refused(Code::AmountRefused, NOT_SATS)),
    }
}

/// Operations on top-ups.
pub(in crate::api) struct TopUpApi;

#[OpenApi(prefix_path = "/api/wallet", tag = "Tag::Wallet")]
impl TopUpApi {
    /// Buy credit
    ///
    /// Creates a Lightning invoice. The account is credited once, seconds after the service's wallet reports the payment. At most
    /// 10 requests a minute per account.
    #[oai(path = "/topup", method = "post", operation_id = "createTopUp")]
    async fn create(
        &self,
        app: Data<&Arc<App>>,
        request: &poem::Request,
        caller: Caller,
        body: Body<TopUpInput>,
    ) -> Result<Json<TopUp>> {
        app.count(&RequestContext::of(request), request, &app.limits.topups, caller.account).await?;
        let terms = app.wallets.terms();
        if !terms.offered {
            return Err(ApiError::from(TopUpError::NotOffered).into());
        }
        let (amount, least, most) = (Sats(body.0.amount_sats), terms.least, terms.most);
        let msat = amount.to_msat().filter(|_| (least..=most).contains(&amount)).ok_or_else(|| {
            let text = format!("Field `amountSats` must be a whole number from {least} to {most}");
            ApiError::refused(Code::AmountRefused, text)
        })?;
        let (topups, actor) = (app.wallets.clone(), caller.actor(&app));
        let invoice = App::to_the_end(async move { Ok(topups.top_up(&actor, msat).await?) }).await?;
        Ok(Json(TopUp::of(invoice).ok_or_else(ApiError::internal)?))
    }

    /// Read a top-up
    #[oai(path = "/topup/:id", method = "get", operation_id = "getTopUp")]
    async fn read(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Invoice identifier.
        id: Path<i64>,
    ) -> Result<Json<TopUp>> {
        let found = app.store.topup_of(caller.account, id.0).await.map_err(ApiError::from)?;
        Ok(Json(found.and_then(TopUp::of).ok_or_else(|| ApiError::not_found("top-up"))?))
    }
}
