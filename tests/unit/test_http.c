/* SPDX-License-Identifier: MIT */
/* The HTTP server on a real loop, asked by a plain socket of the same thread. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "adapters/http.h"
#include "base/clock.h"
#include "base/mem.h"

#define DEADLINE_US 20000000
#define BIG_BYTES   300000

struct fixture {
    uv_loop_t loop;
    struct http *http;
    int n_rendered;
};

static int render_hello(void *arg, struct buf *body)
{
    struct fixture *f = arg;

    f->n_rendered++;
    buf_puts(body, "hello\n");
    return 200;
}

static int render_ill(void *arg, struct buf *body)
{
    (void)arg;
    buf_puts(body, "redis: away\n");
    return 503;
}

static int render_big(void *arg, struct buf *body)
{
    (void)arg;
    memset(buf_reserve(body, BIG_BYTES), 'x', BIG_BYTES);
    body->len += BIG_BYTES;
    return 200;
}

static int render_nothing(void *arg, struct buf *body)
{
    (void)arg;
    (void)body;
    return 200;
}

static const struct http_route routes[] = {
    {"/hello", "text/x-hello", "default-src 'self'", false, render_hello},
    {"/guarded", "text/x-hello", NULL, true, render_hello},
    {"/ill", "text/x-ill", NULL, true, render_ill},
    {"/big", "text/plain", NULL, false, render_big},
    {"/nothing", "text/plain", NULL, false, render_nothing},
};

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));
    struct address a = {.kind = ADDRESS_TCP, .host = "localhost"};
    struct buf why = {0};

    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->http = http_new(&f->loop, http_listen(&a, &why), routes,
                       ARRAY_LEN(routes), f, &why);
    if (!f->http)
        fail_msg("%s", buf_cstr(&why));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    http_free(f->http);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    free(f);
    return 0;
}

/* From 127.0.0.host. */
static int connect_from(const struct fixture *f, unsigned host)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr = {htonl(0x7f000000 + host)}};
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    in.sin_port = htons((uint16_t)http_port(f->http));
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static int client_connect(const struct fixture *f)
{
    return connect_from(f, 1);
}

/* Header and body are there as far as Content-Length says. */
static bool is_whole(struct buf *b, bool head)
{
    const char *text = buf_cstr(b);
    const char *end = strstr(text, "\r\n\r\n");
    const char *length = strcasestr(text, "\r\nContent-Length: ");

    if (!end)
        return false;
    if (head || !length)
        return true;
    return b->len - (size_t)(end + 4 - text) >=
           strtoul(length + strlen("\r\nContent-Length: "), NULL, 10);
}

static void exchange(struct fixture *f, int fd, const char *request,
                     struct buf *answer)
{
    uint64_t end_us = clock_monotonic_us() + DEADLINE_US;
    bool head = strncmp(request, "HEAD", 4) == 0;
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    ssize_t n = -1;

    buf_clear(answer, SIZE_MAX);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    while (n != 0 && !is_whole(answer, head)) {
        assert_true(clock_monotonic_us() < end_us);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        n = read(fd, buf_reserve(answer, 65536), 65536);
        if (n > 0)
            answer->len += (size_t)n;
        else
            poll(&pfd, 1, 1);
    }
}

static void check(struct fixture *f, const char *request, const char *status,
                  const char *holds, const char *body)
{
    struct buf answer = {0};
    int fd = client_connect(f);
    const char *text;

    exchange(f, fd, request, &answer);
    text = buf_cstr(&answer);
    if (strncmp(text, status, strlen(status)) != 0 || !strstr(text, holds))
        fail_msg("%s: %s", request, text);
    assert_non_null(strstr(text, "\r\nCache-Control: no-store\r\n"));
    assert_non_null(strstr(text, "\r\nX-Content-Type-Options: nosniff\r\n"));
    assert_string_equal(strstr(text, "\r\n\r\n") + 4, body);
    close(fd);
    buf_free(&answer);
}

#define HOST " HTTP/1.1\r\nHost: localhost\r\n\r\n"

