//! Loading: layers, places of errors, every range.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;

fn from(toml: &str, env: &[(&str, &str)]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("satcast.toml");
    std::fs::write(&file, toml).unwrap();
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let loaded = Config::load(Some(&file), env, &Flags::default());
    let shown = file.display().to_string();
    loaded.map(|loaded| loaded.config).map_err(|error| error.to_string().replace(&shown, "satcast.toml"))
}

fn error(toml: &str) -> String {
    from(toml, &[]).unwrap_err()
}

fn env_error(name: &str, value: &str) -> String {
    from("", &[(name, value)]).unwrap_err()
}

#[test]
fn the_printed_file_is_the_default_and_stays_short() {
    let printed = from(DEFAULT_TOML, &[]).unwrap();
    let default = from("", &[]).unwrap();
    assert_eq!(format!("{printed:?}"), format!("{default:?}"));
    assert!(DEFAULT_TOML.lines().count() <= 130);
    assert_eq!(default.http.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(default.ingest.rtmp_listen.to_string(), "127.0.0.1:1935");
    assert_eq!(default.drivers.enabled, ["rtmp", "srt", "platform", "hls", "archive"]);
    assert_eq!(default.billing.initial_credit_sats, 10_000);
    assert_eq!(default.database_url().expose(), "sqlite:data/satcast.db");
    assert_eq!(default.key_file(), PathBuf::from("data/secret.key"));
    assert_eq!(default.public_base(), "http://127.0.0.1:8080");
    assert!(default.drivers_dir().ends_with("drivers"));
    assert!(default.warnings().is_empty());
}

/// A key that is only commented out must exist too: uncommented, the file is still accepted.
#[test]
fn every_commented_out_key_is_a_real_one() {
    let mut seen = BTreeSet::new();
    let uncommented: Vec<String> = DEFAULT_TOML
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest)
                if rest.starts_with('[')
                    || rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) =>
            {
                seen.insert(rest.split(' ').next().unwrap().to_owned());
                // Nodes need a server.
                let rest = rest.replace("sqlite:data/satcast.db", "postgres://user@host/name");
                rest.replace("64 hex digits", &"0a".repeat(32))
            }
            _ => line.to_owned(),
        })
        .collect();
    from(&uncommented.join("\n"), &[]).unwrap();
    for key in [
        "rtmps_listen",
        "srt_listen",
        "webrtc_listen",
        "tls_cert",
        "tls_key",
        "url",
        "dir",
        "endpoint",
        "secret_key",
        "[driver.rtmp]",
    ] {
        assert!(seen.contains(key), "{key} is not shown in the printed file");
    }
}

#[test]
fn addresses_for_whip_are_single_ones() {
    let read = |text: &str| from(&format!("[ingest]\nwebrtc_addresses = [{text}]\n"), &[]);
    assert_eq!(read("\"203.0.113.7\", \"2001:db8::7\"").unwrap().ingest.webrtc_addresses.len(), 2);
    for wrong in ["0.0.0.0", "::", "10.0.0.0/8", "203.0.113.7:8189", "example.com"] {
        assert!(read(&format!("{wrong:?}")).is_err(), "{wrong}");
    }
}

#[test]
fn the_printed_file_lists_every_host_key_of_a_driver() {
    const SAYS: &str =
        "# Settings of one driver. The host reads the five keys below; all other keys go to the driver.";
    let mut lines = DEFAULT_TOML.lines().skip_while(|line| *line != SAYS).skip(2);
    let keys: BTreeSet<&str> = lines
        .by_ref()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("# ")?.split_once(" = "))
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys, BTreeSet::from(["isolation", "limits", "queue", "sha256", "spool_mb"]));
    let text =
        "[driver.x]\nisolation = \"thread\"\nsha256 = \"a\"\nspool_mb = 1\nlimits = {}\nqueue = {}\nown = 1";
    let driver = toml::from_str::<toml::Table>(text).unwrap()["driver"]["x"].clone();
    let settings = driver.try_into::<DriverSettings>().unwrap().settings;
    assert_eq!(settings.keys().collect::<Vec<_>>(), ["own"]);
}

