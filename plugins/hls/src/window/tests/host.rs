//! A fake host that checks the invariant: no playlist names an asset that is not published.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use satcast_media::playlist::GAP_NAME;
use satcast_plugin_api::{Asset, AssetBody, Audience, Error, Followed, Playback};
use serde_json::Value;

use crate::host::Host;
use crate::window::{DELTA, ENTRY, MEDIA, PREVIEW_ENTRY, PREVIEW_MEDIA};

pub(super) struct Published {
    pub(super) content_type: String,
    pub(super) audience: Audience,
    pub(super) body: AssetBody,
    pub(super) times: u32,
    pub(super) max_age_secs: u32,
}

/// The last reported playback state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) preview: Option<String>,
    pub(super) first_ms: i64,
    pub(super) window_ms: u64,
    pub(super) window_max_ms: u64,
    pub(super) fresh_ms: u32,
    pub(super) ended: bool,
}

/// How viewers wait, as last published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waited {
    pub(super) hold_back_ms: u32,
    /// Segment and part that come next.
    pub(super) next: Option<(u64, u32)>,
    pub(super) delta: Option<String>,
    pub(super) hint: Option<String>,
}

impl Waited {
    fn of(followed: &Followed) -> Self {
        let reload = followed.reload.as_ref();
        Waited {
            hold_back_ms: followed.hold_back_ms,
            next: reload.map(|reload| (reload.next_sequence, reload.next_part)),
            delta: reload.and_then(|reload| reload.delta.clone()),
            hint: reload.and_then(|reload| reload.hint.clone()),
        }
    }
}

#[derive(Default)]
pub(super) struct FakeHost {
    data: PathBuf,
    assets: RefCell<BTreeMap<String, Published>>,
    pub(super) reported: RefCell<Option<Reported>>,
    pub(super) followed: RefCell<Option<Waited>>,
    pub(super) events: RefCell<Vec<(String, Value)>>,
    counters: RefCell<BTreeMap<String, u64>>,
    /// Refuses new names that end in this.
    pub(super) refuses: Cell<Option<&'static str>>,
    /// Checks the playlists after every change.
    pub(super) checks: Cell<bool>,
    /// Refuses files.
    pub(super) refuses_files: Cell<bool>,
}

impl FakeHost {
    pub(super) fn new(data: &Path) -> Self {
        FakeHost { data: data.to_owned(), checks: Cell::new(true), ..FakeHost::default() }
    }

    pub(super) fn with<R>(&self, name: &str, look: impl FnOnce(&Published) -> R) -> R {
        let assets = self.assets.borrow();
        look(assets.get(name).unwrap_or_else(|| panic!("{name} is not published")))
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        self.with(name, |published| match &published.body {
            AssetBody::Memory(bytes) => bytes.to_vec(),
            AssetBody::File { path, offset, len, .. } => {
                let bytes = std::fs::read(self.data.join(path)).unwrap();
                bytes[*offset as usize..(*offset + *len) as usize].to_vec()
            }
            AssetBody::Parts(parts) => parts.iter().flat_map(|part| self.bytes(part)).collect(),
            AssetBody::Open { .. } => panic!("{name} is an open file"),
        })
    }

    pub(super) fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.assets.borrow().keys().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.assets.borrow().len()
    }

    pub(super) fn is_file(&self, name: &str) -> bool {
        self.with(name, |published| matches!(published.body, AssetBody::File { .. }))
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.counters.borrow().get(name).copied().unwrap_or(0)
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.events.borrow().iter().map(|(name, _)| name.clone()).collect()
    }

    /// Bytes of the segments in memory.
    pub(super) fn segment_memory(&self) -> usize {
        let size = |(name, published): (&String, &Published)| match &published.body {
            AssetBody::Memory(bytes) if name.ends_with(".m4s") => bytes.len(),
            _ => 0,
        };
        self.assets.borrow().iter().map(size).sum()
    }

    /// Every playlist names only published assets, and at most a segment that it says is missing.
    pub(super) fn check(&self) {
        let assets = self.assets.borrow();
        for list in [ENTRY, DELTA, MEDIA, PREVIEW_ENTRY, PREVIEW_MEDIA] {
            let Some(Published { body: AssetBody::Memory(text), .. }) = assets.get(list) else { continue };
            let text = std::str::from_utf8(text).unwrap();
            for line in text.lines() {
                let map = line.strip_prefix("#EXT-X-MAP:URI=\"").and_then(|rest| rest.strip_suffix('"'));
                let part = line.strip_prefix("#EXT-X-PART:").and_then(|rest| rest.split('"').nth(1));
                let Some(name) = map.or(part).or((!line.starts_with('#')).then_some(line)) else { continue };
                if name == GAP_NAME && text.contains("#EXT-X-GAP\n") {
                    continue;
                }
                let published = assets.get(name).unwrap_or_else(|| panic!("{list} names {name}"));
                if let AssetBody::Parts(parts) = &published.body {
                    for part in parts {
                        assert!(assets.contains_key(part), "{list}: {name} needs {part}");
                    }
                }
            }
        }
    }
}

impl Host for FakeHost {
    fn publish(&self, asset: Asset) -> Result<(), Error> {
        let mut assets = self.assets.borrow_mut();
        let refuses = self.refuses.get().is_some_and(|end| asset.name.ends_with(end));
        let is_file = matches!(asset.body, AssetBody::File { .. });
        if (refuses && !assets.contains_key(&asset.name)) || (is_file && self.refuses_files.get()) {
            return Err(Error::internal("no space"));
        }
        let times = assets.get(&asset.name).map_or(0, |published| published.times) + 1;
        let max_age_secs = asset.max_age_secs;
        let (content_type, audience, body) = (asset.content_type, asset.audience, asset.body);
        let published = Published { content_type, audience, body, times, max_age_secs };
        if asset.name == MEDIA {
            *self.followed.borrow_mut() = Some(Waited::of(&asset.followed));
        }
        assets.insert(asset.name, published);
        drop(assets);
        if self.checks.get() {
            self.check();
        }
        Ok(())
    }

    fn retract(&self, name: &str) {
        self.assets.borrow_mut().remove(name);
        if self.checks.get() {
            self.check();
        }
    }

    fn playback(&self, playback: &Playback) -> Result<(), Error> {
        assert_eq!(playback.entry, ENTRY);
        *self.reported.borrow_mut() = Some(Reported {
            preview: playback.preview.clone(),
            first_ms: playback.first_ms,
            window_ms: playback.window_ms,
            window_max_ms: playback.window_max_ms,
            fresh_ms: playback.fresh_ms,
            ended: playback.ended,
        });
        Ok(())
    }

    fn event(&self, name: &str, data: &Value) {
        self.events.borrow_mut().push((name.to_owned(), data.clone()));
    }

    fn count(&self, name: &str, more: u64) {
        *self.counters.borrow_mut().entry(name.to_owned()).or_default() += more;
    }
}
