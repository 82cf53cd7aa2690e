/* SPDX-License-Identifier: MIT */
/* Addresses: every spelling, canonical form, what is local, what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "core/address.h"

static const struct {
    const char *text;
    const char *canonical;
    bool local;
} GOOD[] = {
    {"unix:/run/a.sock", "unix:/run/a.sock", true},
    {"unix:/with:colon", "unix:/with:colon", true},
    {"tcp:127.0.0.1:6379", "tcp:127.0.0.1:6379", true},
    {"127.0.0.1:9480", "tcp:127.0.0.1:9480", true},
    {"tcp:127.9.8.7:1", "tcp:127.9.8.7:1", true},
    {"tcp:localhost:65535", "tcp:localhost:65535", true},
    {"LocalHost:80", "tcp:LocalHost:80", true},
    {"tcp:[::1]:6379", "tcp:[::1]:6379", true},
    {"[::1]:6379", "tcp:[::1]:6379", true},
    {"tcp:[0:0:0:0:0:0:0:1]:5", "tcp:[0:0:0:0:0:0:0:1]:5", true},
    {"tls:127.0.0.1:6379", "tls:127.0.0.1:6379", true},
    {"tcp:0.0.0.0:6379", "tcp:0.0.0.0:6379", false},
    {"tcp:[::]:6379", "tcp:[::]:6379", false},
    {"tcp:[::ffff:127.0.0.1]:7", "tcp:[::ffff:127.0.0.1]:7", false},
    {"tcp:[::1%lo]:7", "tcp:[::1%lo]:7", false},
    {"tcp:0:7", "tcp:0:7", false},
    {"tcp:2130706433:7", "tcp:2130706433:7", false},
    {"tcp:localhost.:7", "tcp:localhost.:7", false},
    {"tcp:[fe80::1%eth0]:7", "tcp:[fe80::1%eth0]:7", false},
    {"tcp:128.0.0.1:1", "tcp:128.0.0.1:1", false},
    {"tcp:127.example.com:1", "tcp:127.example.com:1", false},
    {"tcp:127.1:1", "tcp:127.1:1", false},
    {"tcp:localhost.example.com:1", "tcp:localhost.example.com:1", false},
    {"redis_1.example.com:06379", "tcp:redis_1.example.com:6379", false},
    {"tls:redis.example.com:6380", "tls:redis.example.com:6380", false},
};

static void test_good(void **state)
{
    char out[ADDRESS_TEXT_MAX], again[ADDRESS_TEXT_MAX];
    struct address a;
    const char *why;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++) {
        print_message("%s\n", GOOD[i].text);
        assert_int_equal(address_parse(GOOD[i].text, &a, &why), 0);
        address_format(&a, out, sizeof(out));
        assert_string_equal(out, GOOD[i].canonical);
        assert_int_equal(address_is_local(&a), GOOD[i].local);
        assert_int_equal(address_parse(out, &a, &why), 0);
        address_format(&a, again, sizeof(again));
        assert_string_equal(again, out);
    }
}

static const struct {
    const char *text;
    const char *why;
} BAD[] = {
    {"", "expected unix:/path or tcp:host:port"},
    {"localhost", "expected unix:/path or tcp:host:port"},
    {"/run/a.sock", "expected unix:/path or tcp:host:port"},
    {"unix:", "expected unix: and an absolute path"},
    {"unix:/", "expected unix: and an absolute path"},
    {"unix:run/a.sock", "expected unix: and an absolute path"},
    {"tcp:localhost", "expected unix:/path or tcp:host:port"},
    {"tcp:localhost:", "expected a port from 1 to 65535"},
    {"tcp:localhost:0", "expected a port from 1 to 65535"},
    {"tcp:localhost:65536", "expected a port from 1 to 65535"},
    {"tcp:localhost:-1", "expected a port from 1 to 65535"},
    {"tcp:localhost:80x", "expected a port from 1 to 65535"},
    {"tcp::6379", "expected a host name of 1 to 255 bytes before the port"},
    {"tcp:[]:6379", "expected a host name of 1 to 255 bytes before the port"},
    {"tcp:::1:6379",
     "expected unix:/path or tcp:host:port, with an IPv6 address in [ ]"},
    {"::1:6379",
     "expected unix:/path or tcp:host:port, with an IPv6 address in [ ]"},
    {"http:localhost:80",
     "expected unix:/path or tcp:host:port, with an IPv6 address in [ ]"},
    {"tcp:[localhost]:1", "expected an IPv6 address in [ ]"},
    {"tcp:[::1%]x]:1", "expected an IPv6 address in [ ]"},
    {"tcp:a b:1", "expected a host name or IP address"},
    {"tcp:a/b:1", "expected a host name or IP address"},
    {"tls:.example.com:1", "expected a host name or IP address"},
};

static void test_bad(void **state)
{
    struct address a = {.port = 77};
    const char *why;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        print_message("%s\n", BAD[i].text);
        why = NULL;
        assert_int_equal(address_parse(BAD[i].text, &a, &why), -1);
        assert_string_equal(why, BAD[i].why);
        assert_int_equal(a.port, 77);
    }
}

/* "unix:/xxx" with a path of `len` bytes. */
static int parse_path_of(size_t len, struct address *a, const char **why)
{
    char text[400] = "unix:/";

    memset(text + 6, 'x', len - 1);
    text[5 + len] = '\0';
    return address_parse(text, a, why);
}

