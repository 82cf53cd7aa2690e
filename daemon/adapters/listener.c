/* SPDX-License-Identifier: MIT */
/* Listening sockets that we make. (passed.c has those that others made.)
 *
 * A unix socket's file outlives kill -9, so PATH.lock says who owns the path:
 * flock(2) on it is held as long as the socket, and ends with the process. The
 * lock file itself stays for ever; removing it would let two processes lock two
 * files of one name. Under the lock, an old socket is unlinked only when nobody
 * answers on it, and at the end only the file that we made ourselves.
 *
 * These calls block (names, files) and run at start-up only. */
#include "adapters/server_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/num.h"

#define BACKLOG         511
#define KEEPALIVE_S     60
#define LOG_INTERVAL_MS 10000

static void on_connection(uv_stream_t *stream, int status)
{
    struct listener *l = stream->data;
    uint64_t held;

    if (status == 0)
        listener_on_client(l);
    else if (log_allow(&l->server->log_accept, LOG_INTERVAL_MS, &held))
        log_warn("server",
                 "accept failed: %s (%llu more since the last such line)",
                 uv_strerror(status), (unsigned long long)held);
}

struct listener *listener_new(struct server *s, bool is_unix, bool admin)
{
    struct listener *l = mem_zalloc(sizeof(*l));

    l->server = s;
    l->is_unix = is_unix;
    l->admin = admin;
    l->lock_fd = -1;
    if (is_unix)
        uv_pipe_init(s->loop, &l->u.pipe, 0);
    else
        uv_tcp_init(s->loop, &l->u.tcp);
    l->u.handle.data = l;
    s->n_handles++;
    list_push_back(&s->listeners, &l->node);
    return l;
}

/* In the queue of a socket that was passed are all who came while nobody ran, so
 * that must not become shorter. */
int listener_start(struct listener *l)
{
    int backlog = l->passed ? SOMAXCONN : BACKLOG;

    if (!l->is_unix) { /* clients inherit it: five system calls less each */
        uv_tcp_nodelay(&l->u.tcp, 1);
        uv_tcp_keepalive(&l->u.tcp, 1, KEEPALIVE_S);
    }
    return uv_listen(&l->u.stream, backlog, on_connection);
}

static void on_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;
    struct server *s = l->server;

    free(l);
    server_handle_closed(s);
}

/* Another process cannot have put its socket there while we hold the lock, but
 * an operator may have moved things about. */
static void unlink_own(const struct listener *l)
{
    struct stat st;

    if (l->ino != 0 && lstat(l->path, &st) == 0 && st.st_dev == l->dev &&
        st.st_ino == l->ino)
        unlink(l->path);
}

void listener_close(struct listener *l)
{
    list_remove(&l->node);
    unlink_own(l);
    uv_close(&l->u.handle, on_closed);
    if (l->lock_fd >= 0)
        close(l->lock_fd);
}

int listener_port(const struct listener *l)
{
    struct sockaddr_storage ss;
    int len = sizeof(ss);

    if (uv_tcp_getsockname(&l->u.tcp, (struct sockaddr *)&ss, &len) < 0)
        return -1;
    if (ss.ss_family == AF_INET6)
        return ntohs(
            ((const struct sockaddr_in6 *)(const void *)&ss)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)&ss)->sin_port);
}

/* ---- unix ---- */

static int lock_path(struct listener *l, struct buf *why)
{
    char lock[ADDRESS_PATH_MAX + sizeof(".lock")];

    snprintf(lock, sizeof(lock), "%s.lock", l->path);
    l->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->lock_fd < 0) {
        buf_printf(why, "cannot make %s: %s", lock, strerror(errno));
        return -1;
    }
    if (flock(l->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            buf_printf(why, "%s is in use: another process holds %s", l->path,
                       lock);
        else
            buf_printf(why, "%s: flock: %s", lock, strerror(errno));
        return -1;
    }
    return 0;
}

static void make_address(const struct listener *l, struct sockaddr_un *un)
{
    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    snprintf(un->sun_path, sizeof(un->sun_path), "%s", l->path);
}

