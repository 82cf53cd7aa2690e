/* SPDX-License-Identifier: MIT */
/* The HTTP server, and the only file that names libmicrohttpd.
 *
 * The library keeps its sockets in an epoll descriptor of its own; the loop
 * watches that one and calls MHD_run() when it is readable or when the library
 * asks for a call after some time. */
#include "adapters/http.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "adapters/http_peers.h"
#include "adapters/server.h"
#include "adapters/timer.h"
#include "base/log.h"
#include "base/mem.h"

#define IDLE_TIMEOUT_S     10u
#define BACKLOG            64
#define LOG_INTERVAL_MS    10000
#define PAUSE_MS           100 /* after something failed */
#define MAX_CONNECTIONS    64u
#define MIN_CONNECTIONS    4u
#define FDS_PER_CONNECTION 16 /* others get as many for each of ours */

struct http {
    struct MHD_Daemon *daemon; /* owned */
    int listen_fd;             /* the library's */
    uv_poll_t poll;
    struct timer *timer;             /* owned */
    const struct http_route *routes; /* ref */
    size_t n_routes;
    void *arg; /* ref */
    unsigned max_connections;
    struct http_peers peers;
    bool is_local; /* on a loopback address */
    struct log_limit log_limit;
    bool complained; /* the library has, in this run */
};

/* ---- answering ---- */

/* What a browser may do with an answer that is opened by itself. */
#define NO_POLICY "default-src 'none'; frame-ancestors 'none'"

static const struct http_route plain_text = {
    .content_type = "text/plain; charset=utf-8",
};

/* What kind of answer it is, says the route. */
static enum MHD_Result respond(struct MHD_Connection *connection, int status,
                               const struct http_route *route, struct buf *body)
{
    const char *policy = route->policy ? route->policy : NO_POLICY;
    struct MHD_Response *r = MHD_create_response_from_buffer(
        body->len, body->data, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result rc;

    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE,
                            route->content_type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Content-Security-Policy", policy);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    rc = MHD_queue_response(connection, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result respond_text(struct MHD_Connection *connection,
                                    int status, const char *text)
{
    struct buf body = {0};
    enum MHD_Result rc;

    buf_puts(&body, text);
    rc = respond(connection, status, &plain_text, &body);
    buf_free(&body);
    return rc;
}

static const struct http_route *find_route(const struct http *h,
                                           const char *path)
{
    for (size_t i = 0; i < h->n_routes; i++) {
        if (strcmp(h->routes[i].path, path) == 0)
            return &h->routes[i];
    }
    return NULL;
}

static enum MHD_Result respond_route(const struct http *h,
                                     struct MHD_Connection *connection,
                                     const struct http_route *route)
{
    struct buf body = {0};
    int status = route->render(h->arg, &body);
    enum MHD_Result rc = respond(
        connection, status, status == MHD_HTTP_OK ? route : &plain_text, &body);

    buf_free(&body);
    return rc;
}

/* A browser says by what name it was sent here; what says none is no browser. */
static bool is_misdirected(const struct http *h,
                           struct MHD_Connection *connection,
                           const struct http_route *route)
{
    const char *host;

    if (!route->guarded || !h->is_local)
        return false;
    host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                       MHD_HTTP_HEADER_HOST);
    return host && !address_is_no_name(host);
}

/* Called once with the headers and again for the answer. An answer to the first
 * call makes the library close the connection after it: right for what may
 * have a body that nobody wants, wrong for GET. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection,
                                  const char *url, const char *method,
                                  const char *version, const char *upload_data,
                                  size_t *upload_data_size, void **state)
{
    static char headers_seen;
    const struct http *h = cls;
    const struct http_route *route;

    (void)version;
    (void)upload_data;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 &&
        strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return respond_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                            "only GET and HEAD\n");
    if (*state != &headers_seen) {
        *state = &headers_seen;
        return MHD_YES;
    }
    if (*upload_data_size > 0) {
        *upload_data_size = 0;
        return MHD_YES;
    }
    route = find_route(h, url);
    if (!route)
        return respond_text(connection, MHD_HTTP_NOT_FOUND, "not found\n");
    if (is_misdirected(h, connection, route))
        return respond_text(connection, MHD_HTTP_MISDIRECTED_REQUEST,
                            "expected an IP address or localhost in the "
                            "address or, from a proxy, in the header Host\n");
    return respond_route(h, connection, route);
}

/* ---- who is connected ---- */

/* No host of a network takes all places. On loopback they are all one. (The limit
 * that the library has would have it log each time.) */
static enum MHD_Result may_enter(void *cls, const struct sockaddr *addr,
                                 socklen_t len)
{
    const struct http *h = cls;

    (void)len;
    return h->is_local ||
                   http_peers_from(&h->peers, addr) < h->max_connections / 2
               ? MHD_YES
               : MHD_NO;
}

static void on_connection(void *cls, struct MHD_Connection *connection,
                          void **peer_r,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = cls;
    const union MHD_ConnectionInfo *info;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        http_peer_free(*peer_r);
        return;
    }
    info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *peer_r = http_peer_new(&h->peers, info->connect_fd);
}

static void on_completed(void *cls, struct MHD_Connection *connection,
                         void **state, enum MHD_RequestTerminationCode code)
{
    struct http *h = cls;
    const union MHD_ConnectionInfo *info;

    (void)state;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        return;
    info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    http_peer_served(&h->peers, info->socket_context);
}

/* ---- the loop ---- */

static bool is_full(const struct http *h)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

    return info && info->num_connections >= h->max_connections;
}

