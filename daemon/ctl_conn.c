/* SPDX-License-Identifier: MIT */
/* Happy path: connect → send → read until a whole value is there. Failure
 * modes: nobody listens, the daemon closes, no answer in time, an answer that
 * is not RESP or too large: each with its reason. */
#include "ctl_conn.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/address.h"

#define MAX_REPLY (16u << 20)
#define SEND_MS   5000
#define CONNECT_S 5
#define LOGIN_MS  65000 /* over the most that auth_delay_ms may be */

/* -1: see errno. A send timeout holds for connect(), too. */
static int connect_socket(int family, const struct sockaddr *to, socklen_t len)
{
    const struct timeval limit = {.tv_sec = CONNECT_S};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int saved;

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, to, len) == 0)
        return fd;
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int connect_unix(const struct address *a)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};

    snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", a->path);
    return connect_socket(AF_UNIX, (struct sockaddr *)&sun, sizeof(sun));
}

static int connect_tcp(const struct address *a)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    char port[8];
    int fd = -1;

    snprintf(port, sizeof(port), "%d", a->port);
    if (getaddrinfo(a->host, port, &hints, &list) != 0) {
        errno = ENOENT;
        return -1;
    }
    for (struct addrinfo *it = list; it && fd < 0; it = it->ai_next)
        fd = connect_socket(it->ai_family, it->ai_addr, it->ai_addrlen);
    freeaddrinfo(list);
    return fd;
}

/* Nobody listens, no rights, or it does not answer the knock. */
static const char *connect_hint(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return "are you in the group of the socket?";
    case ETIMEDOUT:
        return "it does not take connections";
    default:
        return "is likesyncd running?";
    }
}

/* With a wrong password the answer takes its time. */
static int login(struct ctl_conn *c, const char *password, struct buf *why)
{
    const char *words[] = {"AUTH", password};
    struct resp_value v;
    int rc = ctl_send(c, 2, words, why);

    if (rc != 0)
        return rc;
    rc = ctl_read(c, LOGIN_MS, &v, why);
    if (rc == 0)
        buf_puts(why, "no answer to the password");
    if (rc <= 0)
        return -1;
    rc = v.type == RESP_T_ERROR ? -1 : 0;
    if (rc < 0)
        buf_puts(why, v.str);
    resp_value_free(&v);
    return rc;
}

static int open_socket(struct ctl_conn *c, const char *where, struct buf *why)
{
    struct address a;
    const char *reason = "";
    char path[PATH_MAX + sizeof("unix:")] = "unix:";

    memset(c, 0, sizeof(*c));
    c->fd = -1;
    if (where[0] == '/' || where[0] == '.') {
        if (!realpath(where, path + strlen(path))) {
            buf_printf(why, "%s: %s (%s)", where, strerror(errno),
                       connect_hint(errno));
            return -1;
        }
        where = path;
    }
    if (address_parse(where, &a, &reason) != 0) {
        buf_printf(why, "%s: %s", where, reason);
        return -1;
    }
    c->fd = a.kind == ADDRESS_UNIX ? connect_unix(&a) : connect_tcp(&a);
    if (c->fd >= 0)
        return 0;
    if (errno == EAGAIN || errno == EINPROGRESS) /* how a timeout is told */
        errno = ETIMEDOUT;
    buf_printf(why, "%s: %s (%s)", where, strerror(errno), connect_hint(errno));
    return -1;
}

int ctl_connect(struct ctl_conn *c, const char *where, const char *password,
                struct buf *why)
{
    int rc = open_socket(c, where, why);

    if (rc == 0 && password)
        rc = login(c, password, why);
    if (rc != 0)
        ctl_close(c);
    return rc;
}

void ctl_close(struct ctl_conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    buf_free(&c->in);
}

int ctl_send(struct ctl_conn *c, int n, const char *const *words,
             struct buf *why)
{
    struct buf out = {0};
    size_t sent = 0;

    resp_array(&out, (size_t)n);
    for (int i = 0; i < n; i++)
        resp_bulk_str(&out, words[i]);
    while (sent < out.len) {
        struct pollfd p = {.fd = c->fd, .events = POLLOUT};
        ssize_t len = -1;

        errno = ETIMEDOUT;
        if (poll(&p, 1, SEND_MS) == 1)
            len = send(c->fd, out.data + sent, out.len - sent, MSG_NOSIGNAL);
        if (len < 0) {
            buf_printf(why, "cannot send: %s", strerror(errno));
            buf_free(&out);
            return -1;
        }
        sent += (size_t)len;
    }
    buf_free(&out);
    return 0;
}

/* 1 some bytes came, 0 none in time, -1 the connection is over. */
static int read_some(struct ctl_conn *c, int timeout_ms, struct buf *why)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    int rc = poll(&p, 1, timeout_ms);
    ssize_t len;

    if (rc == 0 || (rc < 0 && errno == EINTR))
        return 0;
    len = rc < 0 ? -1 : recv(c->fd, buf_reserve(&c->in, 65536), 65536, 0);
    if (len > 0) {
        c->in.len += (size_t)len;
        return 1;
    }
    buf_printf(why, "cannot read: %s",
               len == 0 ? "the daemon closed the connection" : strerror(errno));
    return -1;
}

int ctl_read(struct ctl_conn *c, int timeout_ms, struct resp_value *v_r,
             struct buf *why)
{
    uint64_t end = clock_monotonic_ms() + (uint64_t)timeout_ms;
    size_t used;

    for (;;) {
        uint64_t now = clock_monotonic_ms();
        int rc = resp_read_value(c->in.data ? c->in.data : "", c->in.len,
                                 MAX_REPLY, v_r, &used);

        if (rc > 0)
            buf_consume(&c->in, used);
        if (rc < 0)
            buf_puts(why, "the answer is not RESP, or too large");
        if (rc != 0)
            return rc;
        if (now >= end)
            return 0;
        if (read_some(c, (int)(end - now), why) < 0)
            return -1;
    }
}
