/* SPDX-License-Identifier: MIT */
/* A server on a real loop, with commands that finish at once or when the test
 * says so, and peers that are plain sockets of the same thread. */
#ifndef TESTS_SERVER_FIXTURE_H
#define TESTS_SERVER_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "adapters/server.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"

#define FIXTURE_DEADLINE_US 20000000
#define FIXTURE_MAX_LATER   4096

struct fixture {
    uv_loop_t loop;
    struct server *server;
    struct server_config config;
    struct address address; /* of the listener on 127.0.0.1 */
    struct request *later[FIXTURE_MAX_LATER];
    int n_later;
    int max_later; /* most at one time */
    int n_requests;
    bool authed; /* of new sessions */
    char dir[64];
};

/* PING, ECHO x, BIG n: at once. LATER x, BIGLATER n, QUITLATER: by
 * fixture_finish(). AUTH, PROTO n: change the session. QUIT. */
static inline void fixture_on_request(void *arg, struct request *rq, int argc,
                                      const struct resp_arg *argv)
{
    struct fixture *f = arg;
    struct buf *b = request_reply(rq);
    int64_t n = 0;
    bool later = false;

    f->n_requests++;
    if (argc > 1 && num_parse_i64(argv[1].data, argv[1].len, &n) < 0)
        n = 0;
    if (resp_arg_is(&argv[0], "PING")) {
        resp_simple(b, "PONG");
    } else if (resp_arg_is(&argv[0], "ECHO")) {
        resp_bulk(b, argv[1].data, argv[1].len);
    } else if (resp_arg_is(&argv[0], "LATER")) {
        resp_bulk(b, argv[1].data, argv[1].len);
        later = true;
    } else if (resp_arg_is(&argv[0], "BIG") ||
               resp_arg_is(&argv[0], "BIGLATER")) {
        buf_printf(b, "$%d\r\n", (int)n);
        memset(buf_reserve(b, (size_t)n), 'x', (size_t)n);
        b->len += (size_t)n;
        buf_puts(b, "\r\n");
        later = resp_arg_is(&argv[0], "BIGLATER");
    } else if (resp_arg_is(&argv[0], "AUTH")) {
        request_session(rq)->authed = true;
        resp_simple(b, "OK");
    } else if (resp_arg_is(&argv[0], "PROTO")) {
        request_session(rq)->proto = (int)n;
        resp_simple(b, "OK");
    } else if (resp_arg_is(&argv[0], "QUIT") ||
               resp_arg_is(&argv[0], "QUITLATER")) {
        later = resp_arg_is(&argv[0], "QUITLATER");
        resp_simple(b, "BYE");
        if (!later)
            request_close_after(rq);
    } else {
        resp_int(b, argc);
    }
    if (!later) {
        request_done(rq);
        return;
    }
    assert_true(f->n_later < FIXTURE_MAX_LATER);
    f->later[f->n_later++] = rq;
    if (f->n_later > f->max_later)
        f->max_later = f->n_later;
}

static inline void fixture_on_open(void *arg, struct session *s)
{
    const struct fixture *f = arg;

    s->authed = f->authed;
}

/* Finishes the i-th of those put off; the others keep their order. */
static inline void fixture_finish(struct fixture *f, int i)
{
    struct request *rq = f->later[i];

    assert_true(i < f->n_later);
    f->n_later--;
    memmove(&f->later[i], &f->later[i + 1],
            (size_t)(f->n_later - i) * sizeof(f->later[0]));
    request_done(rq);
}

static inline void fixture_finish_all(struct fixture *f)
{
    while (f->n_later > 0)
        fixture_finish(f, 0);
}

static inline void fixture_listen(struct fixture *f, const char *host,
                                  bool admin)
{
    struct address a = {.kind = ADDRESS_TCP};
    struct buf why = {0};

    snprintf(a.host, sizeof(a.host), "%s", host);
    if (server_listen(f->server, &a, admin, &why) != 0)
        fail_msg("listen: %s", buf_cstr(&why));
    buf_free(&why);
}

