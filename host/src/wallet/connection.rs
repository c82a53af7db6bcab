//! Which wallet: kind, address and secret.

use std::fmt;

use crate::secret::Redacted;

/// Kinds of wallets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WalletKind {
    /// Nostr Wallet Connect, NIP-47.
    Nwc,
    /// An LNbits instance.
    Lnbits,
    /// A phoenixd node.
    Phoenixd,
}

impl WalletKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Nwc, Self::Lnbits, Self::Phoenixd];

    /// The name in the API, the configuration and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nwc => "nwc",
            Self::Lnbits => "lnbits",
            Self::Phoenixd => "phoenixd",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for WalletKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a wallet is reached. The secret of one that pays is as good as the money in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// What it speaks.
    pub kind: WalletKind,
    /// Where: `https://host[:port][/path]` for LNbits and phoenixd; for NWC the whole `nostr+walletconnect://` URI, which
    /// holds the secret too.
    pub url: Redacted<String>,
    /// LNbits' admin or invoice key, phoenixd's password; empty for NWC.
    pub secret: Redacted<String>,
}
