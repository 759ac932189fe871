/* Shifts the wall clock of the process that preloads this library by the microseconds (8 bytes,
 * native order) in the file that SKEW_FILE names. The file may change at any time. Monotonic clocks
 * are not shifted, as when an administrator or NTP steps the clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("SKEW_FILE");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) offset = page;
}

static void shift(struct timespec *t) {
    if (!offset) return;
    long long by = *offset;
    t->tv_sec += by / 1000000;
    t->tv_nsec += by % 1000000 * 1000;
    if (t->tv_nsec < 0) { t->tv_nsec += 1000000000; t->tv_sec--; }
    if (t->tv_nsec >= 1000000000) { t->tv_nsec -= 1000000000; t->tv_sec++; }
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, clock, t);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(t);
    return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec t;
    (void)zone;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
    shift(&t);
    tv->tv_sec = t.tv_sec;
    tv->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
    shift(&t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
