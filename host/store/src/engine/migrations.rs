//! The migrations of the schema: one list, one folder of files for each engine.

use std::borrow::Cow;

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

/// Number and name of a migration, and its SQL for each engine.
pub(crate) struct Step {
    pub(crate) number: i64,
    name: &'static str,
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

macro_rules! steps {
    ($($number:literal, $name:literal, $file:literal;)+) => {
        &[$(Step {
            number: $number,
            name: $name,
            sqlite: include_str!(concat!("../../migrations/sqlite/", $file, ".sql")),
            postgres: include_str!(concat!("../../migrations/postgres/", $file, ".sql")),
        }),+]
    };
}

/// Every migration in order; a released one is never edited.
const STEPS: &[Step] = steps! {
    1, "first light", "0001_first_light";
    2, "idempotency", "0002_idempotency";
    3, "playback", "0003_playback";
    4, "history", "0004_history";
    5, "logins", "0005_logins";
    6, "audit", "0006_audit";
    7, "webhooks", "0007_webhooks";
    8, "archives", "0008_archives";
    9, "charges", "0009_charges";
    10, "history order", "0010_history_order";
    11, "webhook pending", "0011_webhook_pending";
    12, "session keys", "0012_session_keys";
    13, "wallets", "0013_wallets";
    14, "recoveries", "0014_recoveries";
    15, "delays and addresses", "0015_delays_and_addresses";
    16, "archive trouble", "0016_archive_trouble";
    17, "operated accounts", "0017_operated_accounts";
    18, "nodes", "0018_nodes";
    19, "key check", "0019_key_check";
    20, "node commands", "0020_node_commands";
    21, "handovers", "0021_handovers";
    22, "public recordings", "0022_public_recordings";
    23, "clips", "0023_clips";
    24, "archive expiry", "0024_archive_expiry";
    25, "former nodes", "0025_former_nodes";
    26, "srt passphrases", "0026_srt_passphrases";
    27, "slates", "0027_slates";
    28, "audio only", "0028_audio_only";
};

/// Tells the schemas of SQLite apart.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn hash(hasher: &mut impl std::hash::Hasher) {
    use std::hash::Hash as _;

    STEPS.iter().for_each(|step| (step.number, step.name, step.sqlite).hash(hasher));
}

/// The newest version of the schema that this release knows.
pub(crate) const NEWEST: i64 = STEPS[STEPS.len() - 1].number;

/// Steps with the same thousands only add to the schema, so a release runs on the later ones too. A step that takes
/// something away, and with it the next major version, begins the next thousand.
const THOUSAND: i64 = 1000;

/// The newest step that a database has. Every database has one after it was migrated.
pub(crate) const APPLIED: &str = "SELECT MAX(version) FROM _sqlx_migrations";

/// Whether this release can use a database with a step of that number.
pub(crate) fn is_usable(version: i64) -> bool {
    version / THOUSAND <= NEWEST / THOUSAND
}

/// Refuses a database that this release cannot use, by its newest step.
pub(crate) fn check(version: i64) -> Result<(), MigrateError> {
    if is_usable(version) { Ok(()) } else { Err(MigrateError::VersionMissing(version)) }
}

/// Migrates a database of one engine. Later steps of a newer release are left to [`check`].
pub(crate) fn migrator(text: fn(&Step) -> &'static str) -> Migrator {
    migrator_to(NEWEST, text)
}

/// Migrates a database as a release did whose newest step has this number.
pub(crate) fn migrator_to(newest: i64, text: fn(&Step) -> &'static str) -> Migrator {
    let migration = |step: &Step| {
        let (name, text) = (Cow::Borrowed(step.name), text(step).into_sql_str());
        Migration::new(step.number, name, MigrationType::Simple, text, false)
    };
    let steps = STEPS.iter().filter(|step| step.number <= newest);
    let mut migrator = Migrator::with_migrations(steps.map(migration).collect());
    migrator.set_ignore_missing(true);
    migrator
}
