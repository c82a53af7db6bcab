/*
 * The Satcast driver contract: the boundary between the service and a driver.
 *
 * Made from plugin-api/src/abi by `cargo xtask header`; do not edit.
 *
 * Nothing but fixed-width integers, pointers and structs made of them appears here, so a compiler of any
 * language can be used on either side. The C header `include/satcast_driver.h` is generated from this module; constants have the prefix
 * `SATCAST_` there. Rules that hold for all of it:
 *
 * - Text (`SatcastStr`) is UTF-8, not terminated, borrowed for the call only: the receiver copies the text if it keeps it.
 * - No side frees memory of the other side. A buffer that outlives a call carries its own release function.
 * - Structs begin with their size. A reader uses no more than `min(size, its own size)` bytes of a struct; neither side writes
 *   beyond the size of a struct that the other side allocated. Within one major version fields are only appended.
 * - Unknown flag bits are ignored, unused ones are zero.
 * - New abilities are extensions looked up by name, `name/N`. A changed one is a new `N`; an extension named `draft.*` may still
 *   change.
 * - Another major version is refused; another minor version never is.
 * - No unwinding crosses the boundary, in either direction: C++ functions are `noexcept`, Rust ones catch panics.
 *
 * Thread marks begin the description of each function. `[control]`: the host calls it on the one control thread of the driver, never two
 * at once; a call that does not return in time makes the host abandon the driver. `[pump]`: the host calls it on the one thread that
 * wakes the driver, which may be a thread of the driver itself (`SatcastPump`). `[any]`: from any thread, from several at once. The
 * text after the mark says when in the life of the driver or of the destination it may be called.
 */

#ifndef SATCAST_DRIVER_H
#define SATCAST_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/**
 * The one symbol a driver library exports, of type `SatcastDriverEntry`.
 */
#define SATCAST_ENTRY_SYMBOL "satcast_driver_entry"

/**
 * Driver extension: changes of configuration without a new connection, see `SatcastReconfigure`.
 */
#define SATCAST_EXT_RECONFIGURE "satcast.reconfigure/1"

/**
 * Host extension: checked outbound connections, see `SatcastNet`.
 */
#define SATCAST_EXT_NET "satcast.net/1"

/**
 * Host extension, since minor version 9: checked outbound UDP sockets. Its struct is `SatcastNet` too; the descriptor is a
 * non-blocking UDP socket that is connected to one checked address, so that it sends to this address alone and takes nothing from
 * others.
 */
#define SATCAST_EXT_UDP "satcast.udp/1"

/**
 * Host extension: a private folder of the driver, see `SatcastDataDir`.
 */
#define SATCAST_EXT_DATA_DIR "satcast.data-dir/1"

/**
 * Host extension: files the host serves to viewers for the driver, see `SatcastAssets`.
 */
#define SATCAST_EXT_ASSETS "satcast.assets/1"

/**
 * Host extension: the operator's settings for the driver, see `SatcastSettings`.
 */
#define SATCAST_EXT_SETTINGS "satcast.settings/1"

/**
 * Host extension: threads that wait for media of many destinations, see `SatcastWait`.
 */
#define SATCAST_EXT_WAIT "satcast.wait/1"

/**
 * Host extension, since minor version 5: the destination that a thread works for, see `SatcastWorking`.
 */
#define SATCAST_EXT_WORKING "satcast.working/1"

/**
 * Host extension, since minor version 7: a driver makes the calls of its pump thread itself, see `SatcastPump`.
 */
#define SATCAST_EXT_PUMP "satcast.pump/1"

/**
 * Driver extension: recordings that outlive their sessions, see `SatcastRecordings`.
 */
#define SATCAST_EXT_RECORDINGS "satcast.recordings/1"

/**
 * Host extension: the driver reports changes of recordings, see `SatcastRecordingsHost`.
 */
#define SATCAST_EXT_RECORDINGS_HOST "satcast.recordings-host/1"

/**
 * Host extension: encryption of text that only this driver can read, see `SatcastVault`.
 */
#define SATCAST_EXT_VAULT "satcast.vault/1"

/**
 * Driver extension: requests of viewers, see `SatcastHttp`.
 */
#define SATCAST_EXT_HTTP "satcast.http/1"

/**
 * Host extension: answers to them, see `SatcastHttpHost`.
 */
#define SATCAST_EXT_HTTP_HOST "satcast.http-host/1"

/**
 * The queue of one destination, owned by the host, released with `SatcastHost.media_release`.
 */
typedef struct SatcastMedia SatcastMedia;
typedef struct SatcastPacket SatcastPacket;


/**
 * First eight bytes of every driver table: the text `SATCAST` and a format number, as a little-endian number.
 */
#define SATCAST_MAGIC 95793031849197907

/**
 * Drivers of another major version are refused.
 */
#define SATCAST_ABI_MAJOR 1

/**
 * Grows with every appended field or extension; never a reason to refuse.
 */
#define SATCAST_ABI_MINOR 9

/**
 * Driver flag: a panic stays inside the driver, because the library was compiled with unwinding panics, or in a language without
 * them. A driver without the flag does not run inside the host's process.
 */
#define SATCAST_FLAG_PANIC_UNWIND 1

/**
 * Driver flag, since minor version 4: packets must not be lost when a destination is slow. The host spools them to disk, up to the operator's
 * limit, instead of dropping them.
 */
#define SATCAST_FLAG_LOSSLESS (1 << 1)

/**
 * Host flag: the driver is linked into the host binary; it must not install process-wide hooks or log subscribers.
 */
#define SATCAST_HOST_FLAG_STATIC 1

/**
 * Packet can be decoded without an earlier packet of its track.
 */
#define SATCAST_PACKET_KEYFRAME 1

/**
 * `data` is the codec configuration record of the track, not media.
 */
#define SATCAST_PACKET_CONFIG (1 << 1)

/**
 * Packets before this one are missing (dropped for this destination, or the encoder was away).
 */
#define SATCAST_PACKET_DISCONTINUITY (1 << 2)

/**
 * `kind` of a video packet.
 */
#define SATCAST_KIND_VIDEO 1

/**
 * `kind` of an audio packet.
 */
#define SATCAST_KIND_AUDIO 2

/**
 * `codec`: H.264, length-prefixed NAL units; configuration is an `AVCDecoderConfigurationRecord`.
 */
#define SATCAST_CODEC_H264 1

/**
 * `codec`: HEVC, length-prefixed NAL units; configuration is an `HEVCDecoderConfigurationRecord`.
 */
#define SATCAST_CODEC_HEVC 2

/**
 * `codec`: AV1, OBUs without temporal delimiters; configuration is an `AV1CodecConfigurationRecord`.
 */
#define SATCAST_CODEC_AV1 3

/**
 * `codec`: raw AAC frames; configuration is an `AudioSpecificConfig`.
 */
#define SATCAST_CODEC_AAC 4

/**
 * `codec`: Opus packets; configuration is an `OpusHead` (RFC 7845).
 */
#define SATCAST_CODEC_OPUS 5

/**
 * Destination state: connecting, or connected without media flowing.
 */
#define SATCAST_STATE_CONNECTING 1

/**
 * Destination state: media was written or acknowledged within the last five seconds.
 */
#define SATCAST_STATE_LIVE 2

/**
 * Return code: done.
 */
#define SATCAST_OK 0

/**
 * Return code of `SatcastReconfigure.reconfigure`: only a new opening can take the configuration.
 */
#define SATCAST_REOPEN 1

/**
 * Return code: refused; the reason was reported to the error sink.
 */
#define SATCAST_ERR (-1)

/**
 * Return code: this table has no such function or the object is closed.
 */
#define SATCAST_ERR_CLOSED (-2)

/**
 * Return code: the driver panicked inside the call; the message was reported to the error sink.
 */
#define SATCAST_ERR_PANIC (-3)

/**
 * Error class: the configuration is wrong; not tried again until it changes.
 */
#define SATCAST_CLASS_CONFIG 1

/**
 * Error class: the other side refused the login; tried again slowly.
 */
#define SATCAST_CLASS_AUTH 2

/**
 * Error class: network failure; tried again with back-off.
 */
#define SATCAST_CLASS_NETWORK 3

/**
 * Error class: the other side misbehaved or closed; tried again with back-off.
 */
#define SATCAST_CLASS_REMOTE 4

/**
 * Error class: fault of the driver or host.
 */
#define SATCAST_CLASS_INTERNAL 5

/**
 * Error class: the driver panicked.
 */
#define SATCAST_CLASS_PANIC 6

/**
 * Most queues of one `SatcastWait.wait_any`.
 */
#define SATCAST_WAIT_MEDIA_MAX 1024

/**
 * `SatcastWait.wait_any`: the time is over and no queue has anything.
 */
#define SATCAST_WAIT_TIMEOUT (-1)

/**
 * `SatcastWait.wait_any`: no queue, or more than `SATCAST_WAIT_MEDIA_MAX`, or one of them is null.
 */
#define SATCAST_WAIT_INVALID (-2)

