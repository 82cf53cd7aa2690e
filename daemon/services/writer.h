/* SPDX-License-Identifier: MIT */
/* Writes one batch to PostgreSQL and learns what it holds after it. Goes on
 * until it is done: every failure is retried, halved or sent to the dead
 * letters. */
#ifndef SERVICES_WRITER_H
#define SERVICES_WRITER_H

#include <stddef.h>

#include "core/batch.h"

struct engine;
struct writer;

/* Every row has pg_status and pg_mtime_us (dead ones too), every orphan is in
 * the tables or the dead letters. The writer is gone after the call. */
typedef void (*writer_on_done)(void *arg);

/* b is sorted (batch_sort), `writable` of its rows can be written; it stays the
 * caller's and is the writer's to change until cb. */
struct writer *writer_start(const struct engine *e, struct batch *b,
                            size_t writable, writer_on_done cb, void *arg);
/* Abandons the batch: it stays on record. Only after the connections have been
 * freed, so that no answer is under way. */
void writer_free(struct writer *w);
/* PostgreSQL is up again: do not wait any longer. */
void writer_poke(struct writer *w);

#endif
