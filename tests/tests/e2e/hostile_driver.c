/* A driver that attacks its host. PLACE, its id and destination type, says how. For the end-to-end tests; never shipped. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct { const char *ptr; size_t len; } Str;
typedef struct { void *data; void (*put)(void *, const void *); } Sink;
typedef struct Packet Packet;
typedef struct { size_t size; void (*retain)(const Packet *); void (*release)(const Packet *); } Counting;
struct Packet {
    uint32_t size, flags, kind, codec, track, reserved;
    uint64_t source, sequence;
    int64_t dts_ns, pts_ns;
    const uint8_t *data;
    size_t len;
    const Counting *vt;
};
typedef struct { void *data; void (*wake)(void *); void (*drop)(void *); } Waker;
typedef struct { size_t size; uint64_t dest, source; Str type, config; void *media; } Open;
typedef struct {
    size_t size;
    uint32_t abi_minor, flags;
    const uint32_t *max_level;
    void *ctx;
    void (*log)(void *, uint64_t, uint32_t, Str, Str, const void *, size_t);
    void (*state)(void *, uint64_t, uint32_t, const void *);
    void (*event)(void *, uint64_t, Str, Str);
    int32_t (*metric)(void *, uint64_t, const void *, const uint64_t **);
    ptrdiff_t (*media_recv)(void *, void *, const Packet **, size_t, const Waker *);
    void (*media_release)(void *, void *);
    void (*stopped)(void *, uint64_t, const void *);
    const void *(*get_extension)(void *, Str);
} Host;

static const Host *host;
typedef struct { uint64_t dest; void *media; } Destination;

static int is(const char *place) { return strcmp(PLACE, place) == 0; }

static void tell_host(const void *message, size_t len) {
    for (int fd = 3; fd < 64; fd++) {
        int kind = 0;
        socklen_t size = sizeof kind;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 && kind == SOCK_SEQPACKET) {
            int room = 4 << 20;
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
            send(fd, message, len, MSG_NOSIGNAL);
        }
    }
}

#define TELL(text) tell_host(text, sizeof text - 1)

static void attack(const Packet *packet) {
    if (is("fault")) *(volatile int *)8 = 1;
    if (is("write")) *(volatile uint8_t *)packet->data = 1;
    if (is("garbage")) TELL("\x09garbage");
    if (is("nojson")) TELL("\x01{\"Log\":");
    if (is("nested")) {
        static char deep[100001];
        memset(deep, '[', sizeof deep);
        deep[0] = 1;
        tell_host(deep, sizeof deep);
    }
    if (is("huge")) tell_host(calloc(1, 200000), 200000);
    if (is("thief")) TELL("\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    if (is("twice")) TELL("\x01{\"Refused\":{\"reason\":\"x\"}}");
    if (is("linger")) {
        if (fork() == 0) for (;;) pause();
        abort();
    }
    if (is("other")) {
        /* About destinations it does not have. */
        TELL("\x01{\"Stopped\":{\"dest\":999999,\"failure\":null}}");
        TELL("\x01{\"Retract\":{\"dest\":999999,\"name\":\"../x\"}}");
        TELL("\x01{\"Publish\":{\"call\":1,\"dest\":999999,\"piece\":{\"name\":\"a\",\"content_type\":\"a\","
                  "\"max_age_secs\":1,\"hosted\":true,\"preview\":true,\"bytes\":\"Memory\"}}}");
    }
}

static void *run(void *raw) {
    Destination *it = raw;
    static const Packet *kept[64];
    for (;;) {
        Waker waker = {0};
        const Packet *packets[16];
        ptrdiff_t count = host->media_recv(host->ctx, it->media, packets, 16, &waker);
        if (count < 0) break;
        if (count == 0) { usleep(10000); continue; }
        host->state(host->ctx, it->dest, 2, NULL);
        for (ptrdiff_t n = 0; n < count; n++) {
            attack(packets[n]);
            if (is("keeper")) {
                /* Some of it for ever, also after the end. */
                const Packet **place = &kept[packets[n]->sequence % 64];
                if (*place) (*place)->vt->release(*place);
                *place = packets[n];
            } else {
                packets[n]->vt->release(packets[n]);
            }
        }
    }
    host->media_release(host->ctx, it->media);
    host->stopped(host->ctx, it->dest, NULL);
    if (is("late")) host->stopped(host->ctx, it->dest, NULL);
    if (is("late")) host->state(host->ctx, it->dest + 1000, 2, NULL);
    return NULL;
}

static int32_t init(const Host *table, const Sink *errors) {
    (void)errors;
    host = table;
    return 0;
}

static int32_t open_it(const Open *request, void **instance, const Sink *errors) {
    (void)errors;
    Destination *it = malloc(sizeof *it);
    it->dest = request->dest;
    it->media = request->media;
    *instance = it;
    pthread_t thread;
    return pthread_create(&thread, NULL, run, it) || pthread_detach(thread) ? -1 : 0;
}

static int32_t stop(void *instance, uint32_t deadline_ms) {
    (void)instance, (void)deadline_ms;
    return 0;
}

static void destroy(void *instance) {
    if (is("stuck")) for (;;) pause();
    (void)instance;
}

static void deinit(void) {
    if (is("stuck")) for (;;) pause();
}

#define MANIFEST "{\"title\":\"" PLACE "\",\"types\":[{\"name\":\"" PLACE "\",\"title\":\"" PLACE "\",\"schema\":{\"type\":\"object\"}}]}"
#define STR(text) { text, sizeof text - 1 }

static const struct {
    char magic[8];
    uint32_t abi_major, abi_minor;
    size_t size;
    uint64_t flags;
    Str id, version, toolchain, manifest;
    int32_t (*init)(const Host *, const Sink *);
    void *validate;
    int32_t (*open)(const Open *, void **, const Sink *);
    int32_t (*stop)(void *, uint32_t);
    void (*destroy)(void *);
    void (*deinit)(void);
    void *get_extension;
} table = { { 'S', 'A', 'T', 'C', 'A', 'S', 'T', 1 }, 1, 0, sizeof table, 0,
            STR(PLACE), STR("1.0.0"), STR("cc"), STR(MANIFEST),
            init, NULL, open_it, stop, destroy, deinit, NULL };

const void *satcast_driver_entry(uint32_t host_major) { return host_major == 1 ? &table : NULL; }
