//! `[archive]` as the settings of the driver that records: operators set the store once, beside the driver's own table.

use serde_json::{Value, json};

use super::{Config, DriverSettings};

/// The driver that `[archive]` is for.
const ARCHIVE_DRIVER: &str = "archive";

impl Config {
    /// `[driver.<id>]`, for the driver that records together with `[archive]`. Where both set a key, the driver's own table wins.
    pub fn driver_settings(&self, id: &str) -> DriverSettings {
        let mut settings = self.driver.get(id).cloned().unwrap_or_default();
        if id == ARCHIVE_DRIVER {
            for (key, value) in self.archive_settings() {
                settings.settings.entry(key.to_owned()).or_insert(value);
            }
        }
        settings
    }

    /// What `[archive]` sets, under the names that a destination's configuration has; what is left out is not named.
    fn archive_settings(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let archive = &self.archive;
        let text = |text: Option<&String>| text.map(|text| json!(text));
        let given = [
            ("endpoint", archive.endpoint.as_ref().map(|url| json!(url.as_str()))),
            ("region", text(archive.region.as_ref())),
            ("bucket", text(archive.bucket.as_ref())),
            ("accessKey", text(archive.access_key.as_ref().map(|key| key.expose()))),
            ("secretKey", text(archive.secret_key.as_ref().map(|key| key.expose()))),
            ("prefix", text(Some(&archive.prefix).filter(|prefix| !prefix.is_empty()))),
            ("forcePathStyle", (!archive.force_path_style).then_some(Value::Bool(false))),
        ];
        given.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Flags};
    use serde_json::json;

    #[test]
    fn the_operators_store_reaches_the_driver_that_records_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("satcast.toml");
        let read = |toml: &str| {
            std::fs::write(&file, toml).unwrap();
            Config::load(Some(&file), [], &Flags::default()).unwrap().config
        };
        assert_eq!(read("").driver_settings("archive"), Default::default(), "nothing set is nothing told");
        let config = read(
            "[archive]\nendpoint = \"https://s3.example.com\"\nregion = \"r\"\nbucket = \"b\"\naccess_key = \"a\"\n\
             secret_key = \"s\"\nprefix = \"p\"\nforce_path_style = false\n\
             [driver.archive]\nisolation = \"thread\"\nregion = \"own\"\nquota = 5",
        );
        let told = config.driver_settings("archive");
        assert_eq!(
            json!(told.settings),
            json!({"endpoint": "https://s3.example.com/", "region": "own", "bucket": "b", "accessKey": "a",
                   "secretKey": "s", "prefix": "p", "forcePathStyle": false, "quota": 5})
        );
        assert!(told.isolation.is_some());
        assert!(config.driver_settings("hls").settings.is_empty());
    }
}
