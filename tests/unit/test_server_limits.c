/* SPDX-License-Identifier: MIT */
/* The limits of the server that close a client, and what is counted of them:
 * memory, requests and time before AUTH, what a request may be, pauses. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>

#include "server_fixture.h"
#include "core/metrics.h"

#define MIB (1 << 20)

static void set_limits(struct fixture *f)
{
    server_set_limits(f->server, &f->config.limits);
}

static double memory(struct fixture *f)
{
    fixture_turn(f);
    fixture_turn(f);
    return metric_get(M_CLIENT_MEMORY);
}

/* ---- memory ---- */

/* A request of which the last byte is missing: so many bytes are kept. */
static void send_unfinished(struct peer *p, size_t len)
{
    char head[64];
    size_t used = (size_t)snprintf(head, sizeof(head),
                                   "*2\r\n$4\r\nECHO\r\n$%zu\r\n", len);
    char *bytes = mem_zalloc(len);

    peer_send(p, head, used);
    peer_send(p, bytes, len - 1);
    free(bytes);
}

/* Whatever a client made the server hold is counted while it is held, and not
 * any more after it. */
static void test_memory_is_counted_and_given_back(void **state)
{
    struct fixture *f = *state;
    struct peer p;
    double idle;

    assert_true(memory(f) == 0);
    peer_connect(&p, f, 0);
    peer_puts(&p, "PING\r\n");
    peer_expects(&p, "+PONG\r\n");
    idle = memory(f);
    assert_true(idle > 0 && idle < 8192);

    send_unfinished(&p, 500000); /* input */
    PUMP_UNTIL(f, memory(f) > 500000);
    assert_true(memory(f) < 1200000);
    peer_send(&p, "\n\r\n", 3);
    peer_expects(&p, "$500000\r\n");
    while (p.in.len < 500002)
        peer_pump(&p);
    p.in.len = 0;
    assert_true(memory(f) < 8192);

    peer_puts(&p, "LATER a\r\nBIGLATER 500000\r\n"); /* a reply that waits */
    PUMP_UNTIL(f, f->n_later == 2);
    assert_true(memory(f) < 8192);
    fixture_finish(f, 1);
    assert_true(memory(f) > 500000);
    fixture_finish(f, 0);
    peer_expects(&p, "$1\r\na\r\n$500000\r\n");
    while (p.in.len < 500002)
        peer_pump(&p);
    p.in.len = 0;
    assert_true(memory(f) < 8192);

    for (int i = 0; i < 20; i++) /* replies that it does not read */
        peer_puts(&p, "BIGLATER 1000000\r\n");
    PUMP_UNTIL(f, f->n_later == 20);
    f->config.limits.output_hard_bytes = 64 * MIB;
    set_limits(f);
    fixture_finish_all(f);
    assert_true(memory(f) > 5000000);
    peer_close(&p);
    PUMP_UNTIL(f, memory(f) == 0);
}

/* The biggest goes, and no more than need to. */
static void test_over_the_memory_limit_the_biggest_go(void **state)
{
    struct fixture *f = *state;
    double closed = metric_get(M_CLIENTS_CLOSED_MEMORY);
    struct peer small, big, bigger;

    peer_connect(&small, f, 0);
    peer_connect(&big, f, 0);
    peer_connect(&bigger, f, 0);
    send_unfinished(&small, 50000);
    send_unfinished(&bigger, 900000);
    send_unfinished(&big, 200000);
    PUMP_UNTIL(f, memory(f) > 1150000);
    f->config.limits.max_client_memory = MIB;
    set_limits(f);
    peer_expect_end(&bigger);
    assert_true(metric_get(M_CLIENTS_CLOSED_MEMORY) == closed + 1);
    assert_true(memory(f) <= MIB);
    assert_true(memory(f) > 250000);
    assert_int_equal(server_clients(f->server), 2);

    f->config.limits.max_client_memory = 150000;
    set_limits(f);
    peer_expect_end(&big);
    assert_true(metric_get(M_CLIENTS_CLOSED_MEMORY) == closed + 2);
    peer_send(&small, "\n\r\n", 3); /* the rest of what it was about */
    peer_expects(&small, "$50000\r\n");
    peer_close(&small);
    peer_close(&big);
    peer_close(&bigger);
}

