//! The command line as it is typed, and what commands do to a data folder.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{CommandFactory as _, Parser as _};

use super::*;
use crate::boot::{BootError, Host};
use satcast_core::clock::Clock;
use satcast_core::ids::{Msat, UnixMillis};
use satcast_core::secret::new_stream_key;
use satcast_store::{Actor, Caps, NewDestination, NewStream};
use satcast_web::auth::password::PASSWORD_BYTES_MAX;

fn parse(line: &str) -> Cli {
    Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_command_of_the_operators_interface_is_understood() {
    Cli::command().debug_assert();
    for line in [
        "satcast",
        "satcast run --config x.toml --data-dir d",
        "satcast --config x.toml run",
        "satcast check-config --log-format json",
        "satcast config",
        "satcast doctor",
        "satcast openapi",
        "satcast drivers",
        "satcast ledger check",
        "satcast migrate",
        "satcast migrate --to postgres://me@db/satcast",
        "satcast backup",
        "satcast backup copy.db",
        "satcast account create me --password-stdin --operator",
        "satcast account credit me 5000",
        "satcast key create --account me --type permanent",
        "satcast key create --account me --type public --destination 7",
        "satcast driver-probe x.so",
    ] {
        parse(line);
    }
    assert!(parse("satcast").command.is_none());
    for line in ["satcast fly", "satcast key create", "satcast account credit me much", "satcast --nonsense"]
    {
        let error = Cli::try_parse_from(line.split_whitespace()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn help_fits_one_screen_and_hides_internal_commands_in_its_text() {
    let help = Cli::command().render_help().to_string();
    assert!(help.lines().count() <= 40, "{help}");
    assert!(!help.contains("driver-probe") && help.contains("satcast account create"));
}

#[test]
fn printed_commands_can_be_pasted_into_a_shell() {
    assert_eq!(quoted("target/debug/satcast"), "target/debug/satcast");
    assert_eq!(quoted("it's here"), r"'it'\''s here'");
    assert_eq!(quoted(""), "''");
    let cli = parse("satcast --data-dir /srv/x");
    assert!(cli.command_prefix().ends_with(" --data-dir /srv/x"));
}

#[test]
fn passwords_lose_their_line_end_and_nothing_else() {
    let read = |bytes: &[u8]| accounts::read_password_from(bytes).map(Redacted::into_inner);
    assert_eq!(read(b" correct horse \r\n").unwrap(), " correct horse ");
    assert_eq!(read(b"correct horse").unwrap(), "correct horse");
    assert!(read(b"\xff\xfe").is_err());
    let long = vec![b'x'; PASSWORD_BYTES_MAX + 500];
    assert!(read(&long).unwrap().len() > PASSWORD_BYTES_MAX, "refused later, not cut to a valid one");
}

use satcast_core::secret::Redacted;

/// A configuration whose data folder is inside `folder`.
fn config(folder: &Path, toml: &str) -> Config {
    let file = folder.join("satcast.toml");
    std::fs::write(&file, toml).unwrap();
    let flags = Flags { data_dir: Some(folder.join("data")), log_format: None };
    Config::load(Some(&file), [], &flags).unwrap().config
}

#[tokio::test]
async fn accounts_credit_and_keys_are_made_from_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "");
    let password = Some(Redacted::new("correct horse".to_owned()));
    accounts::create(&config, " me ", password, true).await.unwrap();
    assert!(matches!(accounts::create(&config, "me", None, false).await, Err(CliError::Failed(_))));
    accounts::credit(&config, "me", 5_000).await.unwrap();
    accounts::create_key(&config, "me", KeyKind::Permanent, None, "").await.unwrap();
    let store = open_store(&config).await.unwrap();
    let account = store.account_by_name("me").await.unwrap().unwrap();
    assert!(account.operator && account.password_hash.is_some());
    assert_eq!(store.balance(account.id).await.unwrap(), Msat(15_000_000));
    maintenance::check_ledger(&config).await.unwrap();
    maintenance::migrate(&config).await.unwrap();
    maintenance::backup(&config, None).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("data/backups")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_copy_needs_a_server_without_a_password_and_a_stopped_service_on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), "");
    for to in ["sqlite:copy.db", "postgres://me:hunter2@127.0.0.1:1/s", "nonsense"] {
        let refused = copy::run(&file, to).await.unwrap_err();
        assert!(matches!(&refused, CliError::Usage(text) if !text.contains("hunter2")), "{refused}");
    }
    let to = "postgres://me@127.0.0.1:1/s";
    assert!(matches!(copy::run(&file, to).await, Err(CliError::Failed(_))));
    assert!(!file.data_dir.exists(), "there is no database, and none is made");
    let server = config(folder.path(), "[database]\nurl = \"postgres://me@127.0.0.1:1/s\"\n");
    assert!(matches!(copy::run(&server, to).await, Err(CliError::Usage(_))));
    accounts::create(&file, "me", None, false).await.unwrap();
    let held = data_dir::lock(&file.data_dir).unwrap();
    let running = copy::run(&file, to).await.unwrap_err().to_string();
    assert_eq!(running, data_dir::DataDirError::Locked(file.data_dir.clone()).to_string());
    drop(held);
    std::fs::remove_file(file.key_file()).unwrap();
    let lost = copy::run(&file, to).await.unwrap_err().to_string();
    assert_eq!(lost, satcast_core::secret::VaultError::Missing(file.key_file()).to_string());
}

