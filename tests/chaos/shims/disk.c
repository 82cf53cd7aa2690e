/* SPDX-License-Identifier: MIT */
/* A full disk, for anybody: while the file says so, no file below a directory
 * grows. What overwrites blocks that are there goes on, as on a real one. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "shim.h"

struct disk_page {
    shim_word loaded;
    shim_word full;
    shim_word refused;
    char under[256]; /* a directory, with its last slash */
};

static struct disk_page *page;

__attribute__((constructor)) static void start(void)
{
    page = shim_map("CHAOS_DISK", sizeof(*page));
}

static bool is_under(int fd)
{
    char link[64], path[4096];
    ssize_t len;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    len = readlink(link, path, sizeof(path) - 1);
    if (len < 0)
        return false;
    path[len] = '\0';
    return strncmp(path, page->under, strlen(page->under)) == 0;
}

/* Whether a write from there on is refused; -1 is where the file stands, or its
 * end when it is only appended to. */
static bool refused(int fd, off_t from, size_t len)
{
    int keep = errno;
    struct stat st;
    bool grows = false;

    if (!page || !atomic_load(&page->full) || len == 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && is_under(fd)) {
        if (from < 0)
            from = fcntl(fd, F_GETFL) & O_APPEND ? st.st_size
                                                 : lseek(fd, 0, SEEK_CUR);
        grows = from + (off_t)len > st.st_size;
    }
    if (grows)
        atomic_fetch_add(&page->refused, 1);
    errno = grows ? ENOSPC : keep;
    return grows;
}

static size_t sum(const struct iovec *parts, int n)
{
    size_t len = 0;

    for (int i = 0; i < n; i++)
        len += parts[i].iov_len;
    return len;
}

ssize_t write(int fd, const void *data, size_t len)
{
    return refused(fd, -1, len) ? -1 : syscall(SYS_write, fd, data, len);
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    return refused(fd, -1, sum(parts, n)) ? -1
                                          : syscall(SYS_writev, fd, parts, n);
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
    return refused(fd, at, len) ? -1 : syscall(SYS_pwrite64, fd, data, len, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t at)
{
    return refused(fd, at, sum(parts, n))
               ? -1
               : syscall(SYS_pwritev, fd, parts, n, at, 0);
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
    return refused(fd, at, (size_t)len)
               ? -1
               : (int)syscall(SYS_fallocate, fd, mode, at, len);
}

/* The error is what it returns. */
int posix_fallocate(int fd, off_t at, off_t len)
{
    return fallocate(fd, 0, at, len) == 0 ? 0 : errno;
}

/* What programs call that were built for large files, the same where off_t has
 * 64 bits anyway. */
ssize_t pwrite64(int fd, const void *data, size_t len, off_t at)
    __attribute__((alias("pwrite")));
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off_t at)
    __attribute__((alias("pwritev")));
int fallocate64(int fd, int mode, off_t at, off_t len)
    __attribute__((alias("fallocate")));
int posix_fallocate64(int fd, off_t at, off_t len)
    __attribute__((alias("posix_fallocate")));
