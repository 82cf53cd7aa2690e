/* SPDX-License-Identifier: MIT */
/* Sockets that were passed to us: the service manager made them and keeps them
 * while we restart, so that connects wait in their queue and none is refused.
 * They are not bound, locked or given a mode here, and their files stay. */
#include "adapters/server_internal.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The value, or -1 when there is none. */
static int get_option(int fd, int level, int option)
{
    int value;
    socklen_t len = sizeof(value);

    return getsockopt(fd, level, option, &value, &len) < 0 ? -1 : value;
}

/* An abstract name starts with a NUL, which is written as @. */
static void take_path(const struct sockaddr_un *un, socklen_t len,
                      struct address *a)
{
    size_t n = len - offsetof(struct sockaddr_un, sun_path);

    a->kind = ADDRESS_UNIX;
    memcpy(a->path, un->sun_path, n < ADDRESS_PATH_MAX ? n : ADDRESS_PATH_MAX);
    if (n > 0 && !a->path[0])
        a->path[0] = '@';
}

static int port_of(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET6)
        return ntohs(
            ((const struct sockaddr_in6 *)(const void *)sa)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)sa)->sin_port);
}

static const char *take_host(const struct sockaddr *sa, socklen_t len,
                             struct address *a)
{
    int rc =
        getnameinfo(sa, len, a->host, sizeof(a->host), NULL, 0, NI_NUMERICHOST);

    a->kind = ADDRESS_TCP;
    if (rc != 0)
        return gai_strerror(rc);
    a->port = port_of(sa);
    return NULL;
}

const char *passed_inspect(int fd, struct address *a)
{
    struct sockaddr_storage ss = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(ss);

    memset(a, 0, sizeof(*a));
    if (get_option(fd, SOL_SOCKET, SO_TYPE) != SOCK_STREAM)
        return "not a stream socket";
    if (get_option(fd, SOL_SOCKET, SO_ACCEPTCONN) != 1)
        return "not a socket that listens";
    if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
        return "it has no address";
    if (ss.ss_family == AF_UNIX) {
        take_path((const void *)&ss, len, a);
        return NULL;
    }
    if (ss.ss_family == AF_INET || ss.ss_family == AF_INET6)
        return take_host((const struct sockaddr *)&ss, len, a);
    return "neither a unix nor a TCP socket";
}

int server_take(struct server *s, int fd, bool admin, struct address *a_r,
                struct buf *why)
{
    const char *fault = passed_inspect(fd, a_r);
    struct listener *l;
    int rc;

    if (fault) {
        buf_puts(why, fault);
        return -1;
    }
    l = listener_new(s, a_r->kind == ADDRESS_UNIX, admin);
    l->passed = true;
    memcpy(l->path, a_r->path, sizeof(l->path));
    rc = l->is_unix ? uv_pipe_open(&l->u.pipe, fd) : uv_tcp_open(&l->u.tcp, fd);
    l->held = !admin;
    if (rc == 0 && admin)
        rc = listener_start(l);
    if (rc < 0) {
        buf_puts(why, uv_strerror(rc));
        listener_close(l);
    }
    return rc < 0 ? -1 : 0;
}

void server_admit(struct server *s)
{
    LIST_FOREACH(node, &s->listeners) {
        struct listener *l = LIST_ENTRY(node, struct listener, node);
        int rc = l->held ? listener_start(l) : 0;

        l->held = false;
        if (rc < 0)
            log_error("server", "a socket that was passed: listen: %s",
                      uv_strerror(rc));
    }
}

/* ---- what they stand for ---- */

struct listener *passed_at_path(const struct server *s, const char *path)
{
    LIST_FOREACH(node, &s->listeners) {
        struct listener *l = LIST_ENTRY(node, struct listener, node);

        if (l->passed && l->is_unix && strcmp(l->path, path) == 0)
            return l;
    }
    return NULL;
}

static const struct in_addr *host4(const struct sockaddr *sa)
{
    return &((const struct sockaddr_in *)(const void *)sa)->sin_addr;
}

static const struct in6_addr *host6(const struct sockaddr *sa)
{
    return &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
}

/* Does a socket bound to `own` get what is sent to `sa`? What systemd makes of a
 * bare port is [::], which takes IPv4 as well. */
static bool covers(const struct sockaddr *own, bool v6only,
                   const struct sockaddr *sa)
{
    bool all;

    if (port_of(own) != port_of(sa))
        return false;
    if (own->sa_family == AF_INET6)
        all = IN6_IS_ADDR_UNSPECIFIED(host6(own));
    else
        all = host4(own)->s_addr == htonl(INADDR_ANY);
    if (own->sa_family != sa->sa_family)
        return own->sa_family == AF_INET6 && all && !v6only;
    if (own->sa_family == AF_INET6)
        return all || IN6_ARE_ADDR_EQUAL(host6(own), host6(sa));
    return all || host4(own)->s_addr == host4(sa)->s_addr;
}

static bool is_at(const struct listener *l, const struct sockaddr *sa)
{
    struct sockaddr_storage ss;
    int len = sizeof(ss);
    uv_os_fd_t fd;

    return l->passed && !l->is_unix &&
           uv_tcp_getsockname(&l->u.tcp, (struct sockaddr *)&ss, &len) == 0 &&
           uv_fileno(&l->u.handle, &fd) == 0 &&
           covers((const struct sockaddr *)&ss,
                  get_option(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 1, sa);
}

struct listener *passed_at(const struct server *s, const struct sockaddr *sa)
{
    LIST_FOREACH(node, &s->listeners) {
        struct listener *l = LIST_ENTRY(node, struct listener, node);

        if (is_at(l, sa))
            return l;
    }
    return NULL;
}

static void format(const struct listener *l, char *out, unsigned size)
{
    struct sockaddr_storage ss;
    int len = sizeof(ss);
    struct address a = {.kind = ADDRESS_UNIX};

    memcpy(a.path, l->path, sizeof(a.path));
    if (!l->is_unix &&
        uv_tcp_getsockname(&l->u.tcp, (struct sockaddr *)&ss, &len) == 0)
        take_host((const struct sockaddr *)&ss, (socklen_t)len, &a);
    address_format(&a, out, size);
}

int passed_use(struct listener *l, bool admin, struct buf *why)
{
    char text[ADDRESS_TEXT_MAX];

    l->listed = true;
    if (l->admin == admin)
        return 0;
    format(l, text, sizeof(text));
    buf_printf(why,
               "%s stands in server.%slisten, but the service manager passed "
               "it for %s",
               text, admin ? "admin_" : "", l->admin ? "admins" : "clients");
    return -1;
}

void server_log_taken(const struct server *s)
{
    char text[ADDRESS_TEXT_MAX];

    LIST_FOREACH(node, &s->listeners) {
        const struct listener *l = LIST_ENTRY(node, struct listener, node);

        if (!l->passed)
            continue;
        format(l, text, sizeof(text));
        if (l->listed)
            log_info("server", "%s for %s comes from the service manager", text,
                     l->admin ? "admins" : "clients");
        else
            log_warn("server",
                     "%s for %s is open: it comes from the service manager, "
                     "though server.%slisten has it not (to close it: "
                     "systemctl edit likesyncd%s.socket)",
                     text, l->admin ? "admins" : "clients",
                     l->admin ? "admin_" : "", l->admin ? "-admin" : "");
    }
}
