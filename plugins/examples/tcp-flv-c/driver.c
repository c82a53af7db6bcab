/*
 * Driver tcp-flv: sends a stream as FLV to a TCP address.
 *
 * Each destination has a thread: it asks the host for a connection, waits for packets, writes them, and reports the end. It never
 * tries again by itself: it ends with an error, and the host opens the destination again after its back-off.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "flv.h"

#define TEXT(literal) {(const uint8_t *)(literal), sizeof(literal) - 1}

enum { HOST_BYTES_MAX = 253, ERROR_BYTES_MAX = 512, BATCH_MAX = 64 };
/* How often a thread that waits looks whether it shall end, in milliseconds. */
enum { LOOK_MS = 100 };
/* How long a connection may take, and how long the other side may take nothing, in milliseconds. */
enum { CONNECT_MS = 10000, SILENCE_MS = 10000 };

static const SatcastHost *host;
static const SatcastNet *net;
static const SatcastWait *waiter;

/* One opening of a destination. */
struct out {
    uint64_t dest;
    SatcastMedia *media;
    char address[HOST_BYTES_MAX + 1];
    uint32_t port;
    pthread_t thread;
    atomic_bool stopping;
    int fd;
    uint64_t *bytes_sent;
    int64_t base_ns;
    int has_base;
    int is_live;
    uint32_t class_;
    char message[ERROR_BYTES_MAX];
};

/* A connection attempt. Its answer may come after the destination has gone, so it is held by both. */
struct dial {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int holders;
    int is_answered;
    int fd;
    uint32_t class_;
    char message[ERROR_BYTES_MAX];
};

static int refuse(const SatcastErrorSink *sink, uint32_t class_, const char *message)
{
    SatcastError error = {sizeof error, class_, 0, 0, satcast_str(message)};
    if (sink && sink->put) {
        sink->put(sink->data, &error);
    }
    return SATCAST_ERR;
}

static int fail(struct out *out, uint32_t class_, const char *message)
{
    out->class_ = class_;
    snprintf(out->message, sizeof out->message, "%s", message);
    return -1;
}

/* ---- Configuration: valid by the schema below, which allows no escapes in texts ---- */

static const char *value_of(SatcastStr json, const char *field)
{
    const char *at = (const char *)json.ptr, *end = at + json.len;
    const size_t bytes = strlen(field);
    for (; at + bytes + 2 < end; at++) {
        if (*at == '"' && memcmp(at + 1, field, bytes) == 0 && at[bytes + 1] == '"') {
            at += bytes + 2;
            while (at < end && (*at == ' ' || *at == ':' || *at == '\t' || *at == '\n' || *at == '\r')) {
                at++;
            }
            return at < end ? at : NULL;
        }
    }
    return NULL;
}

static int read_config(SatcastStr json, struct out *out)
{
    const char *end = (const char *)json.ptr + json.len;
    const char *text = value_of(json, "host"), *number = value_of(json, "port");
    if (!text || *text != '"' || !number) {
        return -1;
    }
    size_t bytes = 0;
    for (text++; text < end && *text != '"'; text++) {
        if (bytes == HOST_BYTES_MAX) {
            return -1;
        }
        out->address[bytes++] = *text;
    }
    out->address[bytes] = '\0';
    for (out->port = 0; number < end && *number >= '0' && *number <= '9' && out->port <= 65535; number++) {
        out->port = out->port * 10 + (uint32_t)(*number - '0');
    }
    return bytes > 0 && out->port > 0 && out->port <= 65535 ? 0 : -1;
}

/* ---- Connecting ---- */

static void let_go(struct dial *dial)
{
    pthread_mutex_lock(&dial->lock);
    const int holders = --dial->holders;
    pthread_mutex_unlock(&dial->lock);
    if (holders == 0) {
        if (dial->fd >= 0) {
            close(dial->fd);
        }
        pthread_cond_destroy(&dial->answered);
        pthread_mutex_destroy(&dial->lock);
        free(dial);
    }
}

static void on_connected(void *data, int32_t fd, const SatcastError *error)
{
    struct dial *dial = data;
    pthread_mutex_lock(&dial->lock);
    dial->is_answered = 1;
    dial->fd = fd;
    if (error) {
        dial->class_ = error->error_class;
        const size_t bytes = error->message.len < ERROR_BYTES_MAX ? error->message.len : ERROR_BYTES_MAX - 1;
        memcpy(dial->message, error->message.ptr, bytes);
    }
    pthread_cond_signal(&dial->answered);
    pthread_mutex_unlock(&dial->lock);
    let_go(dial);
}

