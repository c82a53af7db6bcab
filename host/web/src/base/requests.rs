//! Counts requests by route and class of the status. The routes are known at the start, so that counting takes no lock and
//! no path of a client becomes a label.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use poem::http::StatusCode;

/// Classes of statuses.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// Route of all paths that no other route has: pages, and paths that do not exist.
pub(crate) const OTHER: &str = "other";

/// Counts of all routes.
#[derive(Debug)]
pub struct Requests {
    routes: Vec<Route>,
    /// Routes without parameters.
    exact: HashMap<String, usize>,
    /// Routes with parameters.
    templates: Vec<usize>,
}

#[derive(Debug)]
struct Route {
    name: String,
    classes: [AtomicU64; CLASSES.len()],
}

impl Requests {
    /// Counts for these paths and templates, such as `/api/streams/{id}`, each once.
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut routes, mut exact, mut templates) = (Vec::new(), HashMap::new(), Vec::new());
        for name in [OTHER].into_iter().chain(names) {
            if name.contains('{') {
                templates.push(routes.len());
            } else {
                exact.insert(name.to_owned(), routes.len());
            }
            routes.push(Route { name: name.to_owned(), classes: Default::default() });
        }
        Self { routes, exact, templates }
    }

    /// Counts one answer to a request for `path`, and returns its route.
    pub(crate) fn count(&self, path: &str, status: StatusCode) -> &str {
        let fits = |index: &&usize| matches_template(&self.routes[**index].name, path);
        // The first route is that of all others.
        let route = self.exact.get(path).or_else(|| self.templates.iter().find(fits)).copied().unwrap_or(0);
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        self.routes[route].classes[class].fetch_add(1, Ordering::Relaxed);
        &self.routes[route].name
    }

    /// Route, class and number of requests, for pairs that had one.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        let of = |route: &Route| {
            route.classes.each_ref().map(|count| count.load(Ordering::Relaxed)).into_iter().zip(CLASSES)
        };
        let all = self.routes.iter().flat_map(move |route| {
            of(route).map(|(count, class)| (route.name.as_str(), class, count)).collect::<Vec<_>>()
        });
        all.filter(|(_, _, count)| *count > 0)
    }
}

/// Whether a path matches a template such as `/api/streams/{id}`.
pub(crate) fn matches_template(template: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    let same = template.split('/').all(|part| {
        parts.next().is_some_and(|given| part == given || (part.starts_with('{') && !given.is_empty()))
    });
    same && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_clients_never_become_routes() {
        let requests = Requests::new(["/a", "/a/{id}", "/a/{id}/b", "/hls/"]);
        for (path, status) in [
            ("/a", 200),
            ("/a", 201),
            ("/a", 404),
            ("/a/7", 304),
            ("/a/8", 399),
            ("/a/7/b", 500),
            ("/a/7/c", 404),
            ("/secret-path", 404),
            ("/hls/", 206),
            ("/", 999),
        ] {
            requests.count(path, StatusCode::from_u16(status).unwrap());
        }
        let counts: Vec<_> = requests.counts().collect();
        assert_eq!(
            counts,
            [
                (OTHER, "4xx", 2),
                (OTHER, "5xx", 1),
                ("/a", "2xx", 2),
                ("/a", "4xx", 1),
                ("/a/{id}", "3xx", 2),
                ("/a/{id}/b", "5xx", 1),
                ("/hls/", "2xx", 1),
            ]
        );
    }
}
