//! The command line: what operators type, what it prints, and how it ends.
//!
//! Exit code 0: done; 1: it failed while running; 2: the command line or the configuration is wrong. Every command
//! works beside a running service, except `run` and `migrate --to`, which take the lock on the data folder. Errors are one
//! line on standard error.

mod accounts;
mod copy;
mod doctor;
mod drivers;
mod maintenance;
mod new_driver;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use new_driver::{Language, NewDriver};

use crate::activation::{ActivationError, Sockets};
use crate::data_dir;
use satcast_core::config::{Config, ConfigError, Flags, Loaded, LogFormat};
use satcast_core::secret::KeyKind;
use satcast_store::{Address, Inspector, OpenOptions, Store};

/// Exit code for a wrong configuration; clap uses the same for a wrong command line.
const EXIT_CONFIG: u8 = 2;

const AFTER_HELP: &str = "\
Examples:
  satcast                                     run with defaults, data in ./data
  satcast account create me && satcast key create --account me --type permanent

Configuration: satcast.toml in the working folder or --config FILE, then SATCAST_... variables, then flags.";

/// One live stream in, many destinations out, metered in sats.
#[derive(Debug, Parser)]
#[command(name = "satcast", version, about, after_help = AFTER_HELP, propagate_version = true)]
pub struct Cli {
    /// Flags that every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do; `run` when left out.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Flags that every command takes.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Configuration file [default: satcast.toml if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data folder [default: data]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Form of log lines [default: text]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the service (the default)
    Run,
    /// Check the configuration, and the drivers' settings with the drivers; touch nothing
    CheckConfig,
    /// Print a commented configuration file with every default
    Config,
    /// Check folders, database, clock, drivers and ports
    Doctor,
    /// Create accounts and add credit
    #[command(subcommand)]
    Account(AccountCommand),
    /// Create API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// List the drivers with their states, or create a new one
    Drivers {
        /// Subcommand
        #[command(subcommand)]
        command: Option<DriversCommand>,
    },
    /// Check the ledger
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// List or drain the nodes of a database
    #[command(subcommand)]
    Node(NodeCommand),
    /// Bring the database's schema up to date, or copy the database to PostgreSQL
    Migrate {
        /// Copy the SQLite database of a stopped service to this empty one, postgres://USER@HOST:PORT/DATABASE. The password
        /// comes from the variable PGPASSWORD, or from the file ~/.pgpass or PGPASSFILE
        #[arg(long, value_name = "ADDRESS")]
        to: Option<String>,
    },
    /// Write a consistent copy of a SQLite database, beside a running service too
    Backup {
        /// The copy; must not exist [default: <data>/backups/satcast-<time>.db]
        file: Option<PathBuf>,
    },
    /// Print the OpenAPI document, with the destination types of the drivers
    Openapi,
    /// Load one driver and describe it; used by the service itself
    #[command(hide = true)]
    DriverProbe {
        /// The library.
        file: PathBuf,
    },
    /// Run one driver in a process of its own; used by the service itself
    #[command(hide = true)]
    DriverRunner {
        /// The driver's id, shown in the process list.
        id: String,
    },
}

/// `satcast drivers ...`
#[derive(Clone, Debug, Subcommand)]
pub enum DriversCommand {
    /// Create a folder with a driver that builds, passes its tests and streams
    New(NewDriver),
}

/// `satcast account ...`
#[derive(Clone, Debug, Subcommand)]
pub enum AccountCommand {
    /// Create an account and print its id
    Create {
        /// Unique name, 1 to 128 characters
        name: String,
        /// Read a password for the dashboard from standard input
        #[arg(long)]
        password_stdin: bool,
        /// May operate the service: drivers, metrics, audit log
        #[arg(long)]
        operator: bool,
    },
    /// Print a link that creates one account; valid for one day
    Invite {
        /// The account may operate the service: drivers, metrics, audit log
        #[arg(long)]
        operator: bool,
    },
    /// Add prepaid credit
    Credit {
        /// Name of the account
        name: String,
        /// Whole sats
        sats: i64,
    },
}