static int connect_out(struct out *out)
{
    struct dial *dial = calloc(1, sizeof *dial);
    if (!dial) {
        return fail(out, SATCAST_CLASS_INTERNAL, "there is no memory");
    }
    pthread_mutex_init(&dial->lock, NULL);
    pthread_cond_init(&dial->answered, NULL);
    dial->holders = 2;
    dial->fd = -1;
    dial->class_ = SATCAST_CLASS_NETWORK;
    const SatcastConnect request = {sizeof request, CONNECT_MS, satcast_str(out->address), out->port, 0};
    const SatcastConnected done = {dial, on_connected};
    net->connect(host->ctx, out->dest, &request, done);
    pthread_mutex_lock(&dial->lock);
    while (!dial->is_answered && !atomic_load(&out->stopping)) {
        struct timespec look;
        clock_gettime(CLOCK_REALTIME, &look);
        look.tv_nsec += LOOK_MS * 1000000L;
        look.tv_sec += look.tv_nsec / 1000000000L;
        look.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&dial->answered, &dial->lock, &look);
    }
    out->fd = dial->fd;
    dial->fd = -1;
    if (out->fd < 0) {
        fail(out, dial->class_, dial->message);
    }
    pthread_mutex_unlock(&dial->lock);
    let_go(dial);
    return out->fd < 0 ? -1 : 0;
}

/* ---- Writing ---- */

static int write_all(struct out *out, struct iovec *parts, int count)
{
    int silent_ms = 0;
    while (count > 0) {
        struct msghdr message = {0};
        message.msg_iov = parts;
        message.msg_iovlen = (size_t)count;
        ssize_t written = sendmsg(out->fd, &message, MSG_NOSIGNAL);
        if (written < 0 && (errno == EAGAIN || errno == EINTR)) {
            struct pollfd ready = {out->fd, POLLOUT, 0};
            silent_ms = poll(&ready, 1, LOOK_MS) > 0 ? 0 : silent_ms + LOOK_MS;
            if (silent_ms >= SILENCE_MS || (silent_ms > 0 && atomic_load(&out->stopping))) {
                return fail(out, SATCAST_CLASS_NETWORK, "the other side takes nothing any more");
            }
            continue;
        }
        if (written < 0) {
            return fail(out, SATCAST_CLASS_REMOTE, "the other side closed the connection");
        }
        if (out->bytes_sent) {
            __atomic_fetch_add(out->bytes_sent, (uint64_t)written, __ATOMIC_RELAXED);
        }
        while (count > 0 && (size_t)written >= parts->iov_len) {
            written -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (uint8_t *)parts->iov_base + written;
            parts->iov_len -= (size_t)written;
        }
    }
    return 0;
}

static int write_packet(struct out *out, const SatcastPacket *packet)
{
    uint8_t head[FLV_TAG_HEAD_BYTES], tail[FLV_TAG_TAIL_BYTES];
    if (!out->has_base && !(packet->flags & SATCAST_PACKET_CONFIG)) {
        out->has_base = 1;
        out->base_ns = packet->dts_ns;
    }
    const size_t head_bytes = flv_tag(packet, out->has_base ? out->base_ns : packet->dts_ns, head, tail);
    if (head_bytes == 0) {
        return 0;
    }
    /* Writing only reads the payload; the type of iov_base cannot say so. */
    union {
        const uint8_t *in;
        void *out;
    } payload = {packet->data};
    struct iovec parts[] = {{head, head_bytes}, {payload.out, packet->len}, {tail, sizeof tail}};
    if (write_all(out, parts, 3) != 0) {
        return -1;
    }
    if (!out->is_live) {
        out->is_live = 1;
        host->state(host->ctx, out->dest, SATCAST_STATE_LIVE, NULL);
    }
    return 0;
}

static void no_wake(void *data)
{
    (void)data;
}

