/* Libraries that a host must refuse; CASE, their id and destination type, says why. For the end-to-end tests; never shipped. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "satcast_driver.h"

static int is(const char *wanted) { return strcmp(CASE, wanted) == 0; }
static SatcastStr str(const char *text) { return (SatcastStr){ (const uint8_t *)text, strlen(text) }; }

__attribute__((constructor)) static void loaded(void) {
    if (is("aborts")) abort();
    if (is("hangs")) for (;;) pause();
    if (is("exits")) _exit(0);
}

#ifdef UNDEFINED
void satcast_no_such_function(void);
#endif

static int32_t init(const SatcastHost *host, const SatcastErrorSink *errors) {
    (void)host;
#ifdef UNDEFINED
    satcast_no_such_function();
#endif
    if (is("inithangs")) for (;;) pause();
    if (is("initfails")) {
        SatcastError error = { sizeof error, SATCAST_CLASS_CONFIG, 0, 0, str("it will not start today") };
        errors->put(errors->data, &error);
        return SATCAST_ERR;
    }
    return SATCAST_OK;
}

static int32_t open_it(const SatcastOpen *request, void **instance, const SatcastErrorSink *errors) {
    (void)request, (void)instance, (void)errors;
    return SATCAST_ERR;
}

static int32_t stop(void *instance, uint32_t deadline_ms) {
    (void)instance, (void)deadline_ms;
    return SATCAST_OK;
}

static void destroy(void *instance) { (void)instance; }
static void deinit(void) {}

#define TYPE(name, schema) "{\"title\":\"t\",\"types\":[{\"name\":\"" name "\",\"title\":\"t\",\"schema\":" schema "}]}"
#define WITH_NAME(pattern) TYPE(CASE, "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"pattern\":\"" pattern "\"}}}")

static SatcastStr manifest(void) {
    if (is("badmanifest")) return str("{\"title\":");
    if (is("notypes")) return str("{\"title\":\"t\",\"types\":[]}");
    if (is("badtype")) return str(TYPE("../x", "{}"));
    if (is("badschema")) return str(TYPE(CASE, "{\"type\":5}"));
    if (is("remote")) return str(TYPE(CASE, "{\"$ref\":\"https://example.org/s.json\"}"));
    /* Served by another driver already. */
    if (is("taken")) return str(TYPE("rtmp", "{}"));
    if (is("looks")) return str(WITH_NAME("^(?=a)a$"));
    if (is("swells")) return str(WITH_NAME("^(((a{1000}){1000}){1000}){1000}$"));
    if (is("evil")) return str(WITH_NAME("^(a+)+$"));
    if (is("vast")) {
        /* A schema of 10 MiB. */
        size_t len = 10 << 20;
        char *text = malloc(len + 200);
        strcpy(text, "{\"title\":\"t\",\"types\":[{\"name\":\"vast\",\"title\":\"t\",\"schema\":{\"description\":\"");
        size_t at = strlen(text);
        memset(text + at, 'x', len);
        strcpy(text + at + len, "\"}}]}");
        return str(text);
    }
    return str(TYPE(CASE, "{}"));
}

#ifndef NO_ENTRY
static SatcastDriver table;

const SatcastDriver *satcast_driver_entry(uint32_t host_major) {
    (void)host_major;
    table = (SatcastDriver){ SATCAST_MAGIC, SATCAST_ABI_MAJOR, SATCAST_ABI_MINOR, sizeof table,
                             SATCAST_FLAG_PANIC_UNWIND, str(CASE), str("1.0.0"), str("cc"), manifest(),
                             init, NULL, open_it, stop, destroy, deinit, NULL };
    if (is("notable")) return NULL;
    if (is("magic")) table.magic = 7;
    if (is("future")) table.abi_major = 999;
    if (is("short")) table.size = 100;
    if (is("nostop")) table.stop = NULL;
    if (is("noname")) table.id = str("\xff\xfe");
    if (is("unwinds")) table.flags = 0;
    if (is("another")) table.id = str("renamed");
    return &table;
}
#endif
