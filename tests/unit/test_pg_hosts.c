/* SPDX-License-Identifier: MIT */
/* The lists that libpq gets, with a resolver of the test's own: it must come
 * before the real one at link time. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "adapters/pg_hosts.h"
#include "adapters/resolve.h"

static struct {
    char host[64];
    resolve_cb cb;
    void *arg;
    int cancelled;
} pending;

struct resolve *resolve_start(struct uv_loop_s *loop, const char *host,
                              int port, unsigned timeout_ms, resolve_cb cb,
                              void *arg)
{
    (void)loop;
    assert_int_equal(port, 0);
    assert_int_equal(timeout_ms, 500);
    assert_null(pending.cb);
    snprintf(pending.host, sizeof(pending.host), "%s", host);
    pending.cb = cb;
    pending.arg = arg;
    return (struct resolve *)(void *)&pending;
}

void resolve_cancel(struct resolve *r)
{
    if (r)
        pending.cancelled++;
}

/* `host` is being looked up; it has these addresses. */
static void answer(const char *host, const char *first, const char *second)
{
    struct resolve_result result = {.n = (first != NULL) + (second != NULL)};
    resolve_cb cb = pending.cb;

    assert_non_null(cb);
    assert_string_equal(pending.host, host);
    if (first)
        snprintf(result.addresses[0], RESOLVE_ADDRESS_MAX, "%s", first);
    else
        snprintf(result.why, sizeof(result.why), "unknown");
    if (second)
        snprintf(result.addresses[1], RESOLVE_ADDRESS_MAX, "%s", second);
    pending.cb = NULL;
    cb(pending.arg, &result);
}

static int callbacks;
static char error[128];

static void on_hosts(void *arg, const char *why)
{
    (void)arg;
    callbacks++;
    snprintf(error, sizeof(error), "%s", why ? why : "");
}

static void start_with(struct pg_hosts *h, const char *names, const char *ports,
                       unsigned first)
{
    callbacks = 0;
    pending.cb = NULL;
    pending.cancelled = 0;
    pg_hosts_start(h, NULL, names, ports, first, 500, on_hosts, NULL);
}

static void start(struct pg_hosts *h, const char *names, const char *ports)
{
    start_with(h, names, ports, 0);
}

static void expect(struct pg_hosts *h, const char *host, const char *hostaddr,
                   const char *port)
{
    assert_int_equal(callbacks, 1);
    assert_string_equal(error, "");
    assert_string_equal(h->host.data, host);
    assert_string_equal(h->hostaddr.data, hostaddr);
    assert_string_equal(h->port.data, port);
    pg_hosts_cancel(h);
    pg_hosts_cancel(h);
    assert_int_equal(pending.cancelled, 0);
}

static void test_sockets_need_no_lookup(void **state)
{
    struct pg_hosts h;

    (void)state;
    start(&h, "/run/postgresql", NULL);
    expect(&h, "/run/postgresql", "", "");
    start(&h, "/a,@b,", "1,2,3");
    expect(&h, "/a,@b,", ",,", "1,2,3");
}

static void test_every_address_is_an_entry(void **state)
{
    struct pg_hosts h;

    (void)state;
    start(&h, "one,/dir,two", "5432");
    answer("one", "::1", "10.0.0.1");
    answer("two", "10.0.0.2", NULL);
    expect(&h, "one,one,/dir,two", "::1,10.0.0.1,,10.0.0.2",
           "5432,5432,5432,5432");
    start(&h, "one,two", "1,2");
    answer("one", "10.0.0.1", "10.0.0.2");
    assert_int_equal(callbacks, 0);
    answer("two", "10.0.0.3", "10.0.0.4");
    expect(&h, "one,one,two,two", "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4",
           "1,1,2,2");
}

static void test_unknown_names_are_left_out(void **state)
{
    struct pg_hosts h;

    (void)state;
    start(&h, "one,two", "1,2");
    answer("one", NULL, NULL);
    answer("two", "10.0.0.2", NULL);
    expect(&h, "two", "10.0.0.2", "2");
    start(&h, "one,two", NULL);
    answer("one", NULL, NULL);
    answer("two", NULL, NULL);
    assert_int_equal(callbacks, 1);
    assert_string_equal(error, "two: unknown");
    pg_hosts_cancel(&h);
}

static void test_another_one_first(void **state)
{
    struct pg_hosts h;

    (void)state;
    start_with(&h, "/a,/b,/c", "1,2,3", 1);
    expect(&h, "/b,/c,/a", ",,", "2,3,1");
    start_with(&h, "/a,/b,/c", "1,2,3", 5);
    expect(&h, "/c,/a,/b", ",,", "3,1,2");
    start_with(&h, "/a,/b,/c", "1,2,3", 3);
    expect(&h, "/a,/b,/c", ",,", "1,2,3");
    start_with(&h, "/a", NULL, 7);
    expect(&h, "/a", "", "");
    start_with(&h, "/a,,", "", 1);
    expect(&h, ",,/a", ",,", ",,");
    /* Counted are the addresses, not the names. */
    start_with(&h, "one,/b", "1,2", 1);
    answer("one", "::1", "10.0.0.1");
    expect(&h, "one,/b,one", "10.0.0.1,,::1", "1,2,1");
}

static void test_addresses_are_given(void **state)
{
    struct pg_hosts h;

    (void)state;
    callbacks = 1; /* none is made */
    pg_hosts_given(&h, "a,b,c", "1.1.1.1,2.2.2.2,3.3.3.3", "1,2,3", 4);
    expect(&h, "b,c,a", "2.2.2.2,3.3.3.3,1.1.1.1", "2,3,1");
    pg_hosts_given(&h, "a", "::1", "1", 5);
    expect(&h, "a", "::1", "1");
    pg_hosts_given(&h, NULL, "1.1.1.1,2.2.2.2", "5432", 1);
    assert_null(h.host.data);
    assert_string_equal(h.hostaddr.data, "2.2.2.2,1.1.1.1");
    assert_null(h.port.data);
    pg_hosts_cancel(&h);
    pg_hosts_given(&h, "a", "1.1.1.1,2.2.2.2", NULL, 1);
    assert_null(h.host.data);
    assert_null(h.port.data);
    pg_hosts_cancel(&h);
}

static void test_cancel(void **state)
{
    struct pg_hosts h;

    (void)state;
    start(&h, "/dir,one", NULL);
    pg_hosts_cancel(&h);
    assert_int_equal(pending.cancelled, 1);
    assert_int_equal(callbacks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sockets_need_no_lookup),
        cmocka_unit_test(test_every_address_is_an_entry),
        cmocka_unit_test(test_unknown_names_are_left_out),
        cmocka_unit_test(test_another_one_first),
        cmocka_unit_test(test_addresses_are_given),
        cmocka_unit_test(test_cancel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
