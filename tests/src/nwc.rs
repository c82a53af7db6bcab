//! A third-party wallet with Nostr Wallet Connect: the Alby SDK's wallet service over the relay of nostr-sdk. Its money is in a
//! wallet of LNbits.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::lnbits::{LnbitsServer, LnbitsWallet};
use crate::ports::Port;
use crate::process::{Process, guarded};
use crate::source::target_dir;
use crate::wait;

/// A running relay and wallet service.
pub struct NwcService {
    uri: String,
    control: PathBuf,
    service: Process,
    _relay: Process,
    _port: Port,
    _folder: tempfile::TempDir,
}

impl NwcService {
    /// Starts a relay and a service for a wallet, and waits until requests arrive.
    ///
    /// # Panics
    /// When something is not installed or does not start.
    #[must_use]
    pub fn start(lnbits: &LnbitsServer, wallet: &LnbitsWallet) -> Self {
        Self::launch(lnbits, wallet, false)
    }

    /// The same for a service that announces no encryption, and so only speaks NIP-04.
    ///
    /// # Panics
    /// As [`NwcService::start`].
    #[must_use]
    pub fn start_nip04(lnbits: &LnbitsServer, wallet: &LnbitsWallet) -> Self {
        Self::launch(lnbits, wallet, true)
    }

    fn launch(lnbits: &LnbitsServer, wallet: &LnbitsWallet, nip04: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the wallet service");
        let (port, scripts) = (Port::lease(), Path::new(env!("CARGO_MANIFEST_DIR")).join("wallets"));
        let python = target_dir().join("wallets-python/bin/python");
        assert!(python.exists(), "{} is not there; `cargo xtask test` installs it", python.display());
        let mut command = guarded(&python);
        command.arg(scripts.join("relay.py")).env("PORT", port.address().port().to_string());
        command.env("PYTHONNOUSERSITE", "1").env("PYTHONDONTWRITEBYTECODE", "1");
        let relay = Process::start("the relay", command, &folder.path().join("relay.log"));
        said(&relay, "relay ");

        let modules = scripts.join("node_modules");
        assert!(modules.exists(), "{} is not there; `cargo xtask test` installs it", modules.display());
        let control = folder.path().join("control.json");
        let mut command = guarded(Path::new("node"));
        command.arg("--experimental-websocket").arg(scripts.join("service.mjs"));
        command.env("RELAY", format!("ws://{}", port.address())).env("CONTROL", &control);
        command.env("BASE", lnbits.url()).env("KEY", &wallet.admin_key);
        if nip04 {
            command.env("NIP04", "1");
        }
        write(&control, &json!({}));
        let service = Process::start("the wallet service", command, &folder.path().join("service.log"));
        let uri = said(&service, "uri ");
        Self { uri, control, service, _relay: relay, _port: port, _folder: folder }
    }

    /// The connection text.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Refuses every payment from now on with this code.
    pub fn refuse(&self, code: &str) {
        write(&self.control, &json!({ "code": code }));
    }

    /// Makes payments from now on, but never answers them.
    pub fn keep_silent(&self) {
        write(&self.control, &json!({ "silent": true }));
    }

    /// Makes and answers payments again.
    pub fn behave(&self) {
        write(&self.control, &json!({}));
    }

    /// Ends the service; the relay stays, with the announcement on it.
    pub fn stop(&mut self) {
        self.service.kill();
    }
}

/// Replaces the file in one step, since the service may read it at any moment.
fn write(path: &Path, control: &Value) {
    let new = path.with_extension("new");
    std::fs::write(&new, control.to_string()).expect("the control file");
    std::fs::rename(&new, path).expect("the control file in its place");
}

/// The rest of the line that begins with `start`, once it is printed.
#[track_caller]
fn said(process: &Process, start: &str) -> String {
    wait::until("a line of the relay or the wallet service", || {
        let log = process.log();
        let line = log.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned);
        // A line is complete when its end has arrived.
        line.filter(|line| log.contains(&format!("{start}{line}\n"))).ok_or(log)
    })
}
