/* SPDX-License-Identifier: MIT */
/* What a power cut would leave of a file: how long it was when it was last brought
 * to the disk, and up to when that is all that was to be written: the begin of the
 * last write before it, since a sync may wait for its thread, and writes for the
 * sync. What is not synced is cut off by the test. */
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

#include "shim.h"

#define FILES 64

/* A slot is a file's for good: an inode that comes again overwrites it. */
struct power_file {
    shim_word inode; /* 0: the end of the list */
    shim_word size;
    shim_word since_us; /* monotonic, as all times here */
    shim_word took_us;
};

struct power_page {
    shim_word loaded;
    shim_word slow_us;      /* so long each sync takes besides */
    shim_word under_way_us; /* when the sync began that is under way; or 0 */
    shim_word written;      /* the inode that was written last */
    shim_word written_us;   /* and when that began */
    struct power_file files[FILES];
};

static struct power_page *page;

__attribute__((constructor)) static void start(void)
{
    page = shim_map("CHAOS_POWER", sizeof(*page));
}

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static bool is_file(int fd, struct stat *st)
{
    return page && fstat(fd, st) == 0 && S_ISREG(st->st_mode);
}

static void remember(const struct stat *st, int64_t since_us, int64_t took_us)
{
    for (int i = 0; i < FILES; i++) {
        struct power_file *f = &page->files[i];
        int64_t none = 0;

        if (atomic_compare_exchange_strong(&f->inode, &none,
                                           (int64_t)st->st_ino) ||
            none == (int64_t)st->st_ino) {
            atomic_store(&f->size, st->st_size);
            atomic_store(&f->since_us, since_us);
            atomic_store(&f->took_us, took_us);
            return;
        }
    }
    abort(); /* more files than a test has */
}

static int sync_by(long number, int fd)
{
    struct stat st;
    int64_t began_us = now_us();
    int64_t since_us = page ? atomic_load(&page->written_us) : 0;
    bool counts = is_file(fd, &st);
    struct timespec slow = {0, 0};

    if (counts) {
        int64_t us = atomic_load(&page->slow_us);

        if (atomic_load(&page->written) != (int64_t)st.st_ino)
            since_us = began_us;
        atomic_store(&page->under_way_us, began_us);
        slow.tv_sec = us / 1000000;
        slow.tv_nsec = us % 1000000 * 1000;
        nanosleep(&slow, NULL);
    }
    if (syscall(number, fd) != 0)
        return -1;
    if (counts) {
        remember(&st, since_us, now_us() - began_us);
        atomic_store(&page->under_way_us, 0);
    }
    return 0;
}

ssize_t write(int fd, const void *data, size_t len)
{
    struct stat st;

    if (is_file(fd, &st)) {
        atomic_store(&page->written_us, now_us());
        atomic_store(&page->written, (int64_t)st.st_ino);
    }
    return syscall(SYS_write, fd, data, len);
}

int fsync(int fd)
{
    return sync_by(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return sync_by(SYS_fdatasync, fd);
}