#[tokio::test]
async fn initial_credit_is_given_only_where_credit_pays() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, credit) in [("credit", 10_000_000), ("wallet", 0), ("off", 0)] {
        let config = config(
            folder.path(),
            &format!(
                "[wallet]\ntype = \"lnbits\"\nurl = \"https://ln.example\"\nsecret = \"x\"\n[billing]\nmode = \"{mode}\""
            ),
        );
        assert_eq!(config.initial_credit(), Msat(credit), "{mode}");
    }
}

#[tokio::test]
async fn check_config_reads_the_wallet_as_run_does() {
    let folder = tempfile::tempdir().unwrap();
    let check = async |url: &str| {
        let toml = format!("[wallet]\ntype = \"nwc\"\nurl = \"{url}\"\n");
        let loaded = Loaded { config: config(folder.path(), &toml), file: None, keys_set: 2 };
        maintenance::check_config(&loaded).await
    };
    let refused = check("nostr+walletconnect://nope?secret=S").await.unwrap_err();
    assert!(matches!(&refused, CliError::Usage(text) if text.contains("[wallet] `url`")), "{refused:?}");
    let (wallet, secret) =
        ("79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798", "01".repeat(32));
    check(&format!("nostr+walletconnect://{wallet}?relay=wss%3A%2F%2Frelay.example&secret={secret}"))
        .await
        .unwrap();
}

#[tokio::test]
async fn wrong_arguments_are_usage_errors_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "");
    let usage =
        |result: Result<(), CliError>| assert!(matches!(result, Err(CliError::Usage(_))), "{result:?}");
    usage(accounts::create(&config, "", None, false).await);
    usage(accounts::create(&config, &"x".repeat(129), None, false).await);
    usage(accounts::create(&config, "a\nb", None, false).await);
    usage(accounts::create(&config, "me", Some(Redacted::new("short".to_owned())), false).await);
    usage(accounts::create_key(&config, "me", KeyKind::Public, None, "").await);
    usage(accounts::create_key(&config, "me", KeyKind::Permanent, Some(1), "").await);
    usage(accounts::create_key(&config, "me", KeyKind::Permanent, None, &"x".repeat(129)).await);
    assert!(!config.data_dir.exists());
    accounts::create(&config, "me", None, false).await.unwrap();
    usage(accounts::credit(&config, "me", 0).await);
    usage(accounts::credit(&config, "me", -5).await);
    assert!(matches!(accounts::credit(&config, "you", 5).await, Err(CliError::Failed(_))));
    let missing = accounts::create_key(&config, "me", KeyKind::Public, Some(99), "").await;
    assert!(matches!(missing, Err(CliError::Failed(text)) if text == "no such destination"));
}

