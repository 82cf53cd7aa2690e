/* SPDX-License-Identifier: MIT */
/* The hosts of a conninfo, resolved ahead: libpq looks names up inside its
 * connect calls and would block the loop, unless it is also given the numeric
 * addresses (hostaddr). Internal to the PostgreSQL adapter. */
#ifndef ADAPTERS_PG_HOSTS_H
#define ADAPTERS_PG_HOSTS_H

#include "base/buf.h"

struct uv_loop_s;
struct pg_hosts;
struct resolve;

/* `error` NULL: host, hostaddr and port in the struct are set. */
typedef void (*pg_hosts_cb)(void *arg, const char *error);

struct pg_hosts {
    struct uv_loop_s *loop; /* ref */
    pg_hosts_cb cb;
    void *arg;
    struct resolve *lookup; /* owned: under way, or NULL */
    unsigned timeout_ms;    /* for each name */
    unsigned first;         /* entry that the lists begin with, modulo n */
    char *names;            /* owned: what is resolved */
    char *ports;            /* owned */
    const char *name_next;  /* ref into names; NULL at the end */
    const char *port_next;  /* ref into ports */
    char why[192];          /* of the last name that did not resolve */
    /* Lists of n entries, comma-separated, for libpq. A name with several
     * addresses stands there once for each; a socket directory has an empty
     * hostaddr. */
    unsigned n;
    struct buf host;
    struct buf hostaddr;
    struct buf port;
};

/* `names` and `ports` as in a conninfo: comma-separated, socket directories
 * among them, one port for all or one for each, NULL or "" for the default.
 * The lists begin with entry `first`, and go round.
 * Exactly one callback unless cancelled; it may come before this returns.
 * Names that do not resolve are left out; if none does, it is an error. */
void pg_hosts_start(struct pg_hosts *h, struct uv_loop_s *loop,
                    const char *names, const char *ports, unsigned first,
                    unsigned timeout_ms, pg_hosts_cb cb, void *arg);
/* The same lists where the conninfo has the addresses, too: there is nothing to
 * look up, and no callback. A list without an entry for each address is left
 * unset, so that the conninfo's own holds: one port for all, or a fault that
 * libpq tells. */
void pg_hosts_given(struct pg_hosts *h, const char *names,
                    const char *addresses, const char *ports, unsigned first);
/* Also frees the lists. Harmless on a zeroed struct, and twice. */
void pg_hosts_cancel(struct pg_hosts *h);

#endif
