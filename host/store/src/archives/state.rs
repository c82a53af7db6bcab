//! What becomes of a recording.

/// What became of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveState {
    /// Media is added to it.
    Recording,
    /// Its session has ended and its upload goes on.
    Uploading,
    /// The store confirmed it.
    Ready,
    /// Its upload was given up; it is kept here for a while.
    Failed,
}

impl ArchiveState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Recording, Self::Uploading, Self::Ready, Self::Failed];

    /// The name in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recording => "recording",
            Self::Uploading => "uploading",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

    /// The state with that name, or `None`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_survives_its_name() {
        for state in ArchiveState::ALL {
            assert_eq!(ArchiveState::parse(state.as_str()), Some(state));
        }
        assert_eq!(ArchiveState::parse("lost"), None);
    }
}