/**
 * Body in memory: `data`, `len`.
 */
#define SATCAST_BODY_MEMORY 1

/**
 * Body in a file below the driver's data folder: `source` is its relative path, `offset` and `len` select the bytes. The
 * file must not change until `release`. An open file may be removed before that.
 */
#define SATCAST_BODY_FILE 2

/**
 * Body made of other assets of the same destination, concatenated: `source` holds their names, one in each line.
 * They are looked up when a viewer asks.
 */
#define SATCAST_BODY_PARTS 3

/**
 * Viewers with a key may fetch the asset.
 */
#define SATCAST_AUDIENCE_HOSTED 1

/**
 * Viewers of the preview may fetch the asset.
 */
#define SATCAST_AUDIENCE_PREVIEW (1 << 1)

/**
 * `SatcastAsset.flags`: viewers may wait for a later version of this playlist (since minor version 4).
 */
#define SATCAST_ASSET_RELOAD 1

/**
 * `SatcastAsset.flags`: a media segment, fragmented MP4 whose samples are the payloads of packets (since minor version 5). The
 * backfill for destinations with `wantsPast` is read from these.
 */
#define SATCAST_ASSET_SEGMENT (1 << 1)

/**
 * `SatcastPlayback`: the playlists are complete, no more media follows.
 */
#define SATCAST_PLAYBACK_ENDED 1

/**
 * A request for head and body.
 */
#define SATCAST_HTTP_GET 1

/**
 * A request for the head only. The answer may have a body: the host leaves it out.
 */
#define SATCAST_HTTP_HEAD 2

/**
 * Body of an answer in an open file: `SatcastHttpResponse.descriptor`, `offset` and `len` select the bytes. It must be a readable
 * regular file that does not get shorter.
 */
#define SATCAST_BODY_DESCRIPTOR 4

/**
 * `SatcastRecordings.remove`: delete the object in the store as well.
 */
#define SATCAST_REMOVE_REMOTE 1

/**
 * Most packets that one [`Media::recv_batch`] returns.
 */
#define SATCAST_BATCH_PACKETS_MAX 64

/**
 * Most recordings that a [`Listing`] names because they break a rule; it only counts the others.
 */
#define SATCAST_REFUSED_NAMED_MAX 4

/**
 * Longest address a driver signs, in bytes.
 */
#define SATCAST_SIGNED_BYTES_MAX (16 * 1024)

/**
 * Most routes of one destination type.
 */
#define SATCAST_ROUTES_MAX 16

/**
 * Longest path and longest query of a request, in bytes each.
 */
#define SATCAST_REQUEST_TEXT_BYTES_MAX 1024

/**
 * Most requests of one destination that may wait for their answers.
 */
#define SATCAST_IN_FLIGHT_MAX 64

/**
 * Longest time for an answer of a driver, in seconds.
 */
#define SATCAST_ANSWER_SECS 10

/**
 * Longest time for an answer on a long route, in seconds.
 */
#define SATCAST_LONG_ANSWER_SECS 30

/**
 * Most headers of an answer.
 */
#define SATCAST_HEADERS_MAX 32

/**
 * Most bytes of all headers of an answer.
 */
#define SATCAST_HEADER_BYTES_MAX (8 * 1024)

/**
 * Longest media type in bytes.
 */
#define SATCAST_CONTENT_TYPE_BYTES_MAX 128

/**
 * Largest body in memory, in bytes.
 */
#define SATCAST_BODY_BYTES_MAX ((64 * 1024) * 1024)

/**
 * Borrowed UTF-8 text, valid for the call only. `ptr` may be null when `len` is 0.
 */
typedef struct SatcastStr {
    /**
     * First byte.
     */
    const uint8_t *ptr;
    /**
     * Bytes.
     */
    size_t len;
} SatcastStr;

/**
 * One field of a log line.
 */
typedef struct SatcastKv {
    /**
     * Field name.
     */
    struct SatcastStr key;
    /**
     * Value as text.
     */
    struct SatcastStr value;
} SatcastKv;

/**
 * An error: the reason, whether to try again, and when.
 */
typedef struct SatcastError {
    /**
     * Size of this struct in bytes.
     */
    uint32_t size;
    /**
     * `CLASS_*`.
     */
    uint32_t error_class;
    /**
     * Minimum wait before the next try in milliseconds; 0 = the host decides.
     */
    uint32_t retry_ms;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * One sentence for the owner of the destination, without secrets.
     */
    struct SatcastStr message;
} SatcastError;

/**
 * Takes the error of a call. A null sink ignores it.
 */
typedef struct SatcastErrorSink {
    /**
     * Passed back to `put`.
     */
    void *data;
    /**
     * `[any]`, during the call that received the sink, at most once. Copies before it returns. May be null.
     */
    void (*put)(void *data, const struct SatcastError *error);
} SatcastErrorSink;

/**
 * Takes a text from a function.
 */
typedef struct SatcastTextSink {
    /**
     * Passed back to `put`.
     */
    void *data;
    /**
     * During the call that received the sink, at most once unless that call allows more. Copies before it returns.
     */
    void (*put)(void *data, struct SatcastStr text);
} SatcastTextSink;

/**
 * Reference counting of a packet.
 */
