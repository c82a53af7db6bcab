//! The harness of the end-to-end tests: it starts the built `satcast` binary and everything around it.
//!
//! Nothing here links the service. A test sees what an operator, an encoder, an RTMP server or an API client sees:
//! commands, sockets, HTTP answers and the log. The peers are real (ffmpeg, nginx with its RTMP module), plus an
//! RTMP sink of our own that can do what a real one does on a bad day: stall, refuse, die, come back.
//!
//! * [`service`], [`api`], [`hosted`] and [`database`]: the service under test; [`postgres`]: a server for its database
//! * [`encoder`], [`obs`], [`caller`], [`coded`]: who publishes (ffmpeg; as OBS does, message for message; single RTMP calls and
//!   hostile bytes; other codecs)
//! * [`nginx`], [`sink`], [`receiver`]: who receives (media; webhooks, verified by the official library)
//! * [`tls`]: certificate authorities and the certificates they sign
//! * [`http`], [`playlist`], [`hls`], [`player`]: who watches (every byte counted; strictly read; in a browser)
//! * [`probe`], [`boxes`]: ffprobe, ffmpeg and the file format itself as judges of what was watched
//! * [`lnbits`], [`nwc`]: wallets that others wrote; [`s3`]: a store of objects
//! * [`clients`]: tools and clients that others made, from the committed API document
//! * [`scene`], [`author`]: drivers that do their worst beside a stream that must lose nothing; what a driver's author does
//! * [`source`], [`flv`], [`record`]: the media itself, and how two copies of it are compared
//! * [`crowd`], [`load`], [`node_media_server`], [`figures`]: what the benchmarks need (viewers; publishers and servers with
//!   stamped frames; a peer; repeats and medians)
//! * [`said`]: texts by which alone an outcome is known, each once
//! * [`process`], [`usage`], [`ports`], [`wait`], [`soak`]: children that always end, what a process holds, ports of one's own, bounded
//!   waits, rounds
//!
//! Waits are for conditions, never for a time to pass, and each has a limit and says what it waited for. A failed
//! expectation panics: that is how a test fails.

pub mod api;
pub mod author;
pub mod boxes;
pub mod caller;
pub mod clients;
pub mod coded;
pub mod crowd;
pub mod database;
pub mod encoder;
pub mod figures;
pub mod flv;
pub mod hls;
pub mod hosted;
pub mod http;
pub mod lnbits;
pub mod load;
pub mod lowlatency;
pub mod moved;
pub mod nginx;
pub mod node_media_server;
pub mod nwc;
pub mod obs;
pub mod player;
pub mod playlist;
pub mod ports;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod receiver;
pub mod record;
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
