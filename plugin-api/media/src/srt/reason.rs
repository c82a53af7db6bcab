//! Reasons for a refusal, as a caller shows them.

/// The handshake type of a refusal is its reason and this.
pub(super) const TYPE_BASE: u32 = 1_000;

/// Why a caller is refused. The numbers are those that libsrt gives its user (`SRT_REJ_*` and `SRT_REJX_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The handshake violates the protocol.
    Rogue,
    /// The caller speaks an older version of the handshake.
    Version,
    /// The passphrase is wrong.
    BadSecret,
    /// One side has a passphrase and the other has none.
    Unsecure,
    /// The caller wants messages of more than one packet or file mode.
    Congestion,
    /// The caller wants a packet filter.
    Filter,
    /// The caller wants a bonded group.
    Group,
    /// The cipher is not supported.
    Crypto,
    /// The `streamid` holds no stream key.
    BadRequest,
    /// The stream key is unknown.
    Unauthorized,
    /// Too many connections or wrong keys.
    Overload,
    /// The stream may not be published now, or not from this address.
    Forbidden,
    /// The `streamid` asks for something else than publishing.
    BadMode,
    /// The stream is already published.
    Conflict,
    /// The service cannot decide or is going down; another try may help.
    Down,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 15] = [
        Self::Rogue,
        Self::Version,
        Self::BadSecret,
        Self::Unsecure,
        Self::Congestion,
        Self::Filter,
        Self::Group,
        Self::Crypto,
        Self::BadRequest,
        Self::Unauthorized,
        Self::Overload,
        Self::Forbidden,
        Self::BadMode,
        Self::Conflict,
        Self::Down,
    ];

    /// The number that the library of the caller gives.
    pub fn code(self) -> u32 {
        match self {
            Self::Rogue => 4,
            Self::Version => 8,
            Self::BadSecret => 10,
            Self::Unsecure => 11,
            Self::Congestion => 13,
            Self::Filter => 14,
            Self::Group => 15,
            Self::Crypto => 17,
            Self::BadRequest => 1_400,
            Self::Unauthorized => 1_401,
            Self::Overload => 1_402,
            Self::Forbidden => 1_403,
            Self::BadMode => 1_405,
            Self::Conflict => 1_409,
            Self::Down => 1_503,
        }
    }

    /// The handshake type on the wire.
    pub(super) fn handshake_type(self) -> u32 {
        TYPE_BASE + self.code()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_far_from_handshake_types() {
        let codes: std::collections::BTreeSet<u32> = Reason::ALL.into_iter().map(Reason::code).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        assert!(Reason::ALL.into_iter().all(|reason| reason.handshake_type() > TYPE_BASE));
        assert_eq!(Reason::Unauthorized.handshake_type(), 2_401);
    }
}