typedef struct SatcastPacketVt {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]` One more reference. The caller holds one.
     */
    void (*retain)(const struct SatcastPacket *packet);
    /**
     * `[any]` Drops a reference that the caller held; the last one frees the packet. Allowed after `stopped`, `destroy` and
     * `deinit`, too.
     */
    void (*release)(const struct SatcastPacket *packet);
} SatcastPacketVt;

/**
 * One media packet: immutable, reference counted, leased to one destination. Packets of one destination come in the order the
 * encoder sent them. All fields stay readable for as long as the driver holds a reference, also after `stopped`.
 */
typedef struct SatcastPacket {
    /**
     * Size of this struct in bytes.
     */
    uint32_t size;
    /**
     * `SATCAST_PACKET_*`.
     */
    uint32_t flags;
    /**
     * `SATCAST_KIND_*`.
     */
    uint32_t kind;
    /**
     * `SATCAST_CODEC_*`; a driver leaves out packets of codecs it does not know.
     */
    uint32_t codec;
    /**
     * Track number inside its kind, from 0.
     */
    uint32_t track;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * Session the packet belongs to; equal for all destinations of it.
     */
    uint64_t source;
    /**
     * Position in the session, growing by one; equal for all destinations of it. 0 for packets of the backfill of a destination
     * with `wantsPast`.
     */
    uint64_t sequence;
    /**
     * Decode time on the session's timeline in nanoseconds; never falls within a track.
     */
    int64_t dts_ns;
    /**
     * Presentation time on the session's timeline in nanoseconds.
     */
    int64_t pts_ns;
    /**
     * Payload in the form described at `SATCAST_CODEC_*`; must not be written to.
     */
    const uint8_t *data;
    /**
     * Payload in bytes.
     */
    size_t len;
    /**
     * Reference counting; never null.
     */
    const struct SatcastPacketVt *vt;
} SatcastPacket;

/**
 * How the host notifies a waiting driver of media. The host calls exactly one of the two functions, once.
 */
typedef struct SatcastWaker {
    /**
     * Passed back to the function; owned by the host until then.
     */
    void *data;
    /**
     * `[pump]` Media is available, or the queue was closed. Must return at once: it runs on the one thread that wakes all destinations
     * of the driver.
     */
    void (*wake)(void *data);
    /**
     * `[any]` The waker is no longer needed. Must return at once.
     */
    void (*drop)(void *data);
} SatcastWaker;

/**
 * Input of `SatcastDriver.open`. Everything is borrowed for the call except `media`, which the driver owns from then on.
 */
typedef struct SatcastOpen {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * Number of this opening, named in every later call about it. Never 0, never used twice: a call that names an opening which has
     * ended does nothing.
     */
    uint64_t dest;
    /**
     * Session of the media; all destinations of a session share it.
     */
    uint64_t source;
    /**
     * Destination type, one of those in the manifest.
     */
    struct SatcastStr type_name;
    /**
     * Configuration as JSON, valid by the type's schema, at most 64 KiB.
     */
    struct SatcastStr config_json;
    /**
     * The queue. The driver releases it once, also when it refuses to open.
     */
    SatcastMedia *media;
    /**
     * Since minor version 2, so only where `size` says that it is there. Facts about the opening, as a JSON object: `destinationId`,
     * `sessionId`, `streamKeyId`, `label`, `sessionStartedMs`, `accountId`, `via`. Fields may be added, and each may be missing.
     */
    struct SatcastStr about_json;
} SatcastOpen;

/**
 * A counter that the driver asks for.
 */
typedef struct SatcastMetricDesc {
    /**
     * Size of this struct in bytes.
     */
    uint32_t size;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * The host knows `bytes_sent`: payload handed to the other side, in bytes. It shows other names as they are.
     */
    struct SatcastStr name;
} SatcastMetricDesc;

/**
 * The host's table for one driver, given to `SatcastDriver.init`, valid until the process ends. Every function may be called from
 * any thread and at any time after `init` began; a call about an opening that has ended does nothing. None of them blocks. A
 * function that this host does not have is null, or lies beyond `size`.
 */
typedef struct SatcastHost {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `SATCAST_ABI_MINOR` of the host.
     */
    uint32_t abi_minor;
    /**
     * `SATCAST_HOST_FLAG_*`.
     */
    uint32_t flags;
    /**
     * Log level gate, read with one atomic load: 0 off, 1 error, 2 warn, 3 info, 4 debug, 5 trace. Lines above it need not be sent.
     */
    const uint32_t *max_level;
    /**
     * Passed as first argument to every function of this table and of the host's extensions.
     */
    void *ctx;
    /**
     * `[any]` One log line: `level` as in `max_level`, `target` the part of the driver, `message` a constant phrase, `fields` the
     * facts (null when `field_count` is 0). `dest` 0 is the driver itself. 200 lines a second and destination, 4 KiB each text;
     * the host removes secrets of the destination's configuration.
     */
    void (*log)(void *ctx,
                uint64_t dest,
                uint32_t level,
                struct SatcastStr target,
                struct SatcastStr message,
                const struct SatcastKv *fields,
                size_t field_count);
    /**
     * `[any]` Between `open` and `stopped`: the destination is now in `SATCAST_STATE_*`; `reason` may be null.
     */
    void (*state)(void *ctx, uint64_t dest, uint32_t state, const struct SatcastError *reason);
    /**
     * `[any]` Between `open` and `stopped`: an event for the owner. `json` is an object of at most 16 KiB without
     * secrets; a longer one is left out. The owner sees `null` instead of an object of over 4 KiB.
     */
    void (*event)(void *ctx, uint64_t dest, struct SatcastStr name, struct SatcastStr json);
    /**
     * `[any]` From `open` on: puts a counter into `slot` that lives as long as the process; afterwards the driver adds to it with
     * atomic additions, without a call. The same name gives the same counter. Returns `SATCAST_OK`, or `SATCAST_ERR` when
     * 64 others exist.
     */
    int32_t (*metric)(void *ctx, uint64_t dest, const struct SatcastMetricDesc *desc, uint64_t **slot);
    /**
     * `[any]`, one thread at a time for each queue, until `media_release`. Takes up to `cap` (at least 1) packets, one reference
     * each. Returns their number; 0 when there is none yet, and then keeps the waker; -1 when the queue is closed and empty. The
     * waker, which must not be null, is dropped in the other cases, and when a later call passes another one.
     */
    ptrdiff_t (*media_recv)(void *ctx,
                            SatcastMedia *media,
                            const struct SatcastPacket **out,
                            size_t cap,
                            const struct SatcastWaker *waker);
    /**
     * `[any]` Releases the queue, once; its waker is dropped. Packets taken before stay valid.
     */
    void (*media_release)(void *ctx, SatcastMedia *media);
    /**
     * `[any]` Once for each opening that succeeded: the destination has ended; null = as requested, else the reason. The host destroys the instance
     * after this, on the control thread, perhaps before this call returns: do not use the instance afterwards.
     */
    void (*stopped)(void *ctx, uint64_t dest, const struct SatcastError *error);
    /**
     * `[any]` Abilities of the host by name (`SATCAST_EXT_*`), structs that begin with their size and live as long as the process;
     * null for an unknown name.
     */
    const void *(*get_extension)(void *ctx, struct SatcastStr name);
} SatcastHost;

/**
 * The driver's table. One static value for each library, returned by `satcast_driver_entry`.
 */
typedef struct SatcastDriver {
    /**
     * `SATCAST_MAGIC`.
     */
    uint64_t magic;
    /**
     * `SATCAST_ABI_MAJOR` the driver was built with.
     */
    uint32_t abi_major;
    /**
     * `SATCAST_ABI_MINOR` the driver was built with.
     */
    uint32_t abi_minor;
    /**
     * Size of this struct in bytes. The host reads only these 24 bytes before its checks.
     */
    size_t size;
    /**
     * `SATCAST_FLAG_*`.
     */
    uint64_t flags;
    /**
     * Name of the driver: `a-z`, `0-9`, `-`, at most 32. The file is named after it: `<id>.so`.
     */
    struct SatcastStr id;
    /**
     * Semantic version, at most 64 characters are shown.
     */
    struct SatcastStr version;
    /**
     * Compiler, for error reports.
     */
    struct SatcastStr toolchain;
    /**
     * The manifest, as JSON: `{"title": "...", "types": [{"name", "title", "schema", "codecs", "playback", "routes", "wantsPast"}], "settings"}`.
     * `schema` is the JSON Schema (2020-12) of a destination's configuration; a text with `"x-secret": true` is masked everywhere.
     * `codecs` (names as `"h264"`; none = all), `playback` (it publishes for viewers; default false), `routes` (see `SatcastHttp`) and
     * `wantsPast` (a destination that is added to a live stream begins with a backfill of the DVR window; default false; since minor
     * version 4) may be left out, and so may `settings`, the schema of the operator's settings below `[driver.<id>]`. At most 1 MiB, 64 types,
     * 64 KiB for each schema, no references outside a schema.
     */
    struct SatcastStr manifest_json;
    /**
     * `[control]` Once, before everything else, within 5 s. The host table lives as long as the process. Returns `SATCAST_OK`, or
     * `SATCAST_ERR` after a report to `error`: the host then does not use the driver and calls no other function of it.
     */
    int32_t (*init)(const struct SatcastHost *host, const struct SatcastErrorSink *error);
    /**
     * `[control]` After `init`, any number of times. Optional: checks a configuration that its schema accepts, without I/O, within
     * 1 s. Returns `SATCAST_OK` or, after a report to `error`, `SATCAST_ERR`. A message that begins with a field's name and a colon
     * is shown at that field.
     */
    int32_t (*validate)(struct SatcastStr type_name, struct SatcastStr config_json, const struct SatcastErrorSink *error);
    /**
     * `[control]` After `init`, once for each try of a destination. Starts it and returns within 1 s; connecting continues in the
     * background. Puts the driver's own instance into `instance` and returns `SATCAST_OK`; or reports to `error` and returns
     * `SATCAST_ERR`: no instance, no `stopped`, but the queue must be released.
     */
    int32_t (*open)(const struct SatcastOpen *request, void **instance, const struct SatcastErrorSink *error);
    /**
     * `[control]` Between `open` and `destroy`, at most once. Asks for the end and returns at once; the answer is
     * `SatcastHost.stopped`, within `deadline_ms` milliseconds. The queue was closed before; the driver may still take its packets.
     * The call may come after `stopped`, when the driver ended by itself at the same time. The return value is not used.
     */
    int32_t (*stop)(void *instance, uint32_t deadline_ms);
    /**
     * `[control]` Once for each instance, only after it reported `stopped`. Frees it. The driver may still hold packets.
     */
    void (*destroy)(void *instance);
    /**
     * `[control]` The last call. Ends and joins the driver's threads. The library stays mapped.
     */
    void (*deinit)(void);
    /**
     * `[control]` At any time, also before `init`. Optional: abilities of the driver by name (`SATCAST_EXT_RECONFIGURE`, `SATCAST_EXT_RECORDINGS`, `SATCAST_EXT_HTTP`), static
     * structs that begin with their size; null for an unknown name.
     */
    const void *(*get_extension)(struct SatcastStr name);
} SatcastDriver;

/**
 * Returns the driver's table, or null when it cannot serve a host of this major version. `[any]`; must have no side effects:
 * the host calls it whenever it inspects the file, in a separate process.
 */
typedef const struct SatcastDriver *(*SatcastDriverEntry)(uint32_t host_major);

/**
 * `SATCAST_EXT_RECONFIGURE`: a running destination takes a new configuration. Without it the host stops the destination and opens
 * it again.
 */
typedef struct SatcastReconfigure {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[control]` Between `open` and `stop`, any number of times, also after `stopped`, when the driver ended by itself at the same
     * time. Returns within 1 s: `SATCAST_OK` when the configuration is in effect; `SATCAST_REOPEN` when it needs a new opening;
     * `SATCAST_ERR` after a report to `error`, which the host treats as `SATCAST_REOPEN`. The configuration is valid by the type's
     * schema and passed `validate`.
     */
    int32_t (*reconfigure)(void *instance, struct SatcastStr config_json, const struct SatcastErrorSink *error);
} SatcastReconfigure;

/**
 * An address to connect to.
 */
typedef struct SatcastConnect {
    /**
     * Size of this struct in bytes.
     */
    uint32_t size;
    /**
     * For resolving and connecting together, in milliseconds; 0 = the host's default.
     */
    uint32_t timeout_ms;
    /**
     * Name or literal address, without brackets.
     */
    struct SatcastStr host;
    /**
     * TCP or UDP port.
     */
    uint32_t port;
    /**
     * Zero.
     */
    uint32_t reserved;
} SatcastConnect;

