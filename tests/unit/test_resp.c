/* SPDX-License-Identifier: MIT */
/* Requests: every case is parsed whole, cut in two at every byte, and byte by
 * byte. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/compiler.h"
#include "resp_stream.h"

static const struct resp_limits roomy = {
    .max_args = 1024 * 1024,
    .max_arg_bytes = 512 * 1024 * 1024,
    .max_inline = 64 * 1024,
    .max_request = SIZE_MAX,
};

static const struct resp_limits tight = {
    .max_args = 3,
    .max_arg_bytes = 5,
    .max_inline = 16,
    .max_request = 40,
};

static const struct resp_limits before_auth = {
    .max_args = 10,
    .max_arg_bytes = 16 * 1024,
    .max_inline = 64 * 1024,
    .max_request = 1024 * 1024,
    .unauthenticated = true,
};

static void check_whole(const struct resp_limits *limits, const char *in,
                        size_t len, const char *expected)
{
    struct stream s;
    stream_open(&s, limits);
    stream_feed(&s, in, len);
    assert_string_equal(buf_cstr(&s.out), expected);
    stream_close(&s);
}

static void check_cut(const struct resp_limits *limits, const char *in,
                      size_t len, const char *expected)
{
    for (size_t cut = 0; cut <= len; cut++) {
        struct stream s;
        stream_open(&s, limits);
        stream_feed(&s, in, cut);
        stream_feed(&s, in, len);
        assert_string_equal(buf_cstr(&s.out), expected);
        stream_close(&s);
    }
}

static void check_bytes(const struct resp_limits *limits, const char *in,
                        size_t len, const char *expected)
{
    struct stream s;
    stream_open(&s, limits);
    for (size_t n = 0; n <= len; n++)
        stream_feed(&s, in, n);
    assert_string_equal(buf_cstr(&s.out), expected);
    stream_close(&s);
}

static void check(const struct resp_limits *limits, const char *in, size_t len,
                  const char *expected)
{
    check_whole(limits, in, len, expected);
    check_cut(limits, in, len, expected);
    check_bytes(limits, in, len, expected);
}

struct request_case {
    const char *in;
    size_t len;
    const char *expected;
};

#define CASE(in, expected) {in, sizeof(in) - 1, expected}

static void check_cases(const struct resp_limits *limits,
                        const struct request_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check(limits, cases[i].in, cases[i].len, cases[i].expected);
}

static void test_arrays(void **state)
{
    static const struct request_case cases[] = {
        CASE("", ""),
        CASE("*1\r\n$4\r\nPING\r\n", "[PING]"),
        CASE("*3\r\n$4\r\nLIKE\r\n$1\r\n7\r\n$2\r\n42\r\n", "[LIKE,7,42]"),
        CASE("*2\r\n$1\r\na\r\n$0\r\n\r\n", "[a,]"),
        CASE("*2\r\n$1\r\na\r\n$4\r\n\r\n\0*\r\n", "[a,\\0d\\0a\\00*]"),
        CASE("*1\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n*1\r\n$1", "[a][b]"),
        CASE("*0\r\n", "()"),
        CASE("*-1\r\n", "()"),
        CASE("*0\r\n*-1\r\n*1\r\n$1\r\nx\r\n", "()()[x]"),
        CASE("*1\r\n$4\r\nPOST\r\n", "[POST]"),
    };
    (void)state;
    check_cases(&roomy, cases, ARRAY_LEN(cases));
}

static void test_inline(void **state)
{
    static const struct request_case cases[] = {
        CASE("PING\r\n", "[PING]"),
        CASE("PING\n", "[PING]"),
        CASE("  LIKE \t7   42 \r\n", "[LIKE,7,42]"),
        CASE("\r\n", "()"),
        CASE("\n \n", "()()"),
        CASE("a\n\nb\n", "[a]()[b]"),
        CASE("a\n*1\r\n$1\r\nb\r\nc\r\n", "[a][b][c]"),
        CASE("echo \"a b\"\r\n", "[echo,a\\20b]"),
        CASE("echo \"\" ''\n", "[echo,,]"),
        CASE("\"\\n\\r\\t\\b\\a\\x00\\xFf\\q\\\"\\\\\"\n",
             "[\\0a\\0d\\09\\08\\07\\00\\ffq\"\\5c]"),
        CASE("\"\\x4\" \"\\xg0\" \"\\x4G\"\n", "[x4,xg0,x4G]"),
        CASE("'a\\nb' 'it\\'s' '\"'\n", "[a\\5cnb,it's,\"]"),
        CASE("pre\"fix\" pre'fix'\n", "[prefix,prefix]"),
        CASE("back\\slash\n", "[back\\5cslash]"),
        CASE("$1\r\n", "[$1]"),
        CASE("POSTER x\n", "[POSTER,x]"),
        CASE("Hostess\n", "[Hostess]"),
    };
    (void)state;
    check_cases(&roomy, cases, ARRAY_LEN(cases));
}

#define UNBALANCED "!Protocol error: unbalanced quotes in request"
#define BAD_COUNT  "!Protocol error: invalid multibulk length"
#define BAD_BULK   "!Protocol error: invalid bulk length"
#define MANY_ARGS  "!Protocol error: too many arguments (server.max_args)"
#define LONG_ARG   "!Protocol error: too long an argument (server.max_arg_bytes)"

static void test_errors(void **state)
{
    static const struct request_case cases[] = {
        CASE("\"a\n", UNBALANCED),
        CASE("'a\n", UNBALANCED),
        CASE("a \"b\"c\n", UNBALANCED),
        CASE("a 'b'c\n", UNBALANCED),
        CASE("a \"b\\\"\n", UNBALANCED),
        CASE("\"a\\\n", UNBALANCED),
        CASE("x\n\"a\r\n", "[x]" UNBALANCED),
        CASE("*\r\n", BAD_COUNT),
        CASE("*x\r\n", BAD_COUNT),
        CASE("* 1\r\n", BAD_COUNT),
        CASE("*+1\r\n", BAD_COUNT),
        CASE("*01\r\n", BAD_COUNT),
        CASE("*-0\r\n", BAD_COUNT),
        CASE("*1\r\n$01\r\n", BAD_BULK),
        CASE("*1\n$1\r\n", BAD_COUNT),
        CASE("*\n", BAD_COUNT),
        CASE("*2147483648\r\n", BAD_COUNT),
        CASE("*1048577\r\n", MANY_ARGS),
        CASE("*9223372036854775808\r\n", BAD_COUNT),
        CASE("*1\r\n:1\r\n", "!Protocol error: expected '$', got ':'"),
        CASE("*1\r\n ", "!Protocol error: expected '$', got ' '"),
        CASE("*1\r\n~", "!Protocol error: expected '$', got '~'"),
        CASE("*1\r\n\x7f", "!Protocol error: expected '$', got '\x7f'"),
        CASE("*1\r\n\r\n", "!Protocol error: expected '$', got '\r'"),
        CASE("*1\r\n\xff", "!Protocol error: expected '$', got '\xff'"),
        CASE("*2\r\n$1\r\na\r\n*", "!Protocol error: expected '$', got '*'"),
        CASE("*1\r\n$-1\r\n", BAD_BULK),
        CASE("*1\r\n$\r\n", BAD_BULK),
        CASE("*1\r\n$1x\r\n", BAD_BULK),
        CASE("*1\r\n$1\na\r\n", BAD_BULK),
        CASE("*1\r\n$\n", BAD_BULK),
        CASE("*1\r\n$536870913\r\n", LONG_ARG),
        CASE("*1\r\n$9223372036854775807\r\n", LONG_ARG),
        CASE("*1\r\n$9223372036854775808\r\n", BAD_BULK),
        CASE("*1\r\n$1\r\nab\r\n", "!Protocol error: expected CRLF after bulk"),
        CASE("*1\r\n$1\r\na\n\n", "!Protocol error: expected CRLF after bulk"),
    };
    (void)state;
    check_cases(&roomy, cases, ARRAY_LEN(cases));
}

static void test_attack(void **state)
{
    static const struct request_case cases[] = {
        CASE("POST / HTTP/1.1\r\n", "!!"),
        CASE("post /\n", "!!"),
        CASE("POST\r\n", "!!"),
        CASE("Host: localhost:6480\r\n", "!!"),
        CASE("hOsT:x", "!!"),
        CASE("POST\n", "!!"),
        CASE("Host:", "!!"),
        CASE("GET / HTTP/1.1\r\nHost: a\r\n", "[GET,/,HTTP/1.1]!!"),
    };
    (void)state;
    check_cases(&roomy, cases, ARRAY_LEN(cases));
}

#define BIG_INLINE "!Protocol error: too big inline request"
#define BIG_COUNT  "!Protocol error: too big mbulk count string"
#define BIG_BULK   "!Protocol error: too big bulk count string"

/* Each limit, at it and one above. */
static void test_limits(void **state)
{
    static const struct request_case cases[] = {
        CASE("*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", "[a,b,c]"),
        CASE("*4\r\n", MANY_ARGS),
        CASE("a b c\n", "[a,b,c]"),
        CASE("a b c d\n", BIG_INLINE),
        CASE("*1\r\n$5\r\nabcde\r\n", "[abcde]"),
        CASE("*1\r\n$6\r\n", LONG_ARG),
        CASE("abcde\n", "[abcde]"),
        CASE("abcdef\n", BIG_INLINE),
        CASE("abcde fghi jk\r\n", "[abcde,fghi,jk]"),
        CASE("abcde fghi  jk\r\n", "[abcde,fghi,jk]"),
        CASE("abcde fghi   jk\r\n", BIG_INLINE),
        CASE("                 ", BIG_INLINE),
        CASE("*0000000000001\r\n", BAD_COUNT),
        CASE("*00000000000001\r\n", BIG_COUNT),
        CASE("*0000000000000000", BIG_COUNT),
        CASE("*1\r\n$0000000000001\r\n", BAD_BULK),
        CASE("*1\r\n$00000000000001\r\n", BIG_BULK),
        CASE("*1\r\n$0000000000000000", BIG_BULK),
    };
    (void)state;
    check_cases(&tight, cases, ARRAY_LEN(cases));
}

