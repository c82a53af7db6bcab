//! `satcast drivers`, and the drivers as other commands look at them: loaded as the service would, with the operator's settings.

use std::fmt::Write as _;
use std::path::Path;

use super::{CliError, print};
use crate::data_dir;
use satcast_core::clock::Clock;
use satcast_core::config::Config;
use satcast_core::secret::new_uid;
use satcast_drivers::{Drivers, HostParts, LoadOptions, State, Summary};
use satcast_net::outbound::Guard;

/// Lists the drivers; fails when an enabled driver is refused.
pub(super) async fn list(config: &Config) -> Result<(), CliError> {
    let summaries = with(config, |drivers| drivers.summaries()).await?;
    let mut text = format!("folder {}\n", config.drivers_dir().display());
    for summary in &summaries {
        let state = match &summary.state {
            State::Loaded => format!("loaded    {} serves {}", summary.version, summary.types.join(", ")),
            State::Failing(reason) => format!("failing   {reason}"),
            State::Disabled => "disabled  not in [drivers] enabled".to_owned(),
            State::Missing => "missing   enabled, but the file is missing".to_owned(),
            State::Refused(reason) => format!("refused   {reason}"),
        };
        let refused = summary.refused.iter().map(|why| format!("; {why}")).collect::<String>();
        let _ = writeln!(text, "{:<16} {state}{refused}", summary.id);
    }
    print(&text)?;
    if enabled(config, &summaries).any(|summary| refusal(summary).is_some()) {
        return Err(CliError::Printed);
    }
    Ok(())
}

/// Lets the enabled drivers check their settings. Returns notes about unchecked ones.
pub(super) async fn check(config: &Config) -> Result<Vec<String>, CliError> {
    if config.drivers.enabled.is_empty() {
        return Ok(Vec::new());
    }
    let summaries = with(config, |drivers| drivers.summaries()).await?;
    judge(config, &summaries)
}

fn judge(config: &Config, summaries: &[Summary]) -> Result<Vec<String>, CliError> {
    let folder = config.drivers_dir();
    if !folder.exists() {
        return Ok(vec![unchecked(&format!("there is no drivers folder {}", folder.display()))]);
    }
    // When the folder is unusable, all drivers have the same error, which says nothing about their settings.
    let unused = enabled(config, summaries).find_map(|summary| match (&summary.state, &summary.file) {
        (State::Refused(reason), None) => Some(reason),
        _ => None,
    });
    if let Some(reason) = unused {
        return Ok(vec![unchecked(reason)]);
    }
    let refused: Vec<String> = enabled(config, summaries).filter_map(refusal).collect();
    if !refused.is_empty() {
        return Err(CliError::Usage(format!("driver {}", refused.join("; driver "))));
    }
    let missing = enabled(config, summaries).filter(|summary| summary.state == State::Missing);
    Ok(missing.map(|summary| without_file(&summary.id, &folder)).collect())
}

fn unchecked(reason: &str) -> String {
    format!("settings of drivers were not checked: {reason}")
}

fn without_file(id: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!("driver {id} is enabled, but there is no {id}.so in {folder}; its settings were not checked")
}

fn enabled<'a>(config: &'a Config, summaries: &'a [Summary]) -> impl Iterator<Item = &'a Summary> {
    summaries.iter().filter(|summary| config.drivers.enabled.contains(&summary.id))
}

/// The driver's name and why it does not serve completely; `None` when it does.
pub(super) fn refusal(summary: &Summary) -> Option<String> {
    let reason = match &summary.state {
        State::Refused(reason) | State::Failing(reason) => Some(reason),
        State::Loaded | State::Disabled | State::Missing => summary.refused.as_ref(),
    };
    Some(format!("{}: {}", summary.id, reason?))
}