/* errno of a connect to the path, 0 when it is answered. On a unix socket that
 * does not block, the answer comes at once. */
static int probe(const struct listener *l)
{
    struct sockaddr_un un;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int err = 0;

    if (fd < 0)
        return errno;
    make_address(l, &un);
    if (connect(fd, (const struct sockaddr *)&un, sizeof(un)) < 0)
        err = errno;
    close(fd);
    return err;
}

static int clear_path(const struct listener *l, struct buf *why)
{
    struct stat st;
    int err;

    if (lstat(l->path, &st) < 0) {
        if (errno == ENOENT)
            return 0;
        buf_printf(why, "%s: %s", l->path, strerror(errno));
        return -1;
    }
    if (!S_ISSOCK(st.st_mode)) {
        buf_printf(why, "%s exists and is not a socket", l->path);
        return -1;
    }
    err = probe(l);
    if (err == 0 || err == EAGAIN) {
        buf_printf(why, "%s is in use: a process answers on it", l->path);
        return -1;
    }
    if (err != ECONNREFUSED || unlink(l->path) < 0) {
        buf_printf(why, "%s: old socket: %s", l->path,
                   strerror(err != ECONNREFUSED ? err : errno));
        return -1;
    }
    log_info("server", "%s: removed the socket of a process that is gone",
             l->path);
    return 0;
}

/* By name, or else by number; -1 with the cause set. */
static int find_group(const char *text, gid_t *gid_r, const char **why_r)
{
    const struct group *group;
    uint64_t number;

    group = getgrnam(text);
    if (group)
        *gid_r = group->gr_gid;
    else if (num_parse_u64(text, strlen(text), &number) == 0 &&
             number < (gid_t)-1)
        *gid_r = (gid_t)number;
    else
        *why_r = "there is no such group";
    return *why_r ? -1 : 0;
}

/* One that has its group already, such as the daemon's own, needs no rights. */
static int set_group(const struct listener *l, const struct stat *st,
                     struct buf *why)
{
    const struct server_limits *limits = &l->server->config.limits;
    const char *text =
        l->admin ? limits->admin_socket_group : limits->socket_group;
    const char *cause = NULL;
    gid_t gid;

    if (!text || !*text)
        return 0;
    if (find_group(text, &gid, &cause) == 0) {
        if (gid == st->st_gid || chown(l->path, (uid_t)-1, gid) == 0)
            return 0;
        cause = errno == EPERM ? "not permitted: is the daemon in that group?"
                               : strerror(errno);
    }
    buf_printf(why, "%s: %ssocket_group = \"%s\": %s", l->path,
               l->admin ? "server.admin_" : "server.", text, cause);
    return -1;
}

/* libuv would cut a long path, and unlink whatever has the name at the end: so
 * it gets a descriptor. Nobody can connect before listen(2), so group and
 * mode are in force from the first client on. */
static int bind_unix(struct listener *l, int fd, struct buf *why)
{
    const struct server_limits *limits = &l->server->config.limits;
    int mode = l->admin ? limits->admin_socket_mode : limits->socket_mode;
    struct sockaddr_un un;
    struct stat st;

    make_address(l, &un);
    if (bind(fd, (const struct sockaddr *)&un, sizeof(un)) < 0 ||
        lstat(l->path, &st) < 0) {
        buf_printf(why, "%s: bind: %s", l->path, strerror(errno));
        return -1;
    }
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    if (set_group(l, &st, why) < 0)
        return -1;
    if (chmod(l->path, (mode_t)mode) < 0) {
        buf_printf(why, "%s: chmod: %s", l->path, strerror(errno));
        return -1;
    }
    return 0;
}

static int open_unix(struct listener *l, struct buf *why)
{
    int fd;
    int rc;

    if (lock_path(l, why) < 0 || clear_path(l, why) < 0)
        return -1;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        buf_printf(why, "%s: socket: %s", l->path, strerror(errno));
        return -1;
    }
    if (bind_unix(l, fd, why) < 0) {
        close(fd);
        return -1;
    }
    rc = uv_pipe_open(&l->u.pipe, fd);
    if (rc < 0)
        close(fd);
    else
        rc = listener_start(l);
    if (rc < 0) {
        buf_printf(why, "%s: listen: %s", l->path, uv_strerror(rc));
        return -1;
    }
    return 0;
}