#[test]
fn unknown_keys_with_their_line_and_the_nearest_name_texts() {
    assert_eq!(
        error("\n[ingest]\nrtmp_lisen = \"127.0.0.1:1\"\n"),
        "satcast.toml:3: unknown key \"rtmp_lisen\" in [ingest]; did you mean \"rtmp_listen\"?"
    );
    let text = error("[quite_another]\nx = 1");
    assert!(
        text.starts_with("satcast.toml:1: unknown key \"quite_another\"; known are \"public_url\""),
        "{text}"
    );
    assert_eq!(
        env_error("SATCAST_HTTP__LISTN", "127.0.0.1:1"),
        "SATCAST_HTTP__LISTN: unknown key \"listn\" in [http]; did you mean \"listen\"?"
    );
    let text = env_error("SATCAST_INGES__READ_BATCH_MS", "1");
    assert!(text.starts_with("SATCAST_INGES: unknown key \"inges\"; did you mean \"ingest\"?"), "{text}");
    from("[driver.mine]\nanything = { goes = [1] }\nisolation = \"process\"", &[]).unwrap();
}

#[test]
fn errors_of_types_and_files_have_a_position() {
    assert_eq!(
        error("[http]\nlisten = 5\n"),
        "satcast.toml:2: http.listen \"5\" is not an address and port; use one such as \"127.0.0.1:8080\" or \"[::]:8080\""
    );
    assert_eq!(
        error("[ingest]\n\nread_batch_ms = \"fast\""),
        "satcast.toml:3: ingest.read_batch_ms must be u64, not string \"fast\""
    );
    assert_eq!(
        error("[billing]\nmode = \"gold\""),
        "satcast.toml:2: billing.mode cannot be \"gold\"; use \"credit\", \"wallet\", \"off\""
    );
    let text = error("[http]\nlisten = ");
    assert!(text.starts_with("satcast.toml:2: "), "{text}");
}

#[test]
fn a_missing_file_text() {
    let missing = Config::load(Some(Path::new("/nowhere/x.toml")), [], &Flags::default()).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "cannot read /nowhere/x.toml: No such file or directory (os error 2); name an existing file with --config"
    );
}

#[test]
fn the_environment_wins_over_the_file_and_flags_win_over_both() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    std::fs::write(&file, "data_dir = \"from-file\"\n[http]\nlisten = \"127.0.0.1:1\"\n").unwrap();
    let env = [("SATCAST_DATA_DIR", "from-env"), ("SATCAST_HTTP__LISTEN", "127.0.0.1:2"), ("OTHER", "x")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let flags = Flags { data_dir: Some("from-flag".into()), log_format: Some(LogFormat::Json) };
    let loaded = Config::load(Some(&file), env, &flags).unwrap();
    assert_eq!(loaded.config.data_dir, PathBuf::from("from-flag"));
    assert_eq!(loaded.config.http.listen.to_string(), "127.0.0.1:2");
    assert_eq!(loaded.config.log.format, LogFormat::Json);
    assert_eq!((loaded.file, loaded.keys_set), (Some(file), 6));
}