static void test_routes(void **state)
{
    check(*state, "GET /hello" HOST, "HTTP/1.1 200 ",
          "\r\nContent-Type: text/x-hello\r\n", "hello\n");
    check(*state, "GET /hello?x=1" HOST, "HTTP/1.1 200 ", "", "hello\n");
    check(*state, "GET /ill" HOST, "HTTP/1.1 503 ",
          "\r\nContent-Type: text/plain; charset=utf-8\r\n", "redis: away\n");
    check(*state, "GET /nothing" HOST, "HTTP/1.1 200 ",
          "\r\nContent-Length: 0\r\n", "");
    check(*state, "GET /hello/" HOST, "HTTP/1.1 404 ", "", "not found\n");
    check(*state, "GET /" HOST, "HTTP/1.1 404 ", "", "not found\n");
}

/* What a page may load, says its route; all else, errors too, nothing. */
static void test_content_security_policy(void **state)
{
#define POLICY "\r\nContent-Security-Policy: default-src "
    check(*state, "GET /hello" HOST, "HTTP/1.1 200 ", POLICY "'self'\r\n",
          "hello\n");
    check(*state, "GET /ill" HOST, "HTTP/1.1 503 ", POLICY "'none'; ",
          "redis: away\n");
    check(*state, "GET /x" HOST, "HTTP/1.1 404 ", POLICY "'none'; ",
          "not found\n");
}

/* The page of another site may have its own name point at us. */
static void test_names_are_refused(void **state)
{
    static const char asked[] = "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n";
    static const char *const good[] = {"127.0.0.1", "LOCALHOST:9480",
                                       "[::1]:9480", "10.0.0.1"};
    static const char *const bad[] = {"evil.example", "evil.example:9480",
                                      "localhost.evil.example", "127.0.0.1.x",
                                      ""};
    struct fixture *f = *state;
    char request[200];

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        snprintf(request, sizeof(request), asked, "/guarded", good[i]);
        check(f, request, "HTTP/1.1 200 ", "", "hello\n");
    }
    check(f, "GET /guarded HTTP/1.0\r\n\r\n", "HTTP/1.1 200 ", "", "hello\n");
    f->n_rendered = 0;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(request, sizeof(request), asked, "/guarded", bad[i]);
        check(f, request, "HTTP/1.1 421 ", "",
              "expected an IP address or localhost in the address or, from a "
              "proxy, in the header Host\n");
    }
    assert_int_equal(f->n_rendered, 0);
    snprintf(request, sizeof(request), asked, "/hello", bad[0]);
    check(f, request, "HTTP/1.1 200 ", "", "hello\n");
}

static void listen_everywhere(struct fixture *f)
{
    struct address any = {.kind = ADDRESS_TCP, .host = "0.0.0.0"};
    struct buf why = {0};

    http_free(f->http);
    f->http = http_new(&f->loop, http_listen(&any, &why), routes,
                       ARRAY_LEN(routes), f, &why);
    assert_non_null(f->http);
    buf_free(&why);
}

/* Where others may come by any name anyway, they may. */
static void test_names_are_taken_at_other_addresses(void **state)
{
    struct fixture *f = *state;

    listen_everywhere(f);
    check(f, "GET /guarded HTTP/1.1\r\nHost: likes.example\r\n\r\n",
          "HTTP/1.1 200 ", "", "hello\n");
}

static void test_head_has_no_body(void **state)
{
    check(*state, "HEAD /hello" HOST, "HTTP/1.1 200 ",
          "\r\nContent-Length: 6\r\n", "");
}

static void test_other_methods(void **state)
{
    const struct fixture *f = *state;

    check(*state,
          "POST /hello HTTP/1.1\r\nHost: localhost\r\n"
          "Content-Length: 4\r\n\r\nabcd",
          "HTTP/1.1 405 ", "\r\nAllow: GET, HEAD\r\n", "only GET and HEAD\n");
    check(*state, "DELETE /hello" HOST, "HTTP/1.1 405 ", "",
          "only GET and HEAD\n");
    assert_int_equal(f->n_rendered, 0);
}

