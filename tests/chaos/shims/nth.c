/* SPDX-License-Identifier: MIT */
/* Once it is armed, the N-th call of a family fails, and as many after it as the
 * file says: allocations, writes to sockets, connects. For programs that use
 * glibc's malloc. */
#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "shim.h"

enum family { ALLOC, WRITE, CONNECT, FAMILIES };

struct nth_page {
    shim_word loaded;
    shim_word armed;
    shim_word family;
    shim_word nth;   /* the first to fail, from 1; 0 is none */
    shim_word times; /* how many fail, in a row */
    shim_word error;
    shim_word failed;
    shim_word seen[FAMILIES]; /* since it was armed */
};

/* glibc's own, under the names that a replaced malloc leaves free. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

static struct nth_page *page;

__attribute__((constructor)) static void start(void)
{
    page = shim_map("CHAOS_NTH", sizeof(*page));
}

/* Whether this call is one to fail; errno says how. */
static bool fails(enum family family)
{
    int64_t n, first;

    if (!page || !atomic_load(&page->armed))
        return false;
    n = atomic_fetch_add(&page->seen[family], 1) + 1;
    first = atomic_load(&page->nth);
    if (atomic_load(&page->family) != (int64_t)family || first == 0 ||
        n < first || n - first >= atomic_load(&page->times))
        return false;
    atomic_fetch_add(&page->failed, 1);
    errno = (int)atomic_load(&page->error);
    return true;
}

/* Only those to a peer: what wakes an event loop up never fails. */
static bool write_fails(int fd)
{
    struct stat st;

    return page && atomic_load(&page->armed) && fstat(fd, &st) == 0 &&
           S_ISSOCK(st.st_mode) && fails(WRITE);
}

void *malloc(size_t size)
{
    return fails(ALLOC) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_realloc(old, size);
}

ssize_t write(int fd, const void *data, size_t len)
{
    return write_fails(fd) ? -1 : syscall(SYS_write, fd, data, len);
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    return write_fails(fd) ? -1 : syscall(SYS_writev, fd, parts, n);
}

ssize_t send(int fd, const void *data, size_t len, int flags)
{
    return write_fails(fd) ? -1
                           : syscall(SYS_sendto, fd, data, len, flags, NULL, 0);
}

ssize_t sendto(int fd, const void *data, size_t len, int flags,
               const struct sockaddr *to, socklen_t to_len)
{
    return write_fails(fd)
               ? -1
               : syscall(SYS_sendto, fd, data, len, flags, to, to_len);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    return write_fails(fd) ? -1 : syscall(SYS_sendmsg, fd, message, flags);
}

int connect(int fd, const struct sockaddr *to, socklen_t to_len)
{
    return fails(CONNECT) ? -1 : (int)syscall(SYS_connect, fd, to, to_len);
}