#[test]
fn environment_values_are_read_by_the_type_of_their_key() {
    let config = from(
        "",
        &[
            ("SATCAST_ARCHIVE__SECRET_KEY", "0123456"),
            ("SATCAST_ARCHIVE__ACCESS_KEY", "1e5"),
            ("SATCAST_ARCHIVE__FORCE_PATH_STYLE", "0"),
            ("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "7"),
            ("SATCAST_OUTBOUND__ALLOW", "10.1.2.0/24, NAS.lan"),
            ("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.1\", \"localhost\"]"),
            ("SATCAST_DRIVERS__ENABLED", ""),
            ("SATCAST_DRIVER__RTMP__SHA256", &"0".repeat(64)),
            ("SATCAST_DRIVER__RTMP__WORKERS", "4"),
            ("SATCAST_DRIVER__RTMP__NAME", "plain text"),
            ("SATCAST_DRIVER__PULSE_C__FROM_HOST", "4"),
        ],
    )
    .unwrap();
    assert_eq!(config.archive.secret_key.unwrap().expose(), "0123456");
    assert_eq!(config.archive.access_key.unwrap().expose(), "1e5");
    assert!(!config.archive.force_path_style);
    assert_eq!(config.ingest.reconnect_window_secs, 7);
    assert_eq!(Config::allow_texts(&config.outbound.allow), ["10.1.2.0/24", "nas.lan"]);
    assert_eq!(Config::allow_texts(&config.webhooks.allow_targets), ["127.0.0.1/32", "localhost"]);
    assert!(config.drivers.enabled.is_empty());
    assert_eq!(config.driver["rtmp"].sha256.as_deref(), Some("0".repeat(64).as_str()));
    assert_eq!(config.driver["rtmp"].settings["workers"], 4);
    assert_eq!(config.driver["rtmp"].settings["name"], "plain text");
    assert_eq!(config.driver["pulse-c"].settings["from_host"], 4);
    for (name, value) in [
        ("SATCAST_INGEST__READ_BATCH_MS", "fast"),
        ("SATCAST_ARCHIVE__FORCE_PATH_STYLE", "maybe"),
        ("SATCAST_OUTBOUND__ALLOW", "[broken"),
        ("SATCAST_HTTP", "x"),
        ("SATCAST_HTTP__LISTEN", "here"),
    ] {
        let text = env_error(name, value);
        assert!(text.starts_with(name), "{text}");
    }
}

#[test]
fn secrets_in_the_file_may_look_like_numbers_and_are_never_shown() {
    let config = from("[archive]\naccess_key = 123\nsecret_key = \"hunter2\"", &[]).unwrap();
    assert_eq!(config.archive.access_key.as_ref().unwrap().expose(), "123");
    assert!(!format!("{config:?}").contains("hunter2"));
    for toml in [
        "secret_key = \"hunter2\"",
        "secret_key = [\"hunter2\"]",
        "[archive]\nsecret_key = { a = \"hunter2\" }",
        "[archive]\nendpoint = \"http://u:hunter2@x\"",
    ] {
        let text = error(toml);
        assert!(!text.contains("hunter2"), "{text}");
    }
    let config = from("[database]\nurl = \"postgres://u:hunter2@db/x\"", &[]).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn every_range_is_checked_at_both_ends() {
    for (key, low, high) in [
        ("ingest.reconnect_window_secs", None, 300),
        ("ingest.refuse_quiet_secs", None, 3_600),
        ("ingest.read_batch_ms", None, 1_000),
        ("ingest.failover_stall_ms", Some(1_500), 10_000),
        ("ingest.failback_secs", None, 3_600),
        ("pricing.cost_per_platform", Some(0), 1_000_000_000),
        ("pricing.free_platforms", Some(0), 100_000),
        ("pricing.bandwidth_limit_gb_per_hour", Some(0), 1_000_000_000),
        ("pricing.bandwidth_overage_sats_per_gb", Some(0), 1_000_000_000),
        ("pricing.archive_recovery_sats", Some(0), 1_000_000_000),
        ("pricing.clip_sats", Some(0), 1_000_000_000),
        ("billing.initial_credit_sats", Some(0), 2_100_000_000_000_000_i64),
        ("billing.low_balance_sats", Some(0), 2_100_000_000_000_000_i64),
        ("limits.destinations_per_stream", Some(1), 100_000),
        ("limits.streams_per_account", Some(1), 100_000),
        ("limits.webhooks_per_account", Some(1), 100_000),
        ("limits.clips_per_account", Some(1), 100_000),
        ("limits.keys_per_account", Some(1), 100_000),
    ] {
        from(&format!("{key} = {high}"), &[]).unwrap();
        let text = error(&format!("{key} = {}", high + 1));
        assert!(text.contains(key) && text.contains(&high.to_string()), "{text}");
        if let Some(low) = low {
            from(&format!("{key} = {low}"), &[]).unwrap();
            assert!(error(&format!("{key} = {}", low - 1)).contains(key));
        }
        assert!(error(&format!("{key} = -5")).contains(key));
    }
}

#[test]
fn contradictions_are_one_sentence_with_the_fix_texts() {
    for (toml, part) in [
        ("public_url = \"http://x/sub\"", "public_url holds a path"),
        ("public_url = \"ftp://x\"", "public_url is not an http or https address"),
        ("data_dir = \"\"", "data_dir is empty"),
        ("[http]\ntls_cert = \"c\"", "set both or none"),
        ("[ingest]\ntls_key = \"k\"", "set both or none"),
        ("[ingest]\nrtmps_listen = \"127.0.0.1:1936\"", "without a certificate"),
        ("[ingest]\nrtmp_listen = \"127.0.0.1:8080\"", "give one of them another port"),
        ("[archive]\naccess_key = \"a\"", "belong together"),
        ("[archive]\nbucket = \"b\"", "without archive.endpoint"),
        ("[driver.x]\nsha256 = \"abc\"", "driver.x.sha256"),
        ("[driver.x]\nspool_mb = 1048577", "driver.x.spool_mb is 1048577; set it to 0 to 1048576"),
        ("[driver.x]\nqueue = { packets = 63 }", "driver.x.queue.packets is 63; set it to 64 to 65536"),
        ("[driver.x]\nqueue = { mb = 1025 }", "driver.x.queue.mb is 1025; set it to 1 to 1024"),
        ("[driver.x]\nqueue = { secs = 0 }", "driver.x.queue.secs is 0; set it to 1 to 60"),
        (
            "[driver.x]\nqueue = { reopen_secs = 3601 }",
            "driver.x.queue.reopen_secs is 3601; set it to 0 to 3600",
        ),
        ("[drivers]\nenabled = [\"../x\"]", "lower-case letters"),
        ("[outbound]\nallow = [\"10.0.0.0/99\"]", "use a network such as"),
        ("[http]\ntrusted_proxies = [\"proxy\"]", "use a network such as"),
        ("[ingest]\nproxy_protocol_from = [\"proxy\"]", "use a network such as"),
        ("[log]\nlevel = \"loud\"", "log.level"),
        ("[telemetry]\nsample_ratio = 1.5", "telemetry.sample_ratio"),
        ("[telemetry]\nsample_ratio = nan", "telemetry.sample_ratio"),
        ("[telemetry]\nservice_name = \"\"", "telemetry.service_name"),
        ("[telemetry]\notlp_endpoint = \"collector:4318\"", "telemetry.otlp_endpoint"),
        ("[log]\nlevel = \"info,satcast=loud\"", "log.level"),
        ("secret_key = \"abc\"", "openssl rand -hex 32"),
    ] {
        let text = error(toml);
        assert!(text.contains(part), "{toml}: {text}");
    }
    from("[log]\nlevel = \"warn,satcast::access=off\"", &[]).unwrap();
    from("[http]\nlisten = \"127.0.0.1:0\"\n[ingest]\nrtmp_listen = \"127.0.0.1:0\"", &[]).unwrap();
}

#[test]
fn oversized_files_and_lists_are_refused_with_these_texts() {
    assert_eq!(
        error(&format!("# {}", "x".repeat(1024 * 1024))),
        "satcast.toml is larger than 1 MiB; name the right file"
    );
    let entries = vec!["\"10.0.0.1\""; 1_001].join(",");
    assert_eq!(
        error(&format!("[outbound]\nallow = [{entries}]")),
        "satcast.toml:2: outbound.allow has more than 1000 entries; use fewer"
    );
    let env = vec!["10.0.0.1"; 1_001].join(",");
    assert_eq!(
        env_error("SATCAST_OUTBOUND__ALLOW", &env),
        "SATCAST_OUTBOUND__ALLOW: outbound.allow has more than 1000 entries; use fewer"
    );
}

#[test]
fn misspelt_keys_of_a_driver_are_refused() {
    for (key, meant) in
        [("ISOLATON", "isolation"), ("SHA265", "sha256"), ("LIMIT", "limits"), ("SPOOL_GB", "spool_mb")]
    {
        let name = format!("SATCAST_DRIVER__RTMP__{key}");
        let error = from("", &[(&name, "x")]).unwrap_err();
        let key = key.to_ascii_lowercase();
        assert_eq!(error, check::misspelt("rtmp", &key, meant).to_string());
    }
    assert!(from("", &[("SATCAST_DRIVER__RTMP__WORKERS", "4")]).is_ok());
}

#[test]
fn a_misspelt_key_of_a_driver_text() {
    assert_eq!(
        check::misspelt("rtmp", "limit", "limits").to_string(),
        "driver.rtmp.limit is not a known key; did you mean \"limits\"?"
    );
}

#[test]
fn a_setting_of_a_driver_is_given_under_one_of_its_names() {
    let both = "[driver.archive]\nretryHours = 1\nretry_hours = 2\n";
    let error = from(both, &[]).unwrap_err();
    let texts = load::both_names("retryHours", "retry_hours", "driver.archive");
    assert_eq!(error, format!("satcast.toml:3: {texts}"));
    let inner = "[driver.platform.types.own]\nvideo_kbps_max = 1\nvideoKbpsMax = 2\n";
    let texts = load::both_names("videoKbpsMax", "video_kbps_max", "driver.platform.types.own");
    assert_eq!(from(inner, &[]).unwrap_err(), format!("satcast.toml:2: {texts}"));
    let env = [("SATCAST_DRIVER__ARCHIVE__RETRY_HOURS", "3")];
    assert!(from("[driver.archive]\nretryHours = 1\n", &env).is_ok(), "the environment overrides the file");
}

#[test]
fn both_names_text() {
    assert_eq!(
        load::both_names("retryHours", "retry_hours", "driver.archive"),
        "retryHours and retry_hours in [driver.archive] are one setting; remove one of the two"
    );
}

#[test]
fn doubtful_settings_give_warnings() {
    let open =
        from("public_url = \"http://localhost\"\n[http]\nlisten = \"0.0.0.0:80\"\n[pricing]\ncost_per_platform = 0\n[driver.x]\na = 1", &[])
            .unwrap();
    let warnings = open.warnings();
    let parts =
        ["cost_per_platform = 0", "public_url names this one only", "keys travel in clear", "[driver.x]"];
    assert_eq!(warnings.len(), parts.len(), "{warnings:?}");
    for (warning, part) in warnings.iter().zip(parts) {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[test]
fn the_public_address_is_by_default_that_of_the_listener() {
    for (toml, public) in [
        ("", "http://127.0.0.1:8080"),
        ("[http]\nlisten = \"192.168.1.2:80\"", "http://192.168.1.2"),
        ("[http]\nlisten = \"[::1]:8443\"\ntls_cert = \"c\"\ntls_key = \"k\"", "https://[::1]:8443"),
        ("public_url = \"https://x.example\"\n[http]\nlisten = \"0.0.0.0:80\"", "https://x.example"),
    ] {
        assert_eq!(from(toml, &[]).unwrap().public_base(), public, "{toml}");
    }
    let env = [("SATCAST_HTTP__LISTEN", "127.0.0.1:81")];
    assert_eq!(from("", &env).unwrap().public_base(), "http://127.0.0.1:81");
}

#[test]
fn a_listener_on_every_address_needs_a_public_url_text() {
    for listen in ["0.0.0.0:80", "[::]:80"] {
        assert_eq!(
            error(&format!("[http]\nlisten = \"{listen}\"")),
            "http.listen is every address of this machine; set public_url to the address that browsers and players use"
        );
    }
}

#[test]
fn unknown_variables_give_warnings_texts() {
    let env = [("SATCAST_DATADIR", "x"), ("SATCAST_BUILD_NUMBER", "7")];
    assert_eq!(
        from("", &env).unwrap().warnings(),
        [
            "SATCAST_BUILD_NUMBER is not a setting and has no effect",
            "SATCAST_DATADIR is not a setting and has no effect; did you mean SATCAST_DATA_DIR?",
        ]
    );
}

#[test]
fn a_node_needs_a_server_an_address_and_a_secret() {
    let secret = "0a".repeat(16);
    let server = "[database]\nurl = \"postgres://user@host/name\"\n";
    let node = |server: &str, node: &str, advertise: &str, secret: &str| {
        let advertise = format!("advertise = \"{advertise}\"");
        from(&format!("{server}[cluster]\nnode = \"{node}\"\n{advertise}\nsecret = \"{secret}\""), &[])
    };
    let config = node(server, "a-1", "http://10.0.0.5:8080", &secret).unwrap();
    assert_eq!((config.cluster.node.as_deref(), config.cluster.lease_secs), (Some("a-1"), 30));
    assert!(!format!("{config:?}").contains(&secret), "a secret is never printed");
    let by_env = [("SATCAST_CLUSTER__SECRET", secret.as_str())];
    let toml = format!("{server}[cluster]\nnode = \"a\"\nadvertise = \"http://10.0.0.5:8080\"");
    assert!(from(&toml, &by_env).is_ok());
    assert!(from(&toml, &[]).is_err(), "no secret");
    for refused in [
        node("", "a", "http://10.0.0.5:8080", &secret),
        node(server, "A", "http://10.0.0.5:8080", &secret),
        node(server, "", "http://10.0.0.5:8080", &secret),
        node(server, &"a".repeat(33), "http://10.0.0.5:8080", &secret),
        node(server, "a", "http://10.0.0.5:8080/api", &secret),
        node(server, "a", "ftp://10.0.0.5", &secret),
        node(server, "a", "http://10.0.0.5:8080", &secret[1..]),
        from(&format!("[cluster]\nsecret = \"{secret}\""), &[]),
        from("[cluster]\nlease_secs = 9", &[]),
        from("[cluster]\nlease_secs = 301", &[]),
    ] {
        assert!(refused.is_err(), "{refused:?}");
    }
}

#[test]
fn an_ordered_certificate_is_a_file_in_the_data_folder() {
    const ACME: &str = "[acme]\ndomains = [\"Live.example.com\"]\n";
    let config = from(&format!("data_dir = \"d\"\n[ingest]\nrtmps_listen = \"127.0.0.1:1\"\n{ACME}"), &[]);
    let config = config.unwrap();
    let file = Some(std::path::PathBuf::from("d/acme/certificate.pem"));
    assert_eq!((&config.http.tls_cert, &config.ingest.tls_key), (&file, &file));
    assert_eq!((config.acme.domains[0].as_str(), config.public_url.scheme()), ("live.example.com", "https"));
    assert_eq!(from(ACME, &[]).unwrap().ingest.tls_cert, None);
    assert_eq!(from("", &[]).unwrap().http.tls_cert, None);
    for names in ["a.example,b.example", "[\"a.example\", \"b.example\"]"] {
        let config = from("", &[("SATCAST_ACME__DOMAINS", names)]).unwrap();
        assert_eq!((config.acme.domains.len(), config.public_url.scheme()), (2, "https"), "{names}");
    }
    from(&format!("{ACME}directory = \"http://127.0.0.1:1/directory\""), &[]).unwrap();
    for wrong in [
        format!("[http]\ntls_cert = \"a\"\ntls_key = \"b\"\n{ACME}"),
        format!("[ingest]\ntls_cert = \"a\"\ntls_key = \"b\"\n{ACME}"),
        format!("{ACME}directory = \"http://ca.example/directory\""),
        format!("{ACME}contact = \"ops\""),
        format!("[acme]\ndomains = [{}]", "\"a.example\",".repeat(101)),
        "[acme]\ndomains = [\"*.example.com\"]".to_owned(),
        "[acme]\ndomains = [\"192.0.2.1\"]".to_owned(),
        "[acme]\ndomains = [\"localhost\"]".to_owned(),
        format!(
            "[database]\nurl = \"postgres://u@h/d\"\n[cluster]\nnode = \"a\"\nadvertise = \"http://127.0.0.1:1\"\nsecret = {:?}\n{ACME}",
            "s".repeat(64)
        ),
    ] {
        assert!(from(&wrong, &[]).is_err(), "{wrong}");
    }
}
