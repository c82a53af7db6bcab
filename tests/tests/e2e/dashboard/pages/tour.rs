//! The screenshots of `docs/dashboard.md`, which `cargo xtask tour` writes.

use std::path::Path;
use std::time::Duration;

use satcast_tests::author::root;
use satcast_tests::dashboard::Dashboard;
use satcast_tests::wait::until;
use serde_json::json;

use super::filled::Filled;

/// Folder of the screenshots, as the document names it.
pub(super) const FOLDER_NAME: &str = "dashboard/";
const THEMES: [&str; 2] = ["light", "dark"];
/// Names and paths of the pages.
pub(super) const PAGES: [(&str, &str); 14] = [
    ("setup", "/setup"),
    ("login", "/login"),
    ("streams", "/"),
    ("stream", "/streams/:id"),
    ("recordings", "/recordings"),
    ("clips", "/clips"),
    ("analytics", "/analytics"),
    ("wallet", "/wallet"),
    ("webhooks", "/webhooks"),
    ("webhook", "/webhooks/:id"),
    ("keys", "/keys"),
    ("drivers", "/drivers"),
    ("accounts", "/accounts"),
    ("settings", "/settings"),
];
/// Pages that are also shown on a telephone.
const SMALL: [&str; 3] = ["streams", "stream", "wallet"];
/// Pages with a frame of a stream, recording or clip.
const WITH_FRAME: [&str; 4] = ["streams", "stream", "recordings", "clips"];

const WIDE: (u32, u32) = (1280, 800);
const NARROW: (u32, u32) = (360, 740);
/// The document is to open fast also on a slow line.
const FILE_BYTES_MAX: u64 = 60_000;
/// Time in which the charts of the stream get some values: the page reads one every five seconds.
const CHARTED: Duration = Duration::from_secs(30);

/// Names of all files.
pub(super) fn files() -> Vec<String> {
    let wide = PAGES.iter().flat_map(|(name, _)| THEMES.map(|theme| wide_file(name, theme)));
    wide.chain(SMALL.map(narrow_file)).collect()
}

fn wide_file(name: &str, theme: &str) -> String {
    format!("{name}-{theme}.webp")
}

fn narrow_file(name: &str) -> String {
    format!("{name}-small.webp")
}

/// Fills a service and writes the screenshots of all its pages.
pub(super) fn write() {
    let folder = root().join("docs").join(FOLDER_NAME);
    std::fs::create_dir_all(&folder).expect("a folder for the screenshots");
    let (filled, mut page) = Filled::start();
    for (name, path) in PAGES {
        open(&mut page, &filled, name, path);
        if name == "stream" {
            std::thread::sleep(CHARTED);
        }
        for theme in THEMES {
            let _ = page.step(json!({ "do": "theme", "name": theme }));
            shoot(&mut page, &folder.join(wide_file(name, theme)));
        }
        let _ = page.step(json!({ "do": "theme", "name": "light" }));
        if SMALL.contains(&name) {
            page.resize(NARROW);
            shoot(&mut page, &folder.join(narrow_file(name)));
            page.resize(WIDE);
        }
    }
    page.finish();
}

fn open(page: &mut Dashboard, filled: &Filled, name: &str, path: &str) {
    // The page of the link shows no part of it. An account that exists has its own link, so this one is for another account.
    let address = match name {
        "setup" => filled.service.run(&["account", "invite"]).trim().to_owned(),
        _ => filled.address(path),
    };
    page.open(&address);
    if WITH_FRAME.contains(&name) {
        until("a frame", || {
            let video = page.step(json!({ "do": "video", "css": ".poster" }));
            if video["width"].as_u64() > Some(0) { Ok(()) } else { Err(video.to_string()) }
        });
    }
}

fn shoot(page: &mut Dashboard, path: &Path) {
    let _ = page.step(json!({ "do": "shot", "path": path }));
    let bytes = std::fs::metadata(path).expect("the screenshot").len();
    println!("{} has {bytes} bytes", path.display());
    assert!(bytes <= FILE_BYTES_MAX, "{} has {bytes} bytes", path.display());
}