/**
 * Callback for the outcome of a connection attempt.
 */
typedef struct SatcastConnected {
    /**
     * Passed back.
     */
    void *data;
    /**
     * `[pump]`, or inside `connect`; once, perhaps after `stopped`. `fd` >= 0: a connected, non-blocking TCP socket with
     * TCP_NODELAY, or UDP socket, that the driver now owns and closes. Else `error` says why. Must return at once.
     */
    void (*done)(void *data, int32_t fd, const struct SatcastError *error);
} SatcastConnected;

/**
 * `SATCAST_EXT_NET`: the host resolves and checks the address by its outbound guard and hands over a connected socket. A driver never
 * connects to a user's address by itself: that would let users reach the operator's own network.
 */
typedef struct SatcastNet {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]` Between `open` and `stopped`, or with `dest` 0 from `init` on, for work that outlives a destination (since minor version 2).
     * Begins a connection attempt and returns at once. `done` is called exactly once, also
     * when this returns an error code.
     */
    int32_t (*connect)(void *ctx, uint64_t dest, const struct SatcastConnect *request, struct SatcastConnected done);
} SatcastNet;

/**
 * `SATCAST_EXT_DATA_DIR`: a private folder of the driver that outlives sessions.
 */
typedef struct SatcastDataDir {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]` From `init` on. Puts the absolute path into `sink`; the folder exists.
     */
    int32_t (*path)(void *ctx, const struct SatcastTextSink *sink, const struct SatcastErrorSink *error);
} SatcastDataDir;

/**
 * Bytes in memory or elsewhere, with the function that releases them.
 */
typedef struct SatcastBody {
    /**
     * `BODY_*`.
     */
    uint32_t kind;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * First byte in the file for `BODY_FILE`.
     */
    uint64_t offset;
    /**
     * Bytes; 0 for `BODY_PARTS`.
     */
    uint64_t len;
    /**
     * First byte in memory for `BODY_MEMORY`.
     */
    const uint8_t *data;
    /**
     * Passed to `release`.
     */
    void *owner;
    /**
     * `[any]` Called exactly once when the bytes are no longer needed, perhaps long after `destroy`; must return at once. May
     * be null.
     */
    void (*release)(void *owner);
} SatcastBody;

/**
 * An asset for viewers.
 */
typedef struct SatcastAsset {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `a-z A-Z 0-9 . _ -`, at most 128 bytes, not beginning with a dot. A name with a cache time must never be reused for other
     * bytes.
     */
    struct SatcastStr name;
    /**
     * Media type.
     */
    struct SatcastStr content_type;
    /**
     * Seconds that caches may keep it; 0 = not at all.
     */
    uint32_t max_age_secs;
    /**
     * `AUDIENCE_*`.
     */
    uint32_t audience;
    /**
     * The bytes.
     */
    struct SatcastBody body;
    /**
     * Path for `BODY_FILE`, names for `BODY_PARTS`, else empty.
     */
    struct SatcastStr source;
    /**
     * `ASSET_*`. This field and those after it: since minor version 4, for playlists that viewers follow; those for segments since minor version 5.
     */
    uint32_t flags;
    /**
     * How far behind the newest media players of this playlist stay, in milliseconds; 0 = unknown.
     */
    uint32_t hold_back_ms;
    /**
     * With `ASSET_RELOAD`: media sequence number of the first segment that is incomplete in this version. A request with `_HLS_msn`
     * waits until this number is higher than the requested one, at most three times `target_ms`.
     */
    uint64_t next_sequence;
    /**
     * With `ASSET_RELOAD`: number of listed parts of that segment, for requests with `_HLS_part`.
     */
    uint32_t next_part;
    /**
     * With `ASSET_RELOAD`: the target duration in milliseconds.
     */
    uint32_t target_ms;
    /**
     * With `ASSET_RELOAD`: name of the asset with the delta update of this version (without old segments), for requests with `_HLS_skip`;
     * empty without one. Publish it before this asset.
     */
    struct SatcastStr delta;
    /**
     * With `ASSET_RELOAD`: name of the next asset. Requests for it wait until it is published. Empty when none follows.
     */
    struct SatcastStr hint;
    /**
     * With `ASSET_SEGMENT`: its media sequence number, which rises with each segment of an opening.
     */
    uint64_t number;
    /**
     * With `ASSET_SEGMENT`: offset from its decode times to those of the packets, in nanoseconds (packet = segment + offset).
     */
    int64_t offset_ns;
    /**
     * With `ASSET_SEGMENT`: wall time of its start, in milliseconds since 1970.
     */
    int64_t start_ms;
    /**
     * With `ASSET_SEGMENT`: name of the asset with its initialization segment; publish that first.
     */
    struct SatcastStr init;
} SatcastAsset;

/**
 * Where viewers of a destination start and what they can see.
 */
typedef struct SatcastPlayback {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * First playlist for viewers with a key. The host puts a viewer's path before each of its URIs.
     */
    struct SatcastStr entry;
    /**
     * The same for viewers of the preview; empty without one.
     */
    struct SatcastStr preview;
    /**
     * Wall time of the oldest media listed, in milliseconds since 1970.
     */
    int64_t first_ms;
    /**
     * Media listed, in milliseconds.
     */
    uint64_t window_ms;
    /**
     * Configured maximum of the DVR window, in milliseconds; 0 = no rewind.
     */
    uint64_t window_max_ms;
    /**
     * How long the playback counts as ready after this call, in milliseconds.
     */
    uint32_t fresh_ms;
    /**
     * `PLAYBACK_*`.
     */
    uint32_t flags;
} SatcastPlayback;

/**
 * `SATCAST_EXT_ASSETS`: named assets that the host serves to viewers without asking the driver again.
 */
typedef struct SatcastAssets {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]` Between `open` and `stopped`. Publishes an asset and replaces an earlier one of the same name. The host owns the body in
     * every case, also when it refuses the asset.
     */
    int32_t (*publish)(void *ctx, uint64_t dest, const struct SatcastAsset *asset, const struct SatcastErrorSink *error);
    /**
     * `[any]` Between `open` and `stopped`. Removes a name. An unknown name is no error.
     */
    int32_t (*retract)(void *ctx, uint64_t dest, struct SatcastStr name);
    /**
     * `[any]` Between `open` and `stopped`. Reports where viewers start and what they can see now. Replaces the earlier report.
     */
    int32_t (*playback)(void *ctx,
                        uint64_t dest,
                        const struct SatcastPlayback *playback,
                        const struct SatcastErrorSink *error);
} SatcastAssets;

/**
 * `SATCAST_EXT_SETTINGS`: the keys of `[driver.<id>]` in the operator's configuration without those that the host reads itself.
 */
typedef struct SatcastSettings {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]` From `init` on. Puts the settings into `sink` as a JSON object, valid by `settings` of the manifest; empty when the manifest
     * has none. They do not change while the driver runs.
     */
    int32_t (*json)(void *ctx, const struct SatcastTextSink *sink, const struct SatcastErrorSink *error);
} SatcastSettings;

/**
 * `SATCAST_EXT_WORKING`, since minor version 5. Hosts may ignore it: this one knows by itself which accounts have work in a
 * process that ends.
 */
typedef struct SatcastWorking {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]`, from `init` on: the calling thread works for the opening `dest` from now on, or with 0 for none. A thread that
     * never calls it works for the opening that it last named to the host. May be called for each packet: it costs a few
     * nanoseconds.
     */
    void (*working)(void *ctx, uint64_t dest);
} SatcastWorking;

/**
 * `SATCAST_EXT_WAIT`: for drivers whose threads serve several destinations each.
 */
typedef struct SatcastWait {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]`, but only on the driver's own threads: the one function of the host that blocks. Waits until one of the `count`
     * queues has packets or is closed and returns its position, the lowest if there are several; or `SATCAST_WAIT_TIMEOUT` after
     * `timeout_ms` milliseconds; or `SATCAST_WAIT_INVALID`. It takes no packets: `media_recv` does. Only one thread at a time may wait for a queue,
     * and the queue must not be released meanwhile; a waker that the queue holds is dropped.
     */
    ptrdiff_t (*wait_any)(void *ctx, SatcastMedia *const *media, size_t count, uint32_t timeout_ms);
} SatcastWait;

/**
 * `SATCAST_EXT_PUMP`, since minor version 7: for drivers with a thread that waits for descriptors. The driver makes the calls that are
 * marked `[pump]` there, so media wakes one thread and not two. Optional: without `take` the host has a pump thread.
 */