static int listen_unix(struct server *s, const struct address *a, bool admin,
                       struct buf *why)
{
    struct listener *l = passed_at_path(s, a->path);

    if (l)
        return passed_use(l, admin, why);
    if (strlen(a->path) > ADDRESS_PATH_MAX) {
        buf_printf(why, "%s: longer than %d bytes", a->path, ADDRESS_PATH_MAX);
        return -1;
    }
    l = listener_new(s, true, admin);
    memcpy(l->path, a->path, strlen(a->path) + 1);
    if (open_unix(l, why) < 0) {
        listener_close(l);
        return -1;
    }
    return 0;
}

/* ---- TCP ---- */

static void set_port(struct sockaddr *sa, int port)
{
    if (sa->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)sa)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)sa)->sin_port = htons((uint16_t)port);
}

/* 0, or libuv's error. */
static int open_tcp(struct listener *l, const struct sockaddr *sa)
{
    unsigned flags = sa->sa_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0;
    int rc = uv_tcp_bind(&l->u.tcp, sa, flags);

    return rc < 0 ? rc : listener_start(l);
}

/* /etc/hosts may well name 127.0.0.1 twice. */
static bool seen_before(const struct addrinfo *first, const struct addrinfo *ai)
{
    for (const struct addrinfo *it = first; it != ai; it = it->ai_next) {
        if (it->ai_addrlen == ai->ai_addrlen &&
            memcmp(it->ai_addr, ai->ai_addr, ai->ai_addrlen) == 0)
            return true;
    }
    return false;
}

/* 0, or libuv's error; then the reason may be in why already. */
static int listen_at(struct server *s, const struct sockaddr *sa, bool admin,
                     int *port_r, struct buf *why)
{
    struct listener *l = passed_at(s, sa);
    int rc;

    if (l)
        return passed_use(l, admin, why) == 0 ? 0 : UV_EINVAL;
    l = listener_new(s, false, admin);
    rc = open_tcp(l, sa);
    if (rc == 0)
        *port_r = listener_port(l);
    else
        listener_close(l);
    return rc;
}

/* Listens on all addresses of the name, all at the port that the first one got.
 * One family that the host lacks is no reason not to start. As listen_at(). */
static int listen_all(struct server *s, const struct addrinfo *first, int port,
                      bool admin, struct buf *why)
{
    int rc = UV_EADDRNOTAVAIL;
    int n_open = 0;

    for (const struct addrinfo *ai = first; ai; ai = ai->ai_next) {
        if (seen_before(first, ai))
            continue;
        set_port(ai->ai_addr, port);
        rc = listen_at(s, ai->ai_addr, admin, &port, why);
        if (rc == 0)
            n_open++;
        else if (rc != UV_EADDRNOTAVAIL && rc != UV_EAFNOSUPPORT)
            return rc;
    }
    return n_open > 0 ? 0 : rc;
}

static int listen_tcp(struct server *s, const struct address *a, bool admin,
                      struct buf *why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE};
    struct addrinfo *list;
    size_t said = why->len;
    int rc = getaddrinfo(a->host, NULL, &hints, &list);

    if (rc != 0) {
        buf_printf(why, "%s: %s", a->host, gai_strerror(rc));
        return -1;
    }
    rc = listen_all(s, list, a->port, admin, why);
    freeaddrinfo(list);
    if (rc < 0 && why->len == said)
        buf_printf(why, "%s port %d: %s", a->host, a->port, uv_strerror(rc));
    return rc < 0 ? -1 : 0;
}

int server_listen(struct server *s, const struct address *a, bool admin,
                  struct buf *why)
{
    switch (a->kind) {
    case ADDRESS_UNIX:
        return listen_unix(s, a, admin, why);
    case ADDRESS_TCP:
        return listen_tcp(s, a, admin, why);
    case ADDRESS_TLS:
        break;
    }
    buf_puts(why, "tls: is for outgoing connections only");
    return -1;
}