/// `satcast key ...`
#[derive(Clone, Debug, Subcommand)]
pub enum KeyCommand {
    /// Create an API key and print it; a permanent key is shown only once
    Create {
        /// Name of the account
        #[arg(long)]
        account: String,
        /// permanent manages the account; public reads one self-hosted destination
        #[arg(long = "type", value_name = "TYPE")]
        kind: KeyType,
        /// Destination of a public key
        #[arg(long, value_name = "ID")]
        destination: Option<i64>,
        /// Label of the key
        #[arg(long, default_value = "")]
        label: String,
    },
}

/// The kinds of keys by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyType {
    /// `sk_`
    Permanent,
    /// `pk_`
    Public,
}

impl From<KeyType> for KeyKind {
    fn from(kind: KeyType) -> Self {
        match kind {
            KeyType::Permanent => KeyKind::Permanent,
            KeyType::Public => KeyKind::Public,
        }
    }
}

/// `satcast ledger ...`
#[derive(Clone, Debug, Subcommand)]
pub enum LedgerCommand {
    /// Recompute every sum and report differences
    Check,
}

/// `satcast node ...`
#[derive(Clone, Debug, Subcommand)]
pub enum NodeCommand {
    /// List the nodes with their states, sessions and leases
    List,
    /// Have a node refuse new publishers until its next start, and move its streams to other nodes
    Drain {
        /// Name of the node
        name: String,
        /// Seconds after which its streams move; until then they go on
        #[arg(long, value_name = "SECS", default_value_t = 0)]
        deadline: u32,
        /// Take the node back: it takes new publishers again
        #[arg(long, conflicts_with = "deadline")]
        undo: bool,
    },
    /// Remove a node that never comes back: its unfinished recordings fail, and paid retries are refunded
    Remove {
        /// Name of the node
        name: String,
    },
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The configuration or an argument is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// It failed while running: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The checks that failed were printed already: exit code 1.
    #[error("a check failed")]
    Printed,
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        CliError::Usage(error.to_string())
    }
}

impl From<ActivationError> for CliError {
    fn from(error: ActivationError) -> Self {
        CliError::Usage(error.to_string())
    }
}

macro_rules! failed_from {
    ($($error:ty),*) => {$(
        impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                CliError::Failed(error.to_string())
            }
        }
    )*};
}
failed_from!(
    crate::boot::BootError,
    satcast_store::StoreError,
    data_dir::DataDirError,
    satcast_core::secret::VaultError,
    io::Error
);

/// Ends a command: prints the error, if any, as one line, and gives the exit code.
pub fn exit(result: Result<(), CliError>) -> ExitCode {
    let code = match &result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(CliError::Usage(_)) => EXIT_CONFIG,
        Err(_) => 1,
    };
    if let Err(error @ (CliError::Usage(_) | CliError::Failed(_))) = &result {
        let line = error.to_string().replace('\n', " ");
        // Standard error may be closed; the exit code still reports the failure.
        let _ = writeln!(io::stderr(), "error: {line}");
    }
    ExitCode::from(code)
}

impl Cli {
    /// The configuration for these flags.
    ///
    /// # Errors
    /// The first fault of the configuration.
    pub fn load_config(&self) -> Result<Loaded, CliError> {
        let flags = Flags { data_dir: self.global.data_dir.clone(), log_format: self.global.log_format };
        // Names that are not UTF-8 cannot be settings; values that are not UTF-8 are refused as text.
        let env = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        });
        let loaded = Config::load(self.global.config.as_deref(), env, &flags)?;
        satcast_store::Address::parse(loaded.config.database_url().expose())
            .map_err(|error| CliError::Usage(format!("database.url: {error}")))?;
        Ok(loaded)
    }

    /// The command line prefix for other commands on the same data; for the banner.
    pub fn command_prefix(&self) -> String {
        let program = std::env::args().next().unwrap_or_else(|| "satcast".to_owned());
        let mut command = quoted(&program);
        for (flag, path) in [("--config", &self.global.config), ("--data-dir", &self.global.data_dir)] {
            if let Some(path) = path {
                command.push_str(&format!(" {flag} {}", quoted(&path.to_string_lossy())));
            }
        }
        command
    }
}

