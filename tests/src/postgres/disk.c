/* Lets no file of the process that preloads this library grow while the first byte of the file that
 * DISK_FILE names is 1: its disk is full. As on a real disk, what a file already has can be written
 * again. Files that are written with write(), such as logs, are not concerned. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile char *is_full;

__attribute__((constructor)) static void map_switch(void) {
    const char *path = getenv("DISK_FILE");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(0, 1, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) is_full = page;
}

static int has_no_space(int fd, off_t end) {
    struct stat file;
    return is_full && *is_full == 1 && !fstat(fd, &file) && S_ISREG(file.st_mode) && end > file.st_size;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
    if (!has_no_space(fd, at + size)) return syscall(SYS_pwrite64, fd, data, size, at);
    errno = ENOSPC;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) {
    off_t end = at;
    for (int i = 0; i < count; i++) end += parts[i].iov_len;
    if (!has_no_space(fd, end)) return syscall(SYS_pwritev, fd, parts, count, at, 0);
    errno = ENOSPC;
    return -1;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return pwritev64(fd, parts, count, at); }

int posix_fallocate64(int fd, off_t at, off_t size) {
    if (has_no_space(fd, at + size)) return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, at, size) ? errno : 0;
}

int posix_fallocate(int fd, off_t at, off_t size) { return posix_fallocate64(fd, at, size); }
