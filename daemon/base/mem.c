/* SPDX-License-Identifier: MIT */
/* Allocation that logs and aborts instead of failing. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* A size of 0 gets one byte, so that NULL always means out of memory. */
static size_t at_least_one(size_t size)
{
    return size ? size : 1;
}

static void *checked(void *p, size_t size)
{
    if (!p) {
        log_error("memory", "cannot allocate %zu bytes", size);
        abort();
    }
    return p;
}

void *mem_alloc(size_t size)
{
    return checked(malloc(at_least_one(size)), size);
}

void *mem_zalloc(size_t size)
{
    return mem_calloc(1, size);
}

void *mem_calloc(size_t n, size_t size)
{
    return checked(calloc(at_least_one(n), at_least_one(size)), size);
}

void *mem_realloc(void *p, size_t size)
{
    return checked(realloc(p, at_least_one(size)), size);
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

char *mem_strndup(const char *s, size_t len)
{
    char *copy = mem_alloc(len + 1);

    if (len)
        memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}