typedef struct SatcastPump {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]` From `init` on. The driver makes the calls from now on. Returns an eventfd that the driver owns and closes; or -1, and
     * the host goes on making the calls. The host adds to the eventfd when calls are due. It need not be read where
     * edge-triggered epoll watches it: each addition is an event.
     */
    int32_t (*take)(void *ctx);
    /**
     * `[any]`, one thread at a time, between `take` and `give_back`. Makes all calls that are due, before it returns.
     */
    void (*run)(void *ctx);
    /**
     * `[any]` After `take`, before `deinit` returns. The host makes the calls again, on its pump thread.
     */
    void (*give_back)(void *ctx);
} SatcastPump;

/**
 * Callback for the outcome of a request.
 */
typedef struct SatcastDone {
    /**
     * Passed back.
     */
    void *data;
    /**
     * `[any]` Exactly once, during the request or any time later: null = done, else why not. Must return at once.
     */
    void (*done)(void *data, const struct SatcastError *error);
} SatcastDone;

/**
 * Callback for bytes that were asked for, since minor version 8.
 */
typedef struct SatcastBytesDone {
    /**
     * Passed back.
     */
    void *data;
    /**
     * `[any]` Exactly once, during the request or any time later. `error` null: the `len` bytes at `bytes`, borrowed for the call; else
     * why there are none. Must return at once.
     */
    void (*done)(void *data, const uint8_t *bytes, size_t len, const struct SatcastError *error);
} SatcastBytesDone;

/**
 * `SATCAST_EXT_RECORDINGS`: asked for after `init`. A recording is named by its file name, the object key below the prefix. Its JSON
 * form is an object of at most 32 KiB: `fileName` (1 to 1024 printable ASCII characters, unique over all recordings the driver ever made),
 * `destinationId`, `sessionId`, `state` (`recording`, `uploading`, `ready`, `failed`), `sizeBytes`, `uploadedBytes`, `durationMs`,
 * `error` and `errorClass` (a text and one of `config`, `auth`, `network`, `remote`, `internal`, `panic`; for failed recordings and, since minor
 * version 4, for those whose upload waits for its next try; else null),
 * `url` (or null), `startedAtMs`, `changedAtMs` (grows with every change), `attempt` (retries asked for so far), `attemptOpened` (the
 * store opened the upload of that attempt), `hasCopy` (the driver has a local copy, which a retry needs; true when left out), `gone`
 * (it is no longer at the store, because its retention ended or for the reason in `error`, and the host hides it; false when left out),
 * and since minor version 8 `expiresAtMs` (when the driver will delete it at the store by a rule of its destination; null: it stays)
 * and `asksNotice` (the host must call `announced` before the driver deletes it; false when left out). `audioOnly`: it has no video, so the
 * host offers no poster of it (false when left out).
 */
typedef struct SatcastRecordings {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[control]` Puts every recording the driver still knows into `sink`, one call of `put` for each, within 1 s. A recording that breaks a rule is
     * left out and named in the host's log. Returns `SATCAST_OK`, or `SATCAST_ERR` after a report to `error`.
     */
    int32_t (*list)(const struct SatcastTextSink *sink, const struct SatcastErrorSink *error);
    /**
     * `[control]` Uploads a failed recording again; returns within 1 s. `done` is called when the store has opened the upload or has failed to;
     * the upload continues in the background.
     */
    void (*retry)(struct SatcastStr file_name, struct SatcastDone done);
    /**
     * `[control]` Forgets a recording and removes the local copy, and with `SATCAST_REMOVE_REMOTE` in `flags` also the object in the
     * store; returns within 1 s. `done` is called at the end of that.
     */
    void (*remove)(struct SatcastStr file_name, uint32_t flags, struct SatcastDone done);
    /**
     * `[control]` Puts an address into `sink` that gives access to the object without a login for `valid_secs` seconds: `http://` or
     * `https://`, printable ASCII without spaces, at most 16 KiB. No I/O. Returns `SATCAST_OK`, or `SATCAST_ERR` after a report to `error`.
     */
    int32_t (*sign)(struct SatcastStr file_name,
                    uint32_t valid_secs,
                    const struct SatcastTextSink *sink,
                    const struct SatcastErrorSink *error);
    /**
     * Since minor version 4, so only where `size` says that it is there; optional. `[control]` The current configuration of a destination:
     * called after a change, and from `init` on for destinations with recordings, also without a change. `config_json` is
     * empty when the destination was deleted. No slow I/O. Returns `SATCAST_OK`, or `SATCAST_ERR` after a report to `error`;
     * then the host calls again later.
     */
    int32_t (*configured)(int64_t destination_id,
                          struct SatcastStr type_name,
                          struct SatcastStr config_json,
                          const struct SatcastErrorSink *error);
    /**
     * Since minor version 6, so only where `size` says that it is there; optional. `[control]` Tests whether a configuration can record; returns
     * within 1 s. `done` is called within 5 s: null when the store lets the configuration's keys upload, an error of class `config` or
     * `auth` when the store refuses them, shown at the field that its text begins with, or of another class when the store cannot be reached.
     */
    void (*probe)(struct SatcastStr type_name, struct SatcastStr config_json, struct SatcastDone done);
    /**
     * Since minor version 8, so only where `size` says that it is there; optional, and never without `index`. `[control]` Reads `len`
     * bytes (1 to 1 MiB) of a recording from `offset` on, from the local copy while there is one, else from the store; returns within
     * 1 s and holds up no other request. `done` is called within 15 s with exactly `len` bytes, or with an error: of class `config` when
     * the recording is not known or has no such range, of the class of the store's failure otherwise.
     */
    void (*read)(struct SatcastStr file_name, uint64_t offset, uint32_t len, struct SatcastBytesDone done);
    /**
     * Since minor version 8, so only where `size` says that it is there; optional, and never without `read`. `[control]` A page of the
     * index of a recording that is a fragmented MP4; returns within 1 s. `done` is called within 15 s with a JSON object of at most 256
     * KiB: `initBytes` (bytes of the initialization segment at the start), `bytes` (end of the last known fragment), `count` (known
     * fragments), `isComplete` (no fragment follows; false also while a recording without an index is indexed), `first` (as asked for)
     * and `fragments`: the known ones from number `first` on, at most `most` (1 to 2048), each as an array of offset, bytes, start in
     * microseconds, duration in microseconds, and whether it begins with a keyframe. Bytes and times have no gaps.
     */
    void (*index)(struct SatcastStr file_name, uint64_t first, uint32_t most, struct SatcastBytesDone done);
    /**
     * Since minor version 8, so only where `size` says that it is there; optional. `[control]` The owner of a recording with `asksNotice`
     * is told that it will be deleted at `expires_at_ms`, which may be later than its `expiresAtMs`: the driver does not delete it
     * earlier. It need not keep the time: after a restart it asks again, and gets the same. No I/O. Returns `SATCAST_OK`, or
     * `SATCAST_ERR` after a report to `error`; then the host calls again later.
     */
    int32_t (*announced)(struct SatcastStr file_name, int64_t expires_at_ms, const struct SatcastErrorSink *error);
    /**
     * Since minor version 8, so only where `size` says that it is there; optional. `[control]` Keeps a finished file as a recording that
     * is uploaded to the store of a configuration; returns within 1 s. `file_json` is an object with `fileName` (the recording's name,
     * by the rules above), `path` (of the file, relative to the driver's data folder, plain parts), `about` (as in `SatcastOpen`),
     * `startedAtMs`, `durationMs` and `audioOnly`. `done` is called within 60 s: null when the driver has taken the file away from `path` and will
     * keep it through a crash, also when it has a recording of that name already; else why not, and the file stays where it is.
     */
    void (*keep)(struct SatcastStr file_json,
                 struct SatcastStr type_name,
                 struct SatcastStr config_json,
                 struct SatcastDone done);
} SatcastRecordings;

/**
 * `SATCAST_EXT_RECORDINGS_HOST`: the driver reports changes of its recordings.
 */
typedef struct SatcastRecordingsHost {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]` From `init` on, at every change of state and from time to time while sizes grow: `json` is the recording's form as
     * `SatcastRecordings` describes it. The host finds missed reports by `list`. Returns `SATCAST_OK`, or `SATCAST_ERR` after a
     * report to `error`.
     */
    int32_t (*report)(void *ctx, struct SatcastStr json, const struct SatcastErrorSink *error);
} SatcastRecordingsHost;

/**
 * `SATCAST_EXT_VAULT`: encryption with the host's key, for secrets that a driver must keep in its folder.
 */
typedef struct SatcastVault {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]` From `init` on. Puts the encrypted form of `text`, at most 64 KiB, into `sink`: printable ASCII.
     */
    int32_t (*seal)(void *ctx,
                    struct SatcastStr text,
                    const struct SatcastTextSink *sink,
                    const struct SatcastErrorSink *error);
    /**
     * `[any]` From `init` on. Decrypts a form that `seal` made for this driver and puts the text into `sink`.
     */
    int32_t (*unseal)(void *ctx,
                      struct SatcastStr sealed,
                      const struct SatcastTextSink *sink,
                      const struct SatcastErrorSink *error);
} SatcastVault;

/**
 * A viewer's request. Everything is borrowed for the call.
 */
