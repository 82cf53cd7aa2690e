/* SPDX-License-Identifier: MIT */
/* One batch under way: CLAIM or RELOAD → WRITE → ACK → gone. Internal to the
 * flusher. */
#ifndef SERVICES_FLIGHT_H
#define SERVICES_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "core/batch.h"
#include "services/engine.h"

struct flight;

/* What a flight tells its flusher. `arg` is the flusher. */
struct flight_events {
    /* A claim was answered; left: owners left in the pass. */
    void (*on_claimed)(void *arg, struct flight *fl, int64_t left);
    /* A claim found counters without rows: a batch of its own, id orphan_id. */
    void (*on_orphans)(void *arg, const char *orphan_id, const char *taker);
    /* It is over and was freed. */
    void (*on_gone)(void *arg);
    /* Redis could not be used: flight_resume later. */
    void (*on_wait)(void *arg);
    void *arg;
};

enum flight_state {
    FLIGHT_CLAIM,  /* claims are added to it */
    FLIGHT_RELOAD, /* its record is being read */
    FLIGHT_WRITE,
    FLIGHT_ACK
};

/* A new one in a list; start it by flight_claim or flight_reload. taker: "" when
 * it is not claimed yet. */
struct flight *flight_new(const struct engine *e,
                          const struct flight_events *events,
                          struct list *flights, const char *id,
                          const char *taker);
/* Claims up to batch_rows, in steps of claim_rows. */
void flight_claim(struct flight *fl, bool may_start_pass);
void flight_reload(struct flight *fl);
void flight_resume(struct flight *fl);
void flight_pg_up(struct flight *fl);
/* Abandons it; the connections must be freed before. */
void flight_free(struct flight *fl);

const char *flight_id(const struct flight *fl);
enum flight_state flight_state(const struct flight *fl);
bool flight_has_orphans(const struct flight *fl);
int64_t flight_claimed_us(const struct flight *fl);
struct flight *flight_of(struct list *node);

#endif
