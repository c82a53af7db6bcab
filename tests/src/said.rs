//! Texts of the service that tests need because nothing else shows an outcome: log lines without a code, reasons of a destination.
//!
//! Each is here once, so that a new wording changes this file and no test. Tests use a code, a state or an exit status where one exists.

/// Log: beginning of a line about the process of an isolated driver; its name follows.
pub const DRIVER_PROCESS: &str = "the process of driver ";
/// Log: the driver crashed so often that it is set aside.
pub const CRASHED_THREE_TIMES: &str = "crashed 3 times";
/// Log: beginning of a line about a destination that failed and reconnects; `attempt=` counts the failures in a row.
pub const RECONNECTS: &str = "destination failed; retrying";
/// Log: too many accounts failed; no account may use the driver.
pub const FOR_EACH_ACCOUNT: &str = "for each of";
/// Log: a call did not return in time.
pub const CALL_HANGS: &str = "did not return from a call";
/// Log and reason: on threads of the service, a driver's call did not return in time.
pub const DOES_NOT_RETURN: &str = "does not return";
/// Reason: the driver did not return when the destination was opened.
pub const OPENING_HANGS: &str = "did not return from opening the destination";
/// Log: the process was silent for too long.
pub const SILENT: &str = "no sign of life";
/// Log: the process took more memory than its limit.
pub const TOO_MUCH_MEMORY: &str = "took more memory than its";
/// Log of a test driver: its first packet came.
pub const ATTACK_BEGINS: &str = "the attack begins";
/// Log of a test driver: it panics at its start.
pub const PANICS_AT_START: &str = "asked to panic at its start";
/// Log of a test driver, with `taken=`: an open destination was offered a new configuration.
pub const NEW_CONFIGURATION: &str = "new configuration for a running destination";
/// Log: a driver panicked as often as it may.
pub const PANICKED_THREE_TIMES: &str = "panicked 3 times";
/// Reason: a driver is set aside for one account.
pub const FOR_ONE_ACCOUNT: &str = "for this account";
/// Reason: the file that should replace a running driver is not a driver.
pub const KEEPS_RUNNING: &str = "runs on without the refused change";
/// Log: the drivers folder is not trusted; running drivers are kept.
pub const NOT_CHECKED: &str = "driver not checked";
/// Log: the bucket lets browsers play nothing, or not everything.
pub const NO_BUCKET_RULE: &str = "[archive] playback = \"signed\": ";
/// Log: a configuration cannot be read at a reload.
pub const RELOAD_REFUSED: &str = "the running one stays in use";
/// Log: a reload has taken a configuration over.
pub const RELOADED: &str = "the configuration was read again";
/// Log: changes of a reload that wait for a restart.
pub const WAITS: &str = "wait for a restart of the service";
/// Log: a session ended.
pub const SESSION_ENDED: &str = "session ended";
/// Log: a minute cannot be stored.
pub const CHARGE_WAITS: &str = "a minute cannot be charged";
/// Log: a node has lost its lease.
pub const LEASE_LOST: &str = "the node has lost its lease";
/// Refusal: another node has the name.
pub const NODE_TAKEN: &str = "another node runs with the name";
/// Log: a certificate was replaced by a newer one.
pub const CERTIFICATE_RENEWED: &str = "certificate was renewed";
/// Refusal: certificate and key are not of one pair.
pub const NO_PAIR: &str = "does not belong to the certificate";
/// Refusal: the certificate's file cannot be read.
pub const NO_CERTIFICATE: &str = "cannot read [ingest] tls_cert";
/// Refusal: the key file of a database is missing.
pub const NO_KEY_FILE: &str = "secret.key is missing";
/// Refusal: another service uses the database.
pub const DATABASE_IN_USE: &str = "another satcast is running";
/// Reason: a destination would send a stream into itself.
pub const SENDS_INTO_ITSELF: &str = "comes from this stream itself";
/// Log: an encoder's address is not allowed.
pub const ADDRESS_NOT_ALLOWED: &str = "may not be used from this address";
/// Reason: a server takes nothing.
pub const TAKES_NOTHING: &str = "takes no data";
/// Reason: a server takes less than is sent.
pub const TAKES_LESS: &str = "takes less than the stream sends";
/// Reason: a server does not take a codec.
pub const CODEC_NOT_TAKEN: &str = "does not accept";
/// Doctor: the LNbits wallet answers.
pub const LNBITS_ANSWERS: &str = "lnbits answers";
/// Reason: a server did not answer to `publish` in time.
pub const NOT_ACCEPTED_IN_TIME: &str = "did not accept the stream within";
/// Reason: a server closed the connection.
pub const CONNECTION_CLOSED: &str = "closed the connection";
/// Reason: nothing listens at the address.
pub const CONNECTION_REFUSED: &str = "refused";
/// Reason: no name server knows the host.
pub const NAME_UNKNOWN: &str = "cannot resolve";
/// Reason: no authority trusted by the service signed the server's certificate.
pub const UNKNOWN_AUTHORITY: &str = "not signed by an authority";
/// Reason: the server's certificate is of another host.
pub const ANOTHER_NAME: &str = "is for another host name";
/// Reason: the server does not answer to TLS.
pub const NO_TLS: &str = "does not speak TLS";
/// Log: reasons for refused publishers: an unknown key, a second publisher, bytes of another protocol, a hostile message, no publish
/// in time.
pub const REFUSED_PUBLISHERS: [&str; 5] =
    ["unknown stream key", "already publishing", "not plain rtmp", "nested too deep", "no publish within"];
