/* Simulates a suspend for one process. Its monotonic clocks lag by the nanoseconds (8 bytes, native
 * order) in the file named by SUSPEND_FILE, while the boot clock continues. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long long *behind;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("SUSPEND_FILE");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) behind = page;
    if (fd >= 0) close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, clock, t);
    if (!result && behind &&
        (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE)) {
        long long ns = t->tv_sec * 1000000000LL + t->tv_nsec - *behind;
        t->tv_sec = ns / 1000000000LL;
        t->tv_nsec = ns % 1000000000LL;
    }
    return result;
}
