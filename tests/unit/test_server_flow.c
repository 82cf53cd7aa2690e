/* SPDX-License-Identifier: MIT */
/* The server under load and neglect: backpressure, vanishing peers, idle ones,
 * too many of them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/resource.h>
#include <sys/wait.h>

#include "server_fixture.h"
#include "core/metrics.h"

static void set_pipeline(struct fixture *f, int64_t max)
{
    f->config.limits.max_pipeline = max;
    server_set_limits(f->server, &f->config.limits);
}

/* All five arrive in one read; the third is parsed with no further byte. */
static void test_resumes_from_what_is_buffered(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    set_pipeline(f, 2);
    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\nLATER b\r\nLATER c\r\nLATER d\r\nLATER e\r\n");
    PUMP_UNTIL(f, f->n_later == 2);
    for (int i = 0; i < 5; i++)
        fixture_turn(f);
    assert_int_equal(f->n_requests, 2);
    for (int i = 0; i < 5; i++) {
        PUMP_UNTIL(f, f->n_later > 0);
        fixture_finish(f, 0);
    }
    peer_expects(&p, "$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n");
    assert_int_equal(f->max_later, 2);
    peer_close(&p);
}

static void test_new_limits_resume_a_paused_client(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    set_pipeline(f, 1);
    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\nLATER b\r\nLATER c\r\n");
    PUMP_UNTIL(f, f->n_later == 1);
    fixture_turn(f);
    assert_int_equal(f->n_requests, 1);
    set_pipeline(f, 100);
    PUMP_UNTIL(f, f->n_later == 3);
    fixture_finish_all(f);
    peer_expects(&p, "$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
    peer_close(&p);
}

/* 100 000 requests in one go by a peer that reads only now and then: never
 * more than max_pipeline under way, every reply there and in its place. */
static void test_100k_pipelined(void **state)
{
    struct fixture *f = *state;
    struct buf sent = {0};
    struct buf expected = {0};
    size_t at = 0;
    struct peer p;

    set_pipeline(f, 128);
    peer_connect(&p, f, 0);
    for (int i = 0; i < 100000; i++) {
        char word[16];

        snprintf(word, sizeof(word), "%d", i);
        buf_printf(&sent, "%s %s\r\n", i % 7 ? "ECHO" : "LATER", word);
        resp_bulk_str(&expected, word);
    }
    for (uint64_t end_us = deadline_us(); p.in.len < expected.len;) {
        ssize_t n = write(p.fd, sent.data + at, sent.len - at);

        assert_true(clock_monotonic_us() < end_us);
        at += n > 0 ? (size_t)n : 0;
        fixture_turn(f);
        while (f->n_later > 0)
            fixture_finish(f, f->n_later - 1);
        peer_read(&p);
    }
    assert_true(f->max_later <= 128);
    assert_int_equal(f->n_requests, 100000);
    peer_expect(&p, expected.data, expected.len);
    buf_free(&sent);
    buf_free(&expected);
    peer_close(&p);
}

/* One that sends faster than it is read does not keep another waiting: in a
 * turn of the loop each has one read. */
static void test_a_flood_lets_others_in(void **state)
{
    struct fixture *f = *state;
    const int per_read = 16 * 1024 / 6;
    struct buf flood = {0};
    struct peer p, other;
    ssize_t n;
    int before;

    peer_connect(&p, f, 0);
    peer_connect(&other, f, 0);
    peer_puts(&other, "PING\r\n");
    peer_expects(&other, "+PONG\r\n");
    for (int i = 0; i < 50000; i++)
        buf_puts(&flood, "PING\r\n");
    n = write(p.fd, flood.data, flood.len);
    assert_true(n > 5 * 16 * 1024);
    before = f->n_requests;
    for (int turn = 1; turn <= 5; turn++) {
        char word[32];

        snprintf(word, sizeof(word), "LATER %d\r\n", turn);
        assert_true(write(other.fd, word, strlen(word)) > 0);
        fixture_turn(f);
        assert_int_equal(f->n_later, turn);
        assert_true(f->n_requests - before <= turn * (per_read + 2));
    }
    assert_true(f->n_requests - before > per_read);
    fixture_finish_all(f);
    buf_free(&flood);
    peer_close(&p);
    peer_close(&other);
}

/* Sends as much as the server and the kernel take. */
static size_t stuff(struct peer *p, const char *request, size_t max)
{
    size_t len = strlen(request);
    size_t n_sent = 0;
    int stuck = 0;

    while (n_sent < max && stuck < 50) {
        ssize_t n = write(p->fd, request, len);

        assert_true(n == (ssize_t)len || (n < 0 && errno == EAGAIN));
        stuck = n < 0 ? stuck + 1 : 0;
        n_sent += n > 0 ? 1 : 0;
        fixture_turn(p->f);
    }
    return n_sent;
}

/* A peer that does not read is not read either; once it reads, it gets all. */
static void test_peer_that_does_not_read_is_held_back(void **state)
{
    struct fixture *f = *state;
    const char *request = "*2\r\n$3\r\nBIG\r\n$6\r\n100000\r\n";
    struct peer p;
    size_t n_sent;
    int taken;

    peer_connect(&p, f, 0);
    n_sent = stuff(&p, request, 400);
    PUMP_UNTIL(f, f->n_requests * 100000 > 1 << 20);
    for (int i = 0; i < 20; i++)
        fixture_turn(f);
    taken = f->n_requests;
    /* The soft limit, what the kernel holds, and one reply more. */
    assert_true((size_t)taken * 100000 < (1u << 20) + (12u << 20));
    for (int i = 0; i < 20; i++)
        fixture_turn(f);
    assert_int_equal(f->n_requests, taken);
    for (size_t i = 0; i < n_sent; i++) {
        peer_expects(&p, "$100000\r\n");
        while (p.in.len < 100002)
            peer_pump(&p);
        buf_consume(&p.in, 100002);
    }
    assert_int_equal(p.in.len, 0);
    assert_int_equal(f->n_requests, (int)n_sent);
    peer_close(&p);
}

/* Replies that finish later may exceed the soft limit, never the hard one. */
static void test_hard_limit_closes(void **state)
{
    struct fixture *f = *state;
    double closed = metric_get(M_CLIENTS_CLOSED_OUTPUT);
    struct peer p;

    peer_connect(&p, f, 0);
    for (int i = 0; i < 40; i++)
        peer_puts(&p, "BIGLATER 1000000\r\n");
    PUMP_UNTIL(f, f->n_later == 40);
    /* The first stays under way, so that the others' replies are held. */
    while (f->n_later > 30)
        fixture_finish(f, 1);
    fixture_turn(f);
    assert_int_equal(server_clients(f->server), 0);
    assert_true(metric_get(M_CLIENTS_CLOSED_OUTPUT) == closed + 1);
    fixture_finish_all(f);
    peer_close(&p);
}

/* ---- vanishing ---- */

static void abort_connection(struct peer *p)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    peer_close(p);
}

