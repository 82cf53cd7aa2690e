/* SPDX-License-Identifier: MIT */
/* The composition: everything that likesyncd runs, on one loop. */
#ifndef DAEMON_H
#define DAEMON_H

#include "base/compiler.h"
#include "core/options.h"

struct daemon;

/* Reads the certificates for Redis that the options name. 0, or -1 with the one
 * that cannot be used and the reason appended to why. */
MUST_CHECK int daemon_check_tls(const struct options *o, struct buf *why);

/* Reads secrets, binds sockets, starts connecting. NULL with the reason logged.
 * The options become the daemon's; `path` is read again at SIGHUP. */
struct daemon *daemon_new(struct options *options, const char *path);
/* Runs until SIGTERM or SIGINT has been worked off. Returns the exit status. */
int daemon_run(struct daemon *d);
void daemon_free(struct daemon *d);

#endif
