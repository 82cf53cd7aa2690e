/* SPDX-License-Identifier: MIT */
/* Refused passwords that wait for their answer: how many there may be, and what
 * happens when the guessers or the daemon go. (What clients see of passwords is
 * tested on the daemon.) */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "server_fixture.h"
#include "services/auth.h"

#define DENIED                                                                 \
    "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
#define MOST 65536 /* REFUSALS_MAX */

static struct auth *auth;
static int64_t delay_ms;
static int n_guesses;

/* Each request is a password. */
static void on_guess(void *arg, struct request *rq, int argc,
                     const struct resp_arg *argv)
{
    static const struct resp_arg user = {"default", 7};

    (void)arg;
    (void)argc;
    n_guesses++;
    if (auth_try(auth, rq, &user, &argv[0])) {
        resp_simple(request_reply(rq), "IN");
        request_done(rq);
    }
}

static int setup(void **state)
{
    struct fixture *f;

    fixture_setup(state);
    f = *state;
    server_free(f->server);
    n_guesses = 0;
    delay_ms = 3600000;
    auth = auth_new(&f->loop, "right", &delay_ms);
    f->config.on_request = on_guess;
    f->config.limits.max_pipeline = 2 * MOST;
    f->config.limits.output_hard_bytes = 64 << 20;
    f->server = server_new(&f->loop, &f->config);
    fixture_listen(f, "127.0.0.1", false);
    return 0;
}

static int teardown(void **state)
{
    auth_free(auth);
    return fixture_teardown(state);
}

static void guess(struct peer *p, int n)
{
    struct buf all = {0};
    int before = n_guesses;

    for (int i = 0; i < n; i++)
        buf_puts(&all, "wrong\r\n");
    peer_send(p, all.data, all.len);
    buf_free(&all);
    PUMP_UNTIL(p->f, n_guesses == before + n);
}

static void expect_denied(struct peer *p, int n)
{
    for (int i = 0; i < n; i++)
        peer_expects(p, DENIED);
}

static void expect_nothing(struct peer *p)
{
    for (int i = 0; i < 5; i++)
        peer_pump(p);
    assert_int_equal(p->in.len, 0);
    assert_false(p->ended);
}

static void test_the_oldest_is_answered_when_there_are_too_many(void **state)
{
    struct fixture *f = *state;
    struct peer first, second;

    peer_connect(&first, f, 0);
    peer_connect(&second, f, 0);
    guess(&first, 3);
    guess(&second, MOST - 3);
    expect_nothing(&first);
    guess(&second, 2);
    expect_denied(&first, 2);
    expect_nothing(&first);
    expect_nothing(&second);
    auth_stop(auth);
    expect_denied(&first, 1);
    expect_denied(&second, MOST - 1);
    expect_nothing(&second);
    peer_close(&first);
    peer_close(&second);
}

static void test_guessers_that_go(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_connect(&p, f, 0);
    guess(&p, 10);
    peer_close(&p);
    assert_int_equal(server_pending(f->server), 10);
    for (int i = 0; i < 5; i++)
        fixture_turn(f);
    /* Its place is not free for the next guess before. */
    assert_int_equal(server_clients(f->server), 1);
    auth_stop(auth);
    assert_int_equal(server_pending(f->server), 0);
    PUMP_UNTIL(f, server_clients(f->server) == 0);
}

/* Each waits its whole time from when it came, not from the one before. */
static void test_answers_come_in_time(void **state)
{
    struct fixture *f = *state;
    struct peer p;
    uint64_t begin = clock_monotonic_ms();

    delay_ms = 50;
    peer_connect(&p, f, 0);
    guess(&p, 1);
    PUMP_UNTIL(f, clock_monotonic_ms() >= begin + 20);
    begin = clock_monotonic_ms();
    guess(&p, 1);
    peer_puts(&p, "right\r\n");
    expect_denied(&p, 2);
    assert_true(clock_monotonic_ms() >= begin + 50);
    peer_expects(&p, "+IN\r\n");
    peer_close(&p);
}

static void test_no_delay(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    delay_ms = 0;
    peer_connect(&p, f, 0);
    guess(&p, 1);
    assert_int_equal(server_pending(f->server), 0);
    expect_denied(&p, 1);
    delay_ms = 3600000;
    auth_stop(auth);
    guess(&p, 1);
    assert_int_equal(server_pending(f->server), 0);
    expect_denied(&p, 1);
    peer_close(&p);
}

/* The server goes first: the answers come into the void. */
static void test_the_server_goes(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_connect(&p, f, 0);
    guess(&p, 10);
    server_free(f->server);
    peer_expect_end(&p);
    f->server = NULL;
    peer_close(&p);
}

#define AUTH_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        AUTH_TEST(test_the_oldest_is_answered_when_there_are_too_many),
        AUTH_TEST(test_guessers_that_go),
        AUTH_TEST(test_answers_come_in_time),
        AUTH_TEST(test_no_delay),
        AUTH_TEST(test_the_server_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