struct vanishing {
    const char *state;
    const char *sends;
    int n_requests; /* reached before it vanishes */
    int64_t pipeline;
    int finish_before; /* index to finish before, -1 none */
    bool half_close;
};

static const struct vanishing vanishings[] = {
    {"idle", "", 0, 100, -1, false},
    {"in a request", "*2\r\n$4\r\nECHO\r\n$10\r\nabc", 0, 100, -1, false},
    {"under way", "LATER a\r\nLATER b\r\n", 2, 100, -1, false},
    {"reply held", "LATER a\r\nLATER b\r\nECHO c\r\n", 3, 100, 1, false},
    {"partly answered", "LATER a\r\nLATER b\r\n", 2, 100, 0, false},
    {"paused", "LATER a\r\nLATER b\r\nLATER c\r\n", 2, 2, -1, false},
    {"half closed", "LATER a\r\nLATER b\r\n", 2, 100, -1, true},
    {"broken", "LATER a\r\n*x\r\n", 1, 100, -1, false},
};

static void vanish(struct fixture *f, const struct vanishing *v, bool reset)
{
    struct peer p;

    print_message("%s, %s\n", v->state, reset ? "reset" : "closed");
    f->n_requests = 0;
    set_pipeline(f, v->pipeline);
    peer_connect(&p, f, 0);
    peer_puts(&p, v->sends);
    PUMP_UNTIL(f, server_clients(f->server) == 1 &&
                      f->n_requests == v->n_requests);
    fixture_turn(f);
    if (v->half_close)
        shutdown(p.fd, SHUT_WR);
    if (v->finish_before >= 0)
        fixture_finish(f, v->finish_before);
    fixture_turn(f);
    if (reset)
        abort_connection(&p);
    else
        peer_close(&p);
    for (int i = 0; i < 3; i++)
        fixture_turn(f);
    for (uint64_t end_us = deadline_us(); server_clients(f->server) > 0;) {
        assert_true(clock_monotonic_us() < end_us);
        fixture_finish_all(f);
        fixture_turn(f);
    }
    fixture_finish_all(f);
    assert_int_equal(server_pending(f->server), 0);
}

static void test_peer_vanishes_in_each_state(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(vanishings); i++) {
        vanish(*state, &vanishings[i], false);
        vanish(*state, &vanishings[i], true);
    }
}

static void test_peer_vanishes_while_a_write_is_under_way(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_connect(&p, f, 0);
    stuff(&p, "*2\r\n$3\r\nBIG\r\n$6\r\n100000\r\n", 200);
    abort_connection(&p);
    PUMP_UNTIL(f, server_clients(f->server) == 0);
}

/* ---- many, idle ---- */

