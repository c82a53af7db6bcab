//! Lists of addresses in requests: from where a stream key may be used.

use poem_openapi::registry::MetaSchema;
use serde_json::Value;

use super::body::Kind;
use crate::base::{ApiError, Code};
use satcast_core::networks::{NETWORKS_MAX, Networks};

/// Addresses, or networks in CIDR form. The error says which entry is none; never its text.
pub(super) fn addresses() -> Kind<Networks> {
    let list = Kind::of::<Vec<String>>(|value, place| {
        let items = value.as_array();
        let texts: Option<Vec<&str>> = items.and_then(|items| items.iter().map(Value::as_str).collect());
        let networks = Networks::parse(texts.ok_or_else(|| place.malformed("must be a list of texts"))?);
        networks.map_err(|error| ApiError::refused(Code::AddressesRefused, format!("{place}: {error}")))
    });
    list.noted(MetaSchema { max_items: Some(NETWORKS_MAX), ..MetaSchema::ANY })
}
