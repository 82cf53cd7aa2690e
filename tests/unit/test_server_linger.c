/* SPDX-License-Identifier: MIT */
/* What a client gets that still sends when the server ends the connection: its
 * last reply, and not all the time it would like. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "server_fixture.h"
#include "core/metrics.h"

#define REST_BYTES 102400
#define BIG_BYTES  1048576
#define MOST_BYTES (16u << 20) /* the bound, and what two sockets buffer */

static const char junk[1024];

static double ended(enum metric_id id)
{
    return metric_get(id);
}

static void send_rest(struct peer *p)
{
    for (size_t sent = 0; sent < REST_BYTES; sent += sizeof(junk)) {
        peer_send(p, junk, sizeof(junk));
        fixture_turn(p->f);
    }
}

/* A reset would let its next write fail, before it has read why. */
static void test_who_sends_on_reads_the_error(void **state)
{
    struct fixture *f = *state;
    double before = ended(M_CLIENTS_CLOSED_PROTOCOL);
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "*x\r\n");
    PUMP_UNTIL(f, ended(M_CLIENTS_CLOSED_PROTOCOL) == before + 1);
    send_rest(&p);
    peer_expects(&p, "-ERR Protocol error: ");
    while (!p.ended)
        peer_pump(&p);
    assert_string_equal(buf_cstr(&p.in) + p.in.len - 2, "\r\n");
    assert_int_equal(server_clients(f->server), 1);
    peer_close(&p);
    PUMP_UNTIL(f, server_clients(f->server) == 0);
    assert_true(ended(M_CLIENTS_CLOSED_PROTOCOL) == before + 1); /* once */
}

/* A reset would throw away what the kernel has not sent yet. */
static void test_replies_before_quit_arrive(void **state)
{
    struct fixture *f = *state;
    struct peer p;
    size_t len = 0;

    peer_connect(&p, f, 0);
    peer_puts(&p, "BIG 1048576\r\nQUIT\r\n");
    peer_send(&p, junk, sizeof(junk));
    send_rest(&p);
    while (!p.ended) {
        peer_pump(&p);
        len += p.in.len;
        if (p.ended)
            break;
        buf_clear(&p.in, SIZE_MAX);
    }
    assert_int_equal(len, strlen("$1048576\r\n\r\n+BYE\r\n") + BIG_BYTES);
    peer_close(&p);
    PUMP_UNTIL(f, server_clients(f->server) == 0);
}

/* Within seconds, however long it stays. */
static void test_who_stays_is_closed(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "QUIT\r\n");
    peer_expects(&p, "+BYE\r\n");
    peer_expect_end(&p);
    assert_int_equal(server_clients(f->server), 1);
    PUMP_UNTIL(f, server_clients(f->server) == 0);
    peer_close(&p);
}

static void test_who_never_stops_is_closed(void **state)
{
    static const char chunk[65536];
    struct fixture *f = *state;
    size_t sent = 0;
    ssize_t n;
    struct peer p;

    peer_connect(&p, f, 0);
    peer_puts(&p, "*x\r\n");
    do {
        fixture_turn(f);
        n = write(p.fd, chunk, sizeof(chunk));
        sent += n > 0 ? (size_t)n : 0;
        assert_true(sent < MOST_BYTES);
    } while (n > 0 || errno == EAGAIN);
    PUMP_UNTIL(f, server_clients(f->server) == 0);
    peer_close(&p);
}

static void test_nobody_is_waited_for_at_the_end(void **state)
{
    struct fixture *f = *state;
    struct peer p, idle;

    peer_connect(&idle, f, 0);
    peer_puts(&idle, "PING\r\n");
    peer_expects(&idle, "+PONG\r\n");
    peer_connect(&p, f, 0);
    peer_puts(&p, "QUIT\r\n");
    peer_expects(&p, "+BYE\r\n");
    peer_expect_end(&p);
    server_finish_clients(f->server);
    fixture_turn(f);
    assert_int_equal(server_clients(f->server), 0);
    peer_close(&p);
    peer_close(&idle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(test_who_sends_on_reads_the_error),
        SERVER_TEST(test_replies_before_quit_arrive),
        SERVER_TEST(test_who_stays_is_closed),
        SERVER_TEST(test_who_never_stops_is_closed),
        SERVER_TEST(test_nobody_is_waited_for_at_the_end),
    };

    return cmocka_run_group_tests_name("server_linger", tests, NULL, NULL);
}
