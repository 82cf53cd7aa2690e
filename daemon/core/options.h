/* SPDX-License-Identifier: MIT */
/* The configuration: one table row per option (option_table.c) gives its
 * section, name, type, default, bounds, whether SIGHUP reloads it, and its
 * help. */
#ifndef CORE_OPTIONS_H
#define CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    /* [server] */
    struct address_list listen;
    struct address_list admin_listen;
    char *password_file;   /* owned, "" none; as secret_read takes it */
    int64_t auth_delay_ms; /* before a wrong password is answered */
    int64_t max_clients;
    int64_t max_client_memory; /* bytes, of all clients */
    int64_t max_pipeline;      /* requests of one client under way */
    int64_t max_args;          /* max_args * max_arg_bytes is at most 64 MiB */
    int64_t max_arg_bytes;
    int64_t output_soft_bytes; /* stop reading that client */
    int64_t output_hard_bytes; /* close it */
    int64_t idle_timeout_s;    /* idle_timeout: 0 never */
    int64_t max_requests_before_auth;
    int64_t auth_timeout_s;    /* auth_timeout: 0 never */
    int64_t socket_mode;       /* octal */
    int64_t admin_socket_mode; /* octal */
    char *socket_group;        /* owned; name or number, "" our own */
    char *admin_socket_group;  /* owned */

    /* [ids] */
    int64_t id_user; /* user: enum id_type */
    int64_t id_post; /* post: enum id_type */

    /* [redis] */
    struct address redis_address;
    char *redis_username;      /* owned, "" none */
    char *redis_password_file; /* as password_file */
    int64_t redis_db;
    char *redis_tls_ca;          /* owned, "" the system's */
    char *redis_tls_cert;        /* owned, "" none */
    char *redis_tls_key;         /* owned; set if tls_cert is */
    char *redis_tls_server_name; /* owned, "" the host of the address */
    int64_t redis_connect_timeout_ms;
    int64_t redis_timeout_ms; /* of the oldest unanswered command */
    int64_t max_queue;        /* events waiting */

    /* [postgres] */
    char *pg_conninfo; /* owned */
    int64_t pg_connections;
    int64_t pg_connect_timeout_ms;
    int64_t pg_lookup_timeout_ms;
    int64_t pg_write_timeout_ms;
    int64_t pg_lock_timeout_ms;

    /* [keys] */
    char *key_follow; /* owned; holds {user} once */
    char *key_fans;   /* owned; holds {user} once */

    /* [like] */
    int64_t like_lookup;   /* enum lookup_mode */
    int64_t like_lists;    /* 1: LIKERS and LIKEDPOSTS */
    int64_t like_page_max; /* entries of one page of these */

    /* [follow] */
    int64_t follow_lookup;        /* enum lookup_mode */
    int64_t follow_max_following; /* 0 none */
    int64_t follow_idle_ttl_s;    /* idle_ttl: 0 for ever, else at least 60 */
    int64_t follow_page_max;      /* entries of one page */

    int64_t cache_ttl_s; /* cache.ttl, at least 60 */

    /* [flush] */
    int64_t flush_interval_ms;
    int64_t flush_batch_rows; /* at least flush_claim_rows */
    int64_t flush_claim_rows;
    int64_t flush_lease_ms;
    int64_t flush_ledger_keep_s; /* ledger_keep: how long a ledger row stays */

    char *metrics_listen; /* metrics.listen; owned, "" off; address of HTTP */
    int64_t metrics_page; /* 1: / and /status.json */
    int64_t log_level;    /* log.level: enum log_level */
};

/* Fills in the defaults. */
void options_init(struct options *o);
void options_free(struct options *o);

/* Reads an INI file over what options_init has filled in; what its quotes and
 * comments are stands in core/config_reader.h. 0, or -1 with one message per
 * fault in `errors`, each a line `FILE:LINE: section.key = "value": expected …`
 * (without the value where that may be a secret or is not known). All faults
 * of the file are reported, not only the first. Also checks what needs more
 * than one option, such as a TCP address that is not loopback without a
 * password_file, batch_rows below claim_rows, tls: without support, key names
 * that could meet. */
MUST_CHECK int options_load(struct options *o, const char *path,
                            struct buf *errors);

/* Takes the values of `from` for rows marked reloadable; for others that
 * differ appends a line to `notes` that says a restart is needed. Returns how
 * many options of `o` changed. */
int options_reload(struct options *o, const struct options *from,
                   struct buf *notes);

/* One option as it is shown to people. */
struct option_shown {
    const char *section;
    const char *name;
    const char *value; /* as in the file, without quotes; "(hidden)" */
    bool reloadable;
    bool differs; /* the file has another value */
};

/* Calls `each` for all options, in the order of the table. `file`: what the file
 * holds now, or NULL. */
void options_each(const struct options *o, const struct options *file,
                  void (*each)(void *arg, const struct option_shown *shown),
                  void *arg);
size_t options_count(void);

/* The whole configuration as INI text that options_load reads back to the same
 * values (--print-config). With `comments`, each option is preceded by its
 * help. Secrets are in files, never here. */
void options_print(const struct options *o, bool comments, struct buf *out);

#endif
