/* SPDX-License-Identifier: MIT */
/* The server's requests: order, limits, protocol errors, ends. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "server_fixture.h"
#include "core/metrics.h"

#define SEED 20240229u

static void test_replies_to_arrays_and_lines(void **state)
{
    struct peer p;

    peer_connect(&p, *state, 0);
    peer_puts(&p, "*1\r\n$4\r\nPING\r\n\r\nECHO hello\r\n"
                  "*2\r\n$4\r\necho\r\n$3\r\na\r\n\r\n");
    peer_expects(&p, "+PONG\r\n$5\r\nhello\r\n$3\r\na\r\n\r\n");
    peer_close(&p);
}

static void test_one_byte_at_a_time(void **state)
{
    const char *text = "*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\nPING\r\n";
    struct peer p;

    peer_connect(&p, *state, 0);
    for (const char *c = text; *c; c++) {
        peer_send(&p, c, 1);
        fixture_turn(p.f);
    }
    peer_expects(&p, "$5\r\nhello\r\n+PONG\r\n");
    peer_close(&p);
}

/* A request larger than a read, then a small one in its last piece. */
static void test_large_request(void **state)
{
    struct buf text = {0};
    struct peer p;

    peer_connect(&p, *state, 0);
    buf_puts(&text, "*2\r\n$4\r\nECHO\r\n$300000\r\n");
    memset(buf_reserve(&text, 300000), 'y', 300000);
    text.len += 300000;
    buf_puts(&text, "\r\nPING\r\n");
    peer_send(&p, text.data, text.len);
    peer_expects(&p, "$300000\r\n");
    peer_expect(&p, text.data + strlen("*2\r\n$4\r\nECHO\r\n$300000\r\n"),
                300002);
    peer_expects(&p, "+PONG\r\n");
    buf_free(&text);
    peer_close(&p);
}

/* Requests finished at once and later, the latter in random order, in several
 * turns of the loop. */
static void test_order_survives_any_order_of_finishing(void **state)
{
    struct fixture *f = *state;
    struct buf sent = {0};
    struct buf expected = {0};
    struct peer p;
    unsigned seed = SEED;

    print_message("seed %u\n", seed);
    peer_connect(&p, f, 0);
    for (int i = 0; i < 1500; i++) {
        char word[16];

        snprintf(word, sizeof(word), "w%d", i);
        buf_printf(&sent, "%s %s\r\n", rand_r(&seed) % 3 ? "LATER" : "ECHO",
                   word);
        resp_bulk_str(&expected, word);
    }
    peer_send(&p, sent.data, sent.len);
    PUMP_UNTIL(f, f->n_requests == 1500);
    while (f->n_later > 0) {
        fixture_finish(f,
                       (int)((unsigned)rand_r(&seed) % (unsigned)f->n_later));
        if (rand_r(&seed) % 50 == 0)
            fixture_turn(f);
    }
    peer_expect(&p, expected.data, expected.len);
    assert_int_equal(server_pending(f->server), 0);
    buf_free(&sent);
    buf_free(&expected);
    peer_close(&p);
}

struct prompt {
    struct fixture *f;
    uv_timer_t finish;
    uv_timer_t guard;
    uv_poll_t poll;
    uv_prepare_t turn;
    int turns;
    bool timed_out;
};

static void prompt_finish(uv_timer_t *t)
{
    struct prompt *x = t->data;

    fixture_finish_all(x->f);
}

static void prompt_guard(uv_timer_t *t)
{
    struct prompt *x = t->data;

    x->timed_out = true;
    uv_stop(&x->f->loop);
}

static void prompt_readable(uv_poll_t *poll, int status, int events)
{
    const struct prompt *x = poll->data;

    (void)status;
    (void)events;
    uv_stop(&x->f->loop);
}

static void prompt_turn(uv_prepare_t *prepare)
{
    struct prompt *x = prepare->data;

    x->turns++;
}

static void prompt_close(struct prompt *x)
{
    uv_close((uv_handle_t *)&x->finish, NULL);
    uv_close((uv_handle_t *)&x->guard, NULL);
    uv_close((uv_handle_t *)&x->poll, NULL);
    uv_close((uv_handle_t *)&x->turn, NULL);
    fixture_turn(x->f);
}

/* A reply that a timer finishes leaves before the loop sleeps again, and the
 * loop does sleep while it waits. */
static void test_late_reply_leaves_promptly_without_spinning(void **state)
{
    struct fixture *f = *state;
    struct prompt x = {.f = f};
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\n");
    PUMP_UNTIL(f, f->n_later == 1);
    uv_timer_init(&f->loop, &x.finish);
    uv_timer_init(&f->loop, &x.guard);
    uv_poll_init(&f->loop, &x.poll, p.fd);
    uv_prepare_init(&f->loop, &x.turn);
    x.finish.data = x.guard.data = x.poll.data = x.turn.data = &x;
    uv_prepare_start(&x.turn, prompt_turn);
    uv_poll_start(&x.poll, UV_READABLE, prompt_readable);
    uv_timer_start(&x.finish, prompt_finish, 100, 0);
    uv_timer_start(&x.guard, prompt_guard, 800, 0);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    prompt_close(&x);
    assert_false(x.timed_out);
    assert_true(x.turns < 10);
    peer_expects(&p, "$1\r\na\r\n");
    peer_close(&p);
}

static void test_proto_is_that_of_dispatch(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\nPROTO 3\r\nLATER b\r\n");
    PUMP_UNTIL(f, f->n_later == 2);
    assert_int_equal(request_proto(f->later[0]), 2);
    assert_int_equal(request_proto(f->later[1]), 3);
    assert_int_equal(request_session(f->later[0])->proto, 3);
    fixture_finish_all(f);
    peer_expects(&p, "$1\r\na\r\n+OK\r\n$1\r\nb\r\n");
    peer_close(&p);
}

