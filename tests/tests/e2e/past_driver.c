/* A driver as it was written for minor version MINOR of the contract, from what that version's header said and nothing newer. It
 * counts what it is given. For the end-to-end tests; never shipped. */
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
/* Without what minor version 2 appended. */
typedef struct { size_t size; uint64_t dest, source; Str type_name, config_json; void *media; } Open;
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

_Static_assert(sizeof(Open) == 64 && sizeof(Host) == 96 && sizeof(Packet) == 80, "sizes of minor versions 0 and 1");

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

static int32_t look(void) {
    const Settings *settings = host->get_extension(host->ctx, (Str)STR("satcast.settings/1"));
    const DataDir *folder = host->get_extension(host->ctx, (Str)STR("satcast.data-dir/1"));
    waiting = host->get_extension(host->ctx, (Str)STR("satcast.wait/1"));
    size_t settings_len = 0, folder_len = 0;
    TextSink for_settings = { &settings_len, count_text }, for_folder = { &folder_len, count_text };
    if (!settings || settings->json(host->ctx, &for_settings, NULL) || settings_len < 2) return -1;
    if (!folder || folder->path(host->ctx, &for_folder, NULL) || folder_len == 0) return -1;
    return waiting ? 0 : -1;
}

static int32_t reconfigure(void *instance, Str config, const ErrorSink *errors) {
    (void)instance, (void)config, (void)errors;
    return 1;
}

static const Reconfigure reconfigures = { sizeof reconfigures, reconfigure };

static const void *get_extension(Str name) {
    const char wanted[] = "satcast.reconfigure/1";
    int same = name.len == sizeof wanted - 1 && memcmp(name.ptr, wanted, name.len) == 0;
    return same ? &reconfigures : NULL;
}

static void pause_for(Destination *it) { waiting->wait_any(host->ctx, &it->media, 1, 1000); }
#else
static int32_t look(void) { return host->get_extension(host->ctx, (Str)STR("draft.satcast.none/1")) ? -1 : 0; }
static const void *get_extension(Str name) { (void)name; return NULL; }
static void pause_for(Destination *it) { (void)it; usleep(5000); }
#endif

static void *run(void *raw) {
    Destination *it = raw;
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

_Static_assert(sizeof table == 152, "the table of minor versions 0 and 1");

const void *satcast_driver_entry(uint32_t host_major) { return host_major == 1 ? &table : NULL; }