#[tokio::test]
async fn public_keys_are_made_for_self_hosted_destinations_only() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "");
    accounts::create(&config, "me", None, false).await.unwrap();
    let store = open_store(&config).await.unwrap();
    let destination = |kind: &str, has_playback| NewDestination {
        kind: kind.to_owned(),
        platform: kind.to_owned(),
        config: serde_json::json!({}),
        has_playback,
        delays: Default::default(),
    };
    let owner = Actor::command(store.account_by_name("me").await.unwrap().unwrap().id, UnixMillis(1));
    let stream = NewStream {
        srt_passphrase: None,
        allowed: Default::default(),
        label: "x".to_owned(),
        stream_key: new_stream_key(),
        destinations: vec![destination("rtmp", false), destination("self-hosted", true)],
        caps: Caps { destinations_per_stream: 2, streams_per_account: 1, keys_per_account: 1 },
    };
    let (_, ids) = store.create_stream(&owner, stream).await.unwrap();
    store.close().await;
    let refused = accounts::create_key(&config, "me", KeyKind::Public, Some(ids[0].0), "").await.unwrap_err();
    let text =
        format!("destination {} has no playback; public keys belong to destinations with playback", ids[0]);
    assert!(matches!(&refused, CliError::Failed(said) if *said == text), "{refused}");
    accounts::create_key(&config, "me", KeyKind::Public, Some(ids[1].0), "").await.unwrap();
}

#[tokio::test]
async fn commands_work_beside_a_running_service_and_never_make_a_database_to_check() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "");
    assert!(matches!(maintenance::check_ledger(&config).await, Err(CliError::Failed(_))));
    assert!(matches!(maintenance::backup(&config, None).await, Err(CliError::Failed(_))));
    assert!(!config.data_dir.exists());
    let running = open_store(&config).await.unwrap();
    let _lock = data_dir::lock(&config.data_dir).unwrap();
    accounts::create(&config, "me", None, false).await.unwrap();
    assert_eq!(running.count_accounts().await.unwrap(), 1, "seen at once");
    maintenance::backup(&config, Some(&folder.path().join("copy.db"))).await.unwrap();
}

/// Names and contents of every file below the folder.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut contents(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// A configuration with ports that are free and no drivers.
fn doctors_patient(folder: &Path) -> Loaded {
    let ports = "[http]\nlisten = \"127.0.0.1:0\"\n[ingest]\nrtmp_listen = \"127.0.0.1:0\"\n";
    let drivers = format!("[drivers]\ndir = {:?}\n", folder.join("drivers"));
    Loaded { config: config(folder, &format!("{ports}{drivers}")), file: None, keys_set: 0 }
}

#[tokio::test]
async fn the_doctor_creates_nothing_and_finds_faults() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let loaded = doctors_patient(folder.path());
    let config = loaded.config.clone();
    doctor::run(&loaded).await.unwrap();
    assert!(!config.data_dir.exists());
    accounts::create(&config, "me", None, false).await.unwrap();
    doctor::run(&loaded).await.unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for (path, bad, good) in [(config.key_file(), 0o644, 0o600), (config.data_dir.clone(), 0o777, 0o700)] {
        mode(&path, bad);
        assert!(matches!(doctor::run(&loaded).await, Err(CliError::Printed)), "{path:?}");
        mode(&path, good);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut busy = loaded.clone();
    busy.config.http.listen = taken.local_addr().unwrap();
    assert!(matches!(doctor::run(&busy).await, Err(CliError::Printed)));
}

