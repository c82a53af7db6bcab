//! The harness of the end-to-end tests: it starts the built `satcast` binary and everything around it.
//!
//! Nothing here links the service. A test sees what an operator, an encoder, an RTMP server or an API client sees:
//! commands, sockets, HTTP answers and the log. The peers are real (ffmpeg, nginx with its RTMP module), plus an
//! RTMP sink of the tests that imitates failures of real servers: stalls, refusals, crashes, restarts.
//!
//! * [`service`], [`api`], [`hosted`] and [`database`]: the service under test; [`postgres`]: a server for its database
//! * [`encoder`], [`obs`], [`caller`], [`coded`]: publishers (ffmpeg; the messages of OBS; single RTMP calls and
//!   hostile bytes; other codecs)
//! * [`nginx`], [`sink`], [`receiver`]: receivers (of media; of webhooks, verified by the official library)
//! * [`tls`]: certificate authorities and the certificates they sign
//! * [`http`], [`playlist`], [`hls`], [`player`]: viewers (every byte counted; strict parsing; in a browser)
//! * [`probe`], [`boxes`]: ffprobe, ffmpeg and the file format itself to check the received media
//! * [`lnbits`], [`nwc`]: third-party wallets; [`s3`] (with `checksums`): an object store
//! * [`clients`]: third-party tools and generated clients for the committed API document
//! * [`reader`]: pastes the shell blocks of the documents; [`release`] and [`machine`]: packages, and a system to install them in
//! * [`network`]: hosts in network namespaces, which lose packets when they are told to; [`lossy`]: a relay of UDP that does
//! * [`scene`], [`author`]: hostile drivers next to a stream that must lose nothing; the steps of a driver's author
//! * [`source`], [`flv`], [`record`]: the media, and the comparison of two copies
//! * [`crowd`], [`load`], [`node_media_server`], [`peer`], [`figures`]: tools of the benchmarks (viewers; publishers and servers with
//!   stamped frames; peers; results and their tables)
//! * [`said`]: the texts that tests match because no code or state exists
//! * [`process`], [`usage`], [`ports`], [`wait`], [`soak`]: child processes that always end, resources of a process, free ports, bounded
//!   waits, rounds
//!
//! Tests wait for conditions, never for a fixed time; each wait has a limit and names its condition. A failed
//! expectation panics: that is how a test fails.

pub mod api;
pub mod author;
pub mod boxes;
pub mod caller;
mod checksums;
pub mod clients;
pub mod coded;
pub mod crowd;
pub mod dashboard;
pub mod database;
mod driver_copies;
pub mod encoder;
pub mod figures;
pub mod flv;
pub mod hls;
pub mod hosted;
pub mod http;
pub mod lnbits;
pub mod load;
pub mod lossy;
pub mod lowlatency;
pub mod machine;
pub mod moved;
pub mod network;
pub mod nginx;
pub mod node_media_server;
pub mod nwc;
pub mod obs;
pub mod peer;
pub mod player;
pub mod playlist;
pub mod ports;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod reader;
pub mod receiver;
pub mod record;
pub mod release;
pub mod s3;
pub mod said;
pub mod scene;
pub mod service;
pub mod sink;
pub mod soak;
pub mod source;
pub mod tls;
pub mod usage;
pub mod verifiers;
pub mod wait;