static void test_1000_idle_clients_and_their_end(void **state)
{
    struct fixture *f = *state;
    struct peer *idle = mem_zalloc(1000 * sizeof(*idle));
    struct peer p;

    for (int i = 0; i < 1000; i++) {
        peer_connect(&idle[i], f, 0);
        fixture_turn(f);
    }
    PUMP_UNTIL(f, server_clients(f->server) == 1000);
    peer_connect(&p, f, 0);
    peer_puts(&p, "PING\r\nLATER a\r\n");
    peer_expects(&p, "+PONG\r\n");
    f->config.limits.idle_timeout_s = 1;
    server_set_limits(f->server, &f->config.limits);
    /* All but the one that waits for us. */
    PUMP_UNTIL(f, server_clients(f->server) == 1);
    fixture_finish_all(f);
    peer_expects(&p, "$1\r\na\r\n");
    for (int i = 0; i < 1000; i++)
        peer_close(&idle[i]);
    free(idle);
    peer_close(&p);
}

static void count_session(void *arg, const struct session *s)
{
    uint64_t *ids = arg;

    assert_true(s->id >= 1 && s->id <= 3);
    assert_int_equal(strncmp(s->addr, "127.0.0.1:", 10), 0);
    assert_int_equal(s->admin, s->id == 3);
    assert_int_equal(s->proto, 2);
    *ids += s->id;
}

static void test_max_clients(void **state)
{
    struct fixture *f = *state;
    double refused = metric_get(M_CLIENTS_REFUSED);
    uint64_t ids = 0;
    struct peer p[4];

    fixture_listen(f, "127.0.0.1", true);
    f->config.limits.max_clients = 2;
    server_set_limits(f->server, &f->config.limits);
    peer_connect(&p[0], f, 0);
    peer_connect(&p[1], f, 0);
    PUMP_UNTIL(f, server_clients(f->server) == 2);
    peer_connect(&p[2], f, 0);
    peer_expects(&p[2], "-ERR max number of clients reached\r\n");
    peer_expect_end(&p[2]);
    assert_true(metric_get(M_CLIENTS_REFUSED) == refused + 1);
    /* The operator gets in. */
    peer_connect(&p[3], f, 1);
    peer_puts(&p[3], "PING\r\n");
    peer_expects(&p[3], "+PONG\r\n");
    server_sessions_after(f->server, 0, SIZE_MAX, count_session, &ids);
    assert_int_equal(ids, 1 + 2 + 3);
    assert_true(metric_get(M_CLIENTS) == 3);
    peer_puts(&p[0], "PING\r\n");
    peer_expects(&p[0], "+PONG\r\n");
    for (int i = 0; i < 4; i++)
        peer_close(&p[i]);
}

/* In a process of its own, since the hard limit cannot be raised again: 5
 * clients fit beside the reserve of 32. Assertions cannot leave a child, so it
 * exits with what it saw. */
static int clients_with_few_fds(void)
{
    struct rlimit rl = {32 + 5, 32 + 5};
    struct fixture *f;
    struct peer p[6];
    void *state;
    int before;

    if (setrlimit(RLIMIT_NOFILE, &rl) < 0 || fixture_setup(&state) < 0)
        return 100;
    f = state;
    for (int i = 0; i < 6; i++)
        peer_connect(&p[i], f, 0);
    for (int i = 0; i < 100; i++)
        fixture_turn(f);
    rmdir(f->dir);
    before = (int)server_clients(f->server);
    /* What others need counts too. */
    f->config.limits.other_fds = 2;
    server_set_limits(f->server, &f->config.limits);
    for (int i = 0; i < 5; i++)
        peer_close(&p[i]);
    for (int i = 0; i < 100; i++)
        fixture_turn(f);
    for (int i = 0; i < 5; i++)
        peer_connect(&p[i], f, 0);
    for (int i = 0; i < 100; i++)
        fixture_turn(f);
    return 10 * before + (int)server_clients(f->server);
}

static void test_max_clients_fits_the_fd_limit(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(clients_with_few_fds());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 53);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(test_resumes_from_what_is_buffered),
        SERVER_TEST(test_new_limits_resume_a_paused_client),
        SERVER_TEST(test_100k_pipelined),
        SERVER_TEST(test_a_flood_lets_others_in),
        SERVER_TEST(test_peer_that_does_not_read_is_held_back),
        SERVER_TEST(test_hard_limit_closes),
        SERVER_TEST(test_peer_vanishes_in_each_state),
        SERVER_TEST(test_peer_vanishes_while_a_write_is_under_way),
        SERVER_TEST(test_1000_idle_clients_and_their_end),
        SERVER_TEST(test_max_clients),
        cmocka_unit_test(test_max_clients_fits_the_fd_limit),
    };

    return cmocka_run_group_tests_name("server flow", tests, NULL, NULL);
}
