//! Runs a command beside a PostgreSQL server of its own: `with-postgres [--durable] COMMAND ARGUMENTS...`.
//!
//! The server's address is in the command's environment, where the unit tests look for it. The server ends with the command.
//! With `--durable` its commits survive power loss, as an operator's do.

use std::process::{Command, ExitCode};

use satcast_tests::postgres::Postgres;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    let durable = words.next_if(|word| word == "--durable").is_some();
    let Some(program) = words.next() else {
        eprintln!("usage: with-postgres [--durable] COMMAND ARGUMENTS...");
        return ExitCode::from(2);
    };
    let server = if durable { Postgres::durable() } else { Postgres::trusting() };
    let mut command = Command::new(&program);
    command.args(words);
    if !durable {
        // The default of addresses that say nothing of TLS. Tests of TLS do.
        command.env("PGSSLMODE", "disable");
    }
    command.env("SATCAST_TEST_POSTGRES", format!("{}/postgres", server.server()));
    command.env("SATCAST_TEST_POSTGRES_CA", server.authority());
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("{} ended with {status}", program.to_string_lossy());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot start {}: {error}", program.to_string_lossy());
            ExitCode::FAILURE
        }
    }
}