/* The request behind AUTH, in the same read, has the wide limits. */
static void test_limits_before_and_after_auth(void **state)
{
    static const char eleven[] =
        "*11\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n"
        "$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n";
    struct fixture *f = *state;
    struct peer p;

    f->authed = false;
    peer_connect(&p, f, 0);
    peer_puts(&p, "AUTH x\r\n");
    peer_puts(&p, eleven);
    peer_expects(&p, "+OK\r\n:11\r\n");
    peer_close(&p);

    peer_connect(&p, f, 0);
    peer_puts(&p, eleven);
    peer_expects(&p, "-ERR Protocol error: unauthenticated ");
    PUMP_UNTIL(f, server_clients(f->server) == 0);
    peer_close(&p);
}

static void test_protocol_error_follows_earlier_replies(void **state)
{
    struct fixture *f = *state;
    double errors = metric_get(M_CLIENTS_CLOSED_PROTOCOL);
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\n*x\r\nPING\r\n");
    PUMP_UNTIL(f, f->n_later == 1);
    fixture_turn(f);
    assert_int_equal(server_clients(f->server), 1);
    fixture_finish_all(f);
    peer_expects(&p, "$1\r\na\r\n-ERR Protocol error: "
                     "invalid multibulk length\r\n");
    peer_expect_end(&p);
    assert_true(metric_get(M_CLIENTS_CLOSED_PROTOCOL) == errors + 1);
    peer_close(&p);
}

static void test_http_is_cut_off_without_a_word(void **state)
{
    static const char *const lines[] = {"POST / HTTP/1.1\r\n",
                                        "Host: example.org\r\n"};
    struct peer p;

    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        peer_connect(&p, *state, 0);
        peer_puts(&p, lines[i]);
        peer_expect_end(&p);
        peer_close(&p);
    }
}

static void test_quit_answers_then_closes(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\nQUIT\r\nPING\r\n");
    PUMP_UNTIL(f, f->n_requests == 2);
    fixture_finish_all(f);
    peer_expects(&p, "$1\r\na\r\n+BYE\r\n");
    peer_expect_end(&p);
    assert_int_equal(f->n_requests, 2);
    peer_close(&p);
}

/* Requests behind a QUIT that is finished later end in the void, whether they
 * are finished before it or after. */
static void test_late_quit_drops_what_is_behind(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "QUITLATER\r\nLATER a\r\nLATER b\r\nECHO c\r\n");
    PUMP_UNTIL(f, f->n_requests == 4);
    request_close_after(f->later[0]);
    fixture_finish(f, 1);
    fixture_finish(f, 0);
    peer_expects(&p, "+BYE\r\n");
    peer_expect_end(&p);
    assert_int_equal(server_pending(f->server), 1);
    assert_null(request_session(f->later[0]));
    fixture_finish_all(f);
    assert_int_equal(server_pending(f->server), 0);
    peer_close(&p);
}

static void test_half_closed_peer_gets_its_replies(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\nLATER b\r\nECHO c\r\n*1\r\n$4\r\nPI");
    shutdown(p.fd, SHUT_WR);
    PUMP_UNTIL(f, f->n_requests == 3);
    for (int i = 0; i < 5; i++)
        fixture_turn(f);
    fixture_finish(f, 1);
    fixture_finish(f, 0);
    peer_expects(&p, "$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
    peer_expect_end(&p);
    peer_close(&p);
}

static void test_free_with_requests_under_way(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "LATER a\r\nLATER b\r\nPING\r\n");
    PUMP_UNTIL(f, f->n_requests == 3);
    server_free(f->server);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_null(request_session(f->later[0]));
    buf_puts(request_reply(f->later[0]), "into the void");
    fixture_finish_all(f);
    assert_false(peer_read(&p));
    assert_true(p.ended);
    /* For the teardown. */
    uv_loop_init(&f->loop);
    f->server = NULL;
    peer_close(&p);
}

static int socket_option(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof(value);

    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

/* Replies leave at once, and a peer that is no more is noticed. */
static void test_options_of_tcp_clients(void **state)
{
    struct fixture *f = *state;
    struct session_usage u;
    struct peer p;

    peer_connect(&p, f, 0);
    PUMP_UNTIL(f, server_clients(f->server) == 1);
    session_usage(server_session_by_id(f->server, 1), &u);
    assert_int_not_equal(socket_option(u.fd, IPPROTO_TCP, TCP_NODELAY), 0);
    assert_int_not_equal(socket_option(u.fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    assert_int_equal(socket_option(u.fd, IPPROTO_TCP, TCP_KEEPIDLE), 60);
    peer_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(test_replies_to_arrays_and_lines),
        SERVER_TEST(test_one_byte_at_a_time),
        SERVER_TEST(test_large_request),
        SERVER_TEST(test_order_survives_any_order_of_finishing),
        SERVER_TEST(test_late_reply_leaves_promptly_without_spinning),
        SERVER_TEST(test_proto_is_that_of_dispatch),
        SERVER_TEST(test_limits_before_and_after_auth),
        SERVER_TEST(test_protocol_error_follows_earlier_replies),
        SERVER_TEST(test_http_is_cut_off_without_a_word),
        SERVER_TEST(test_quit_answers_then_closes),
        SERVER_TEST(test_late_quit_drops_what_is_behind),
        SERVER_TEST(test_half_closed_peer_gets_its_replies),
        SERVER_TEST(test_free_with_requests_under_way),
        SERVER_TEST(test_options_of_tcp_clients),
    };

    return cmocka_run_group_tests_name("server", tests, NULL, NULL);
}
