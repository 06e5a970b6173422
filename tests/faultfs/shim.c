/* Fails writes and syncs of some files, as a full or dying disk would. Preloaded into a child process.
 *
 * FAULTFS names a control file of two rules of eight int32 each, mapped by the tests that steer and by every child:
 *   [0] calls      which calls fail: 1 write, 2 sync, 4 truncate
 *   [1] files      which files: 1 the database, 2 its WAL
 *   [2] errno      what they fail with; -1: kill the process instead
 *   [3] count      how many more calls fail; -1: all, until told otherwise
 *   [4] skip       how many calls pass before
 *   [5] failed     calls failed so far
 *   [6] partial    a failing write writes the first half of its bytes before
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, DATABASE = 1, WAL = 2 };
enum { CALLS, FILES, ERRNO, COUNT, SKIP, FAILED, PARTIAL };

enum { RULES = 2, FIELDS = 8 };

static volatile int32_t *control;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAULTFS");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, RULES * FIELDS * sizeof(int32_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) control = mapped;
    close(fd);
}

static int kind_of(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    const char *name = strrchr(path, '/');
    if (!name) return 0;
    if (strcmp(name, "/state.db") == 0) return DATABASE;
    if (strcmp(name, "/state.db-wal") == 0) return WAL;
    return 0;
}

/* The rule by which this call fails, or NULL; then errno is set. */
static volatile int32_t *strikes(int call, int fd) {
    if (!control) return NULL;
    int saved = errno, kind = 0;
    for (int i = 0; i < RULES; i++) {
        volatile int32_t *rule = control + i * FIELDS;
        if (!(rule[CALLS] & call) || rule[COUNT] == 0) continue;
        if (!kind) kind = kind_of(fd);
        if (!(rule[FILES] & kind)) continue;
        if (rule[SKIP] > 0) { __sync_fetch_and_sub(&rule[SKIP], 1); continue; }
        if (rule[COUNT] > 0) __sync_fetch_and_sub(&rule[COUNT], 1);
        __sync_fetch_and_add(&rule[FAILED], 1);
        if (rule[ERRNO] < 0) kill(getpid(), SIGKILL);
        errno = rule[ERRNO];
        return rule;
    }
    errno = saved;
    return NULL;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    volatile int32_t *rule = strikes(WRITE, fd);
    if (!rule) return NEXT(write)(fd, data, size);
    int number = errno;
    if (rule[PARTIAL] && NEXT(write)(fd, data, size / 2) < 0) return -1;
    errno = number;
    return -1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    volatile int32_t *rule = strikes(WRITE, fd);
    if (!rule) return NEXT(pwrite64)(fd, data, size, at);
    int number = errno;
    if (rule[PARTIAL] && NEXT(pwrite64)(fd, data, size / 2, at) < 0) return -1;
    errno = number;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

int fsync(int fd) { return strikes(SYNC, fd) ? -1 : NEXT(fsync)(fd); }

int fdatasync(int fd) { return strikes(SYNC, fd) ? -1 : NEXT(fdatasync)(fd); }

int ftruncate(int fd, off_t size) { return strikes(TRUNCATE, fd) ? -1 : NEXT(ftruncate)(fd, size); }

int ftruncate64(int fd, off64_t size) { return strikes(TRUNCATE, fd) ? -1 : NEXT(ftruncate64)(fd, size); }
