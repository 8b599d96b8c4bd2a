/* A wall clock that a test holds in its hand.
 *
 * Loaded with LD_PRELOAD. The environment variable TOKENBUCKET_FAKECLOCK names
 * a file whose first eight bytes are one signed word in the byte order of the
 * machine:
 *
 *     word = 2 * microseconds + held
 *
 *   held = 1   the wall clock stands still at that microsecond since 1970
 *   held = 0   the wall clock runs, shifted by that many microseconds
 *
 * Value and mode share one word so that every change is one aligned write of
 * eight bytes: no reader can see the new mode with the old value. A file of
 * zeros is the true clock, and so is a variable that is not set.
 *
 * Only the wall clock is faked: CLOCK_REALTIME, CLOCK_REALTIME_COARSE,
 * gettimeofday() and time(). The monotonic clocks stay true, so that the timers
 * and time-outs of the process go on working while its wall clock stands.
 *
 * Valkey from 9.0 on may count the cycles of the processor and add them to a wall
 * clock that it has read up to a millisecond ago: that clock would not stand still.
 * So a server that has a variable for its source of monotonic time is given one here
 * before it looks for its own. It ticks once in a millisecond, and once more when the
 * wall clock was changed: what is added is nothing, or so much that the server reads
 * the wall clock again.
 *
 * The true time is asked from the kernel itself. Looking up the C library's own
 * functions would allocate, and an allocator may ask for the time: a loop.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(time_t) == 8, "the shim is for 64-bit systems");

#define MICROS 1000000

static const volatile int64_t *control;

static uint64_t monotonic_us(void);

/* Redis and Valkey look for a source of monotonic time unless this has one. */
static void give_monotonic_clock(void) {
    uint64_t (**source)(void) = dlsym(RTLD_DEFAULT, "getMonotonicUs");
    if (source != NULL && *source == NULL) *source = monotonic_us;
}

__attribute__((constructor)) static void map_control(void) {
    const char *path = getenv("TOKENBUCKET_FAKECLOCK");
    if (path == NULL) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED) return;
    control = page;
    give_monotonic_clock();
}

static int ask_kernel(clockid_t id, struct timespec *out) {
    return (int)syscall(SYS_clock_gettime, id, out);
}

static uint64_t monotonic_us(void) {
    struct timespec now;
    ask_kernel(CLOCK_MONOTONIC, &now);
    uint64_t millis = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;

    static _Atomic int64_t seen;
    static _Atomic uint64_t changes;
    int64_t word = *control;
    if (atomic_exchange(&seen, word) != word) changes++;
    return (millis + changes) * 1000;
}

/* The wall clock to show, split so that the microsecond part is never negative
 * (a time before 1970 included). */
struct instant {
    int64_t seconds;
    int64_t micros;
};

static struct instant split(int64_t us) {
    struct instant at = {us / MICROS, us % MICROS};
    if (at.micros < 0) {
        at.seconds -= 1;
        at.micros += MICROS;
    }
    return at;
}

static struct instant wall_clock(void) {
    int64_t word = control == NULL ? 0 : *control;
    int64_t held = word & 1;
    int64_t us = (word - held) / 2;
    if (held) return split(us);
    struct timespec now;
    ask_kernel(CLOCK_REALTIME, &now);
    return split(now.tv_sec * (int64_t)MICROS + now.tv_nsec / 1000 + us);
}

int clock_gettime(clockid_t id, struct timespec *out) {
    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return ask_kernel(id, out);
    struct instant at = wall_clock();
    out->tv_sec = at.seconds;
    out->tv_nsec = at.micros * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone; /* obsolete; every caller passes NULL */
    struct instant at = wall_clock();
    out->tv_sec = at.seconds;
    out->tv_usec = at.micros;
    return 0;
}

time_t time(time_t *out) {
    time_t seconds = wall_clock().seconds;
    if (out != NULL) *out = seconds;
    return seconds;
}
