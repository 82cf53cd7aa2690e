/* SPDX-License-Identifier: MIT */
/* The state of many pairs: one round trip for what Redis knows, one query for
 * the rest. */
#ifndef SERVICES_STATES_H
#define SERVICES_STATES_H

#include <stddef.h>
#include <stdint.h>

struct engine;
struct lookup;
struct request;
struct states;

/* 0 or 1 per pair, in the order of states_add; NULL with an error reply when
 * a backend that is needed is away, or has too much to do. */
typedef void (*states_on_done)(void *arg, const uint8_t *states, size_t n,
                               const char *why);

struct states *states_new(const struct engine *e, struct lookup *lookup,
                          size_t n_max);
void states_add(struct states *s, const char *owner, size_t owner_len,
                const char *member, size_t member_len);
/* For this request. Exactly one callback, perhaps before this returns; s is gone
 * after it. */
void states_get(struct states *s, struct request *rq, states_on_done cb,
                void *arg);
/* Instead of states_get. */
void states_free(struct states *s);

#endif
