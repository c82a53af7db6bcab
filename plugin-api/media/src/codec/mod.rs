//! Codec configuration records.