static void test_keep_alive_and_large_bodies(void **state)
{
    struct fixture *f = *state;
    struct buf answer = {0};
    int fd = client_connect(f);

    for (int i = 0; i < 3; i++) {
        exchange(f, fd, "GET /big" HOST, &answer);
        assert_true(answer.len > BIG_BYTES);
        exchange(f, fd, "GET /hello" HOST, &answer);
        assert_non_null(strstr(buf_cstr(&answer), "\r\n\r\nhello\n"));
    }
    assert_int_equal(f->n_rendered, 3);
    close(fd);
    buf_free(&answer);
}

static void count_turn(uv_prepare_t *prepare)
{
    int *turns = prepare->data;

    ++*turns;
}

static void stop_loop(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

static int turns_within(struct fixture *f, unsigned ms)
{
    uv_prepare_t prepare;
    uv_timer_t timer;
    int turns = 0;

    uv_prepare_init(&f->loop, &prepare);
    prepare.data = &turns;
    uv_prepare_start(&prepare, count_turn);
    uv_timer_init(&f->loop, &timer);
    uv_timer_start(&timer, stop_loop, ms, 0);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&prepare, NULL);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    return turns;
}

/* More than it takes, all silent: the loop sleeps, and a place that comes free
 * is used. */
static void test_connection_limit(void **state)
{
    struct fixture *f = *state;
    struct buf answer = {0};
    int fds[80];

    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = client_connect(f);
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    turns_within(f, 50);
    assert_true(turns_within(f, 200) < 50);
    exchange(f, fds[0], "GET /hello" HOST, &answer);
    assert_non_null(strstr(buf_cstr(&answer), "\r\n\r\nhello\n"));
    for (size_t i = 0; i + 1 < ARRAY_LEN(fds); i++)
        close(fds[i]);
    exchange(f, fds[ARRAY_LEN(fds) - 1], "GET /hello" HOST, &answer);
    assert_non_null(strstr(buf_cstr(&answer), "\r\n\r\nhello\n"));
    close(fds[ARRAY_LEN(fds) - 1]);
    buf_free(&answer);
}

/* The listener stays readable all the while. */
static void test_out_of_descriptors(void **state)
{
    struct fixture *f = *state;
    struct buf answer = {0};
    struct rlimit all, none;
    int fd = client_connect(f);
    int next = dup(fd);

    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    none = all;
    none.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_true(turns_within(f, 300) < 50);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    exchange(f, fd, "GET /hello" HOST, &answer);
    assert_non_null(strstr(buf_cstr(&answer), "\r\n\r\nhello\n"));
    close(fd);
    buf_free(&answer);
}

/* A request that never ends does not keep its place for ever. */
static void test_silent_client_is_closed(void **state)
{
    struct fixture *f = *state;
    uint64_t end_us = clock_monotonic_us() + DEADLINE_US;
    int fd = client_connect(f);
    char text[512];

    assert_int_equal(write(fd, "GET /hel", 8), 8);
    while (read(fd, text, sizeof(text)) < 0 && errno == EAGAIN) {
        assert_true(clock_monotonic_us() < end_us);
        turns_within(f, 100);
    }
    close(fd);
}

/* Reads what there is. Whether the end was reached. */
static bool has_ended(int fd)
{
    char text[4096];
    ssize_t n;

    do
        n = read(fd, text, sizeof(text));
    while (n > 0);
    return n == 0 || errno != EAGAIN;
}

/* A byte more of each request. How many of the connections have ended. */
static unsigned trickle(const int *fds, bool *ended, unsigned n)
{
    unsigned count = 0;

    for (unsigned i = 0; i < n; i++) {
        ended[i] = ended[i] || has_ended(fds[i]);
        if (ended[i])
            count++;
        else if (send(fds[i], "x", 1, MSG_NOSIGNAL) < 0)
            assert_true(errno == EPIPE || errno == ECONNRESET);
    }
    return count;
}