/// Log: drivers built from one source that are refused: the case, and a part of the reason.
pub const REFUSED_DRIVERS: &[(&str, &str)] = &[
    ("noentry", "satcast_driver_entry"),
    ("undefined", "satcast_no_such_function"),
    ("aborts", "signal 6"),
    ("hangs", "did not load within"),
    ("exits", "exits"),
    ("notable", "offers no table"),
    ("magic", "magic"),
    ("future", "999"),
    ("short", "100 bytes"),
    ("nostop", "lacks the function stop"),
    ("noname", "must be 1 to 32 characters"),
    ("another", "rename the file to renamed.so"),
    ("badmanifest", "manifest cannot be read"),
    ("notypes", "names 0 destination types"),
    ("badtype", "bad or repeated destination type"),
    ("badschema", "schema of type badschema is invalid"),
    ("remote", "only references inside the schema"),
    ("vast", "its manifest has"),
    ("looks", "schema of type looks is invalid"),
    ("swells", "schema of type swells is invalid"),
    ("taken", "serves type rtmp, which another driver serves"),
    ("initfails", "it will not start today"),
    ("inithangs", "inithangs"),
    ("pinned", "pins 0000"),
    ("world", "writable by its group or by everyone"),
];
/// Log: files that are not a library for this machine, and a part of the reason.
pub const REFUSED_FILES: &[(&str, &str)] = &[
    ("text", "cannot be opened"),
    ("empty", "cannot be opened"),
    ("cut", "crashes when it is loaded (signal 7)"),
    ("othercpu", "cannot be opened"),
    ("folder", "is no regular file"),
    ("pipe", "is no regular file"),
    ("absent", "absent"),
];
/// Log: a caller by SRT sent an unknown stream key.
pub const SRT_UNKNOWN_KEY: &str = "refused with code 1401";
/// Log: the same for a driver that runs on threads and would unwind into the service.
pub const UNWINDS: (&str, &str) = ("unwinds", "panic = \"abort\"");
/// Log: a driver's process ended by an access to memory that is not its own, or by `abort`.
pub const SIGNAL_FAULT: &str = "signal 11";
/// See [`SIGNAL_FAULT`].
pub const SIGNAL_ABORT: &str = "signal 6";
/// Log: media came back to its own stream.
pub const LOOP: &str = "this media comes from this stream itself";

/// VLC, whose clock a busy machine holds up.
pub const VLC_LATE: &str = "is called too late";