/* At its limit the library stops watching the listener, and it looks whether
 * there is room again only when MHD_run() begins: without one more call,
 * nobody would get in after that. */
static void run_daemon(struct http *h)
{
    bool was_full = is_full(h);

    MHD_run(h->daemon);
    if (was_full && !is_full(h))
        MHD_run(h->daemon);
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* When the library wants to be called, or a peer is late. */
static void start_timer(struct http *h, uint64_t late_ms)
{
    unsigned long long ms;
    uint64_t next_ms = late_ms;

    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES && ms < next_ms)
        next_ms = ms;
    if (next_ms == UINT64_MAX)
        timer_stop(h->timer);
    else
        timer_start(h->timer, next_ms, 0);
}

/* What it cannot accept, for want of descriptors, stays readable: without a
 * pause the loop would spin. */
static void run(struct http *h)
{
    uint64_t late_ms;

    h->complained = false;
    run_daemon(h);
    late_ms = http_peers_expire(&h->peers);
    if (h->complained) {
        uv_poll_stop(&h->poll);
        timer_start(h->timer, PAUSE_MS, 0);
        return;
    }
    uv_poll_start(&h->poll, UV_READABLE, on_poll);
    start_timer(h, late_ms);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status; /* the library finds out what its sockets have */
    (void)events;
    run(poll->data);
}

static void on_timer(void *arg)
{
    run(arg);
}

static void on_log(void *cls, const char *fmt, va_list args) PRINTF_LIKE(2, 0);

static void on_log(void *cls, const char *fmt, va_list args)
{
    struct http *h = cls;
    uint64_t held;
    char text[256];

    h->complained = true;
    if (!log_allow(&h->log_limit, LOG_INTERVAL_MS, &held))
        return;
    vsnprintf(text, sizeof(text), fmt, args);
    text[strcspn(text, "\r\n")] = '\0';
    log_info("http", "%s (%llu more since the last such line)", text,
             (unsigned long long)held);
}

/* ---- starting and stopping ---- */

/* No names but `localhost`: looking one up may block. */
static int resolve(const struct address *a, struct addrinfo **list_r,
                   struct buf *why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    const char *host =
        strcmp(a->host, "localhost") == 0 ? "127.0.0.1" : a->host;
    char port[16];
    int rc;

    if (a->kind != ADDRESS_TCP) {
        buf_puts(why, "HTTP listens on TCP only");
        return -1;
    }
    snprintf(port, sizeof(port), "%d", a->port);
    rc = getaddrinfo(host, port, &hints, list_r);
    if (rc != 0) {
        buf_printf(why, "%s: %s (expected an address or localhost)", a->host,
                   gai_strerror(rc));
        return -1;
    }
    return 0;
}

static int open_listener(const struct addrinfo *ai)
{
    int fd =
        socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    int err;

    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

int http_listen(const struct address *a, struct buf *why)
{
    struct addrinfo *list;
    int fd;

    if (resolve(a, &list, why) < 0)
        return -1;
    fd = open_listener(list);
    if (fd < 0)
        buf_printf(why, "%s port %d: %s", a->host, a->port, strerror(errno));
    freeaddrinfo(list);
    return fd;
}

static struct MHD_Daemon *start_daemon(struct http *h)
{
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, may_enter, h, on_request, h,
        MHD_OPTION_EXTERNAL_LOGGER, on_log, h, MHD_OPTION_LISTEN_SOCKET,
        h->listen_fd, MHD_OPTION_CONNECTION_LIMIT, h->max_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_END);
}

/* By the hard limit, up to which the server raises the other. */
unsigned http_max_connections(void)
{
    struct rlimit rl;
    rlim_t share;

    if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
        return MAX_CONNECTIONS;
    share = rl.rlim_max / FDS_PER_CONNECTION;
    if (share > MAX_CONNECTIONS)
        return MAX_CONNECTIONS;
    return share < MIN_CONNECTIONS ? MIN_CONNECTIONS : (unsigned)share;
}

static bool is_at_loopback(int fd)
{
    struct address a;

    return !passed_inspect(fd, &a) && address_is_local(&a);
}

struct http *http_new(struct uv_loop_s *loop, int fd,
                      const struct http_route *routes, size_t n_routes,
                      void *arg, struct buf *why)
{
    struct http *h = mem_zalloc(sizeof(*h));
    const union MHD_DaemonInfo *info;

    h->routes = routes;
    h->n_routes = n_routes;
    h->arg = arg;
    h->max_connections = http_max_connections();
    h->listen_fd = fd;
    h->is_local = is_at_loopback(fd);
    http_peers_init(&h->peers);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); /* a passed one */
    h->daemon = start_daemon(h);
    if (!h->daemon) {
        buf_puts(why, "libmicrohttpd does not start");
        free(h);
        return NULL;
    }
    info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    h->timer = timer_new(loop, on_timer, h);
    uv_poll_init(loop, &h->poll, info->epoll_fd);
    h->poll.data = h;
    uv_poll_start(&h->poll, UV_READABLE, on_poll);
    return h;
}

int http_port(const struct http *h)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } name = {0};
    socklen_t len = sizeof(name);

    if (getsockname(h->listen_fd, &name.any, &len) < 0)
        return -1;
    return ntohs(name.any.sa_family == AF_INET6 ? name.in6.sin6_port
                                                : name.in.sin_port);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void http_free(struct http *h)
{
    if (!h)
        return;
    /* libuv aborts when a descriptor that it watches is closed. */
    uv_poll_stop(&h->poll);
    MHD_stop_daemon(h->daemon);
    timer_free(h->timer);
    uv_close((uv_handle_t *)&h->poll, on_closed);
}