static void test_admin_clients_go_last(void **state)
{
    struct fixture *f = *state;
    struct peer admin, other;

    fixture_listen(f, "127.0.0.1", true);
    peer_connect(&admin, f, 1);
    peer_connect(&other, f, 0);
    send_unfinished(&admin, 900000);
    send_unfinished(&other, 100000);
    PUMP_UNTIL(f, memory(f) > 1000000);
    f->config.limits.max_client_memory = MIB + 100000;
    set_limits(f);
    peer_expect_end(&other);
    assert_int_equal(server_clients(f->server), 1);
    f->config.limits.max_client_memory = 100000;
    set_limits(f);
    peer_expect_end(&admin);
    assert_int_equal(server_clients(f->server), 0);
    assert_true(memory(f) == 0);
    peer_close(&admin);
    peer_close(&other);
}

/* What the allocator has given out, with and without a sanitizer. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void)
{
    struct mallinfo2 all;

    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    all = mallinfo2();
    return all.uordblks + all.hblkhd;
}

static size_t most_allocated;

/* Between the reads of a turn and libuv's close callbacks. */
static void on_check(uv_check_t *check)
{
    size_t now = allocated();

    (void)check;
    if (now > most_allocated)
        most_allocated = now;
}

static void send_some(struct peer *p, const char *data, size_t len)
{
    if (write(p->fd, data, len) < 0)
        assert_true(errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
}

/* 300 clients at once want 300 MB: what is taken stays near the limit, in the
 * midst of a turn, too, and one that wants little is served. */
static void test_many_greedy_clients(void **state)
{
    enum { N = 300, LIMIT = 4 * MIB };
    static const char bytes[100000];
    struct fixture *f = *state;
    double closed = metric_get(M_CLIENTS_CLOSED_MEMORY);
    struct peer *greedy = mem_zalloc(N * sizeof(*greedy));
    struct peer modest;
    uv_check_t check;
    size_t before;

    f->config.limits.max_client_memory = LIMIT;
    set_limits(f);
    uv_check_init(&f->loop, &check);
    uv_check_start(&check, on_check);
    peer_connect(&modest, f, 0);
    for (int i = 0; i < N; i++)
        peer_connect(&greedy[i], f, 0);
    peer_puts(&modest, "ECHO a\r\n");
    peer_expects(&modest, "$1\r\na\r\n");
    before = most_allocated = allocated();
    for (int i = 0; i < N; i++)
        send_some(&greedy[i], "*2\r\n$4\r\nECHO\r\n$1000000\r\n", 24);
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < N; i++)
            send_some(&greedy[i], bytes, sizeof(bytes));
        peer_puts(&modest, "ECHO a\r\n");
        peer_expects(&modest, "$1\r\na\r\n");
    }
    uv_close((uv_handle_t *)&check, NULL);
    for (int i = 0; i < N; i++)
        peer_close(&greedy[i]);
    peer_close(&modest);
    PUMP_UNTIL(f, memory(f) == 0);
    free(greedy);
    print_message("%zu KiB\n", (most_allocated - before) / 1024);
    assert_true(most_allocated > before + LIMIT / 2);
    assert_true(most_allocated < before + LIMIT + MIB);
    assert_true(metric_get(M_CLIENTS_CLOSED_MEMORY) > closed);
}

/* ---- before AUTH ---- */

