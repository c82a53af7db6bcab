//! States of a recording.

/// State of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveState {
    /// Media is being added.
    Recording,
    /// The session has ended and the upload continues.
    Uploading,
    /// The store confirmed the upload.
    Ready,
    /// The upload was given up; the file is kept locally for a while.
    Failed,
}

impl ArchiveState {
    pub const ALL: [Self; 4] = [Self::Recording, Self::Uploading, Self::Ready, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recording => "recording",
            Self::Uploading => "uploading",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

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