/// The text quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+=:@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Runs the service until a signal ends it.
///
/// # Errors
/// [`exit`] turns it into a line and an exit code.
pub fn run(cli: &Cli) -> Result<(), CliError> {
    let loaded = cli.load_config()?;
    let config = &loaded.config;
    let (spans, exporter) =
        crate::telemetry::start(&config.telemetry, config.cluster.node.as_deref()).unzip();
    let level = crate::logging::start(&config.log, spans);
    let sockets = Sockets::take()?;
    sockets.check(&loaded.config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let again = || cli.load_config().map_err(|error| error.to_string());
    let service = crate::boot::run(loaded, cli.command_prefix(), again, sockets, level, exporter);
    Ok(runtime.block_on(service)?)
}

/// Runs every command except `run` and `driver-probe`, which the caller handles.
///
/// # Errors
/// [`exit`] turns it into a line and an exit code.
pub fn execute(cli: &Cli, command: &Command) -> Result<(), CliError> {
    if let Command::Config = command {
        return print(satcast_core::config::DEFAULT_TOML);
    }
    if let Command::Drivers { command: Some(DriversCommand::New(new)) } = command {
        return new_driver::run(new);
    }
    let loaded = cli.load_config()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let config = &loaded.config;
    runtime.block_on(async {
        match command {
            Command::Account(AccountCommand::Create { name, password_stdin, operator }) => {
                let password = password_stdin.then(accounts::read_password).transpose()?;
                accounts::create(config, name, password, *operator).await
            }
            Command::Account(AccountCommand::Invite { operator }) => {
                accounts::invite(config, *operator).await
            }
            Command::Account(AccountCommand::Credit { name, sats }) => {
                accounts::credit(config, name, *sats).await
            }
            Command::Key(KeyCommand::Create { account, kind, destination, label }) => {
                accounts::create_key(config, account, (*kind).into(), *destination, label).await
            }
            Command::Ledger(LedgerCommand::Check) => maintenance::check_ledger(config).await,
            Command::Node(NodeCommand::List) => maintenance::list_nodes(config).await,
            Command::Node(NodeCommand::Drain { name, undo: true, .. }) => {
                maintenance::undrain_node(config, name).await
            }
            Command::Node(NodeCommand::Drain { name, deadline, .. }) => {
                maintenance::drain_node(config, name, *deadline).await
            }
            Command::Node(NodeCommand::Remove { name }) => maintenance::remove_node(config, name).await,
            Command::Migrate { to: None } => maintenance::migrate(config).await,
            Command::Migrate { to: Some(to) } => copy::run(config, to).await,
            Command::Backup { file } => maintenance::backup(config, file.as_deref()).await,
            Command::CheckConfig => maintenance::check_config(&loaded).await,
            Command::Drivers { .. } => drivers::list(config).await,
            Command::Openapi => maintenance::print_document(config).await,
            Command::Doctor => doctor::run(&loaded).await,
            Command::Run | Command::DriverProbe { .. } | Command::DriverRunner { .. } | Command::Config => {
                Err(CliError::Failed("this command is started elsewhere".to_owned()))
            }
        }
    })
}

/// Prints to standard output; a closed pipe is an error, not a panic.
fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Opens the configured store; creates data folder, key file and database if missing.
async fn open_store(config: &Config) -> Result<Store, CliError> {
    data_dir::prepare(&config.data_dir)?;
    let vault = crate::boot::vault(config).await?;
    let options = OpenOptions {
        url: config.database_url(),
        durability: config.database.durability,
        vault,
        low_balance: config.low_balance(),
    };
    Ok(satcast_store::open(options).await?)
}

/// Opens an existing database read-only: creates nothing, migrates nothing, needs no key.
async fn inspect(config: &Config) -> Result<Inspector, CliError> {
    let address = Address::parse(config.database_url().expose())?;
    if let Address::File(file) = &address
        && !file.is_file()
    {
        let file = file.display();
        let text =
            format!("there is no database {file}; run satcast once, or name its folder with --data-dir");
        return Err(CliError::Failed(text));
    }
    let database = Inspector::open(&address).await?;
    if matches!(address, Address::Server(_)) && database.schema_version().await?.0 == 0 {
        database.close().await;
        return Err(CliError::Failed(format!("{address} has no tables yet; run satcast once")));
    }
    Ok(database)
}
