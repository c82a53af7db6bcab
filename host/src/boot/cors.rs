//! The CORS rule of the operator's bucket, which browsers need with `[archive] playback = "signed"`: the service asks for it as a
//! browser does before it fetches a part.

use std::time::Duration;

use reqwest::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue, ORIGIN,
};
use reqwest::{Method, Request};
use satcast_core::config::{ArchivePlayback, Config};
use satcast_net::outbound::Guard;
use satcast_net::outbound::http::Client;
use tokio::time::timeout;
use url::Url;

/// Longest time for one question.
const LIMIT: Duration = Duration::from_secs(5);
/// No recording has this name.
const NAME: &str = "_satcast/check";
/// The origin that browsers send after a redirect from one site to another.
const AFTER_REDIRECT: &str = "null";

/// What the store lets browsers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketRule {
    /// Players of every site can fetch recordings.
    Open,
    /// Only the pages of this service can.
    OwnPages,
    /// No page can.
    Missing,
    /// The store was not asked, or does not answer; the reason.
    Unknown(String),
}

impl BucketRule {
    /// What the store of a configuration allows; `None` where viewers get nothing from a store of the operator.
    pub async fn of(config: &Config) -> Option<Self> {
        let archive = &config.archive;
        if archive.playback != ArchivePlayback::Signed {
            return None;
        }
        let (endpoint, bucket) = (archive.endpoint.as_ref()?, archive.bucket.as_ref()?);
        let place = place(endpoint, bucket, archive.force_path_style, &archive.prefix);
        let Some(place) = place else {
            return Some(Self::Unknown("[archive] endpoint and bucket give no address".to_owned()));
        };
        let found = ask(config, &place).await;
        Some(found.unwrap_or_else(Self::Unknown))
    }

    /// For the operator, with the rule to add; `None` if nothing has to be done.
    pub fn text(&self, config: &Config) -> Option<String> {
        let bucket = config.archive.bucket.as_deref().unwrap_or_default();
        let rule = "AllowedOrigins *, AllowedMethods GET and HEAD, AllowedHeaders Range";
        match self {
            Self::Open => None,
            Self::OwnPages => Some(format!(
                "only pages of this service can play from bucket {bucket}, because players of other sites send the origin null \
                 after the redirect; give the bucket the CORS rule {rule}"
            )),
            Self::Missing => Some(format!(
                "browsers cannot play from bucket {bucket}, because it has no CORS rule for them; give the bucket the rule {rule}, or \
                 set [archive] playback = \"service\""
            )),
            Self::Unknown(why) => {
                Some(format!("whether browsers can play from bucket {bucket} is not known: {why}"))
            }
        }
    }
}

/// Logs what is wrong with the rule, once.
pub(super) async fn warn(config: &Config) {
    let rule = BucketRule::of(config).await;
    if let Some(text) = rule.and_then(|rule| rule.text(config)) {
        tracing::warn!("[archive] playback = \"signed\": {text}");
    }
}

/// The address of an object that does not exist.
fn place(endpoint: &Url, bucket: &str, is_path_style: bool, prefix: &str) -> Option<Url> {
    let mut place = endpoint.clone();
    if !is_path_style {
        place.set_host(Some(&format!("{bucket}.{}", endpoint.host_str()?))).ok()?;
    }
    let mut path = place.path_segments_mut().ok()?;
    path.pop_if_empty();
    path.extend(is_path_style.then_some(bucket));
    path.extend(prefix.split('/').chain(NAME.split('/')).filter(|part| !part.is_empty()));
    drop(path);
    Some(place)
}

async fn ask(config: &Config, place: &Url) -> Result<BucketRule, String> {
    let guard =
        Guard::new(&Config::allow_texts(&config.outbound.allow)).map_err(|error| error.to_string())?;
    let client = Client::new(guard, LIMIT).map_err(|error| error.to_string())?;
    let own = config.public_url.origin().ascii_serialization();
    Ok(match (lets(&client, place, &own).await?, lets(&client, place, AFTER_REDIRECT).await?) {
        (_, true) => BucketRule::Open,
        (true, false) => BucketRule::OwnPages,
        (false, false) => BucketRule::Missing,
    })
}

/// Whether a page of this origin may fetch ranges.
async fn lets(client: &Client, place: &Url, origin: &str) -> Result<bool, String> {
    let mut request = Request::new(Method::OPTIONS, place.clone());
    let headers = request.headers_mut();
    headers.insert(ORIGIN, HeaderValue::try_from(origin).map_err(|error| error.to_string())?);
    headers.insert(ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("GET"));
    headers.insert(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static("range"));
    let sent = timeout(LIMIT, client.send(request)).await;
    let answer = sent.map_err(|_| format!("the store gave no answer in {} s", LIMIT.as_secs()))?;
    let answer = answer.map_err(|error| error.to_string())?;
    let (status, headers) = (answer.head().status(), answer.head().headers());
    if status.is_server_error() {
        return Err(format!("the store answered {}", status.as_u16()));
    }
    Ok(status.is_success() && allows(headers, origin))
}

/// Whether the answer lets a page of this origin send a range.
fn allows(headers: &HeaderMap, origin: &str) -> bool {
    let lists = |name: HeaderName, wanted: &str| {
        let values = headers.get_all(name);
        let mut all =
            values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        all.any(|one| one.trim() == "*" || one.trim().eq_ignore_ascii_case(wanted))
    };
    lists(ACCESS_CONTROL_ALLOW_ORIGIN, origin) && lists(ACCESS_CONTROL_ALLOW_HEADERS, "range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_allows_the_origin_and_the_range() {
        let answer = |origin: &'static str, names: &'static str| {
            let origin = (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static(origin));
            HeaderMap::from_iter([origin, (ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names))])
        };
        assert!(allows(&answer("*", "*"), "null"));
        assert!(allows(&answer("https://a.example", "content-type, Range"), "https://a.example"));
        assert!(!allows(&answer("https://a.example", "range"), "null"));
        assert!(!allows(&answer("*", "content-type"), "null"), "the header is missing");
        assert!(!allows(&HeaderMap::new(), "null"));
    }

    #[test]
    fn the_object_is_in_the_bucket_of_the_operator() {
        let endpoint = Url::parse("https://s3.example.com:9000/").unwrap();
        let at = |is_path_style, prefix| place(&endpoint, "b", is_path_style, prefix).unwrap().to_string();
        assert_eq!(at(true, ""), "https://s3.example.com:9000/b/_satcast/check");
        assert_eq!(at(false, "a/b/"), "https://b.s3.example.com:9000/a/b/_satcast/check");
        let address = Url::parse("http://127.0.0.1:9000").unwrap();
        assert_eq!(
            place(&address, "b", true, "p").unwrap().as_str(),
            "http://127.0.0.1:9000/b/p/_satcast/check"
        );
    }
}
