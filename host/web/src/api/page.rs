//! Pages of lists: `limit` and `cursor` in, `Link: <...>; rel="next"` out.

use poem_openapi::payload::{Json, Response};

use crate::base::{ApiError, Code};
use satcast_store::Page;

/// Most entries of one page, and the number given without `limit`.
pub(super) const PAGE_ENTRIES_MAX: u32 = 1_000;

/// A requested page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRequest {
    limit: u32,
    before: Option<i64>,
    explicit: bool,
}

impl PageRequest {
    /// Checks the query parameters.
    ///
    /// # Errors
    /// 400 for a limit outside 1 to 1000 or an invalid cursor.
    pub(super) fn new(limit: Option<u32>, cursor: Option<&str>) -> Result<Self, ApiError> {
        let refuse = |text: &str| ApiError::malformed(Code::MalformedParameter, text);
        if limit.is_some_and(|limit| !(1..=PAGE_ENTRIES_MAX).contains(&limit)) {
            return Err(refuse("Query parameter `limit` must be a whole number from 1 to 1000"));
        }
        let before = match cursor {
            None => None,
            Some(text) => match text.parse::<i64>() {
                Ok(id) if id > 0 => Some(id),
                _ => return Err(refuse("Query parameter `cursor` must be taken from a Link header")),
            },
        };
        Ok(Self { limit: limit.unwrap_or(PAGE_ENTRIES_MAX), before, explicit: limit.is_some() })
    }

    /// The same with at most `max` entries per page, for lists with large entries.
    pub(super) fn at_most(self, max: u32) -> Self {
        Self { limit: self.limit.min(max), ..self }
    }

    /// The page for the store: one entry more than shown, to know whether a next page exists.
    pub(super) fn to_store(self) -> Page {
        Page { before: self.before, limit: i64::from(self.limit) + 1 }
    }

    /// Removes the extra entry and returns the `Link` header if there was one. `address` is the URL of the list.
    pub(super) fn finish<T>(
        self,
        entries: &mut Vec<T>,
        address: &str,
        id_of: impl Fn(&T) -> i64,
    ) -> Option<String> {
        let limit = self.limit as usize;
        if entries.len() <= limit {
            return None;
        }
        entries.truncate(limit);
        let cursor = entries.last().map(id_of)?;
        let limit = if self.explicit { format!("&limit={limit}") } else { String::new() };
        Some(format!("<{address}?cursor={cursor}{limit}>; rel=\"next\""))
    }
}

/// Longest query string that is repeated in a link, in bytes.
const QUERY_BYTES_MAX: usize = 2_048;

impl PageRequest {
    /// As [`PageRequest::finish`], for a list with filters, which are copied from `query`, the query string of the request.
    pub(super) fn finish_query<T>(
        self,
        entries: &mut Vec<T>,
        address: &str,
        query: Option<&str>,
        id_of: impl Fn(&T) -> i64,
    ) -> Option<String> {
        let link = self.finish(entries, address, id_of)?;
        let own = ["limit", "cursor", "apiKey", "key"];
        let query = query.filter(|query| query.len() <= QUERY_BYTES_MAX).unwrap_or_default();
        let filters =
            url::form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| !own.contains(&&**name));
        let filters = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(filters).finish();
        if filters.is_empty() { Some(link) } else { Some(link.replacen('?', &format!("?{filters}&"), 1)) }
    }
}

/// The payload with a `Link` header when there is a next page.
pub(super) fn with_link<T>(payload: Json<T>, link: Option<String>) -> Response<Json<T>> {
    let response = Response::new(payload);
    match link {
        Some(link) => response.header("Link", link),
        None => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_cursors_outside_their_range_are_refused() {
        for (limit, cursor) in
            [(Some(0), None), (Some(1_001), None), (None, Some("")), (None, Some("-1")), (None, Some("x"))]
        {
            assert!(PageRequest::new(limit, cursor).is_err(), "{limit:?} {cursor:?}");
        }
        assert_eq!(PageRequest::new(None, None).unwrap().to_store().limit, 1_001);
    }

    #[test]
    fn a_link_is_given_only_if_more_entries_follow() {
        let page = PageRequest::new(Some(2), Some("9")).unwrap();
        let mut entries = vec![8, 7, 6];
        let link = page.finish(&mut entries, "http://x/api/streams", |id| *id);
        assert_eq!(link.as_deref(), Some("<http://x/api/streams?cursor=7&limit=2>; rel=\"next\""));
        assert_eq!(entries, [8, 7]);
        assert_eq!(page.finish(&mut vec![8, 7], "http://x", |id| *id), None);
    }

    #[test]
    fn filters_are_repeated_and_keys_never() {
        let page = PageRequest::new(Some(1), None).unwrap();
        let query = "platform=a+b&limit=1&key=sk_x&apiKey=sk_y&cursor=9&minCost=2";
        let link = page.finish_query(&mut vec![8, 7], "http://x", Some(query), |id| *id).unwrap();
        assert_eq!(link, "<http://x?platform=a+b&minCost=2&cursor=8&limit=1>; rel=\"next\"");
    }
}
