/* System calls that fail, are cut short or see another time, in a process that loads this library with LD_PRELOAD.
 *
 * DURALOG_TORTURE names a file that the campaign writes and this library maps: see struct control. Only files below
 * DURALOG_TORTURE_DIR are touched. Chance is a linear congruential generator that starts from the campaign's seed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FSYNC, WRITE, SHORT_WRITE, TRUNCATE, RENAME, UNLINK, OPEN, READ, THREAD, ALLOCATE, KINDS };

struct control {
    _Atomic int64_t clock_offset_ms;
    _Atomic uint32_t error;           /* What failing calls set errno to. */
    _Atomic uint32_t seed;
    _Atomic uint32_t chance[KINDS];   /* Of 65,536. */
    _Atomic uint32_t failed[KINDS];   /* How many calls have failed. */
};

#define MOST_FILES 65536
static struct control nothing;
static struct control *control = &nothing;
static const char *folder = "/nowhere/";
static size_t folder_size = 9;
static _Atomic unsigned char is_ours[MOST_FILES];
static _Atomic uint32_t state;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DURALOG_TORTURE"), *below = getenv("DURALOG_TORTURE_DIR");
    if (path == NULL || below == NULL) return;
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int file = real_open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    folder = below;
    folder_size = strlen(below);
    control = mapped;
    state = control->seed ^ (uint32_t)getpid();
}

static int fails(int kind) {
    uint32_t chance = control->chance[kind];
    if (chance == 0) return 0;
    uint32_t next = atomic_fetch_add(&state, 0x9e3779b9u) * 747796405u + 2891336453u;
    next = ((next >> ((next >> 28) + 4)) ^ next) * 277803737u;
    if (((next >> 22) ^ next) % 65536 >= chance) return 0;
    control->failed[kind]++;
    errno = (int)control->error;
    return 1;
}