/* Never idle, and never done; whoever comes after them is let in. */
static void test_requests_without_end_hold_no_place(void **state)
{
    static const char begin[] = "GET /hello HTTP/1.1\r\nX: ";
    struct fixture *f = *state;
    unsigned n = http_max_connections();
    uint64_t end_us = clock_monotonic_us() + 3 * DEADLINE_US;
    bool *ended = mem_zalloc(n * sizeof(*ended));
    int *fds = mem_alloc(n * sizeof(*fds));

    for (unsigned i = 0; i < n; i++) {
        fds[i] = client_connect(f);
        assert_int_equal(write(fds[i], begin, strlen(begin)), strlen(begin));
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    while (trickle(fds, ended, n) < n) {
        assert_true(clock_monotonic_us() < end_us);
        turns_within(f, 200);
    }
    check(f, "GET /hello" HOST, "HTTP/1.1 200 ", "", "hello\n");
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
    free(fds);
    free(ended);
}

/* A host with more connections than there are places has but half of them. */
static void test_no_host_takes_all_places(void **state)
{
    struct fixture *f = *state;
    unsigned n = http_max_connections() + 8;
    uint64_t end_us = clock_monotonic_us() + DEADLINE_US;
    int *fds = mem_alloc(n * sizeof(*fds));
    struct buf answer = {0};
    unsigned n_ended = 0;
    int other;

    listen_everywhere(f);
    for (unsigned i = 0; i < n; i++) {
        fds[i] = connect_from(f, 2);
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    other = connect_from(f, 3);
    exchange(f, other, "GET /hello" HOST, &answer);
    assert_non_null(strstr(buf_cstr(&answer), "\r\n\r\nhello\n"));
    while (n_ended < n - http_max_connections() / 2) {
        assert_true(clock_monotonic_us() < end_us);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        n_ended = 0;
        for (unsigned i = 0; i < n; i++)
            n_ended += has_ended(fds[i]) ? 1 : 0;
    }
    assert_int_equal(n_ended, n - http_max_connections() / 2);
    exchange(f, fds[0], "GET /hello" HOST, &answer);
    assert_non_null(strstr(buf_cstr(&answer), "\r\n\r\nhello\n"));
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
    close(other);
    free(fds);
    buf_free(&answer);
}

static void test_vanishing_client(void **state)
{
    struct fixture *f = *state;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    int fd = client_connect(f);

    assert_true(write(fd, "GET /big" HOST, strlen("GET /big" HOST)) > 0);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
    turns_within(f, 20);
    check(f, "GET /hello" HOST, "HTTP/1.1 200 ", "", "hello\n");
}

static void test_free_with_a_client_connected(void **state)
{
    struct fixture *f = *state;
    struct buf answer = {0};
    int fd = client_connect(f);

    exchange(f, fd, "GET /hello" HOST, &answer);
    http_free(f->http);
    f->http = NULL;
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_true(read(fd, buf_reserve(&answer, 1), 1) <= 0);
    close(fd);
    buf_free(&answer);
}

static void test_refusals_say_why(void **state)
{
    struct fixture *f = *state;
    struct address used = {.kind = ADDRESS_TCP, .host = "127.0.0.1"};
    struct address name = {.kind = ADDRESS_TCP, .host = "example.org"};
    struct address file = {.kind = ADDRESS_UNIX, .path = "/nowhere"};
    struct buf why = {0};

    used.port = http_port(f->http);
    assert_int_equal(http_listen(&used, &why), -1);
    assert_non_null(strstr(buf_cstr(&why), "Address already in use"));
    buf_clear(&why, 0);
    assert_int_equal(http_listen(&name, &why), -1);
    assert_non_null(strstr(buf_cstr(&why), "example.org"));
    buf_clear(&why, 0);
    assert_int_equal(http_listen(&file, &why), -1);
    assert_non_null(strstr(buf_cstr(&why), "TCP"));
    buf_free(&why);
}

#define HTTP_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_routes),
        HTTP_TEST(test_content_security_policy),
        HTTP_TEST(test_names_are_refused),
        HTTP_TEST(test_names_are_taken_at_other_addresses),
        HTTP_TEST(test_head_has_no_body),
        HTTP_TEST(test_other_methods),
        HTTP_TEST(test_keep_alive_and_large_bodies),
        HTTP_TEST(test_connection_limit),
        HTTP_TEST(test_out_of_descriptors),
        HTTP_TEST(test_silent_client_is_closed),
        HTTP_TEST(test_requests_without_end_hold_no_place),
        HTTP_TEST(test_no_host_takes_all_places),
        HTTP_TEST(test_vanishing_client),
        HTTP_TEST(test_free_with_a_client_connected),
        HTTP_TEST(test_refusals_say_why),
    };

    return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