static void test_limits_before_auth(void **state)
{
    static const struct request_case cases[] = {
        CASE("*10\r\n", ""),
        CASE("*11\r\n", "!Protocol error: unauthenticated multibulk length"),
        CASE("*2147483648\r\n", BAD_COUNT),
        CASE("*1\r\n$16384\r\n", ""),
        CASE("*1\r\n$16385\r\n",
             "!Protocol error: unauthenticated bulk length"),
        CASE("*1\r\n$-1\r\n", BAD_BULK),
    };
    (void)state;
    check_cases(&before_auth, cases, ARRAY_LEN(cases));
}

/* max_request at the edge of what size_t holds must not wrap around. */
static void test_request_limit_counts_all_arguments(void **state)
{
    static const char in[] = "*2\r\n$4\r\nabcd\r\n$4\r\nabcd\r\n";
    struct resp_limits limits = roomy;
    (void)state;
    limits.max_request = sizeof(in) - 1;
    check(&limits, in, sizeof(in) - 1, "[abcd,abcd]");
    limits.max_request--;
    check(&limits, in, sizeof(in) - 1, "!Protocol error: too big request");
    limits.max_request = 3;
    check(&limits, in, sizeof(in) - 1, "!Protocol error: too big request");
    limits.max_request = 10;
    check(&limits, "*1\r\n$0\r\n\r\n", 10, "[]");
    limits.max_request = SIZE_MAX;
    limits.max_arg_bytes = SIZE_MAX;
    check(&limits, "*1\r\n$9223372036854775807\r\nx", 27, "");
}

