//! Database addresses.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use url::Url;

use crate::error::{Result, StoreError};

/// Query parameters that a PostgreSQL address may have. Unknown parameters are refused and not ignored: a misspelt
/// `sslmode` would send the password in clear.
const SERVER_PARAMETERS: [&str; 11] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// The address of a database. Its display form has no password.
#[derive(Clone)]
pub enum Address {
    /// A SQLite file.
    File(PathBuf),
    /// A database of a PostgreSQL server.
    Server(Server),
}

impl Address {
    /// Reads an address; opens nothing.
    ///
    /// # Errors
    /// [`StoreError::Address`] with the fix. The text does not repeat the address, which may hold a password.
    pub fn parse(url: &str) -> Result<Self> {
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            return Server::parse(url).map(Self::Server);
        }
        let Some(path) = url.strip_prefix("sqlite:") else {
            return refuse(
                "the database address is unknown; use sqlite:FILE or postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            );
        };
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.starts_with(":memory:") || path.contains('?') {
            return refuse("the database must be a file without options; use sqlite:FILE");
        }
        Ok(Self::File(PathBuf::from(path)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "SQLite, {}", path.display()),
            Self::Server(server) => write!(f, "{server}"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A database of a PostgreSQL server, and its login. Its display form has no password.
#[derive(Clone)]
pub struct Server(Arc<PgConnectOptions>);

impl Server {
    fn parse(url: &str) -> Result<Self> {
        let form = "use postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters as %XX";
        let Ok(parsed) = Url::parse(url) else {
            return refuse(&format!("the database address cannot be read; {form}"));
        };
        for (name, value) in parsed.query_pairs() {
            if !SERVER_PARAMETERS.contains(&&*name) {
                let known = SERVER_PARAMETERS.join(", ");
                return refuse(&format!("the database address has an unknown parameter; known are {known}"));
            }
            if name == "sslmode" && PgSslMode::from_str(&value).is_err() {
                return refuse(
                    "sslmode of the database address is unknown; use disable, prefer, require, verify-ca or verify-full",
                );
            }
        }
        let Ok(options) = PgConnectOptions::from_url(&parsed) else {
            return refuse(&format!("the database address cannot be read; {form}"));
        };
        if options.get_database().is_none_or(str::is_empty) {
            return refuse(&format!("the database address names no database; {form}"));
        }
        let named = options.get_application_name().is_some();
        Ok(Self(Arc::new(if named { options } else { options.application_name("satcast") })))
    }

    /// Reads the address of a server that was given on a command line. It must have no password, because other users see
    /// command lines: that comes from `PGPASSWORD`, or from the file that `PGPASSFILE` names or `~/.pgpass`.
    ///
    /// # Errors
    /// [`StoreError::Address`] with the fix. The text does not repeat the address.
    pub fn from_command_line(url: &str) -> Result<Self> {
        let Address::Server(server) = Address::parse(url)? else {
            return refuse("this must be a database on a server; use postgres://USER@HOST:PORT/DATABASE");
        };
        let has_password = |url: Url| {
            url.password().is_some() || url.query_pairs().any(|(parameter, _)| parameter == "password")
        };
        if Url::parse(url).is_ok_and(has_password) {
            return refuse(
                "the address has a password, which other users see on the command line; leave it out, and set PGPASSWORD or write ~/.pgpass",
            );
        }
        Ok(server)
    }

    /// With the password.
    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.0
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.0.get_database().unwrap_or_default();
        match self.0.get_socket() {
            Some(socket) => write!(f, "PostgreSQL, {database} at {}", socket.display()),
            None => write!(f, "PostgreSQL, {database} at {}:{}", self.0.get_host(), self.0.get_port()),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn refuse<T>(sentence: &str) -> Result<T> {
    Err(StoreError::Address(sentence.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        let error = Address::parse(url).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        error
    }

    #[test]
    fn sqlite_is_a_file_without_options() {
        for (url, file) in
            [("sqlite:data/satcast.db", "data/satcast.db"), ("sqlite:///var/lib/s.db", "/var/lib/s.db")]
        {
            assert!(matches!(Address::parse(url).unwrap(), Address::File(path) if path.as_os_str() == file));
        }
        for url in ["", "data.db", "mysql://x", "sqlite:", "sqlite::memory:", "sqlite:x?mode=ro"] {
            refused(url);
        }
    }

    #[test]
    fn server_addresses_are_displayed_without_passwords() {
        let address =
            Address::parse("postgres://me:hunter2@db.example:5433/satcast?sslmode=require").unwrap();
        assert_eq!(address.to_string(), "PostgreSQL, satcast at db.example:5433");
        assert!(!format!("{address:?}").contains("hunter2"));
        let Address::Server(server) = address else { panic!("a server") };
        assert!(!format!("{server:?}").contains("hunter2"));
        assert!(matches!(server.options().get_ssl_mode(), PgSslMode::Require));
        assert_eq!(server.options().get_application_name(), Some("satcast"));
        let socket = Address::parse("postgresql://me@%2Frun%2Fpostgresql/satcast").unwrap();
        assert_eq!(socket.to_string(), "PostgreSQL, satcast at /run/postgresql");
    }

    #[test]
    fn addresses_on_a_command_line_have_a_server_and_no_password() {
        let given = Server::from_command_line;
        assert_eq!(given("postgres://me@db:5433/s?sslmode=require").unwrap().options().get_port(), 5433);
        for url in [
            "sqlite:s.db",
            "mysql://x",
            "postgres://me:hunter2@db/s",
            "postgres://me@db/s?password=hunter2",
            "postgres://me@db/s?%70assword=hunter2",
        ] {
            let error = given(url).unwrap_err();
            assert!(matches!(&error, StoreError::Address(text) if !text.contains("hunter2")), "{error}");
        }
    }

    #[test]
    fn errors_of_server_addresses_do_not_repeat_the_address_in_these_texts() {
        assert!(refused("postgres://me:hunter2@").contains("use postgres://USER"));
        assert!(refused("postgres://me:hunter2@db").contains("names no database"));
        assert!(refused("postgres://me:hunter2@db/s?sslmod=hunter2").contains("unknown parameter"));
        assert!(refused("postgres://db/s?sslmode=hunter2").contains("verify-full"));
        assert!(refused("postgres://me:hunter2@db:99999/s").contains("cannot be read"));
    }
}
