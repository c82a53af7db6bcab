/* A driver for minor version MINOR of the contract, which uses nothing newer than that version's header. It
 * counts its packets. For the end-to-end tests; never shipped. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { const char *ptr; size_t len; } Str;
typedef struct { uint32_t size, error_class, retry_ms, reserved; Str message; } Error;
typedef struct { void *data; void (*put)(void *, const Error *); } ErrorSink;
typedef struct { void *data; void (*put)(void *, Str); } TextSink;
typedef struct Packet Packet;
typedef struct { size_t size; void (*retain)(const Packet *); void (*release)(const Packet *); } PacketVt;
struct Packet {
    uint32_t size, flags, kind, codec, track, reserved;
    uint64_t source, sequence;
    int64_t dts_ns, pts_ns;
    const uint8_t *data;
    size_t len;
    const PacketVt *vt;
};
typedef struct { void *data; void (*wake)(void *); void (*drop)(void *); } Waker;
typedef struct { uint32_t size, reserved; Str name; } MetricDesc;
typedef struct {
    size_t size;
    uint64_t dest, source;
    Str type_name, config_json;
    void *media;
#if MINOR >= 2
    Str about_json;
#endif
} Open;
typedef struct {
    size_t size;
    uint32_t abi_minor, flags;
    const uint32_t *max_level;
    void *ctx;
    void (*log)(void *, uint64_t, uint32_t, Str, Str, const void *, size_t);
    void (*state)(void *, uint64_t, uint32_t, const Error *);
    void (*event)(void *, uint64_t, Str, Str);
    int32_t (*metric)(void *, uint64_t, const MetricDesc *, uint64_t **);
    ptrdiff_t (*media_recv)(void *, void *, const Packet **, size_t, const Waker *);
    void (*media_release)(void *, void *);
    void (*stopped)(void *, uint64_t, const Error *);
    const void *(*get_extension)(void *, Str);
} Host;

_Static_assert(sizeof(Host) == 96 && sizeof(Packet) == 80, "sizes of minor versions 0 to 4");
_Static_assert(sizeof(Open) == (MINOR >= 2 ? 80 : 64), "minor version 2 appended the account and the destination");

#define STR(text) { text, sizeof text - 1 }

static const Host *host;
typedef struct { uint64_t dest; void *media; } Destination;

#if MINOR >= 1
/* Extensions that came with minor version 1. */
typedef struct { size_t size; int32_t (*json)(void *, const TextSink *, const ErrorSink *); } Settings;
typedef struct { size_t size; int32_t (*path)(void *, const TextSink *, const ErrorSink *); } DataDir;
typedef struct { size_t size; ptrdiff_t (*wait_any)(void *, void *const *, size_t, uint32_t); } Wait;
typedef struct { size_t size; int32_t (*reconfigure)(void *, Str, const ErrorSink *); } Reconfigure;

static const Wait *waiting;
static void count_text(void *data, Str text) { *(size_t *)data += text.len; }

#if MINOR >= 2
/* Extensions that came with minor version 2; minor version 4 appended to the recordings' table. */
typedef struct { void *data; void (*done)(void *, const Error *); } Done;
typedef struct {
    size_t size;
    int32_t (*list)(const TextSink *, const ErrorSink *);
    void (*retry)(Str, Done);
    void (*remove)(Str, uint32_t, Done);
    int32_t (*sign)(Str, uint32_t, const TextSink *, const ErrorSink *);
#if MINOR >= 4
    int32_t (*configured)(int64_t, Str, Str, const ErrorSink *);
#endif
} Recordings;
typedef struct { size_t size; int32_t (*report)(void *, Str, const ErrorSink *); } RecordingsHost;
typedef struct {
    size_t size;
    int32_t (*seal)(void *, Str, const TextSink *, const ErrorSink *);
    int32_t (*unseal)(void *, Str, const TextSink *, const ErrorSink *);
} Vault;
_Static_assert(sizeof(Recordings) == (MINOR >= 4 ? 48 : 40) && sizeof(Vault) == 24, "sizes of minor version 2, and 4");

