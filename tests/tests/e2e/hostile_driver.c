/* A driver that attacks its host. PLACE, its id and destination type, says how. For the end-to-end tests; never shipped. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "satcast_driver.h"

static const SatcastHost *host;
typedef struct { uint64_t dest; SatcastMedia *media; } Destination;

static int is(const char *place) { return strcmp(PLACE, place) == 0; }
static SatcastStr str(const char *text) { return (SatcastStr){ (const uint8_t *)text, strlen(text) }; }

#ifdef THROWS
/* Of a file in C++. */
void throw_it(void);
#else
static void throw_it(void) {}
#endif

/* Everything a host can be told of a destination, with texts that are none. */
static void nonsense(uint64_t dest) {
    SatcastStr broken = { (const uint8_t *)"\xff\xfe\x00\x1b[31m", 8 };
    SatcastStr nothing = { NULL, 99 };
    SatcastKv fields[2] = { { broken, nothing }, { nothing, broken } };
    host->log(host->ctx, dest, 77, broken, nothing, fields, 2);
    host->log(host->ctx, dest, 3, nothing, broken, NULL, 99);
    host->event(host->ctx, dest, broken, str("{\"half\":"));
    host->event(host->ctx, dest, nothing, nothing);
    SatcastError cut = { 4, 99, 0, 0, nothing }, odd = { sizeof odd, 99, 1, 7, broken };
    host->state(host->ctx, dest, 99, &cut);
    host->state(host->ctx, dest, 1, &odd);
    uint64_t *slot = NULL;
    SatcastMetricDesc small = { 4, 0, nothing }, unnamed = { sizeof unnamed, 9, broken };
    if (host->metric(host->ctx, dest, NULL, &slot) == SATCAST_OK) abort();
    if (host->metric(host->ctx, dest, &small, &slot) == SATCAST_OK) abort();
    if (host->metric(host->ctx, dest, &unnamed, NULL) == SATCAST_OK) abort();
    host->metric(host->ctx, dest, &unnamed, &slot);
    SatcastMetricDesc spaced = { sizeof spaced, 0, str("Not Plain") };
    if (host->metric(host->ctx, dest, &spaced, &slot) == SATCAST_OK) abort();
    if (host->get_extension(host->ctx, broken) || host->get_extension(host->ctx, nothing)) abort();
    const SatcastAssets *assets = host->get_extension(host->ctx, str(SATCAST_EXT_ASSETS));
    SatcastAsset none = { .size = sizeof none, .name = broken };
    if (assets->publish(host->ctx, dest, &none, NULL) == SATCAST_OK) abort();
    assets->retract(host->ctx, dest, broken);
}

static void attack(void) {
    if (is("fault")) *(volatile int *)8 = 1;
    if (is("linger")) {
        if (fork() == 0) for (;;) pause();
        abort();
    }
}

/* Threads with memory of their own; so much is everybody's right. */
static void *busy(void *unused) {
    (void)unused;
    char *own = malloc(256 * 1024);
    if (!own) abort();
    memset(own, 1, 256 * 1024);
    for (;;) pause();
}

static void start_threads(void) {
    static int started;
    if (started++) return;
    for (int n = 0; n < 64; n++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, busy, NULL)) abort();
    }
}

/* A waker that takes the thread that wakes it. */
static void block(void *data) { (void)data; for (;;) pause(); }
static void forget(void *data) { (void)data; }

static void take(Destination *it, const SatcastPacket *packet) {
    static const SatcastPacket *kept[64];
    attack();
    if (is("threads")) start_threads();
    if (is("hoarder")) return;
    if (is("keeper")) {
        /* Some of it for ever, also after the end. */
        const SatcastPacket **place = &kept[packet->sequence % 64];
        if (*place) (*place)->vt->release(*place);
        *place = packet;
        return;
    }
    packet->vt->release(packet);
    if (is("double")) packet->vt->release(packet);
    if (is("nonsense")) nonsense(it->dest);
    if (is("early")) host->stopped(host->ctx, it->dest, NULL);
    if (is("slow")) sleep(1);
}

static void *run(void *raw) {
    Destination *it = raw;
    int is_told = 0;
    for (;;) {
        SatcastWaker waker = {0};
        if (is("waker")) waker = (SatcastWaker){ it, block, forget };
        const SatcastPacket *packets[16];
        ptrdiff_t count = host->media_recv(host->ctx, it->media, packets, is("slow") ? 1 : 16, &waker);
        if (count < 0) break;
        if (count == 0) { usleep(10000); continue; }
        if (!is_told++) host->log(host->ctx, it->dest, 3, str(PLACE), str("the attack begins"), NULL, 0);
        host->state(host->ctx, it->dest, 2, NULL);
        for (ptrdiff_t n = 0; n < count; n++) take(it, packets[n]);
    }
    /* It never says that it has ended, and gives nothing back. */
    if (is("never")) for (;;) pause();
    host->media_release(host->ctx, it->media);
    host->stopped(host->ctx, it->dest, NULL);
    if (is("late")) {
        sleep(1);
        host->stopped(host->ctx, it->dest, NULL);
        nonsense(it->dest);
        nonsense(it->dest + 1000);
    }
    return NULL;
}

static int32_t init(const SatcastHost *table, const SatcastErrorSink *errors) {
    (void)errors;
    host = table;
    return SATCAST_OK;
}

static int32_t open_it(const SatcastOpen *request, void **instance, const SatcastErrorSink *errors) {
    (void)errors;
    if (is("throw")) throw_it();
    if (is("hangopen")) for (;;) pause();
    Destination *it = malloc(sizeof *it);
    it->dest = request->dest;
    it->media = request->media;
    *instance = it;
    pthread_t thread;
    return pthread_create(&thread, NULL, run, it) || pthread_detach(thread) ? SATCAST_ERR : SATCAST_OK;
}

static int32_t stop(void *instance, uint32_t deadline_ms) {
    (void)instance, (void)deadline_ms;
    if (is("hangstop")) for (;;) pause();
    return SATCAST_OK;
}

static void destroy(void *instance) {
    (void)instance;
    if (is("stuck")) for (;;) pause();
}

static void deinit(void) {
    if (is("stuck")) for (;;) pause();
}

#define MANIFEST "{\"title\":\"" PLACE "\",\"types\":[{\"name\":\"" PLACE "\",\"title\":\"" PLACE "\",\"schema\":{\"type\":\"object\"}}]}"
#define STR(text) { (const uint8_t *)text, sizeof text - 1 }

static const SatcastDriver table = {
    SATCAST_MAGIC, SATCAST_ABI_MAJOR, SATCAST_ABI_MINOR, sizeof table, SATCAST_FLAG_PANIC_UNWIND,
    STR(PLACE), STR("1.0.0"), STR("cc"), STR(MANIFEST),
    init, NULL, open_it, stop, destroy, deinit, NULL
};

const SatcastDriver *satcast_driver_entry(uint32_t host_major) { return host_major == SATCAST_ABI_MAJOR ? &table : NULL; }
