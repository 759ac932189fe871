/* Rust code that is not `unsafe` cannot fork. Preloaded into a process, this makes its next getppid()
 * (std::os::unix::process::parent_id) fork it, and return in both processes. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

pid_t getppid(void) {
    static int forked;
    if (!forked) {
        forked = 1;
        if (fork() < 0) {
            perror("fork");
            _exit(1);
        }
    }
    return syscall(SYS_getppid);
}
