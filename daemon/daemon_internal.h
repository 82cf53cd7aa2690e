/* SPDX-License-Identifier: MIT */
/* What the files of the daemon share: daemon.c (start and end),
 * daemon_status.c (how it is, and telling systemd), daemon_stop.c (SIGTERM),
 * daemon_parts.c (services and backends, and who tells whom), daemon_server.c
 * (the server), daemon_sockets.c (where it listens), daemon_http.c (pages),
 * daemon_reload.c (SIGHUP), daemon_tls.c (certificates for Redis). */
#ifndef DAEMON_INTERNAL_H
#define DAEMON_INTERNAL_H

#include <uv.h>

#include "adapters/http.h"
#include "adapters/server.h"
#include "core/options.h"
#include "services/auth.h"
#include "services/commands.h"
#include "services/recovery.h"
#include "services/service.h"
#include "services/status.h"

struct daemon {
    uv_loop_t loop;
    uv_signal_t signals[3];
    struct options *options; /* owned */
    const char *path;        /* ref */
    char *password;          /* owned */
    char *redis_password;    /* owned */
    char instance[32];       /* this process, in batch ids and the ledger */
    struct redis *redis;     /* owned */
    struct redis_tls *tls;   /* owned; NULL: Redis is not at a tls: address */
    struct pg *pg;           /* owned */
    struct gate *reads;      /* owned */
    struct gate *pages;      /* owned */
    struct list_names lists;
    /* Those of one kind after those of the other. */
    struct redis_script scripts[EDGE_COUNT * SCRIPT_COUNT];
    int n_scripts;
    struct service services[EDGE_COUNT];
    struct counts *counts;
    struct likers *likers;
    struct lists *list_loads; /* of follows */
    struct follow_counts *follow_counts;
    struct adopt *adopt;
    struct verify *verify;
    struct dead_letters *dead_letters;
    struct recovery *recovery;
    struct recovery_events recovery_events;
    struct auth *auth; /* owned */
    struct commands commands;
    struct server *server;
    int http_fd;       /* a socket that was passed for it, or -1 */
    struct http *http; /* NULL: off */
    unsigned ticks;    /* of the status timer */
    struct timer *status;
    struct timer *look; /* whether the loop is late */
    struct timer *watchdog;
    struct timer *stop_timer;
    struct timer *admit; /* clients of sockets that were passed */
    uint64_t look_due_ms;
    double latest_s;     /* since the last status */
    uint64_t stop_at_ms; /* no more waiting for requests */
    bool stopping;
    bool drainable; /* while stopping: the last drain was in time */
    bool stopped;
    int exit_status;
};

/* daemon.c */
void daemon_finish(struct daemon *d, int exit_status);

/* daemon_status.c */
void daemon_status_start(struct daemon *d);
void daemon_status(struct daemon *d); /* tells it now */
/* All but the dead letters, which may take a question to PostgreSQL. */
void daemon_status_take(const struct daemon *d, struct status *s);
double daemon_uptime_s(const struct daemon *d);

/* daemon_stop.c */
void daemon_stop(struct daemon *d, int signum);

/* daemon_parts.c */
void daemon_services_start(struct daemon *d);
void daemon_services_free(struct daemon *d);
/* After the listeners: from here on callbacks come. */
void daemon_backends_start(struct daemon *d);

/* daemon_server.c: 0, or -1 with the reason logged. */
MUST_CHECK int daemon_server_start(struct daemon *d);
struct server_limits daemon_limits(const struct options *o);

/* daemon_sockets.c: 0, or -1 with the reason logged. */
MUST_CHECK int daemon_listen(struct daemon *d);
/* Lets clients in if both backends are there now. */
void daemon_admit(struct daemon *d);

/* daemon_http.c: takes a socket that was passed for HTTP. 0, or -1 with the reason in
 * why. */
MUST_CHECK int daemon_http_take(struct daemon *d, int fd, struct buf *why);
/* 0, or -1 with the reason logged. */
MUST_CHECK int daemon_http_start(struct daemon *d);
/* For what the status page shows of the last minutes; each second. */
void daemon_http_tick(struct daemon *d);

/* daemon_tls.c: 0, or -1 with the reason logged. */
MUST_CHECK int daemon_tls_start(struct daemon *d);
/* Logs what came of it. */
void daemon_tls_reload(struct daemon *d);

/* daemon_reload.c */
void daemon_reload(struct daemon *d);

#endif
