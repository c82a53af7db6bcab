//! All handlers, as poem-openapi serves and documents them.

use poem_openapi::{OpenApi, OpenApiService};

use super::app::VERSION;
use super::{
    accounts, analytics, archives, audit, clips, cost, destinations, drivers, edits, events, keys, login,
    public, status, streams, uploads, wallet, webhooks,
};

/// Every group of operations.
pub(super) fn service() -> OpenApiService<impl OpenApi, ()> {
    let apis = (
        streams::StreamsApi,
        (edits::EditsApi, uploads::SlatesApi),
        destinations::DestinationsApi,
        drivers::DriversApi,
        (login::LoginApi, accounts::AccountsApi),
        keys::KeysApi,
        webhooks::WebhooksApi,
        (wallet::WalletApi, wallet::connection::ConnectionApi, wallet::topup::TopUpApi),
        (archives::ArchivesApi, clips::ClipsApi),
        analytics::AnalyticsApi,
        audit::AuditApi,
        events::EventsApi,
        public::PublicApi,
        status::StatusApi,
        cost::CostApi,
    );
    OpenApiService::new(apis, "Satcast", VERSION)
}
