//! The `satcast` binary: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use satcast::cli::{self, Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match &cli.command {
        None | Some(Command::Run) => {
            satcast::allocator::share_arenas();
            cli::exit(cli::run(&cli))
        }
        Some(Command::DriverProbe { file }) => satcast_drivers::load::probe::child(file),
        Some(Command::DriverRunner { .. }) => satcast_drivers::run::process::child::run(),
        Some(command) => cli::exit(cli::execute(&cli, command)),
    }
}
