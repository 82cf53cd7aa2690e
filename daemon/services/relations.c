/* SPDX-License-Identifier: MIT */
/* Two pairs per other, one each way. */
#include "services/relations.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "services/service.h"
#include "services/states.h"

/* In place of a code: there are no pairs. */
#define SELF 255

struct relations {
    struct states *states; /* owned until they are asked for */
    uint8_t *codes;        /* owned */
    size_t n;
    relations_on_done cb;
    void *arg;
    size_t len;
    char user[];
};

struct relations *relations_new(const struct service *follow, const char *user,
                                size_t len, size_t n_max)
{
    struct relations *r = mem_alloc(sizeof(*r) + len);

    r->states = states_new(&follow->engine, follow->lookup, 2 * n_max);
    r->codes = mem_alloc(n_max);
    r->n = 0;
    r->len = len;
    memcpy(r->user, user, len);
    return r;
}

void relations_add(struct relations *r, const char *other, size_t len)
{
    if (len == r->len && memcmp(other, r->user, len) == 0) {
        r->codes[r->n++] = SELF;
        return;
    }
    r->codes[r->n++] = 0;
    states_add(r->states, r->user, r->len, other, len);
    states_add(r->states, other, len, r->user, r->len);
}

static void put_codes(struct relations *r, const uint8_t *states)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->codes[i] == SELF) {
            r->codes[i] = 0;
            continue;
        }
        r->codes[i] = (uint8_t)(states[0] + 2 * states[1]);
        states += 2;
    }
}

static void on_states(void *arg, const uint8_t *states, size_t n,
                      const char *why)
{
    struct relations *r = arg;

    (void)n;
    if (states)
        put_codes(r, states);
    r->states = NULL;
    r->cb(r->arg, states ? r->codes : NULL, r->n, why);
    relations_free(r);
}

void relations_get(struct relations *r, struct request *rq,
                   relations_on_done cb, void *arg)
{
    r->cb = cb;
    r->arg = arg;
    states_get(r->states, rq, on_states, r);
}

void relations_free(struct relations *r)
{
    if (r->states)
        states_free(r->states);
    free(r->codes);
    free(r);
}