static int32_t list_none(const TextSink *texts, const ErrorSink *errors) {
    (void)errors;
    texts->put(texts->data, (Str)STR("[]"));
    return 0;
}
static void done_with(Str name, Done done) { (void)name; done.done(done.data, NULL); }
static void remove_it(Str name, uint32_t flags, Done done) { (void)flags; done_with(name, done); }
static int32_t sign_none(Str name, uint32_t secs, const TextSink *texts, const ErrorSink *errors) {
    (void)name, (void)secs, (void)texts, (void)errors;
    return -1;
}
#if MINOR >= 4
static int32_t heard(int64_t id, Str kind, Str config, const ErrorSink *errors) {
    (void)id, (void)kind, (void)config, (void)errors;
    return 0;
}
static const Recordings recordings = { sizeof recordings, list_none, done_with, remove_it, sign_none, heard };
#else
static const Recordings recordings = { sizeof recordings, list_none, done_with, remove_it, sign_none };
#endif

typedef struct { char bytes[4096]; size_t len; } Text;
static void keep_text(void *data, Str text) {
    Text *kept = data;
    kept->len = text.len < sizeof kept->bytes ? text.len : 0;
    memcpy(kept->bytes, text.ptr, kept->len);
}

/* Sealed bytes come back unchanged, and the host accepts reports of recordings. */
static int32_t look_further(void) {
    const Vault *vault = host->get_extension(host->ctx, (Str)STR("satcast.vault/1"));
    const RecordingsHost *reports = host->get_extension(host->ctx, (Str)STR("satcast.recordings-host/1"));
    static Text sealed, plain;
    TextSink for_sealed = { &sealed, keep_text }, for_plain = { &plain, keep_text };
    if (!reports || reports->size < 16 || !vault || vault->size < sizeof *vault) return -1;
    if (vault->seal(host->ctx, (Str)STR("a secret"), &for_sealed, NULL)) return -1;
    if (vault->unseal(host->ctx, (Str){ sealed.bytes, sealed.len }, &for_plain, NULL)) return -1;
    return plain.len == 8 && memcmp(plain.bytes, "a secret", 8) == 0 ? 0 : -1;
}

/* Assets for viewers; minor version 4 appended the fields for followers of playlists. */
typedef struct {
    uint32_t kind, reserved;
    uint64_t offset, len;
    const uint8_t *data;
    void *owner;
    void (*release)(void *);
} Body;
typedef struct {
    size_t size;
    Str name, content_type;
    uint32_t max_age_secs, audience;
    Body body;
    Str source;
#if MINOR >= 4
    uint32_t flags, hold_back_ms;
    uint64_t next_sequence;
    uint32_t next_part, target_ms;
    Str delta, hint;
#endif
} Asset;
typedef struct {
    size_t size;
    int32_t (*publish)(void *, uint64_t, const Asset *, const ErrorSink *);
    int32_t (*retract)(void *, uint64_t, Str);
    int32_t (*playback)(void *, uint64_t, const void *, const ErrorSink *);
} Assets;
_Static_assert(sizeof(Asset) == (MINOR >= 4 ? 168 : 112), "the size of minor versions 2 and 3, and of 4");

static void let_go(void *owner) { (void)owner; }

static int32_t publish(uint64_t dest) {
    const Assets *assets = host->get_extension(host->ctx, (Str)STR("satcast.assets/1"));
    static const uint8_t bytes[] = "asset";
    Asset asset = { .size = sizeof asset, .name = STR("asset.txt"), .content_type = STR("text/plain"), .max_age_secs = 60,
                    .audience = 1, .body = { .kind = 1, .len = 5, .data = bytes, .release = let_go } };
    return assets && assets->size >= sizeof *assets ? assets->publish(host->ctx, dest, &asset, NULL) : -1;
}
#else
static int32_t look_further(void) { return 0; }
#endif

#if MINOR >= 3
/* Extensions that came with minor version 3. */
typedef struct { size_t size; void (*request)(const void *); } Http;
static void no_request(const void *request) { (void)request; }
static const Http http = { sizeof http, no_request };
static int32_t look_last(void) {
    const size_t *answers = host->get_extension(host->ctx, (Str)STR("satcast.http-host/1"));
    return answers && *answers >= 16 ? 0 : -1;
}
#else
static int32_t look_last(void) { return 0; }
#endif

static int32_t look(void) {
    const Settings *settings = host->get_extension(host->ctx, (Str)STR("satcast.settings/1"));
    const DataDir *folder = host->get_extension(host->ctx, (Str)STR("satcast.data-dir/1"));
    waiting = host->get_extension(host->ctx, (Str)STR("satcast.wait/1"));
    size_t settings_len = 0, folder_len = 0;
    TextSink for_settings = { &settings_len, count_text }, for_folder = { &folder_len, count_text };
    if (!settings || settings->json(host->ctx, &for_settings, NULL) || settings_len < 2) return -1;
    if (!folder || folder->path(host->ctx, &for_folder, NULL) || folder_len == 0) return -1;
    return waiting && look_further() == 0 && look_last() == 0 ? 0 : -1;
}