static void test_lengths(void **state)
{
    char text[400], out[ADDRESS_TEXT_MAX];
    struct address a;
    const char *why;

    (void)state;
    assert_int_equal(parse_path_of(107, &a, &why), 0);
    assert_int_equal(strlen(a.path), 107);
    assert_int_equal(parse_path_of(108, &a, &why), -1);
    assert_string_equal(why, "expected a socket path of at most 107 bytes");
    memset(text, 'h', 256);
    snprintf(text + 255, 10, ":1234");
    assert_int_equal(address_parse(text, &a, &why), 0);
    address_format(&a, out, sizeof(out));
    assert_int_equal(strlen(out), 4 + 255 + 5);
    memset(text, 'h', 256);
    snprintf(text + 256, 10, ":1234");
    assert_int_equal(address_parse(text, &a, &why), -1);
}

static void test_format_is_bounded(void **state)
{
    struct address a;
    const char *why;
    char out[8] = "#######";

    (void)state;
    assert_int_equal(address_parse("tcp:localhost:6379", &a, &why), 0);
    address_format(&a, out, 5);
    assert_memory_equal(out, "tcp:\0##", 8);
}

static void test_no_name(void **state)
{
    static const char *const good[] = {
        "127.0.0.1", "127.0.0.1:9480", "localhost", "LocalHost:80",
        "[::1]",     "[::1]:9480",     "8.8.8.8:1", "localhost:"};
    static const char *const bad[] = {"",
                                      ":9480",
                                      "evil.example",
                                      "127.0.0.1.evil",
                                      "127.0.0.1x",
                                      "127.1",
                                      "localhost.evil:1",
                                      "localhost.",
                                      "::1",
                                      "[::1",
                                      "[::1]x",
                                      "[localhost]",
                                      "[127.0.0.1]",
                                      "[]",
                                      "localhost:80x",
                                      "a@127.0.0.1",
                                      "127.0.0.1:80@evil.example",
                                      "[::1]evil.example:80"};
    char lengthy[2000];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(address_is_no_name(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (address_is_no_name(bad[i]))
            fail_msg("%s", bad[i]);
    memset(lengthy, '1', sizeof(lengthy));
    lengthy[sizeof(lengthy) - 1] = '\0';
    assert_false(address_is_no_name(lengthy));
    lengthy[0] = '[';
    assert_false(address_is_no_name(lengthy));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_no_name),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_format_is_bounded),
    };

    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