static int forward(struct out *out)
{
    uint8_t head[FLV_HEAD_BYTES];
    flv_head(head);
    struct iovec start = {head, sizeof head};
    if (connect_out(out) != 0 || write_all(out, &start, 1) != 0) {
        return -1;
    }
    for (;;) {
        const SatcastPacket *batch[BATCH_MAX];
        const SatcastWaker waker = {NULL, no_wake, no_wake};
        const ptrdiff_t count = host->media_recv(host->ctx, out->media, batch, BATCH_MAX, &waker);
        if (count < 0) {
            return 0;
        }
        if (count == 0) {
            waiter->wait_any(host->ctx, &out->media, 1, 1000);
            continue;
        }
        int outcome = 0;
        for (ptrdiff_t index = 0; index < count; index++) {
            outcome = outcome == 0 ? write_packet(out, batch[index]) : outcome;
            batch[index]->vt->release(batch[index]);
        }
        if (outcome != 0) {
            return -1;
        }
    }
}

static void *run(void *data)
{
    struct out *out = data;
    const int outcome = forward(out);
    if (out->fd >= 0) {
        close(out->fd);
    }
    host->media_release(host->ctx, out->media);
    const SatcastError error = {sizeof error, out->class_, 0, 0, satcast_str(out->message)};
    /* `out` may be freed as soon as this is said. */
    host->stopped(host->ctx, out->dest, outcome == 0 || atomic_load(&out->stopping) ? NULL : &error);
    return NULL;
}

/* ---- The table ---- */

static int32_t init(const SatcastHost *given, const SatcastErrorSink *error)
{
    host = given;
    net = host->get_extension(host->ctx, satcast_str(SATCAST_EXT_NET));
    waiter = host->get_extension(host->ctx, satcast_str(SATCAST_EXT_WAIT));
    if (!net || !waiter) {
        return refuse(error, SATCAST_CLASS_INTERNAL, "this host offers no connections; use a newer one");
    }
    return SATCAST_OK;
}

static int32_t open_out(const SatcastOpen *request, void **instance, const SatcastErrorSink *error)
{
    struct out *out = calloc(1, sizeof *out);
    if (!out || read_config(request->config_json, out) != 0) {
        free(out);
        host->media_release(host->ctx, request->media);
        return refuse(error, SATCAST_CLASS_CONFIG, "host and port must name a TCP address");
    }
    out->dest = request->dest;
    out->media = request->media;
    out->fd = -1;
    const SatcastMetricDesc sent = {sizeof sent, 0, satcast_str("bytes_sent")};
    host->metric(host->ctx, out->dest, &sent, &out->bytes_sent);
    if (pthread_create(&out->thread, NULL, run, out) != 0) {
        free(out);
        host->media_release(host->ctx, request->media);
        return refuse(error, SATCAST_CLASS_INTERNAL, "there is no thread for the destination");
    }
    *instance = out;
    return SATCAST_OK;
}

static int32_t stop(void *instance, uint32_t deadline_ms)
{
    struct out *out = instance;
    (void)deadline_ms; /* A thread that waits sees it within LOOK_MS. */
    atomic_store(&out->stopping, 1);
    return SATCAST_OK;
}

static void destroy(void *instance)
{
    struct out *out = instance;
    pthread_join(out->thread, NULL);
    free(out);
}

static void deinit(void)
{
}

static const char manifest[] =
    "{\"title\": \"FLV over TCP\", \"types\": [{\"name\": \"tcp-flv\", \"title\": \"FLV over TCP\","
    " \"codecs\": [\"h264\", \"aac\"], \"schema\": {\"type\": \"object\", \"additionalProperties\": false,"
    " \"required\": [\"host\", \"port\"], \"properties\": {"
    " \"host\": {\"type\": \"string\", \"pattern\": \"^[A-Za-z0-9.:-]{1,253}$\","
    " \"description\": \"Name or address of the server.\"},"
    " \"port\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 65535, \"description\": \"Its TCP port.\"}}}}]}";

static const SatcastDriver driver = {
    .magic = SATCAST_MAGIC,
    .abi_major = SATCAST_ABI_MAJOR,
    .abi_minor = SATCAST_ABI_MINOR,
    .size = sizeof(SatcastDriver),
    .flags = SATCAST_FLAG_PANIC_UNWIND, /* There are no panics in C. */
    .id = TEXT("tcp-flv"),
    .version = TEXT("0.1.0"),
    .toolchain = TEXT(__VERSION__),
    .manifest_json = TEXT(manifest),
    .init = init,
    .open = open_out,
    .stop = stop,
    .destroy = destroy,
    .deinit = deinit,
};

const SatcastDriver *satcast_driver_entry(uint32_t host_major)
{
    return host_major == SATCAST_ABI_MAJOR ? &driver : NULL;
}