static int is_below(const char *path) { return strncmp(path, folder, folder_size) == 0; }
static int ours(int file) { return file >= 0 && file < MOST_FILES && is_ours[file]; }
static int opened(int file, const char *path) {
    if (file >= 0 && file < MOST_FILES) is_ours[file] = (unsigned char)is_below(path);
    return file;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) {
    REAL(int, "open", const char *, int, ...);
    MODE(flags);
    if (is_below(path) && fails(OPEN)) return -1;
    return opened(real(path, flags, mode), path);
}
int open64(const char *path, int flags, ...) {
    REAL(int, "open64", const char *, int, ...);
    MODE(flags);
    if (is_below(path) && fails(OPEN)) return -1;
    return opened(real(path, flags, mode), path);
}
int openat(int at, const char *path, int flags, ...) {
    REAL(int, "openat", int, const char *, int, ...);
    MODE(flags);
    if (is_below(path) && fails(OPEN)) return -1;
    return opened(real(at, path, flags, mode), path);
}
int openat64(int at, const char *path, int flags, ...) {
    REAL(int, "openat64", int, const char *, int, ...);
    MODE(flags);
    if (is_below(path) && fails(OPEN)) return -1;
    return opened(real(at, path, flags, mode), path);
}
int close(int file) {
    REAL(int, "close", int);
    if (file >= 0 && file < MOST_FILES) is_ours[file] = 0;
    return real(file);
}
int fsync(int file) {
    REAL(int, "fsync", int);
    return ours(file) && fails(FSYNC) ? -1 : real(file);
}
int fdatasync(int file) {
    REAL(int, "fdatasync", int);
    return ours(file) && fails(FSYNC) ? -1 : real(file);
}
ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (ours(file)) {
        if (fails(WRITE)) return -1;
        if (size > 1 && fails(SHORT_WRITE)) size /= 2;
    }
    return real(file, data, size);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t position) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (ours(file)) {
        if (fails(WRITE)) return -1;
        if (size > 1 && fails(SHORT_WRITE)) size /= 2;
    }
    return real(file, data, size, position);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t position) { return pwrite64(file, data, size, position); }
ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (ours(file)) {
        if (fails(WRITE)) return -1;
        if (count > 1 && fails(SHORT_WRITE)) count /= 2;
    }
    return real(file, parts, count);
}
/* CPython calls those that take flags. */
ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t position, int flags) {
    REAL(ssize_t, "pwritev64v2", int, const struct iovec *, int, off64_t, int);
    if (ours(file)) {
        if (fails(WRITE)) return -1;
        if (count > 0 && fails(SHORT_WRITE)) {
            if (count > 1) return real(file, parts, count / 2, position, flags);
            struct iovec cut = {parts->iov_base, (parts->iov_len + 1) / 2};
            return real(file, &cut, 1, position, flags);
        }
    }
    return real(file, parts, count, position, flags);
}
ssize_t pwritev2(int file, const struct iovec *parts, int count, off_t position, int flags) {
    return pwritev64v2(file, parts, count, position, flags);
}
ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t position) {
    return pwritev64v2(file, parts, count, position, 0);
}
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t position) {
    return pwritev64v2(file, parts, count, position, 0);
}
ssize_t preadv64v2(int file, const struct iovec *parts, int count, off64_t position, int flags) {
    REAL(ssize_t, "preadv64v2", int, const struct iovec *, int, off64_t, int);
    return ours(file) && fails(READ) ? -1 : real(file, parts, count, position, flags);
}
ssize_t preadv2(int file, const struct iovec *parts, int count, off_t position, int flags) {
    return preadv64v2(file, parts, count, position, flags);
}
ssize_t preadv64(int file, const struct iovec *parts, int count, off64_t position) {
    return preadv64v2(file, parts, count, position, 0);
}
ssize_t preadv(int file, const struct iovec *parts, int count, off_t position) {
    return preadv64v2(file, parts, count, position, 0);
}
ssize_t read(int file, void *data, size_t size) {
    REAL(ssize_t, "read", int, void *, size_t);
    return ours(file) && fails(READ) ? -1 : real(file, data, size);
}
ssize_t sendfile64(int to, int file, off64_t *position, size_t size) {
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    return ours(file) && fails(READ) ? -1 : real(to, file, position, size);
}
ssize_t sendfile(int to, int file, off_t *position, size_t size) { return sendfile64(to, file, position, size); }
int fallocate64(int file, int mode, off64_t from, off64_t size) {
    REAL(int, "fallocate64", int, int, off64_t, off64_t);
    return ours(file) && fails(ALLOCATE) ? -1 : real(file, mode, from, size);
}
int fallocate(int file, int mode, off_t from, off_t size) { return fallocate64(file, mode, from, size); }
int posix_fallocate64(int file, off64_t from, off64_t size) {
    REAL(int, "posix_fallocate64", int, off64_t, off64_t);
    return ours(file) && fails(ALLOCATE) ? (int)control->error : real(file, from, size);
}
int posix_fallocate(int file, off_t from, off_t size) { return posix_fallocate64(file, from, size); }
ssize_t pread64(int file, void *data, size_t size, off64_t position) {
    REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
    return ours(file) && fails(READ) ? -1 : real(file, data, size, position);
}
ssize_t pread(int file, void *data, size_t size, off_t position) { return pread64(file, data, size, position); }
int ftruncate64(int file, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    return ours(file) && fails(TRUNCATE) ? -1 : real(file, size);
}
int ftruncate(int file, off_t size) { return ftruncate64(file, size); }
int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    return is_below(from) && fails(RENAME) ? -1 : real(from, to);
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    return is_below(path) && fails(UNLINK) ? -1 : real(path);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*work)(void *), void *argument) {
    REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return fails(THREAD) ? EAGAIN : real(thread, how, work, argument);
}
int clock_gettime(clockid_t which, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(which, now);
    int64_t offset = control->clock_offset_ms;
    if (result == 0 && which == CLOCK_REALTIME && offset != 0) {
        int64_t nanoseconds = now->tv_nsec + (offset % 1000) * 1000000;
        now->tv_sec += offset / 1000 + (nanoseconds < 0 ? -1 : nanoseconds / 1000000000);
        now->tv_nsec = (nanoseconds + 1000000000) % 1000000000;
    }
    return result;
}