static void test_requests_before_auth(void **state)
{
    struct fixture *f = *state;
    double closed = metric_get(M_CLIENTS_CLOSED_BEFORE_AUTH);
    struct peer p;

    f->authed = false;
    f->config.limits.max_requests_before_auth = 3;
    set_limits(f);
    peer_connect(&p, f, 0);
    for (int i = 0; i < 5; i++)
        peer_puts(&p, "PING\r\n");
    peer_expects(&p, "+PONG\r\n+PONG\r\n+PONG\r\n"
                     "-NOAUTH Authentication required, and not done in 3 "
                     "requests (server.max_requests_before_auth)\r\n");
    peer_expect_end(&p);
    assert_int_equal(f->n_requests, 3);
    assert_true(metric_get(M_CLIENTS_CLOSED_BEFORE_AUTH) == closed + 1);
    peer_close(&p);

    peer_connect(&p, f, 0); /* AUTH ends the count */
    peer_puts(&p, "PING\r\nPING\r\nAUTH x\r\n");
    peer_expects(&p, "+PONG\r\n+PONG\r\n+OK\r\n");
    for (int i = 0; i < 5; i++)
        peer_puts(&p, "PING\r\n");
    peer_expects(&p, "+PONG\r\n+PONG\r\n+PONG\r\n+PONG\r\n+PONG\r\n");
    peer_close(&p);
}

static void test_time_before_auth(void **state)
{
    struct fixture *f = *state;
    double closed = metric_get(M_CLIENTS_CLOSED_AUTH_TIMEOUT);
    struct peer silent, talks, authed;

    f->authed = false;
    f->config.limits.auth_timeout_s = 1;
    set_limits(f);
    peer_connect(&authed, f, 0);
    peer_puts(&authed, "AUTH x\r\n");
    peer_expects(&authed, "+OK\r\n");
    peer_connect(&silent, f, 0);
    peer_connect(&talks, f, 0);
    PUMP_UNTIL(f, server_clients(f->server) == 3);
    for (int i = 0; server_clients(f->server) > 1; i++) {
        if (i < 90 && server_clients(f->server) == 3)
            peer_puts(&talks, "LATER a\r\n"); /* under way: it does not help */
        peer_pump(&authed);
    }
    peer_expect_end(&silent);
    peer_expect_end(&talks);
    assert_true(metric_get(M_CLIENTS_CLOSED_AUTH_TIMEOUT) == closed + 2);
    peer_puts(&authed, "PING\r\n");
    peer_expects(&authed, "+PONG\r\n");
    fixture_finish_all(f);
    peer_close(&silent);
    peer_close(&talks);
    peer_close(&authed);
}

/* ---- each end is counted once, as what it was ---- */

struct ending {
    const char *sends;
    enum metric_id counted;
};

static const struct ending endings[] = {
    {"QUIT\r\n", M_CLIENTS_CLOSED_LEFT},
    {"*5\r\n", M_CLIENTS_CLOSED_ARGS},
    {"a b c d e\r\n", M_CLIENTS_CLOSED_ARGS},
    {"*1\r\n$101\r\n", M_CLIENTS_CLOSED_ARG_BYTES},
    {"*3\r\n$100\r\n", M_CLIENTS_CLOSED_PROTOCOL},
    {"*2\r\n*1\r\n", M_CLIENTS_CLOSED_PROTOCOL},
    {"*-5000000000000000000000\r\n", M_CLIENTS_CLOSED_PROTOCOL},
    {"'a\r\n", M_CLIENTS_CLOSED_PROTOCOL},
    {"POST / HTTP/1.1\r\n", M_CLIENTS_CLOSED_ATTACK},
    {"Host: localhost\r\n", M_CLIENTS_CLOSED_ATTACK},
};

static double all_closed(void)
{
    double n = 0;

    for (int i = M_CLIENTS_CLOSED_LEFT; i <= M_CLIENTS_CLOSED_ATTACK; i++)
        n += metric_get((enum metric_id)i);
    return n;
}

static void end_like(struct fixture *f, const struct ending *e)
{
    double counted = metric_get(e->counted);
    double all = all_closed();
    struct peer p;

    print_message("%s", e->sends);
    peer_connect(&p, f, 0);
    peer_puts(&p, e->sends);
    if (strcmp(e->sends, "*3\r\n$100\r\n") == 0) /* a length that is wrong */
        for (int i = 0; i < 102; i++)
            peer_puts(&p, "x");
    while (!p.ended)
        peer_pump(&p);
    assert_true(metric_get(e->counted) == counted + 1);
    assert_true(all_closed() == all + 1);
    peer_close(&p);
}

