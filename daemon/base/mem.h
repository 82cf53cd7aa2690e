/* SPDX-License-Identifier: MIT */
/* Allocation that cannot fail: out of memory is logged and aborts. Whatever
 * comes from outside must be bounded before it is allocated. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t size);            /* uninitialised */
void *mem_zalloc(size_t size);           /* zeroed */
void *mem_calloc(size_t n, size_t size); /* the same of n */
void *mem_realloc(void *p, size_t size); /* as realloc */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t len); /* len bytes and a NUL */
/* free() is used to release all of these. */

#endif
