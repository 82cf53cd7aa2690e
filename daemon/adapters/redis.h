/* SPDX-License-Identifier: MIT */
/* One asynchronous connection to Redis that heals itself. (hiredis itself is
 * named in redis_link.c and redis_tls.c only.)
 *
 * Connecting: resolve (uv_getaddrinfo) → connect → TLS, for tls: → AUTH, SELECT, INFO, SCRIPT
 * LOAD of every script → on_up. Lost: every pending call gets REDIS_UNKNOWN,
 * then on_down, then reconnect after a jittered, capped backoff. After NOSCRIPT
 * and before a reconnect that Redis' answer asks for (REDIS_AWAY), on_down comes
 * first, and the calls under way still get their own answers. */
#ifndef ADAPTERS_REDIS_H
#define ADAPTERS_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/address.h"
#include "core/redis_error.h" /* enum redis_outcome */
#include "core/redis_info.h"

struct uv_loop_s;
struct redis;
struct redis_tls;
struct redis_value;

/* A Lua script; `source` lives as long as the connection. */
struct redis_script {
    const char *name;
    const char *source; /* ref */
    char sha[41];       /* set by the adapter from SCRIPT LOAD's reply */
};

enum redis_type {
    REDIS_T_NIL,
    REDIS_T_INT,
    REDIS_T_STR,
    REDIS_T_ARRAY,
    REDIS_T_ERROR
};

/* Views on a reply, valid during the callback only. A missing or wrong-typed
 * element reads as nil, 0, "" or length 0: callers check the type. */
enum redis_type redis_value_type(const struct redis_value *v);
int64_t redis_value_int(
    const struct redis_value *v); /* strict decimal strings too, else 0 */
const char *redis_value_str(const struct redis_value *v, size_t *len_r);
size_t redis_value_len(const struct redis_value *v);
const struct redis_value *redis_value_at(const struct redis_value *v, size_t i);

struct redis_config {
    struct address address;
    const struct redis_tls *tls; /* ref; of a tls: address, else NULL */
    const char *username;        /* ref; "" none */
    const char *password;        /* ref; "" none */
    int db;
    /* Resolve, connect and the first answer to the greeting together; then for
     * each further one. */
    unsigned connect_timeout_ms;
    /* Oldest unanswered command → reconnect. Of scripts that are loaded again:
     * for each. */
    unsigned timeout_ms;
    struct redis_script *scripts; /* ref: array that outlives the connection */
    size_t n_scripts;
    /* Connected and greeted. Return NULL to go on, or a static text that says
     * why not (a replica, say): then this connection is dropped and made again
     * later, and on_down is not called. Commands may be sent from inside it. */
    const char *(*on_up)(void *arg, const struct redis_info *info);
    /* on_up was called and the connection is gone, or scripts are being loaded
     * again (then on_up follows). */
    void (*on_down)(void *arg, const char *why);
    void *arg;
};

typedef void (*redis_on_reply)(void *arg, enum redis_outcome outcome,
                               const struct redis_value *value);

/* Starts connecting. Pointers in config are copied as pointers. */
struct redis *redis_new(struct uv_loop_s *loop, const struct redis_config *c);
/* Pending calls get REDIS_UNKNOWN before this returns, on_down is not called,
 * memory goes after the last close. May be called from any callback; NULL is
 * allowed. */
void redis_free(struct redis *r);

/* Sends one command. 0 queued: exactly one callback follows, never before this
 * returns. Positive, and no callback: */
#define REDIS_NOT_CONNECTED 1 /* try again after on_up */
#define REDIS_BUSY          2 /* 4 MiB or 10 000 commands are under way */
#define REDIS_MAX_BYTES     (4u << 20)
#define REDIS_MAX_CALLS     10000u
MUST_CHECK int redis_call(struct redis *r, int argc, const char *const *argv,
                          const size_t *len, redis_on_reply cb, void *arg);
/* EVALSHA script 0 argv...: the same results. argv and its bytes are copied
 * before this returns. */
MUST_CHECK int redis_script(struct redis *r, const struct redis_script *s,
                            int argc, const char *const *argv,
                            const size_t *len, redis_on_reply cb, void *arg);

bool redis_is_up(const struct redis *r);
/* Also while it only loads the scripts again. */
bool redis_is_connected(const struct redis *r);
/* For status lines: "connected", "lost: …, retry in 200 ms", ... */
const char *redis_state_text(const struct redis *r);
uint64_t redis_reconnects(const struct redis *r);
/* Commands under way, our own included. */
size_t redis_in_flight(const struct redis *r);

#endif
