//! The handler of one opening of a destination: passes requests of viewers on to the driver.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use satcast_plugin_api::http::{ANSWER_SECS, IN_FLIGHT_MAX, LONG_ANSWER_SECS, REQUEST_TEXT_BYTES_MAX};
use satcast_plugin_api::{HttpRequest, Route};

use super::Loaded;
use super::control::Backend;
use super::services::DriverServices;
use crate::published::{Answer, Answering, Handler, Unanswered};

pub(crate) struct RouteHandler {
    driver: Weak<Loaded>,
    dest: u64,
    routes: Vec<Route>,
    in_flight: AtomicUsize,
}

impl std::fmt::Debug for RouteHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RouteHandler").field("dest", &self.dest).finish_non_exhaustive()
    }
}

impl RouteHandler {
    /// For the opening `dest`. Does not keep the driver alive.
    pub(crate) fn new(driver: &Arc<Loaded>, dest: u64, routes: Vec<Route>) -> Self {
        Self { driver: Arc::downgrade(driver), dest, routes, in_flight: AtomicUsize::new(0) }
    }

    /// The route for `asked`.
    fn route(&self, asked: &HttpRequest) -> Option<&Route> {
        let name = asked.path.split('/').next()?;
        let is_open = |route: &&Route| route.preview || asked.audience.is_hosted();
        self.routes.iter().find(|route| route.path == name).filter(is_open)
    }

    async fn answer(&self, asked: HttpRequest) -> Result<Answer, Unanswered> {
        let route = self.route(&asked).ok_or(Unanswered::NoRoute)?;
        if asked.path.len().max(asked.query.len()) > REQUEST_TEXT_BYTES_MAX {
            return Err(Unanswered::TooLong);
        }
        let limit = Duration::from_secs(if route.long { LONG_ANSWER_SECS } else { ANSWER_SECS });
        let _slot = Slot::take(&self.in_flight).ok_or(Unanswered::Busy)?;
        let driver = self.driver.upgrade().ok_or(Unanswered::NoRoute)?;
        let services = driver.services.clone();
        let (token, answered) = services.requests().begin(self.dest);
        // If this returns or is dropped early, the request is forgotten.
        let _pending = Forget { services: &services, token };
        let dest = self.dest;
        let begin = {
            let services = services.clone();
            move |backend: &Backend| {
                if services.requests().is_waiting(token) && !backend.request(dest, token, &asked) {
                    services.requests().answer(token, None);
                }
            }
        };
        driver.control.post(begin).map_err(|_| Unanswered::Busy)?;
        drop(driver);
        match tokio::time::timeout(limit, answered).await {
            Err(_) => Err(Unanswered::TimedOut),
            Ok(Err(_)) => Err(Unanswered::NoRoute),
            Ok(Ok(None)) => Err(Unanswered::Failed),
            Ok(Ok(Some(response))) => services.accept(response),
        }
    }
}

impl Handler for RouteHandler {
    fn ask(&self, asked: HttpRequest) -> Answering<'_> {
        Box::pin(self.answer(asked))
    }
}

/// One of the requests that may wait.
struct Slot<'a>(&'a AtomicUsize);

impl<'a> Slot<'a> {
    fn take(in_flight: &'a AtomicUsize) -> Option<Self> {
        // Constructed only after counting: its drop decreases the count.
        let taken = in_flight.fetch_add(1, Ordering::AcqRel) < IN_FLIGHT_MAX;
        if !taken {
            in_flight.fetch_sub(1, Ordering::AcqRel);
        }
        taken.then(|| Self(in_flight))
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Forget<'a> {
    services: &'a DriverServices,
    token: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.services.requests().forget(self.token);
    }
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::Audience;
    use satcast_plugin_api::http::Method;

    use super::*;

    #[test]
    fn waiting_requests_are_limited() {
        let in_flight = AtomicUsize::new(0);
        let slots: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Slot::take(&in_flight).unwrap()).collect();
        assert!(Slot::take(&in_flight).is_none());
        drop(slots);
        assert_eq!(in_flight.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_route_is_the_first_path_part() {
        let routes = vec![Route::new("thumb"), Route::new("open").preview()];
        let handler = RouteHandler { driver: Weak::new(), dest: 1, routes, in_flight: AtomicUsize::new(0) };
        let asked = |path: &str, audience| {
            let asked =
                HttpRequest { method: Method::Get, audience, path: path.into(), query: String::new() };
            handler.route(&asked).map(|route| route.path.clone())
        };
        assert_eq!(asked("thumb/1.jpg", Audience::Hosted).as_deref(), Some("thumb"));
        assert_eq!(asked("open", Audience::Preview).as_deref(), Some("open"));
        for unrouted in ["", "thumbs", "/thumb", "x/thumb"] {
            assert_eq!(asked(unrouted, Audience::Hosted), None, "{unrouted}");
        }
        assert_eq!(asked("thumb", Audience::Preview), None);
    }
}
