/* Takes the time that a process stood still out of its clocks, as a suspended or paused machine does.
 * The file that FREEZE_FILE names has that time in nanoseconds (8 bytes, native order); it may grow
 * whenever the process stands still.
 *
 * Without more this is a suspend: CLOCK_MONOTONIC stops, CLOCK_BOOTTIME and the wall clock go on.
 * With FREEZE_ALL every clock stops, as in a guest whose machine was paused and knows of nothing. Not
 * everybody asks libc for the time, so the kernel's own function is replaced then. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long long *missed;
static int all;

static int stops(clockid_t clock) {
    switch (clock) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
        return 1;
    case CLOCK_BOOTTIME:
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return all;
    default:
        return 0;
    }
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, clock, t);
    if (result || !missed || !stops(clock)) return result;
    long long by = *missed;
    t->tv_sec -= by / 1000000000;
    t->tv_nsec -= by % 1000000000;
    if (t->tv_nsec < 0) { t->tv_nsec += 1000000000; t->tv_sec--; }
    return 0;
}

static void give_up(const char *why) {
    fprintf(stderr, "cannot replace the clock of the vDSO: %s\n", why);
    _exit(1);
}

#if defined(__x86_64__)
#define NAME "__vdso_clock_gettime"
/* movabs rax, address; jmp rax */
static const unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
#define ADDRESS 2
#elif defined(__aarch64__)
#define NAME "__kernel_clock_gettime"
/* ldr x16, address; br x16 */
static const unsigned char jump[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0};
#define ADDRESS 8
#else
#define NAME ""
static const unsigned char jump[8];
#define ADDRESS 0
#endif

static void replace_vdso_clock(void) {
    char *base = (char *)getauxval(AT_SYSINFO_EHDR);
    if (!base) give_up("there is none");
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)base;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(base + elf->e_shoff);
    for (int i = 0; i < elf->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(base + sections[i].sh_offset);
        const char *names = base + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++) {
            if (strcmp(names + symbols[s].st_name, NAME)) continue;
            char *code = base + symbols[s].st_value;
            long size = sysconf(_SC_PAGESIZE);
            char *page = (char *)((unsigned long)code & ~(size - 1));
            if (mprotect(page, 2 * size, PROT_READ | PROT_WRITE | PROT_EXEC) &&
                mprotect(page, size, PROT_READ | PROT_WRITE | PROT_EXEC))
                give_up("it cannot be written");
            void *to = (void *)clock_gettime;
            memcpy(code, jump, sizeof jump);
            memcpy(code + ADDRESS, &to, sizeof to);
            __builtin___clear_cache(code, code + sizeof jump);
            return;
        }
    }
    give_up("it has no " NAME);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FREEZE_FILE");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) missed = page;
    all = missed && getenv("FREEZE_ALL");
    if (all) replace_vdso_clock();
}
