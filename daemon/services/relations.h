/* SPDX-License-Identifier: MIT */
/* How a user and others follow each other. */
#ifndef SERVICES_RELATIONS_H
#define SERVICES_RELATIONS_H

#include <stddef.h>
#include <stdint.h>

struct relations;
struct request;
struct service;

/* Per other, in the order of relations_add: 1 the user follows it, 2 it follows
 * the user, 3 both, 0 neither, or it is the user. NULL with an error reply when
 * a backend that is needed is away, or has too much to do. */
typedef void (*relations_on_done)(void *arg, const uint8_t *codes, size_t n,
                                  const char *why);

/* Ids in key form; user is copied. */
struct relations *relations_new(const struct service *follow, const char *user,
                                size_t len, size_t n_max);
void relations_add(struct relations *r, const char *other, size_t len);
/* For this request. Exactly one callback, perhaps before this returns; r is gone
 * after it. */
void relations_get(struct relations *r, struct request *rq,
                   relations_on_done cb, void *arg);
/* Instead of relations_get. */
void relations_free(struct relations *r);

#endif