#[tokio::test]
async fn the_doctor_tells_of_a_certificate_that_is_ordered() {
    let folder = tempfile::tempdir().unwrap();
    let mut loaded = doctors_patient(folder.path());
    let toml = std::fs::read_to_string(folder.path().join("satcast.toml")).unwrap();
    loaded.config = config(folder.path(), &format!("{toml}[acme]\ndomains = [\"a.example\"]\n"));
    // Nothing was ordered yet: before the first run, and with the certificate of that time.
    doctor::run(&loaded).await.unwrap();
    maintenance::check_config(&loaded).await.unwrap();
    satcast_net::acme::Acme::prepare(&loaded.config, &Clock::system()).unwrap();
    doctor::run(&loaded).await.unwrap();
    let wanted = format!("a.example at {}", loaded.config.acme.directory);
    let failed = format!(r#"{{"wanted":"{wanted}","failures":1,"next_at_ms":0,"reason":"no"}}"#);
    std::fs::write(loaded.config.acme_folder().join("failed.json"), failed).unwrap();
    assert!(matches!(doctor::run(&loaded).await, Err(CliError::Printed)));
}

#[tokio::test]
async fn commands_that_look_change_no_file_and_make_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = doctors_patient(folder.path());
    let config = &loaded.config;
    accounts::create(config, "me", None, false).await.unwrap();
    std::fs::remove_file(config.key_file()).unwrap();
    let before = contents(folder.path());
    let same = |what: &str| {
        // SQLite's own files beside the database hold nothing; they come and go with its readers.
        let mut now = contents(folder.path());
        now.retain(|path, _| {
            !path.to_string_lossy().ends_with("-wal") && !path.to_string_lossy().ends_with("-shm")
        });
        assert!(now == before, "{what}: {:?} became {:?}", before.keys(), now.keys());
    };
    assert!(matches!(doctor::run(&loaded).await, Err(CliError::Printed)), "the key is missing");
    same("doctor");
    maintenance::check_ledger(config).await.unwrap();
    same("ledger check");
    let copy = folder.path().join("copy.db");
    maintenance::backup(config, Some(&copy)).await.unwrap();
    std::fs::remove_file(copy).unwrap();
    same("backup");
}

#[tokio::test]
async fn the_doctor_finds_that_the_key_of_stored_secrets_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = doctors_patient(folder.path());
    accounts::create(&loaded.config, "me", None, false).await.unwrap();
    let store = open_store(&loaded.config).await.unwrap();
    let owner = Actor::command(store.account_by_name("me").await.unwrap().unwrap().id, UnixMillis(1));
    let stream = NewStream {
        srt_passphrase: None,
        allowed: Default::default(),
        label: "x".to_owned(),
        stream_key: new_stream_key(),
        destinations: Vec::new(),
        caps: Caps { destinations_per_stream: 1, streams_per_account: 1, keys_per_account: 1 },
    };
    store.create_stream(&owner, stream).await.unwrap();
    store.close().await;
    doctor::run(&loaded).await.unwrap();
    std::fs::remove_file(loaded.config.key_file()).unwrap();
    assert!(matches!(doctor::run(&loaded).await, Err(CliError::Printed)));
    assert!(!loaded.config.key_file().exists());
}

#[tokio::test]
async fn a_second_service_on_one_database_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let first = doctors_patient(folder.path());
    let mut second = first.clone();
    second.config.data_dir = folder.path().join("other");
    second.config.database.url = Some(first.config.database_url());
    let start = |loaded| {
        Host::start(loaded, "satcast".to_owned(), std::env::current_exe().unwrap(), Default::default())
    };
    let running = start(first).await.unwrap();
    let refused = start(second).await.err().expect("the database is in use");
    assert!(matches!(refused, BootError::DataDir(data_dir::DataDirError::DatabaseLocked(_))), "{refused}");
    drop(running);
}

#[test]
fn exit_codes_tell_configuration_from_failure() {
    let code = |result| format!("{:?}", exit(result));
    assert_eq!(code(Ok(())), format!("{:?}", ExitCode::SUCCESS));
    assert_eq!(code(Err(CliError::Usage("a".into()))), format!("{:?}", ExitCode::from(2)));
    assert_eq!(code(Err(CliError::Failed("a".into()))), format!("{:?}", ExitCode::from(1)));
    assert_eq!(code(Err(CliError::Printed)), format!("{:?}", ExitCode::from(1)));
}
