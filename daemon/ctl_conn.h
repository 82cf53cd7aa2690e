/* SPDX-License-Identifier: MIT */
/* likesyncctl's connection to the daemon: blocking, with a deadline on
 * everything. */
#ifndef CTL_CONN_H
#define CTL_CONN_H

#include "base/buf.h"
#include "base/compiler.h"
#include "core/resp.h"

struct ctl_conn {
    int fd;
    struct buf in;
};

/* unix:/path, a bare path, or tcp:host:port; logs in with the password, unless
 * that is NULL. 0, or -1 with the reason in why. */
MUST_CHECK int ctl_connect(struct ctl_conn *c, const char *where,
                           const char *password, struct buf *why);
void ctl_close(struct ctl_conn *c);
/* Sends n words as one request. 0, or -1 with the reason in why. */
MUST_CHECK int ctl_send(struct ctl_conn *c, int n, const char *const *words,
                        struct buf *why);
/* 1 a value was read, 0 none within timeout_ms, -1 with the reason in why. */
MUST_CHECK int ctl_read(struct ctl_conn *c, int timeout_ms,
                        struct resp_value *v_r, struct buf *why);

#endif
