/* Drives the library through its life with its own host: the output must be FLV, and the end must be clean. */
#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "satcast_driver.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { PACKETS = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int taken, closed, released, queue_released, live, ended, failed, refused, server = -1;
static uint64_t sent;

static void retain(const SatcastPacket *packet)
{
    (void)packet;
}

static void release(const SatcastPacket *packet)
{
    (void)packet;
    pthread_mutex_lock(&lock);
    released++;
    pthread_mutex_unlock(&lock);
}

static const SatcastPacketVt vt = {sizeof vt, retain, release};
static const uint8_t payload[] = {1, 2, 3};
static const int64_t MS = 1000000;

#define PACKET(flags, kind, codec, dts, pts)                                                                           \
    {sizeof(SatcastPacket), flags, kind, codec, 0, 0, 1, 0, dts, pts, payload, sizeof payload, &vt}

static const SatcastPacket packets[PACKETS] = {
    PACKET(SATCAST_PACKET_CONFIG, SATCAST_KIND_VIDEO, SATCAST_CODEC_H264, 1000 * MS, 1000 * MS),
    PACKET(SATCAST_PACKET_KEYFRAME, SATCAST_KIND_VIDEO, SATCAST_CODEC_H264, 1000 * MS, 1040 * MS),
    PACKET(0, SATCAST_KIND_AUDIO, SATCAST_CODEC_AAC, 1020 * MS, 1020 * MS),
    PACKET(0, SATCAST_KIND_VIDEO, SATCAST_CODEC_AV1, 1030 * MS, 1030 * MS), /* left out */
};

static void state(void *ctx, uint64_t dest, uint32_t now, const SatcastError *reason)
{
    (void)ctx, (void)dest, (void)reason;
    pthread_mutex_lock(&lock);
    live |= now == SATCAST_STATE_LIVE;
    pthread_mutex_unlock(&lock);
}

static int32_t metric(void *ctx, uint64_t dest, const SatcastMetricDesc *desc, uint64_t **slot)
{
    (void)ctx, (void)dest, (void)desc;
    *slot = &sent;
    return SATCAST_OK;
}

static ptrdiff_t media_recv(void *ctx, SatcastMedia *media, const SatcastPacket **out, size_t cap,
                            const SatcastWaker *waker)
{
    (void)ctx, (void)media, (void)cap;
    waker->drop(waker->data);
    pthread_mutex_lock(&lock);
    ptrdiff_t count = closed ? -1 : 0;
    if (taken < PACKETS) {
        out[0] = &packets[taken++];
        count = 1;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

static ptrdiff_t wait_any(void *ctx, SatcastMedia *const *media, size_t count, uint32_t timeout_ms)
{
    (void)ctx, (void)media, (void)count, (void)timeout_ms;
    pthread_mutex_lock(&lock);
    while (!closed) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static void media_release(void *ctx, SatcastMedia *media)
{
    (void)ctx, (void)media;
    queue_released++;
}

static void stopped(void *ctx, uint64_t dest, const SatcastError *error)
{
    (void)ctx, (void)dest;
    pthread_mutex_lock(&lock);
    ended++;
    failed = error ? (int)error->error_class : 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/// Keeps the class of the error; `data` is where.
static void put_error(void *data, const SatcastError *error)
{
    *(uint32_t *)data = error->error_class;
}

static int32_t connect_host(void *ctx, uint64_t dest, const SatcastConnect *request, SatcastConnected done)
{
    (void)ctx, (void)dest;
    CHECK(request->port == 9000 && request->host.len == 11 && memcmp(request->host.ptr, "example.org", 11) == 0);
    int pair[2];
    if (refused) {
        const SatcastError error = {sizeof error, SATCAST_CLASS_NETWORK, 0, 0, satcast_str("refused")};
        done.done(done.data, -1, &error);
        return SATCAST_OK;
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    server = pair[1];
    done.done(done.data, pair[0], NULL);
    return SATCAST_OK;
}

static const SatcastNet net = {sizeof net, connect_host};
static const SatcastWait waiter = {sizeof waiter, wait_any};

static const void *get_extension(void *ctx, SatcastStr name)
{
    (void)ctx;
    if (name.len == strlen(SATCAST_EXT_NET) && memcmp(name.ptr, SATCAST_EXT_NET, name.len) == 0) {
        return &net;
    }
    if (name.len == strlen(SATCAST_EXT_WAIT) && memcmp(name.ptr, SATCAST_EXT_WAIT, name.len) == 0) {
        return &waiter;
    }
    return NULL;
}

static void wait_for_end(int count)
{
    pthread_mutex_lock(&lock);
    while (ended < count) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    SatcastDriverEntry entry;
    *(void **)&entry = dlsym(library, SATCAST_ENTRY_SYMBOL);
    CHECK(entry && entry(SATCAST_ABI_MAJOR + 1) == NULL);
    const SatcastDriver *driver = entry(SATCAST_ABI_MAJOR);
    CHECK(driver && driver->magic == SATCAST_MAGIC && driver->size == sizeof *driver);

    const uint32_t level = 5;
    const SatcastHost host = {.size = sizeof host, .abi_minor = SATCAST_ABI_MINOR, .max_level = &level, .state = state,
                              .metric = metric, .media_recv = media_recv, .media_release = media_release,
                              .stopped = stopped, .get_extension = get_extension};
    uint32_t class_ = 0;
    const SatcastErrorSink sink = {&class_, put_error};
    CHECK(driver->init(&host, &sink) == SATCAST_OK);
    // By name: a later header has more fields, which are zero here.
    SatcastOpen request = {.size = sizeof request, .dest = 1, .source = 1, .type_name = satcast_str("tcp-flv"),
                           .config_json = satcast_str("{}")};
    void *instance = NULL;
    CHECK(driver->open(&request, &instance, &sink) == SATCAST_ERR && queue_released == 1);
    CHECK(class_ == SATCAST_CLASS_CONFIG);

    request.config_json = satcast_str("{\"host\": \"example.org\", \"port\": 9000}");
    CHECK(driver->open(&request, &instance, &sink) == SATCAST_OK);
    static const uint8_t expected[] = {
        'F', 'L', 'V', 1, 5, 0, 0, 0, 9, 0, 0, 0, 0,
        9, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0x17, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 19,
        9, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0x17, 1, 0, 0, 40, 1, 2, 3, 0, 0, 0, 19,
        8, 0, 0, 5, 0, 0, 20, 0, 0, 0, 0, 0xaf, 1, 1, 2, 3, 0, 0, 0, 16,
    };
    uint8_t got[sizeof expected + 1];
    pthread_mutex_lock(&lock);
    closed = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    wait_for_end(1);
    size_t bytes = 0;
    for (ssize_t more = 1; more > 0; bytes += (size_t)more) {
        more = read(server, got + bytes, sizeof got - bytes);
        CHECK(more >= 0);
    }
    CHECK(bytes == sizeof expected && memcmp(got, expected, bytes) == 0);
    CHECK(sent == sizeof expected && released == PACKETS && queue_released == 2 && live == 1 && failed == 0);
    driver->stop(instance, 1000);
    driver->destroy(instance);

    refused = 1;
    CHECK(driver->open(&request, &instance, &sink) == SATCAST_OK);
    wait_for_end(2);
    CHECK(failed == SATCAST_CLASS_NETWORK && queue_released == 3);
    driver->destroy(instance);
    driver->deinit();
    printf("ok\n");
    return 0;
}