static void test_announced_sizes_take_no_memory(void **state)
{
    static const char in[] = "*1048576\r\n$536870912\r\n";
    struct resp_parser p;
    (void)state;
    resp_parser_init(&p);
    assert_int_equal(resp_parse(&p, &roomy, in, sizeof(in) - 1), RESP_MORE);
    assert_int_equal(p.cap, 0);
    assert_int_equal(p.text.cap, 0);
    resp_parser_free(&p);
}

static void put_args(struct buf *b, int n)
{
    for (int i = 0; i < n; i++)
        buf_puts(b, "$1\r\nx\r\n");
}

/* A parser that looked at finished arguments or at a line again for each byte
 * would take hours here. */
static void test_byte_by_byte_is_linear(void **state)
{
    enum { ARGS = 50 * 1000, LINE = 60 * 1000 };
    struct buf in = {0};
    struct resp_parser p;
    (void)state;
    buf_printf(&in, "*%d\r\n", ARGS);
    put_args(&in, ARGS);
    resp_parser_init(&p);
    for (size_t n = 0; n < in.len; n++)
        assert_int_equal(resp_parse(&p, &roomy, in.data, n), RESP_MORE);
    assert_in_range(p.cap, ARGS - 1, 2 * ARGS);
    assert_int_equal(resp_parse(&p, &roomy, in.data, in.len), RESP_REQUEST);
    assert_int_equal(p.argc, ARGS);

    buf_clear(&in, in.cap);
    for (int i = 0; i < LINE; i++)
        buf_putc(&in, 'x');
    for (size_t n = 0; n <= in.len; n++)
        assert_int_equal(resp_parse(&p, &roomy, in.data, n), RESP_MORE);
    assert_int_equal(p.scan, in.len);
    resp_parser_free(&p);
    buf_free(&in);
}