static inline int fixture_setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->authed = true;
    f->config = (struct server_config){
        .limits = {.max_clients = 2000,
                   .max_client_memory = 256 << 20,
                   .max_pipeline = 2000,
                   .output_soft_bytes = 1 << 20,
                   .output_hard_bytes = 8 << 20,
                   .idle_timeout_s = 0,
                   .max_requests_before_auth = 100,
                   .auth_timeout_s = 0,
                   .socket_mode = 0640,
                   .admin_socket_mode = 0600,
                   .request = {.max_args = 1024,
                               .max_arg_bytes = 1 << 20,
                               .max_inline = 65536,
                               .max_request = 8 << 20},
                   .unauthenticated = {.max_args = 10,
                                       .max_arg_bytes = 16384,
                                       .max_inline = 65536,
                                       .max_request = 1 << 20}},
        .on_open = fixture_on_open,
        .on_request = fixture_on_request,
        .arg = f};
    f->server = server_new(&f->loop, &f->config);
    snprintf(f->dir, sizeof(f->dir), "/tmp/likesyncd-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    fixture_listen(f, "127.0.0.1", false);
    *state = f;
    return 0;
}

/* Ends with a loop that closes clean. */
static inline int fixture_teardown(void **state)
{
    struct fixture *f = *state;

    server_free(f->server);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    fixture_finish_all(f);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

#define SERVER_TEST(t)                                                         \
    cmocka_unit_test_setup_teardown(t, fixture_setup, fixture_teardown)

/* ---- peers ---- */

struct peer {
    struct fixture *f;
    int fd;
    struct buf in;
    bool ended; /* end of input or reset */
};

static inline void peer_connect(struct peer *p, struct fixture *f, int index)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int on = 1;

    *p = (struct peer){.f = f};
    in.sin_port = htons((uint16_t)server_port(f->server, index));
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(p->fd >= 0);
    assert_int_equal(connect(p->fd, (struct sockaddr *)&in, sizeof(in)), 0);
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    assert_true(fcntl(p->fd, F_SETFL, O_NONBLOCK) == 0);
}

static inline void peer_close(struct peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    buf_free(&p->in);
}

/* Reads what there is; false when there was nothing. */
static inline bool peer_read(struct peer *p)
{
    char *to = buf_reserve(&p->in, 65536);
    ssize_t n = p->ended ? 0 : read(p->fd, to, 65536);

    if (n > 0)
        p->in.len += (size_t)n;
    else if (n == 0 || errno != EAGAIN)
        p->ended = true;
    return n > 0;
}

static inline void fixture_turn(struct fixture *f)
{
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static inline uint64_t deadline_us(void)
{
    return clock_monotonic_us() + FIXTURE_DEADLINE_US;
}

/* Turns the loop until the condition holds, at most 20 s. */
#define PUMP_UNTIL(f, condition)                                               \
    for (uint64_t end_us = deadline_us();;) {                                  \
        fixture_turn(f);                                                       \
        if (condition)                                                         \
            break;                                                             \
        if (clock_monotonic_us() > end_us)                                     \
            fail_msg("never: %s", #condition);                                 \
        poll(NULL, 0, 1);                                                      \
    }

static inline void peer_pump(struct peer *p)
{
    struct pollfd pfd = {.fd = p->fd, .events = POLLIN};

    fixture_turn(p->f);
    if (!peer_read(p))
        poll(&pfd, 1, 1);
}

static inline void peer_send(struct peer *p, const char *data, size_t len)
{
    uint64_t end_us = deadline_us();

    while (len > 0) {
        ssize_t n = write(p->fd, data, len);

        assert_true(clock_monotonic_us() < end_us);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        } else {
            assert_int_equal(errno, EAGAIN);
            peer_pump(p);
        }
    }
}

static inline void peer_puts(struct peer *p, const char *s)
{
    peer_send(p, s, strlen(s));
}

/* The next bytes from the server are exactly these. */
static inline void peer_expect(struct peer *p, const char *data, size_t len)
{
    uint64_t end_us = deadline_us();

    while (p->in.len < len && !p->ended) {
        assert_true(clock_monotonic_us() < end_us);
        peer_pump(p);
    }
    if (p->in.len < len || memcmp(p->in.data, data, len) != 0)
        fail_msg("expected %.*s got %.*s", (int)len, data,
                 (int)(p->in.len < 200 ? p->in.len : 200), p->in.data);
    buf_consume(&p->in, len);
}

static inline void peer_expects(struct peer *p, const char *s)
{
    peer_expect(p, s, strlen(s));
}

/* Nothing more comes, and the connection ends. */
static inline void peer_expect_end(struct peer *p)
{
    uint64_t end_us = deadline_us();

    while (!p->ended) {
        assert_true(clock_monotonic_us() < end_us);
        peer_pump(p);
    }
    assert_int_equal(p->in.len, 0);
}

#endif
