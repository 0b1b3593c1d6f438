/* Stands in for NVIDIA's libnvidia-ml.so.1: the functions otel_ml calls, answered from files.
 *
 * $FAKE_NVML is a folder. `<device>.<name>` holds a number, or `!<code>` for that NVML error; no file: not supported.
 * `<device>.handle` need not be there. `count` is the number of devices; `error`, while it exists, is what every call answers (a driver that is gone).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef struct { int index; } device_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { u64 total, free, used; } memory_t;
typedef struct { device_t *device; u64 type, data; unsigned gi, ci; } event_t;
typedef struct { unsigned pid; u64 used; unsigned gi, ci; } process_t;

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10 };

static device_t devices[16] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}};

static int text(const char *name, char *into, size_t size) {
    char path[4096];
    const char *folder = getenv("FAKE_NVML");
    if (!folder) return DRIVER_NOT_LOADED;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file) return NOT_SUPPORTED;
    size_t n = fread(into, 1, size - 1, file);
    fclose(file);
    into[n] = 0;
    if (into[0] == '!') return atoi(into + 1);
    return SUCCESS;
}

static int gone(void) {
    char found[64] = "";
    int error = text("error", found, sizeof found);
    return error == NOT_SUPPORTED ? SUCCESS : error ? error : atoi(found);
}

static int device_text(device_t *device, const char *name, char *into, size_t size) {
    char full[256];
    int error = gone();
    if (error) return error;
    snprintf(full, sizeof full, "%d.%s", device->index, name);
    return text(full, into, size);
}

static int number(device_t *device, const char *name, u64 *value) {
    char found[64];
    int error = device_text(device, name, found, sizeof found);
    if (!error) *value = strtoull(found, 0, 10);
    return error;
}

static int small(device_t *device, const char *name, unsigned *value) {
    u64 found = 0;
    int error = number(device, name, &found);
    if (!error) *value = (unsigned)found;
    return error;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return getenv("FAKE_NVML") ? gone() : DRIVER_NOT_LOADED; }
int nvmlShutdown(void) { return gone(); }

const char *nvmlErrorString(int error) {
    return error == 15 ? "GPU is lost" : error == 9 ? "Driver Not Loaded" : error == 1 ? "Uninitialized" : "some error";
}

int nvmlSystemGetDriverVersion(char *into, unsigned size) { return gone() ? gone() : text("driver", into, size); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    char found[64];
    int error = gone();
    if (!error) error = text("count", found, sizeof found);
    if (!error) *count = (unsigned)atoi(found);
    return error;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
    if (index >= 16) return INVALID_ARGUMENT;
    *device = &devices[index];
    u64 handle = 0;
    int error = number(*device, "handle", &handle);
    return error == NOT_SUPPORTED ? SUCCESS : error;
}

int nvmlDeviceGetUUID(device_t *d, char *into, unsigned size) { return device_text(d, "uuid", into, size); }
int nvmlDeviceGetName(device_t *d, char *into, unsigned size) { return device_text(d, "name", into, size); }

int nvmlDeviceGetUtilizationRates(device_t *d, utilization_t *u) {
    int error = small(d, "utilization", &u->gpu);
    return error ? error : small(d, "activity", &u->memory);
}

int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *m) {
    int error = number(d, "memory.total", &m->total);
    if (!error) error = number(d, "memory.used", &m->used);
    m->free = m->total - m->used;
    return error;
}

int nvmlDeviceGetPowerUsage(device_t *d, unsigned *v) { return small(d, "power", v); }
int nvmlDeviceGetEnforcedPowerLimit(device_t *d, unsigned *v) { return small(d, "power.limit", v); }
int nvmlDeviceGetTotalEnergyConsumption(device_t *d, u64 *v) { return number(d, "energy", v); }
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t *d, u64 *v) { return number(d, "throttle", v); }

int nvmlDeviceGetTemperature(device_t *d, int sensor, unsigned *v) { (void)sensor; return small(d, "temperature", v); }

int nvmlDeviceGetClockInfo(device_t *d, int kind, unsigned *v) {
    return small(d, kind == 2 ? "clock.memory" : "clock.sm", v);
}

int nvmlDeviceGetTotalEccErrors(device_t *d, int kind, int counter, u64 *v) {
    (void)counter;
    return number(d, kind == 0 ? "ecc.corrected" : "ecc.uncorrected", v);
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *count, process_t *into) {
    u64 pid = 0, used = 0;
    int error = number(d, "process.pid", &pid);
    if (!error) error = number(d, "process.memory", &used);
    if (error) return error;
    if (*count < 1) { *count = 1; return INSUFFICIENT_SIZE; }
    *count = 1;
    into[0] = (process_t){(unsigned)pid, used, 0xFFFFFFFF, 0xFFFFFFFF};
    return SUCCESS;
}

static int registered[16];

int nvmlEventSetCreate(void **set) { *set = &devices; memset(registered, 0, sizeof registered); return gone(); }
int nvmlEventSetFree(void *set) { (void)set; return gone(); }

/* `<device>.events` is the error with which a device refuses. */
int nvmlDeviceRegisterEvents(device_t *d, u64 types, void *set) {
    u64 found = 0;
    (void)types; (void)set;
    int error = number(d, "events", &found);
    registered[d->index] = !error || error == NOT_SUPPORTED;
    return registered[d->index] ? SUCCESS : error;
}

/* `<device>.xid` is reported once: the file is taken away. */
int nvmlEventSetWait_v2(void *set, event_t *event, unsigned milliseconds) {
    (void)set; (void)milliseconds;
    if (gone()) return gone();
    for (int i = 0; i < 16; i++) {
        u64 xid = 0;
        if (!registered[i] || number(&devices[i], "xid", &xid)) continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.xid", getenv("FAKE_NVML"), i);
        remove(path);
        *event = (event_t){&devices[i], 8, xid, 0, 0};
        return SUCCESS;
    }
    return TIMEOUT;
}