static void test_memory_is_given_back(void **state)
{
    struct buf in = {0};
    struct resp_parser p;
    (void)state;
    resp_parser_init(&p);
    buf_printf(&in, "*%d\r\n", 1000);
    put_args(&in, 1000);
    assert_int_equal(resp_parse(&p, &roomy, in.data, in.len), RESP_REQUEST);
    assert_true(p.cap >= 1000);
    assert_int_equal(resp_parse(&p, &roomy, in.data, 0), RESP_MORE);
    assert_true(p.cap <= 16);

    buf_clear(&in, in.cap);
    for (int i = 0; i < 10000; i++)
        buf_putc(&in, 'x');
    buf_putc(&in, '\n');
    assert_int_equal(resp_parse(&p, &roomy, in.data, in.len), RESP_REQUEST);
    assert_true(p.text.cap >= 10000);
    assert_int_equal(resp_parse(&p, &roomy, in.data, 0), RESP_MORE);
    assert_true(p.text.cap <= 1024);
    resp_parser_free(&p);
    buf_free(&in);
}

static void test_arg_is(void **state)
{
    struct resp_arg a = {"LiKeRS", 4};
    (void)state;
    assert_true(resp_arg_is(&a, "LIKE"));
    assert_false(resp_arg_is(&a, "LIKERS"));
    assert_false(resp_arg_is(&a, "LIK"));
    assert_false(resp_arg_is(&a, "LIKE\n"));
    a.len = 0;
    assert_false(resp_arg_is(&a, "LIKE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_inline),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_attack),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_limits_before_auth),
        cmocka_unit_test(test_request_limit_counts_all_arguments),
        cmocka_unit_test(test_announced_sizes_take_no_memory),
        cmocka_unit_test(test_byte_by_byte_is_linear),
        cmocka_unit_test(test_memory_is_given_back),
        cmocka_unit_test(test_arg_is),
    };
    return cmocka_run_group_tests_name("resp", tests, NULL, NULL);
}
