//! Requests that a destination's driver answers. Requests and responses get the same checks, metering and headers as published assets.

use std::sync::Arc;

use poem::http::header::{CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue};
use poem::http::{Method, StatusCode};
use poem::{Request, Response};
use satcast_plugin_api::Audience;
use satcast_plugin_api::HttpRequest;
use satcast_plugin_api::http::Method as HttpMethod;
use url::form_urlencoded;

use super::Playback;
use super::access::Access;
use super::body::Chain;
use super::headers::Keep;
use super::relay::What;
use super::serve::{Answer, Found, Refused, readers};
use crate::auth::presents_header;
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::secret::Redacted;
use satcast_drivers::published::{Answer as Answered, Opening, Unanswered};

/// Query parameters that belong to the host.
const HOST_PARAMETERS: [&str; 3] = ["apiKey", "key", "token"];
/// A driver's response has the service's own origin: pages in it must not run with the rights of that origin.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

impl Playback {
    /// Handles a request with a key below the destination's URL.
    pub(super) async fn asked(
        &self,
        request: &Request,
        context: &RequestContext,
        path: &str,
        key: &Redacted<String>,
        rest: &str,
    ) -> Answer {
        let (access, _) = self.keyed(context, path, key).await?;
        let query = query_of(request.uri().query().unwrap_or_default());
        if repeats(rest, key.expose()) || repeats(&query, key.expose()) {
            let text = "The URL contains the key a second time, where the driver would see it; send the key once, as apiKey";
            return Err(ApiError::malformed(Code::KeyRepeated, text).into());
        }
        let readers = readers(request, &access)?;
        // A key in a header is not part of the URL, which caches use as their key.
        let keep = if presents_header(request) { Keep::Preview } else { Keep::Playlist(0) };
        Ok((self.ask_driver(request, access, None, Audience::Hosted, rest, keep).await?, readers))
    }

    /// Sends the request to the driver of the live session, or of `session` if it is that one, here or at the owner.
    pub(super) async fn ask_driver(
        &self,
        request: &Request,
        access: Arc<Access>,
        session: Option<&str>,
        audience: Audience,
        path: &str,
        keep: Keep,
    ) -> Result<Response, Refused> {
        let query = query_of(request.uri().query().unwrap_or_default());
        let resource = access.resource(session, audience, What::Driver { path, query: &query });
        let (account, destination) = (access.account, access.destination);
        let counted = (audience != Audience::Preview).then_some(access.clone());
        if let Some(relay) = self.relay_for(destination)
            && let Some((opening, answer)) = relay.driver(&resource, account).await?
        {
            return self.answered(request, answer, Found { opening, keep, counted }).await;
        }
        let is_asked = |opening: &Arc<Opening>| session.is_none_or(|asked| opening.session.as_str() == asked);
        let opening = self.live.opening(destination).filter(is_asked);
        let gone = || if session.is_none() { ApiError::offline() } else { ApiError::not_found("asset") };
        let opening = opening.ok_or_else(gone)?;
        let handler = opening.assets().handler().ok_or_else(|| ApiError::not_found("asset"))?;
        let method = if *request.method() == Method::HEAD { HttpMethod::Head } else { HttpMethod::Get };
        let asked = HttpRequest { method, audience, path: path.to_owned(), query };
        let answer = handler.ask(asked).await.map_err(refused)?;
        self.answered(request, answer, Found { opening, keep, counted }).await
    }

    async fn answered(
        &self,
        request: &Request,
        answer: Answered,
        mut found: Found,
    ) -> Result<Response, Refused> {
        let Answered { status, headers, asset } = answer;
        if found.keep != Keep::Preview {
            found.keep = Keep::Playlist(asset.max_age_secs);
        }
        let mut response = if status == 200 {
            self.deliver(request, asset, found).await?
        } else {
            let chain = Chain::of(&found.opening, &asset).ok_or_else(ApiError::driver_failed)?;
            match (status, chain.size) {
                (404, 0) => return Err(ApiError::not_found("asset").into()),
                (500.., 0) => return Err(ApiError::driver_failed().into()),
                _ => {}
            }
            // Failures are not metered.
            found.counted = None;
            let cut = chain.cut(0, chain.size, None).await;
            let slices = cut.map_err(|error| self.unreadable(&error, &found.opening))?;
            let mut response = self.response(request, &asset, &found, slices);
            response.set_status(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
            if status == 204 {
                response.headers_mut().remove(CONTENT_LENGTH);
            }
            response
        };
        let all = response.headers_mut();
        for (name, value) in headers {
            // Both were checked on arrival.
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                all.append(name, value);
            }
        }
        all.insert(CONTENT_SECURITY_POLICY, POLICY);
        Ok(response)
    }
}

pub(super) fn refused(why: Unanswered) -> ApiError {
    match why {
        Unanswered::NoRoute => ApiError::not_found("asset"),
        Unanswered::TooLong => ApiError::malformed(Code::RequestTooLong, why.to_string()),
        Unanswered::Busy => ApiError::driver_busy(),
        Unanswered::TimedOut => ApiError::driver_silent(),
        Unanswered::Failed => ApiError::driver_failed(),
    }
}

/// The query without the host's parameters, especially keys.
fn query_of(query: &str) -> String {
    let is_hosts = |pair: &&str| {
        let name = form_urlencoded::parse(pair.as_bytes()).next();
        name.is_none_or(|(name, _)| HOST_PARAMETERS.contains(&name.as_ref()))
    };
    query.split('&').filter(|pair| !is_hosts(pair)).collect::<Vec<_>>().join("&")
}

/// Whether the key occurs in the text that the driver would see.
fn repeats(text: &str, key: &str) -> bool {
    let holds = |text: &str| text.contains(key);
    holds(text) || form_urlencoded::parse(text.as_bytes()).any(|(name, value)| holds(&name) || holds(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_written_twice_is_found() {
        for text in ["info/pk_x", "APIKEY=pk_x", "x=1;apiKey=pk_x", "next=apiKey%3Dpk_x", "a=%70k_x"] {
            assert!(repeats(text, "pk_x"), "{text}");
        }
        assert!(!repeats("info/pk_y?x=pk_", "pk_x"));
    }

    #[test]
    fn keys_never_reach_the_driver_in_any_encoding() {
        for (query, left) in [
            ("", ""),
            ("a=1&apiKey=pk_x&b=%20", "a=1&b=%20"),
            ("key=x", ""),
            ("token=T&token=U&c", "c"),
            ("%61piKey=pk_x&d=apiKey", "d=apiKey"),
            ("api%4Bey=pk_x", ""),
            ("&&e=1&", "e=1"),
        ] {
            assert_eq!(query_of(query), left, "{query}");
        }
    }
}
