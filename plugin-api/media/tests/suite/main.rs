//! Tests over the public interface: sessions against each other, hostile peers, the fuzz corpus, packaged
//! streams.

mod common;
mod corpus;
mod hostile;
mod oracle;
mod playback;
mod sessions;
mod texts;
