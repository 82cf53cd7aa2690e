/* SPDX-License-Identifier: MIT */
/* What the preloaded libraries of the tests share: a file, mapped by the test and
 * by every process under it, through which they are steered. All of its words are
 * 64 bits wide; the first counts the processes that have it. */
#ifndef CHAOS_SHIM_H
#define CHAOS_SHIM_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef _Atomic int64_t shim_word;

/* The file that an environment variable names; NULL without. */
static inline void *shim_map(const char *variable, size_t size)
{
    const char *path = getenv(variable);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *page;

    if (fd < 0)
        return NULL;
    page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return NULL;
    atomic_fetch_add((shim_word *)page, 1);
    return page;
}

#endif
