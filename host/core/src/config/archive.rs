//! `[archive]` as settings for the drivers that request them: operators configure the store once, separately from the table of the driver.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Config, DriverSettings};

/// Name of the table in requests of drivers.
pub const ARCHIVE_TABLE: &str = "archive";

impl Config {
    /// The settings of `[driver.<id>]`, with those of `[archive]`.
    pub fn driver_settings(&self, id: &str) -> DriverSettings {
        let settings = self.driver.get(id).cloned().unwrap_or_default();
        DriverSettings { archive: self.archive_settings(), ..settings }
    }

    /// The keys set in `[archive]`; unset keys are absent.
    fn archive_settings(&self) -> BTreeMap<String, Value> {
        let archive = &self.archive;
        let text = |text: Option<&String>| text.map(|text| json!(text));
        let given = [
            ("endpoint", archive.endpoint.as_ref().map(|url| json!(url.as_str()))),
            ("region", text(archive.region.as_ref())),
            ("bucket", text(archive.bucket.as_ref())),
            ("access_key", text(archive.access_key.as_ref().map(|key| key.expose()))),
            ("secret_key", text(archive.secret_key.as_ref().map(|key| key.expose()))),
            ("prefix", text(Some(&archive.prefix).filter(|prefix| !prefix.is_empty()))),
            ("force_path_style", (!archive.force_path_style).then_some(Value::Bool(false))),
        ];
        given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Flags};
    use serde_json::json;

    #[test]
    fn driver_settings_include_the_configured_archive_store() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("satcast.toml");
        let read = |toml: &str| {
            std::fs::write(&file, toml).unwrap();
            Config::load(Some(&file), [], &Flags::default()).unwrap().config
        };
        assert_eq!(
            read("").driver_settings("archive"),
            Default::default(),
            "without settings the driver gets none"
        );
        let config = read(
            "[archive]\nendpoint = \"https://s3.example.com\"\nregion = \"r\"\nbucket = \"b\"\naccess_key = \"a\"\n\
             secret_key = \"s\"\nprefix = \"p\"\nforce_path_style = false\n\
             [driver.archive]\nisolation = \"thread\"\nregion = \"own\"\nquota = 5",
        );
        let settings = config.driver_settings("archive");
        assert_eq!(
            json!(settings.archive),
            json!({"endpoint": "https://s3.example.com/", "region": "r", "bucket": "b", "access_key": "a",
                   "secret_key": "s", "prefix": "p", "force_path_style": false})
        );
        assert_eq!(json!(settings.settings), json!({"region": "own", "quota": 5}));
        assert!(settings.isolation.is_some());
    }
}
