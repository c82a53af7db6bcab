//! A real LNbits with its invented funding source: wallets of one instance pay each other.

use std::time::Duration;

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::api;
use crate::ports::Port;
use crate::process::{Process, guarded};
use crate::source::target_dir;
use crate::wait;

/// Longest answer to one request of the harness.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const PASSWORD: &str = "correct horse 1";

/// A wallet of the instance, with its two keys.
#[derive(Clone, Debug)]
pub struct LnbitsWallet {
    id: String,
    /// May pay.
    pub admin_key: String,
    /// May create invoices and read the balance.
    pub invoice_key: String,
}

/// A running instance with two wallets; both are empty at first.
pub struct LnbitsServer {
    base: String,
    client: Client,
    token: String,
    /// Receives.
    pub operator: LnbitsWallet,
    /// Pays.
    pub customer: LnbitsWallet,
    _process: Process,
    _port: Port,
    _folder: tempfile::TempDir,
}

impl LnbitsServer {
    /// Starts an instance and waits until it answers.
    ///
    /// # Panics
    /// When it is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder for LNbits");
        let port = Port::lease();
        let environment = target_dir().join("wallets-python");
        let program = environment.join("bin/python");
        assert!(program.exists(), "{} is not there; `cargo xtask test` installs it", program.display());
        let mut command = guarded(&program);
        // The launcher of LNbits would run the server in a separate process that does not end with the test.
        for name in ["logs", "extensions"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder that the starter makes");
        }
        command.args(["-m", "uvicorn", "lnbits.__main__:app", "--host", "127.0.0.1", "--port"]);
        command.arg(port.address().port().to_string());
        // LNbits looks for its pages in the working folder.
        command.current_dir(packages(&environment)).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("LNBITS_DATA_FOLDER", folder.path()).env("LNBITS_EXTENSIONS_PATH", folder.path());
        command.env("LNBITS_BACKEND_WALLET_CLASS", "FakeWallet").env("LNBITS_ADMIN_UI", "true");
        command.env("PYTHONNOUSERSITE", "1").env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1");
        let process = Process::start("LNbits", command, &folder.path().join("lnbits.log"));
        let base = format!("http://{}", port.address());
        let client = api::client(ANSWER_LIMIT);
        wait::until("LNbits to answer", || {
            let answer = client.get(format!("{base}/api/v1/health")).send();
            answer.map(drop).map_err(|error| format!("{error}; it printed:\n{}", process.log()))
        });
        let first = json!({ "username": "tester", "password": PASSWORD, "password_repeat": PASSWORD });
        let login = json_of(client.put(format!("{base}/api/v1/auth/first_install")).json(&first));
        let token = login["access_token"].as_str().expect("a token of LNbits").to_owned();
        let named = |name: &str| {
            let made = client.post(format!("{base}/api/v1/wallet")).bearer_auth(&token);
            wallet(&json_of(made.json(&json!({ "name": name }))))
        };
        let (operator, customer) = (named("operator"), named("customer"));
        Self { base, client, token, operator, customer, _process: process, _port: port, _folder: folder }
    }

    /// Its address, as a wallet connection names it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Puts invented money into a wallet.
    ///
    /// # Panics
    /// When it cannot be put there.
    pub fn fund(&self, wallet: &LnbitsWallet, sats: u64) {
        let put = self.client.put(format!("{}/users/api/v1/balance", self.base)).bearer_auth(&self.token);
        let done = json_of(put.json(&json!({ "id": wallet.id, "amount": sats })));
        assert_eq!(done["success"], true, "{done}");
    }

    /// Pays an invoice from a wallet.
    ///
    /// # Panics
    /// When it is not paid.
    pub fn pay(&self, wallet: &LnbitsWallet, bolt11: &str) {
        let post = self.client.post(format!("{}/api/v1/payments", self.base));
        let body = json!({ "out": true, "bolt11": bolt11 });
        let done = json_of(post.header("x-api-key", &wallet.admin_key).json(&body));
        assert!(done["payment_hash"].is_string(), "{done}");
    }

    /// The balance of a wallet in millisats, as LNbits reports it.
    ///
    /// # Panics
    /// When it does not say.
    #[must_use]
    pub fn balance_msat(&self, wallet: &LnbitsWallet) -> i64 {
        let get = self.client.get(format!("{}/api/v1/wallet", self.base));
        json_of(get.header("x-api-key", &wallet.invoice_key))["balance"].as_i64().expect("a balance")
    }
}

fn wallet(made: &Value) -> LnbitsWallet {
    let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("no {name}: {made}")).to_owned();
    LnbitsWallet { id: text("id"), admin_key: text("adminkey"), invoice_key: text("inkey") }
}

#[track_caller]
fn json_of(request: RequestBuilder) -> Value {
    // The server closes idle connections, perhaps while the next request is on its way, and a payment must not be sent twice.
    let answer = request.header("connection", "close").send().expect("an answer of LNbits");
    let (status, text) = (answer.status(), answer.text().unwrap_or_default());
    assert!(status.is_success(), "LNbits answered {status}: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Where an environment has its packages.
fn packages(environment: &std::path::Path) -> std::path::PathBuf {
    let versions = std::fs::read_dir(environment.join("lib")).expect("the environment's packages");
    let version = versions.filter_map(Result::ok).map(|entry| entry.path()).find(|path| path.is_dir());
    version.expect("a version of Python").join("site-packages")
}