/// Loads the drivers as the service would, in this process and from a folder of its own, and looks at them.
pub(super) async fn with<T: Send + 'static>(
    config: &Config,
    look: impl FnOnce(&Drivers) -> T + Send + 'static,
) -> Result<T, CliError> {
    let guard = Guard::new(&Config::allow_texts(&config.outbound.allow))
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let scratch = std::env::temp_dir().join(format!("satcast-drivers-{}", new_uid()));
    data_dir::prepare(&scratch)?;
    let parts = HostParts {
        guard,
        runtime: tokio::runtime::Handle::current(),
        clock: Clock::system(),
        data_dir: scratch.join("data"),
        recordings: Default::default(),
    };
    let exe = std::env::current_exe()?;
    let (config, images) = (config.clone(), scratch.join("images"));
    let loading = tokio::task::spawn_blocking(move || {
        look(&Drivers::load(&LoadOptions { config: &config, exe, images }, &parts))
    });
    let seen = loading.await.map_err(|error| CliError::Failed(error.to_string()));
    std::fs::remove_dir_all(&scratch)?;
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::config::Flags;

    fn config(folder: &Path) -> Config {
        let file = folder.with_extension("toml");
        std::fs::write(&file, "").unwrap();
        let mut config = Config::load(Some(&file), [], &Flags::default()).unwrap().config;
        std::fs::remove_file(&file).unwrap();
        config.drivers.dir = Some(folder.to_owned());
        config.drivers.enabled = vec!["good".into(), "evil-t".into()];
        config
    }

    fn summary(id: &str, has_file: bool, state: State) -> Summary {
        let file = has_file.then(|| format!("{id}.so").into());
        let (version, types) = (String::new(), Vec::new());
        let (refused, isolation, crashes, set_aside) = (None, None, 0, Vec::new());
        Summary { id: id.into(), file, version, types, state, refused, isolation, crashes, set_aside }
    }

    #[test]
    fn settings_that_a_driver_refuses_are_a_wrong_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let good = || summary("good", true, State::Loaded);
        let refused = |why: &str| State::Refused(why.to_owned());
        let why = "its setting nosuch in [driver.evil-t] is refused: is not known";
        let error = judge(&config, &[good(), summary("evil-t", true, refused(why))]).unwrap_err();
        assert!(
            matches!(&error, CliError::Usage(text) if *text == format!("driver evil-t: {why}")),
            "{error}"
        );
        // One that is not used may be whatever it is.
        let idle = summary("idle", true, refused("is no regular file"));
        assert!(judge(&config, &[good(), summary("evil-t", true, State::Loaded), idle]).unwrap().is_empty());
        let unchecked = judge(&config, &[good(), summary("evil-t", false, State::Missing)]).unwrap();
        assert_eq!(unchecked, [without_file("evil-t", folder.path())]);
    }

    #[test]
    fn an_unreadable_folder_is_reported_and_is_not_an_error_of_the_settings() {
        let folder = tempfile::tempdir().unwrap();
        let config_of = |folder: &Path| config(folder);
        let unused =
            |id: &str| summary(id, false, State::Refused("the drivers folder /x is not used".into()));
        let said = judge(&config_of(folder.path()), &[unused("evil-t"), unused("good")]).unwrap();
        assert_eq!(said, [unchecked("the drivers folder /x is not used")]);
        let absent = folder.path().join("absent");
        let said = judge(&config_of(&absent), &[summary("good", false, State::Missing)]).unwrap();
        assert!(said.len() == 1 && said[0].contains(&absent.display().to_string()), "{said:?}");
    }

    #[test]
    fn unchecked_settings_texts() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        assert_eq!(
            judge(&config(&absent), &[]).unwrap(),
            [format!(
                "settings of drivers were not checked: there is no drivers folder {}",
                absent.display()
            )]
        );
        assert_eq!(
            without_file("x", Path::new("/drivers")),
            "driver x is enabled, but there is no x.so in /drivers; its settings were not checked"
        );
    }

    #[tokio::test]
    async fn an_enabled_but_refused_driver_fails_list_and_check() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("evil-t.so");
        std::fs::write(&library, "no library").unwrap();
        // Refused for its mode, before anything of it would run.
        std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o666)).unwrap();
        let mut config = config(folder.path());
        assert!(matches!(list(&config).await, Err(CliError::Printed)));
        let error = check(&config).await.unwrap_err();
        assert!(matches!(&error, CliError::Usage(text) if text.contains("evil-t: ")), "{error}");
        config.drivers.enabled = vec!["good".into()];
        list(&config).await.unwrap();
        assert_eq!(check(&config).await.unwrap().len(), 1, "there is no good.so");
        config.drivers.enabled.clear();
        assert!(check(&config).await.unwrap().is_empty());
    }
}