typedef struct SatcastHttpRequest {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * Number of the opening, as in `SatcastOpen`. It may have ended.
     */
    uint64_t dest;
    /**
     * Names this request in `SatcastHttpHost.respond`. Never 0, never used twice.
     */
    uint64_t token;
    /**
     * `HTTP_*`.
     */
    uint32_t method;
    /**
     * `AUDIENCE_*` of the viewer.
     */
    uint32_t audience;
    /**
     * Path below the destination's address, beginning with the route's name: as it was sent, percent signs included; at most 1 KiB.
     */
    struct SatcastStr path;
    /**
     * Query after the question mark, as it was sent, without the viewer's key; at most 1 KiB.
     */
    struct SatcastStr query;
} SatcastHttpRequest;

/**
 * `SATCAST_EXT_HTTP`: asked for after `init`, for types whose manifest names routes: `"routes": [{"path", "long", "preview"}]`. A route
 * is one path component (named like an asset) below the address of a destination's playback, with everything below it. The host
 * handles keys, origins, ranges, metering and limits.
 */
typedef struct SatcastHttp {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[control]` Between `open` and `destroy`, any number of times, also after `stopped`. A viewer requests a path below one of the routes.
     * Returns at once; the answer is `SatcastHttpHost.respond` with the request's token, during this call or later. After 10 s, or 30 s for
     * a route with `long`, an answer is too late: the viewer has got an error. At most 64 requests of a destination wait at a time.
     */
    void (*request)(const struct SatcastHttpRequest *request);
} SatcastHttp;

/**
 * The answer to a viewer.
 */
typedef struct SatcastHttpResponse {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * 200, 204, or from 400 to 599. The host cuts ranges out of an answer with 200.
     */
    uint32_t status;
    /**
     * Seconds that caches may keep it; 0 = not at all.
     */
    uint32_t max_age_secs;
    /**
     * Media type: printable, at most 128 bytes; may be empty without a body.
     */
    struct SatcastStr content_type;
    /**
     * Further headers, at most 32 with 8 KiB of text: `Content-Disposition`, `Content-Encoding`, `Content-Language`, `ETag`, `Last-Modified`,
     * `Retry-After`, and the driver's own, whose names begin with `X-Driver-`. The host refuses an answer with any other header.
     */
    const struct SatcastKv *headers;
    /**
     * Their number.
     */
    size_t header_count;
    /**
     * Open file for `SATCAST_BODY_DESCRIPTOR`, else -1.
     */
    int32_t descriptor;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * The bytes: `BODY_MEMORY` (at most 64 MiB), `BODY_FILE`, `BODY_PARTS` (published assets) or `SATCAST_BODY_DESCRIPTOR`.
     */
    struct SatcastBody body;
    /**
     * Path for `BODY_FILE`, names for `BODY_PARTS`, else empty.
     */
    struct SatcastStr source;
} SatcastHttpResponse;

/**
 * `SATCAST_EXT_HTTP_HOST`: takes the answers.
 */
typedef struct SatcastHttpHost {
    /**
     * Size of this struct in bytes.
     */
    size_t size;
    /**
     * `[any]` From the request on, once for each token. The host owns body and descriptor in every case. Returns `SATCAST_OK`;
     * `SATCAST_ERR_CLOSED` when no request waits for an answer to `token`; or `SATCAST_ERR` after a report to `error` when the
     * answer breaks a rule: the viewer gets an error then, and the token is used up. `SATCAST_OK` means that the host took the answer, not
     * that the viewer gets it: from an isolated driver the host refuses answers in memory while viewers have not read
     * 256 MiB of earlier ones; the viewer gets an error, and the host logs it.
     */
    int32_t (*respond)(void *ctx,
                       uint64_t token,
                       const struct SatcastHttpResponse *response,
                       const struct SatcastErrorSink *error);
} SatcastHttpHost;

#endif  /* SATCAST_DRIVER_H */

#if defined(__GNUC__)
#define SATCAST_EXPORT __attribute__((visibility("default")))
#else
#define SATCAST_EXPORT
#endif

#if defined(__cplusplus)
#define SATCAST_ASSERT(condition, text) static_assert(condition, text)
extern "C" {
#else
#define SATCAST_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/**
 * The one symbol a driver exports; see `SatcastDriverEntry`. Everything else is hidden: compile with -fvisibility=hidden.
 */
SATCAST_EXPORT const SatcastDriver *satcast_driver_entry(uint32_t host_major);

/**
 * Borrows a terminated text for a call. Null is the empty text.
 */
static inline SatcastStr satcast_str(const char *text)
{
    SatcastStr borrowed;
    borrowed.ptr = (const uint8_t *)text;
    borrowed.len = text ? strlen(text) : 0;
    return borrowed;
}

#if defined(__cplusplus)
}
#endif

#if UINTPTR_MAX == 0xffffffffffffffffu
SATCAST_ASSERT(sizeof(SatcastStr) == 16, "SatcastStr");
SATCAST_ASSERT(offsetof(SatcastStr, ptr) == 0, "SatcastStr.ptr");
SATCAST_ASSERT(offsetof(SatcastStr, len) == 8, "SatcastStr.len");
SATCAST_ASSERT(sizeof(SatcastKv) == 32, "SatcastKv");
SATCAST_ASSERT(offsetof(SatcastKv, key) == 0, "SatcastKv.key");
SATCAST_ASSERT(offsetof(SatcastKv, value) == 16, "SatcastKv.value");
SATCAST_ASSERT(sizeof(SatcastError) == 32, "SatcastError");
SATCAST_ASSERT(offsetof(SatcastError, size) == 0, "SatcastError.size");
SATCAST_ASSERT(offsetof(SatcastError, error_class) == 4, "SatcastError.error_class");
SATCAST_ASSERT(offsetof(SatcastError, retry_ms) == 8, "SatcastError.retry_ms");
SATCAST_ASSERT(offsetof(SatcastError, reserved) == 12, "SatcastError.reserved");
SATCAST_ASSERT(offsetof(SatcastError, message) == 16, "SatcastError.message");
SATCAST_ASSERT(sizeof(SatcastErrorSink) == 16, "SatcastErrorSink");
SATCAST_ASSERT(offsetof(SatcastErrorSink, data) == 0, "SatcastErrorSink.data");
SATCAST_ASSERT(offsetof(SatcastErrorSink, put) == 8, "SatcastErrorSink.put");
SATCAST_ASSERT(sizeof(SatcastTextSink) == 16, "SatcastTextSink");
SATCAST_ASSERT(offsetof(SatcastTextSink, data) == 0, "SatcastTextSink.data");
SATCAST_ASSERT(offsetof(SatcastTextSink, put) == 8, "SatcastTextSink.put");
SATCAST_ASSERT(sizeof(SatcastPacket) == 80, "SatcastPacket");
SATCAST_ASSERT(offsetof(SatcastPacket, size) == 0, "SatcastPacket.size");
SATCAST_ASSERT(offsetof(SatcastPacket, flags) == 4, "SatcastPacket.flags");
SATCAST_ASSERT(offsetof(SatcastPacket, kind) == 8, "SatcastPacket.kind");
SATCAST_ASSERT(offsetof(SatcastPacket, codec) == 12, "SatcastPacket.codec");
SATCAST_ASSERT(offsetof(SatcastPacket, track) == 16, "SatcastPacket.track");
SATCAST_ASSERT(offsetof(SatcastPacket, reserved) == 20, "SatcastPacket.reserved");
SATCAST_ASSERT(offsetof(SatcastPacket, source) == 24, "SatcastPacket.source");
SATCAST_ASSERT(offsetof(SatcastPacket, sequence) == 32, "SatcastPacket.sequence");
SATCAST_ASSERT(offsetof(SatcastPacket, dts_ns) == 40, "SatcastPacket.dts_ns");
SATCAST_ASSERT(offsetof(SatcastPacket, pts_ns) == 48, "SatcastPacket.pts_ns");
SATCAST_ASSERT(offsetof(SatcastPacket, data) == 56, "SatcastPacket.data");
SATCAST_ASSERT(offsetof(SatcastPacket, len) == 64, "SatcastPacket.len");
SATCAST_ASSERT(offsetof(SatcastPacket, vt) == 72, "SatcastPacket.vt");
SATCAST_ASSERT(sizeof(SatcastPacketVt) == 24, "SatcastPacketVt");
SATCAST_ASSERT(offsetof(SatcastPacketVt, size) == 0, "SatcastPacketVt.size");
SATCAST_ASSERT(offsetof(SatcastPacketVt, retain) == 8, "SatcastPacketVt.retain");
SATCAST_ASSERT(offsetof(SatcastPacketVt, release) == 16, "SatcastPacketVt.release");
SATCAST_ASSERT(sizeof(SatcastWaker) == 24, "SatcastWaker");
SATCAST_ASSERT(offsetof(SatcastWaker, data) == 0, "SatcastWaker.data");
SATCAST_ASSERT(offsetof(SatcastWaker, wake) == 8, "SatcastWaker.wake");
SATCAST_ASSERT(offsetof(SatcastWaker, drop) == 16, "SatcastWaker.drop");
SATCAST_ASSERT(sizeof(SatcastOpen) == 80, "SatcastOpen");
SATCAST_ASSERT(offsetof(SatcastOpen, size) == 0, "SatcastOpen.size");
SATCAST_ASSERT(offsetof(SatcastOpen, dest) == 8, "SatcastOpen.dest");
SATCAST_ASSERT(offsetof(SatcastOpen, source) == 16, "SatcastOpen.source");
SATCAST_ASSERT(offsetof(SatcastOpen, type_name) == 24, "SatcastOpen.type_name");
SATCAST_ASSERT(offsetof(SatcastOpen, config_json) == 40, "SatcastOpen.config_json");
SATCAST_ASSERT(offsetof(SatcastOpen, media) == 56, "SatcastOpen.media");
SATCAST_ASSERT(offsetof(SatcastOpen, about_json) == 64, "SatcastOpen.about_json");
SATCAST_ASSERT(sizeof(SatcastDriver) == 152, "SatcastDriver");
SATCAST_ASSERT(offsetof(SatcastDriver, magic) == 0, "SatcastDriver.magic");
SATCAST_ASSERT(offsetof(SatcastDriver, abi_major) == 8, "SatcastDriver.abi_major");
SATCAST_ASSERT(offsetof(SatcastDriver, abi_minor) == 12, "SatcastDriver.abi_minor");
SATCAST_ASSERT(offsetof(SatcastDriver, size) == 16, "SatcastDriver.size");
SATCAST_ASSERT(offsetof(SatcastDriver, flags) == 24, "SatcastDriver.flags");
SATCAST_ASSERT(offsetof(SatcastDriver, id) == 32, "SatcastDriver.id");
SATCAST_ASSERT(offsetof(SatcastDriver, version) == 48, "SatcastDriver.version");
SATCAST_ASSERT(offsetof(SatcastDriver, toolchain) == 64, "SatcastDriver.toolchain");
SATCAST_ASSERT(offsetof(SatcastDriver, manifest_json) == 80, "SatcastDriver.manifest_json");
SATCAST_ASSERT(offsetof(SatcastDriver, init) == 96, "SatcastDriver.init");
SATCAST_ASSERT(offsetof(SatcastDriver, validate) == 104, "SatcastDriver.validate");
SATCAST_ASSERT(offsetof(SatcastDriver, open) == 112, "SatcastDriver.open");
SATCAST_ASSERT(offsetof(SatcastDriver, stop) == 120, "SatcastDriver.stop");
SATCAST_ASSERT(offsetof(SatcastDriver, destroy) == 128, "SatcastDriver.destroy");
SATCAST_ASSERT(offsetof(SatcastDriver, deinit) == 136, "SatcastDriver.deinit");
SATCAST_ASSERT(offsetof(SatcastDriver, get_extension) == 144, "SatcastDriver.get_extension");
SATCAST_ASSERT(sizeof(SatcastReconfigure) == 16, "SatcastReconfigure");
SATCAST_ASSERT(offsetof(SatcastReconfigure, size) == 0, "SatcastReconfigure.size");
SATCAST_ASSERT(offsetof(SatcastReconfigure, reconfigure) == 8, "SatcastReconfigure.reconfigure");
SATCAST_ASSERT(sizeof(SatcastMetricDesc) == 24, "SatcastMetricDesc");
SATCAST_ASSERT(offsetof(SatcastMetricDesc, size) == 0, "SatcastMetricDesc.size");
SATCAST_ASSERT(offsetof(SatcastMetricDesc, reserved) == 4, "SatcastMetricDesc.reserved");
SATCAST_ASSERT(offsetof(SatcastMetricDesc, name) == 8, "SatcastMetricDesc.name");
SATCAST_ASSERT(sizeof(SatcastHost) == 96, "SatcastHost");
SATCAST_ASSERT(offsetof(SatcastHost, size) == 0, "SatcastHost.size");
SATCAST_ASSERT(offsetof(SatcastHost, abi_minor) == 8, "SatcastHost.abi_minor");
SATCAST_ASSERT(offsetof(SatcastHost, flags) == 12, "SatcastHost.flags");
SATCAST_ASSERT(offsetof(SatcastHost, max_level) == 16, "SatcastHost.max_level");
SATCAST_ASSERT(offsetof(SatcastHost, ctx) == 24, "SatcastHost.ctx");
SATCAST_ASSERT(offsetof(SatcastHost, log) == 32, "SatcastHost.log");
SATCAST_ASSERT(offsetof(SatcastHost, state) == 40, "SatcastHost.state");
SATCAST_ASSERT(offsetof(SatcastHost, event) == 48, "SatcastHost.event");
SATCAST_ASSERT(offsetof(SatcastHost, metric) == 56, "SatcastHost.metric");
SATCAST_ASSERT(offsetof(SatcastHost, media_recv) == 64, "SatcastHost.media_recv");
SATCAST_ASSERT(offsetof(SatcastHost, media_release) == 72, "SatcastHost.media_release");
SATCAST_ASSERT(offsetof(SatcastHost, stopped) == 80, "SatcastHost.stopped");
SATCAST_ASSERT(offsetof(SatcastHost, get_extension) == 88, "SatcastHost.get_extension");
SATCAST_ASSERT(sizeof(SatcastNet) == 16, "SatcastNet");
SATCAST_ASSERT(offsetof(SatcastNet, size) == 0, "SatcastNet.size");
SATCAST_ASSERT(offsetof(SatcastNet, connect) == 8, "SatcastNet.connect");
SATCAST_ASSERT(sizeof(SatcastConnect) == 32, "SatcastConnect");
SATCAST_ASSERT(offsetof(SatcastConnect, size) == 0, "SatcastConnect.size");
SATCAST_ASSERT(offsetof(SatcastConnect, timeout_ms) == 4, "SatcastConnect.timeout_ms");
SATCAST_ASSERT(offsetof(SatcastConnect, host) == 8, "SatcastConnect.host");
SATCAST_ASSERT(offsetof(SatcastConnect, port) == 24, "SatcastConnect.port");
SATCAST_ASSERT(offsetof(SatcastConnect, reserved) == 28, "SatcastConnect.reserved");
SATCAST_ASSERT(sizeof(SatcastConnected) == 16, "SatcastConnected");
SATCAST_ASSERT(offsetof(SatcastConnected, data) == 0, "SatcastConnected.data");
SATCAST_ASSERT(offsetof(SatcastConnected, done) == 8, "SatcastConnected.done");
SATCAST_ASSERT(sizeof(SatcastDataDir) == 16, "SatcastDataDir");
SATCAST_ASSERT(offsetof(SatcastDataDir, size) == 0, "SatcastDataDir.size");
SATCAST_ASSERT(offsetof(SatcastDataDir, path) == 8, "SatcastDataDir.path");
SATCAST_ASSERT(sizeof(SatcastSettings) == 16, "SatcastSettings");
SATCAST_ASSERT(offsetof(SatcastSettings, size) == 0, "SatcastSettings.size");
SATCAST_ASSERT(offsetof(SatcastSettings, json) == 8, "SatcastSettings.json");
SATCAST_ASSERT(sizeof(SatcastWait) == 16, "SatcastWait");
SATCAST_ASSERT(offsetof(SatcastWait, size) == 0, "SatcastWait.size");
SATCAST_ASSERT(offsetof(SatcastWait, wait_any) == 8, "SatcastWait.wait_any");
SATCAST_ASSERT(sizeof(SatcastWorking) == 16, "SatcastWorking");
SATCAST_ASSERT(offsetof(SatcastWorking, size) == 0, "SatcastWorking.size");
SATCAST_ASSERT(offsetof(SatcastWorking, working) == 8, "SatcastWorking.working");
SATCAST_ASSERT(sizeof(SatcastPump) == 32, "SatcastPump");
SATCAST_ASSERT(offsetof(SatcastPump, size) == 0, "SatcastPump.size");
SATCAST_ASSERT(offsetof(SatcastPump, take) == 8, "SatcastPump.take");
SATCAST_ASSERT(offsetof(SatcastPump, run) == 16, "SatcastPump.run");
SATCAST_ASSERT(offsetof(SatcastPump, give_back) == 24, "SatcastPump.give_back");
SATCAST_ASSERT(sizeof(SatcastAssets) == 32, "SatcastAssets");
SATCAST_ASSERT(offsetof(SatcastAssets, size) == 0, "SatcastAssets.size");
SATCAST_ASSERT(offsetof(SatcastAssets, publish) == 8, "SatcastAssets.publish");
SATCAST_ASSERT(offsetof(SatcastAssets, retract) == 16, "SatcastAssets.retract");
SATCAST_ASSERT(offsetof(SatcastAssets, playback) == 24, "SatcastAssets.playback");
SATCAST_ASSERT(sizeof(SatcastAsset) == 208, "SatcastAsset");
SATCAST_ASSERT(offsetof(SatcastAsset, size) == 0, "SatcastAsset.size");
SATCAST_ASSERT(offsetof(SatcastAsset, name) == 8, "SatcastAsset.name");
SATCAST_ASSERT(offsetof(SatcastAsset, content_type) == 24, "SatcastAsset.content_type");
SATCAST_ASSERT(offsetof(SatcastAsset, max_age_secs) == 40, "SatcastAsset.max_age_secs");
SATCAST_ASSERT(offsetof(SatcastAsset, audience) == 44, "SatcastAsset.audience");
SATCAST_ASSERT(offsetof(SatcastAsset, body) == 48, "SatcastAsset.body");
SATCAST_ASSERT(offsetof(SatcastAsset, source) == 96, "SatcastAsset.source");
SATCAST_ASSERT(offsetof(SatcastAsset, flags) == 112, "SatcastAsset.flags");
SATCAST_ASSERT(offsetof(SatcastAsset, hold_back_ms) == 116, "SatcastAsset.hold_back_ms");
SATCAST_ASSERT(offsetof(SatcastAsset, next_sequence) == 120, "SatcastAsset.next_sequence");
SATCAST_ASSERT(offsetof(SatcastAsset, next_part) == 128, "SatcastAsset.next_part");
SATCAST_ASSERT(offsetof(SatcastAsset, target_ms) == 132, "SatcastAsset.target_ms");
SATCAST_ASSERT(offsetof(SatcastAsset, delta) == 136, "SatcastAsset.delta");
SATCAST_ASSERT(offsetof(SatcastAsset, hint) == 152, "SatcastAsset.hint");
SATCAST_ASSERT(offsetof(SatcastAsset, number) == 168, "SatcastAsset.number");
SATCAST_ASSERT(offsetof(SatcastAsset, offset_ns) == 176, "SatcastAsset.offset_ns");
SATCAST_ASSERT(offsetof(SatcastAsset, start_ms) == 184, "SatcastAsset.start_ms");
SATCAST_ASSERT(offsetof(SatcastAsset, init) == 192, "SatcastAsset.init");
SATCAST_ASSERT(sizeof(SatcastPlayback) == 72, "SatcastPlayback");
SATCAST_ASSERT(offsetof(SatcastPlayback, size) == 0, "SatcastPlayback.size");
SATCAST_ASSERT(offsetof(SatcastPlayback, entry) == 8, "SatcastPlayback.entry");
SATCAST_ASSERT(offsetof(SatcastPlayback, preview) == 24, "SatcastPlayback.preview");
SATCAST_ASSERT(offsetof(SatcastPlayback, first_ms) == 40, "SatcastPlayback.first_ms");
SATCAST_ASSERT(offsetof(SatcastPlayback, window_ms) == 48, "SatcastPlayback.window_ms");
SATCAST_ASSERT(offsetof(SatcastPlayback, window_max_ms) == 56, "SatcastPlayback.window_max_ms");
SATCAST_ASSERT(offsetof(SatcastPlayback, fresh_ms) == 64, "SatcastPlayback.fresh_ms");
SATCAST_ASSERT(offsetof(SatcastPlayback, flags) == 68, "SatcastPlayback.flags");
SATCAST_ASSERT(sizeof(SatcastDone) == 16, "SatcastDone");
SATCAST_ASSERT(offsetof(SatcastDone, data) == 0, "SatcastDone.data");
SATCAST_ASSERT(offsetof(SatcastDone, done) == 8, "SatcastDone.done");
SATCAST_ASSERT(sizeof(SatcastBytesDone) == 16, "SatcastBytesDone");
SATCAST_ASSERT(offsetof(SatcastBytesDone, data) == 0, "SatcastBytesDone.data");
SATCAST_ASSERT(offsetof(SatcastBytesDone, done) == 8, "SatcastBytesDone.done");
SATCAST_ASSERT(sizeof(SatcastRecordings) == 88, "SatcastRecordings");
SATCAST_ASSERT(offsetof(SatcastRecordings, size) == 0, "SatcastRecordings.size");
SATCAST_ASSERT(offsetof(SatcastRecordings, list) == 8, "SatcastRecordings.list");
SATCAST_ASSERT(offsetof(SatcastRecordings, retry) == 16, "SatcastRecordings.retry");
SATCAST_ASSERT(offsetof(SatcastRecordings, remove) == 24, "SatcastRecordings.remove");
SATCAST_ASSERT(offsetof(SatcastRecordings, sign) == 32, "SatcastRecordings.sign");
SATCAST_ASSERT(offsetof(SatcastRecordings, configured) == 40, "SatcastRecordings.configured");
SATCAST_ASSERT(offsetof(SatcastRecordings, probe) == 48, "SatcastRecordings.probe");
SATCAST_ASSERT(offsetof(SatcastRecordings, read) == 56, "SatcastRecordings.read");
SATCAST_ASSERT(offsetof(SatcastRecordings, index) == 64, "SatcastRecordings.index");
SATCAST_ASSERT(offsetof(SatcastRecordings, announced) == 72, "SatcastRecordings.announced");
SATCAST_ASSERT(offsetof(SatcastRecordings, keep) == 80, "SatcastRecordings.keep");
SATCAST_ASSERT(sizeof(SatcastRecordingsHost) == 16, "SatcastRecordingsHost");
SATCAST_ASSERT(offsetof(SatcastRecordingsHost, size) == 0, "SatcastRecordingsHost.size");
SATCAST_ASSERT(offsetof(SatcastRecordingsHost, report) == 8, "SatcastRecordingsHost.report");
SATCAST_ASSERT(sizeof(SatcastVault) == 24, "SatcastVault");
SATCAST_ASSERT(offsetof(SatcastVault, size) == 0, "SatcastVault.size");
SATCAST_ASSERT(offsetof(SatcastVault, seal) == 8, "SatcastVault.seal");
SATCAST_ASSERT(offsetof(SatcastVault, unseal) == 16, "SatcastVault.unseal");
SATCAST_ASSERT(sizeof(SatcastBody) == 48, "SatcastBody");
SATCAST_ASSERT(offsetof(SatcastBody, kind) == 0, "SatcastBody.kind");
SATCAST_ASSERT(offsetof(SatcastBody, reserved) == 4, "SatcastBody.reserved");
SATCAST_ASSERT(offsetof(SatcastBody, offset) == 8, "SatcastBody.offset");
SATCAST_ASSERT(offsetof(SatcastBody, len) == 16, "SatcastBody.len");
SATCAST_ASSERT(offsetof(SatcastBody, data) == 24, "SatcastBody.data");
SATCAST_ASSERT(offsetof(SatcastBody, owner) == 32, "SatcastBody.owner");
SATCAST_ASSERT(offsetof(SatcastBody, release) == 40, "SatcastBody.release");
SATCAST_ASSERT(sizeof(SatcastHttp) == 16, "SatcastHttp");
SATCAST_ASSERT(offsetof(SatcastHttp, size) == 0, "SatcastHttp.size");
SATCAST_ASSERT(offsetof(SatcastHttp, request) == 8, "SatcastHttp.request");
SATCAST_ASSERT(sizeof(SatcastHttpRequest) == 64, "SatcastHttpRequest");
SATCAST_ASSERT(offsetof(SatcastHttpRequest, size) == 0, "SatcastHttpRequest.size");
SATCAST_ASSERT(offsetof(SatcastHttpRequest, dest) == 8, "SatcastHttpRequest.dest");
SATCAST_ASSERT(offsetof(SatcastHttpRequest, token) == 16, "SatcastHttpRequest.token");
SATCAST_ASSERT(offsetof(SatcastHttpRequest, method) == 24, "SatcastHttpRequest.method");
SATCAST_ASSERT(offsetof(SatcastHttpRequest, audience) == 28, "SatcastHttpRequest.audience");
SATCAST_ASSERT(offsetof(SatcastHttpRequest, path) == 32, "SatcastHttpRequest.path");
SATCAST_ASSERT(offsetof(SatcastHttpRequest, query) == 48, "SatcastHttpRequest.query");
SATCAST_ASSERT(sizeof(SatcastHttpHost) == 16, "SatcastHttpHost");
SATCAST_ASSERT(offsetof(SatcastHttpHost, size) == 0, "SatcastHttpHost.size");
SATCAST_ASSERT(offsetof(SatcastHttpHost, respond) == 8, "SatcastHttpHost.respond");
SATCAST_ASSERT(sizeof(SatcastHttpResponse) == 120, "SatcastHttpResponse");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, size) == 0, "SatcastHttpResponse.size");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, status) == 8, "SatcastHttpResponse.status");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, max_age_secs) == 12, "SatcastHttpResponse.max_age_secs");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, content_type) == 16, "SatcastHttpResponse.content_type");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, headers) == 32, "SatcastHttpResponse.headers");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, header_count) == 40, "SatcastHttpResponse.header_count");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, descriptor) == 48, "SatcastHttpResponse.descriptor");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, reserved) == 52, "SatcastHttpResponse.reserved");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, body) == 56, "SatcastHttpResponse.body");
SATCAST_ASSERT(offsetof(SatcastHttpResponse, source) == 104, "SatcastHttpResponse.source");
#endif