static int32_t reconfigure(void *instance, Str config, const ErrorSink *errors) {
    (void)instance, (void)config, (void)errors;
    return 1;
}

static const Reconfigure reconfigures = { sizeof reconfigures, reconfigure };

static int is(Str name, const char *wanted) {
    return name.len == strlen(wanted) && memcmp(name.ptr, wanted, name.len) == 0;
}

static const void *get_extension(Str name) {
#if MINOR >= 2
    if (is(name, "satcast.recordings/1")) return &recordings;
#endif
#if MINOR >= 3
    if (is(name, "satcast.http/1")) return &http;
#endif
    return is(name, "satcast.reconfigure/1") ? &reconfigures : NULL;
}

static void pause_for(Destination *it) { waiting->wait_any(host->ctx, &it->media, 1, 1000); }
#else
static int32_t look(void) { return host->get_extension(host->ctx, (Str)STR("draft.satcast.none/1")) ? -1 : 0; }
static const void *get_extension(Str name) { (void)name; return NULL; }
static void pause_for(Destination *it) { (void)it; usleep(5000); }
#endif

#if MINOR < 2
static int32_t publish(uint64_t dest) { (void)dest; return 0; }
#endif

static void *run(void *raw) {
    Destination *it = raw;
    /* It would never be live. */
    if (publish(it->dest)) return NULL;
    uint64_t *sent = NULL;
    MetricDesc desc = { sizeof desc, 0, STR("bytes_sent") };
    host->metric(host->ctx, it->dest, &desc, &sent);
    for (;;) {
        Waker waker = {0};
        const Packet *packets[16];
        ptrdiff_t count = host->media_recv(host->ctx, it->media, packets, 16, &waker);
        if (count < 0) break;
        if (count == 0) { pause_for(it); continue; }
        for (ptrdiff_t n = 0; n < count; n++) {
            if (sent) __atomic_fetch_add(sent, packets[n]->len, __ATOMIC_RELAXED);
            packets[n]->vt->release(packets[n]);
        }
        host->state(host->ctx, it->dest, 2, NULL);
    }
    host->media_release(host->ctx, it->media);
    host->stopped(host->ctx, it->dest, NULL);
    return NULL;
}

static int32_t init(const Host *table, const ErrorSink *errors) {
    (void)errors;
    host = table;
    return look();
}

static int32_t open_it(const Open *request, void **instance, const ErrorSink *errors) {
    (void)errors;
#if MINOR >= 2
    if (request->size < sizeof *request || !request->about_json.len || *request->about_json.ptr != '{') return -1;
#endif
    Destination *it = malloc(sizeof *it);
    it->dest = request->dest;
    it->media = request->media;
    *instance = it;
    pthread_t thread;
    return pthread_create(&thread, NULL, run, it) || pthread_detach(thread) ? -1 : 0;
}

static int32_t stop(void *instance, uint32_t deadline_ms) { (void)instance, (void)deadline_ms; return 0; }
static void destroy(void *instance) { free(instance); }
static void deinit(void) {}

#define MANIFEST "{\"title\":\"" NAME "\",\"types\":[{\"name\":\"" NAME "\",\"title\":\"" NAME "\",\"schema\":{\"type\":\"object\"}}]}"

static const struct {
    char magic[8];
    uint32_t abi_major, abi_minor;
    size_t size;
    uint64_t flags;
    Str id, version, toolchain, manifest;
    int32_t (*init)(const Host *, const ErrorSink *);
    void *validate;
    int32_t (*open)(const Open *, void **, const ErrorSink *);
    int32_t (*stop)(void *, uint32_t);
    void (*destroy)(void *);
    void (*deinit)(void);
    const void *(*get_extension)(Str);
} table = { { 'S', 'A', 'T', 'C', 'A', 'S', 'T', 1 }, 1, MINOR, sizeof table, 1,
            STR(NAME), STR("1.0.0"), STR("cc"), STR(MANIFEST),
            init, NULL, open_it, stop, destroy, deinit, get_extension };

_Static_assert(sizeof table == 152, "the table of minor versions 0 to 4");

const void *satcast_driver_entry(uint32_t host_major) { return host_major == 1 ? &table : NULL; }
