//! A user of the dashboard in Chromium; `player/dashboard.mjs` describes the steps.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::api::Api;
use crate::player::Player;
use crate::service::{ACCOUNT, Service};

/// Password of the account that [`Dashboard::first`] makes.
pub const PASSWORD: &str = "correct horse battery";

/// An open dashboard.
#[derive(Debug)]
pub struct Dashboard {
    page: Player,
}

/// A text of the dashboard (`host/dashboard/src/messages/en.ts`) by its key, such as `streams.add`.
#[must_use]
pub fn text(key: &str) -> Value {
    json!({ "t": key })
}

/// A text of the dashboard that contains values, by its key and a list of them.
#[must_use]
pub fn text_with(key: &str, values: Value) -> Value {
    json!({ "t": key, "with": values })
}

/// The open dialog, for `in` of a step.
#[must_use]
pub fn dialog() -> Value {
    json!({ "role": "dialog" })
}

/// The card of this title, for `in` of a step.
#[must_use]
pub fn card(title: Value) -> Value {
    json!({ "role": "region", "name": title })
}

/// The table of this name, for `in` of a step.
#[must_use]
pub fn table(name: Value) -> Value {
    json!({ "role": "table", "name": name })
}

/// The number in a text, such as `1234` in `1,234 sats`.
#[must_use]
pub fn digits(shown: &str) -> Option<i64> {
    shown.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

impl Dashboard {
    /// Makes the account [`ACCOUNT`] of a fresh service, an operator, and leaves the list of streams open. Also gives the API of the
    /// account.
    ///
    /// # Panics
    /// When the service has no first-run link, or the link does not lead to the list of streams.
    #[must_use]
    #[track_caller]
    pub fn first(service: &Service) -> (Self, Api) {
        let link = std::fs::read_to_string(service.folder().join("data/setup-link"));
        let mut dashboard = Self::launch(service);
        dashboard.set_up(link.expect("the link of the first start").trim(), ACCOUNT, PASSWORD);
        (dashboard, service.api_of(ACCOUNT))
    }

    /// Starts a browser for the pages of `service`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn launch(service: &Service) -> Self {
        Self { page: Player::launch_for_dashboard(&service.base()) }
    }

    /// Opens the first-run link of a fresh service and makes the operator's login, as the page asks for it.
    ///
    /// # Panics
    /// When it does not lead to the list of streams.
    #[track_caller]
    pub fn set_up(&mut self, link: &str, name: &str, password: &str) {
        self.open(link);
        self.fill(text("login.name"), name);
        self.fill(text("login.password"), password);
        self.click("button", text("setup.action"));
        self.see("heading", text("nav.streams"));
    }

    /// Fills the login form and sends it.
    #[track_caller]
    pub fn log_in(&mut self, name: &str, password: &str) {
        self.fill(text("login.name"), name);
        self.fill(text("login.password"), password);
        self.click("button", text("login.action"));
    }

    /// Opens a path of the dashboard, or an address of it, and waits for its data. Gives the heading.
    #[track_caller]
    pub fn open(&mut self, path: &str) -> String {
        let answer = self.step(json!({ "do": "open", "path": path }));
        answer["heading"].as_str().unwrap_or_default().to_owned()
    }

    /// Clicks the one control of this role and name.
    #[track_caller]
    pub fn click(&mut self, role: &str, name: impl Into<Value>) {
        let _ = self.step(json!({ "do": "click", "role": role, "name": name.into() }));
    }

    /// Fills the field of this label.
    #[track_caller]
    pub fn fill(&mut self, label: impl Into<Value>, value: &str) {
        let _ = self.step(json!({ "do": "fill", "label": label.into(), "value": value }));
    }

    /// Waits until a part of this role and name is visible.
    #[track_caller]
    pub fn see(&mut self, role: &str, name: impl Into<Value>) {
        let _ = self.step(json!({ "do": "see", "role": role, "name": name.into() }));
    }

    /// Waits until this text is visible anywhere.
    #[track_caller]
    pub fn see_text(&mut self, shown: impl Into<Value>) {
        let _ = self.step(json!({ "do": "see", "text": shown.into() }));
    }

    /// Waits until this text is visible in a part of the page.
    #[track_caller]
    pub fn see_in(&mut self, part: &Value, shown: impl Into<Value>) {
        let _ = self.step(json!({ "do": "see", "in": part, "text": shown.into() }));
    }

    /// Waits for the field of this label and gives its value.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    #[track_caller]
    pub fn field(&mut self, label: impl Into<Value>) -> String {
        let label = label.into();
        let _ = self.step(json!({ "do": "see", "label": label }));
        let answer = self.step(json!({ "do": "read", "label": label }));
        answer["values"][0].as_str().expect("the value of a field").to_owned()
    }

    /// The value of the figure of this name in a part of the page; `None` while it is not shown.
    #[must_use]
    #[track_caller]
    pub fn figure(&mut self, part: &Value, name: impl Into<Value>) -> Option<String> {
        let answer = self.step(json!({ "do": "figure", "in": part, "name": name.into() }));
        answer["texts"][0].as_str().map(str::to_owned)
    }

    /// Position, size, pause and shown frames of the page's first video.
    #[must_use]
    #[track_caller]
    pub fn video(&mut self) -> Value {
        self.step(json!({ "do": "video" }))
    }

    /// The visible texts of the parts that a CSS selector finds.
    #[track_caller]
    pub fn read(&mut self, css: &str) -> Vec<String> {
        let answer = self.step(json!({ "do": "read", "css": css }));
        let texts = answer["texts"].as_array().into_iter().flatten();
        texts.filter_map(|shown| shown.as_str().map(str::to_owned)).collect()
    }

    /// Expects no violation of accessibility in light and in dark.
    ///
    /// # Panics
    /// With every violation.
    #[track_caller]
    pub fn assert_accessible(&mut self) {
        let answer = self.step(json!({ "do": "axe" }));
        assert_eq!(answer["violations"], json!({ "light": [], "dark": [] }));
    }

    /// Writes a screenshot of the page below cargo's output and gives its path.
    #[track_caller]
    pub fn shot(&mut self, name: &str) -> PathBuf {
        let path = crate::player::shots().join(format!("dashboard-{name}.png"));
        let _ = self.step(json!({ "do": "shot", "path": path, "whole": true }));
        println!("screenshot: {}", path.display());
        path
    }

    /// Makes the window as large, in pixels, and expects that the page is not wider.
    ///
    /// # Panics
    /// When it is.
    #[track_caller]
    pub fn resize(&mut self, (width, height): (u32, u32)) {
        let answer = self.step(json!({ "do": "size", "width": width, "height": height }));
        assert_eq!(answer["overflow"], 0, "pixels beyond {width}");
    }

    /// Presses a key, such as `Enter`.
    #[track_caller]
    pub fn press(&mut self, key: &str) {
        let _ = self.step(json!({ "do": "press", "keys": [key] }));
    }

    /// Types into the control that has the focus.
    #[track_caller]
    pub fn type_text(&mut self, typed: &str) {
        let _ = self.step(json!({ "do": "type", "text": typed }));
    }

    /// Presses Tab until the control with these fields of a step (`role` and `name`, or `label`) has the focus; gives how often.
    ///
    /// # Panics
    /// When it does not get the focus, or when the focus was not to be seen on the way.
    #[track_caller]
    pub fn tab_to(&mut self, mut control: Value) -> u64 {
        control["do"] = json!("tab");
        let answer = self.step(control);
        assert_eq!(answer["unseen"], json!([]), "{answer}");
        answer["presses"].as_u64().expect("a number of presses")
    }

    /// Waits until the control with these fields of a step has the focus.
    #[track_caller]
    pub fn see_focus(&mut self, mut control: Value) {
        control["do"] = json!("focused");
        let _ = self.step(control);
    }

    /// Does any step of `player/dashboard.mjs` and gives its answer.
    ///
    /// # Panics
    /// When it fails, with what the page shows.
    #[track_caller]
    pub fn step(&mut self, step: Value) -> Value {
        self.page.step(&step.to_string())
    }

    /// Ends it. The pages must not have complained, asked other hosts, or had a secret in an address.
    ///
    /// # Panics
    /// When they did.
    #[track_caller]
    pub fn finish(mut self) {
        let state = self.step(json!({ "do": "state" }));
        assert_eq!(state["complaints"], json!([]), "{state}");
        assert_eq!(state["foreign"], json!([]), "{state}");
        assert_eq!(state["secretIn"], json!([]), "{state}");
        self.page.finish();
    }
}