static void test_each_end_is_counted_once(void **state)
{
    struct fixture *f = *state;

    f->config.limits.request.max_args = 4;
    f->config.limits.request.max_arg_bytes = 100;
    set_limits(f);
    for (size_t i = 0; i < ARRAY_LEN(endings); i++)
        end_like(f, &endings[i]);
    f->config.limits.request.max_request = 200;
    set_limits(f);
    end_like(f, &(struct ending){"*4\r\n$100\r\n"
                                 "0123456789012345678901234567890123456789"
                                 "01234567890123456789012345678901234567890"
                                 "1234567890123456789\r\n$100\r\n",
                                 M_CLIENTS_CLOSED_REQUEST});
    f->config.limits.request.max_inline = 20;
    set_limits(f);
    end_like(f, &(struct ending){"PING 0123456789012345678\r\n",
                                 M_CLIENTS_CLOSED_REQUEST});
}

/* The last reply cannot be sent, and it goes itself: still the first reason. */
static void test_an_end_is_what_it_was_first(void **state)
{
    struct fixture *f = *state;
    double counted = metric_get(M_CLIENTS_CLOSED_PROTOCOL);
    double all = all_closed();
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\n*x\r\n");
    PUMP_UNTIL(f, f->n_later == 1);
    peer_close(&p);
    fixture_turn(f);
    fixture_finish_all(f);
    PUMP_UNTIL(f, server_clients(f->server) == 0);
    assert_true(metric_get(M_CLIENTS_CLOSED_PROTOCOL) == counted + 1);
    assert_true(all_closed() == all + 1);
}

static void test_idle_clients_are_counted(void **state)
{
    struct fixture *f = *state;
    double counted = metric_get(M_CLIENTS_CLOSED_IDLE);
    struct peer p;

    f->config.limits.idle_timeout_s = 1;
    set_limits(f);
    peer_connect(&p, f, 0);
    peer_expect_end(&p);
    assert_true(metric_get(M_CLIENTS_CLOSED_IDLE) == counted + 1);
    peer_close(&p);
}

/* ---- pauses ---- */

static void test_pauses_are_counted(void **state)
{
    struct fixture *f = *state;
    double pipeline = metric_get(M_CLIENTS_PAUSED_PIPELINE);
    double output = metric_get(M_CLIENTS_PAUSED_OUTPUT);
    struct peer p;

    f->config.limits.max_pipeline = 2;
    set_limits(f);
    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\n");
    PUMP_UNTIL(f, f->n_later == 1);
    assert_true(metric_get(M_CLIENTS_PAUSED_PIPELINE) == pipeline);
    peer_puts(&p, "LATER b\r\nLATER c\r\n");
    PUMP_UNTIL(f, f->n_later == 2);
    for (int i = 0; i < 5; i++)
        fixture_turn(f);
    assert_true(metric_get(M_CLIENTS_PAUSED_PIPELINE) == pipeline + 1);
    fixture_finish_all(f);
    PUMP_UNTIL(f, f->n_later == 1);
    fixture_finish_all(f);
    peer_expects(&p, "$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
    assert_true(metric_get(M_CLIENTS_PAUSED_OUTPUT) == output);
    peer_puts(&p, "BIG 2000000\r\n");
    PUMP_UNTIL(f, metric_get(M_CLIENTS_PAUSED_OUTPUT) == output + 1);
    assert_true(metric_get(M_CLIENTS_PAUSED_PIPELINE) == pipeline + 1);
    peer_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(test_memory_is_counted_and_given_back),
        SERVER_TEST(test_over_the_memory_limit_the_biggest_go),
        SERVER_TEST(test_admin_clients_go_last),
        SERVER_TEST(test_many_greedy_clients),
        SERVER_TEST(test_requests_before_auth),
        SERVER_TEST(test_time_before_auth),
        SERVER_TEST(test_each_end_is_counted_once),
        SERVER_TEST(test_an_end_is_what_it_was_first),
        SERVER_TEST(test_idle_clients_are_counted),
        SERVER_TEST(test_pauses_are_counted),
    };

    return cmocka_run_group_tests_name("server limits", tests, NULL, NULL);
}
