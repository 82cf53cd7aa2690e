/* SPDX-License-Identifier: MIT */
/* The configuration: one table row per option (options.c) gives its section,
 * name, type, default, bounds, whether SIGHUP reloads it, and its help. */
#ifndef CORE_OPTIONS_H
#define CORE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/log.h"
#include "core/address.h"
#include "core/ids.h"

enum lookup_mode { LOOKUP_STRICT, LOOKUP_OPTIMISTIC };

#define OPTIONS_MAX_LISTEN 8

struct address_list {
    struct address items[OPTIONS_MAX_LISTEN];
    int n;
};

struct options {
    struct address_list listen;       /* server.listen */
    struct address_list admin_listen; /* server.admin_listen */
    char *password_file;              /* server.password_file; owned, "" none */
    int64_t max_clients;              /* server.max_clients */
    int64_t
        max_pipeline; /* server.max_pipeline: requests of one client under way */
    int64_t max_args;      /* server.max_args */
    int64_t max_arg_bytes; /* server.max_arg_bytes */
    int64_t
        output_soft_bytes; /* server.output_soft_bytes: stop reading that client */
    int64_t output_hard_bytes; /* server.output_hard_bytes: close it */
    int64_t idle_timeout_s;    /* server.idle_timeout: 0 never */
    int64_t socket_mode;       /* server.socket_mode: octal, default 0660 */

    int64_t id_user; /* ids.user: enum id_type */
    int64_t id_post; /* ids.post */

    struct address redis_address; /* redis.address */
    char *redis_username;         /* owned */
    char *redis_password_file;    /* owned */
    int64_t redis_db;             /* redis.db */
    int64_t redis_connect_timeout_ms;
    int64_t redis_timeout_ms; /* oldest unanswered command */
    int64_t max_queue;        /* redis.max_queue: events waiting */

    char *pg_conninfo;      /* postgres.conninfo; owned */
    int64_t pg_connections; /* postgres.connections */
    int64_t pg_connect_timeout_ms;
    int64_t pg_lookup_timeout_ms;
    int64_t pg_write_timeout_ms;
    int64_t pg_lock_timeout_ms;

    char *key_follow; /* keys.follow; owned */
    char *key_fans;   /* keys.fans; owned */

    int64_t like_lookup; /* like.lookup: enum lookup_mode */
    int64_t cache_ttl_s; /* cache.ttl, at least 60 */

    int64_t flush_interval_ms;
    int64_t flush_batch_rows;
    int64_t flush_claim_rows;
    int64_t flush_lease_ms; /* flush.lease_ms */
    int64_t
        flush_ledger_keep_s; /* flush.ledger_keep: seconds a ledger row stays */

    char *metrics_listen; /* metrics.listen; owned, "" off; address of HTTP */
    int64_t log_level;    /* log.level: enum log_level */
};

/* Fills in the defaults. */
void options_init(struct options *o);
void options_free(struct options *o);

/* Reads an INI file over the defaults. 0, or -1 with one message per fault in
 * `errors`, each a line `FILE:LINE: section.key = "value": expected …`. All
 * faults of the file are reported, not only the first. Also checks what needs
 * more than one option (a TCP address that is not loopback without a
 * password_file; batch_rows below claim_rows; tls: without support). */
MUST_CHECK int options_load(struct options *o, const char *path,
                            struct buf *errors);

/* Takes the values of `from` for rows marked reloadable; for others that
 * differ appends a line to `notes` that says a restart is needed. Returns how
 * many options changed. */
int options_reload(struct options *o, const struct options *from,
                   struct buf *notes);

/* The whole configuration as INI text that options_load reads back to the same
 * values (--print-config). With `comments`, each option is preceded by its
 * help. Secrets are in files, never here. */
void options_print(const struct options *o, bool comments, struct buf *out);

/* First line of a secret file, without its newline, as an owned string. 0, or
 * -1 with the reason in `why`. At most 4096 bytes. */
MUST_CHECK int options_read_secret(const char *path, char **secret_r,
                                   struct buf *why);

#endif
