/* SPDX-License-Identifier: MIT */
/* The lowest layer: buffers, lists, the map against an oracle, numbers,
 * backoff, random numbers and the log. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/utf8.h"

/* A fixed sequence: what fails once fails again. */
static uint64_t test_rng = UINT64_C(0x9e3779b97f4a7c15);

static unsigned pick(unsigned below)
{
    test_rng ^= test_rng << 13;
    test_rng ^= test_rng >> 7;
    test_rng ^= test_rng << 17;
    return (unsigned)(test_rng >> 33) % below;
}

/* ---- buf ---- */

static void test_buf_append(void **state)
{
    struct buf b = {0};

    (void)state;
    assert_string_equal(buf_cstr(&b), "");
    buf_append(&b, NULL, 0);
    assert_int_equal(b.len, 0);
    buf_append(&b, "ab\0c", 4);
    buf_puts(&b, "de");
    buf_putc(&b, 'f');
    assert_int_equal(b.len, 7);
    assert_memory_equal(b.data, "ab\0cdef", 7);
    assert_int_equal(buf_cstr(&b)[7], '\0');
    assert_int_equal(b.len, 7);
    buf_free(&b);
    assert_null(b.data);
    assert_int_equal(b.cap, 0);
}

static void test_buf_reserve(void **state)
{
    struct buf b = {0};

    (void)state;
    assert_non_null(buf_reserve(&b, 0));
    for (int i = 0; i < 1000; i++) {
        char *to = buf_reserve(&b, 100);

        assert_ptr_equal(to, b.data + b.len);
        assert_true(b.cap - b.len >= 100);
        memset(to, 'a' + i % 26, 100);
        b.len += 100;
    }
    for (size_t i = 0; i < b.len; i++)
        assert_int_equal(b.data[i], (char)('a' + (int)(i / 100) % 26));
    assert_true(b.cap <= 2 * b.len);
    buf_free(&b);
}

/* Every length around the sizes at which the buffer grows. */
static void test_buf_printf(void **state)
{
    char text[300];

    (void)state;
    for (size_t len = 0; len < sizeof(text); len++) {
        struct buf b = {0};

        memset(text, 'x', len);
        text[len] = '\0';
        buf_puts(&b, "<");
        buf_printf(&b, "%s|%d", text, 42);
        assert_int_equal(b.len, len + 4);
        assert_memory_equal(b.data + 1, text, len);
        assert_memory_equal(b.data + 1 + len, "|42", 3);
        buf_free(&b);
    }
}

static void test_buf_integers(void **state)
{
    static const int64_t VALUES[] = {0,  1,   -1,  9,         10,       -10,
                                     99, 100, -99, INT64_MAX, INT64_MIN};
    struct buf b = {0};
    char expected[32];

    (void)state;
    buf_put_be16(&b, 0x0102);
    buf_put_be32(&b, 0xfffefdfcu);
    buf_put_be64(&b, UINT64_C(0x1122334455667788));
    assert_int_equal(b.len, 14);
    assert_memory_equal(
        b.data, "\x01\x02\xff\xfe\xfd\xfc\x11\x22\x33\x44\x55\x66\x77\x88", 14);
    for (size_t i = 0; i < ARRAY_LEN(VALUES); i++) {
        buf_clear(&b, 0);
        buf_put_i64(&b, VALUES[i]);
        snprintf(expected, sizeof(expected), "%" PRId64, VALUES[i]);
        assert_string_equal(buf_cstr(&b), expected);
    }
    buf_free(&b);
}

static void test_buf_consume_and_clear(void **state)
{
    struct buf b = {0};

    (void)state;
    buf_consume(&b, 0);
    buf_puts(&b, "hello world");
    buf_consume(&b, 6);
    assert_string_equal(buf_cstr(&b), "world");
    buf_consume(&b, 5);
    assert_int_equal(b.len, 0);
    buf_reserve(&b, 5000);
    buf_clear(&b, 100000);
    assert_true(b.cap >= 5000);
    buf_puts(&b, "x");
    buf_clear(&b, 100);
    assert_int_equal(b.len, 0);
    assert_int_equal(b.cap, 100);
    buf_puts(&b, "y");
    assert_string_equal(buf_cstr(&b), "y");
    buf_clear(&b, 0);
    assert_null(b.data);
    assert_int_equal(b.cap, 0);
    buf_free(&b);
}

/* ---- mem ---- */

static void test_mem(void **state)
{
    char *zeroed = mem_zalloc(64);
    char *copy = mem_strndup("a\0b", 3);
    void *nothing = mem_alloc(0);

    (void)state;
    for (int i = 0; i < 64; i++)
        assert_int_equal(zeroed[i], 0);
    assert_memory_equal(copy, "a\0b", 4);
    assert_non_null(nothing);
    zeroed = mem_realloc(zeroed, 0);
    assert_non_null(zeroed);
    free(copy);
    copy = mem_strdup("like");
    assert_string_equal(copy, "like");
    free(nothing);
    free(zeroed);
    free(copy);
}

/* ---- list ---- */

struct item {
    int n;
    struct list link;
};

static int list_digits(struct list *head)
{
    int digits = 0;

    LIST_FOREACH(it, head)
        digits = digits * 10 + LIST_ENTRY(it, struct item, link)->n;
    return digits;
}

static void test_list(void **state)
{
    struct item items[5] = {{.n = 1}, {.n = 2}, {.n = 3}, {.n = 4}, {.n = 5}};
    struct list head, other;

    (void)state;
    list_init(&head);
    list_init(&other);
    assert_true(list_empty(&head));
    assert_null(list_pop_front(&head));
    list_push_back(&head, &items[0].link);
    list_push_back(&head, &items[1].link);
    list_push_front(&head, &items[2].link);
    assert_int_equal(list_digits(&head), 312);
    list_remove(&items[0].link);
    list_remove(&items[0].link); /* harmless */
    assert_int_equal(list_digits(&head), 32);
    list_splice_back(&head, &other);
    assert_int_equal(list_digits(&head), 32);
    list_push_back(&other, &items[3].link);
    list_push_back(&other, &items[4].link);
    list_splice_back(&head, &other);
    assert_true(list_empty(&other));
    assert_int_equal(list_digits(&head), 3245);
    LIST_FOREACH_SAFE(it, &head) {
        if (LIST_ENTRY(it, struct item, link)->n % 2 == 0)
            list_remove(it);
    }
    assert_int_equal(list_digits(&head), 35);
    assert_ptr_equal(list_pop_front(&head), &items[2].link);
    assert_ptr_equal(list_pop_front(&head), &items[4].link);
    assert_true(list_empty(&head));
}

/* ---- map ---- */

enum { MAP_KEYS = 3000, MAP_STEPS = 200000 };

struct entry {
    struct map_node node;
    char key[16];
    size_t key_len;
    bool in;
};

static struct entry map_entries[MAP_KEYS];

/* Keys of all lengths, some with a NUL inside, some prefixes of others. */
static void make_keys(void)
{
    for (unsigned i = 0; i < MAP_KEYS; i++) {
        struct entry *e = &map_entries[i];

        memset(e, 0, sizeof(*e));
        e->key_len = (size_t)snprintf(e->key, sizeof(e->key), "%u", i);
        if (i % 3 == 0)
            e->key_len += 1 + i % 9; /* NULs at the end */
    }
    map_entries[1].key_len = 0;
}

static void map_step(struct map *m, struct entry *e, size_t *count)
{
    struct map_node *found = map_find(m, e->key, e->key_len);

    assert_ptr_equal(found, e->in ? &e->node : NULL);
    if (e->in) {
        map_remove(m, &e->node);
        --*count;
    } else {
        map_insert(m, &e->node, e->key, e->key_len);
        ++*count;
    }
    e->in = !e->in;
    assert_int_equal(m->count, *count);
}

static void assert_map_holds(const struct map *m)
{
    for (unsigned i = 0; i < MAP_KEYS; i++) {
        struct entry *e = &map_entries[i];

        assert_ptr_equal(map_find(m, e->key, e->key_len),
                         e->in ? &e->node : NULL);
    }
}

/* The window of keys in use widens and narrows, so that it grows and shrinks
 * several times. */
static void test_map_against_oracle(void **state)
{
    struct map m = {0};
    size_t count = 0, most = 0;

    (void)state;
    make_keys();
    assert_null(map_find(&m, "x", 1));
    for (unsigned i = 0; i < MAP_STEPS; i++) {
        map_step(&m, &map_entries[pick(i / 20000 % 2 ? 40 : MAP_KEYS)], &count);
        most = m.n_buckets > most ? m.n_buckets : most;
        if (i % 10000 == 0)
            assert_map_holds(&m);
    }
    assert_true(most >= 1024);
    for (unsigned i = 0; i < MAP_KEYS; i++) {
        if (map_entries[i].in)
            map_step(&m, &map_entries[i], &count);
    }
    assert_int_equal(m.count, 0);
    assert_true(m.n_buckets <= 16);
    map_free(&m);
    assert_null(m.buckets);
    assert_null(map_find(&m, "x", 1));
}

static void test_map_spreads(void **state)
{
    struct map m = {0};
    unsigned longest = 0;

    (void)state;
    make_keys();
    for (unsigned i = 0; i < MAP_KEYS; i++)
        map_insert(&m, &map_entries[i].node, map_entries[i].key,
                   map_entries[i].key_len);
    assert_true(m.n_buckets >= MAP_KEYS);
    for (size_t i = 0; i < m.n_buckets; i++) {
        unsigned length = 0;

        for (struct map_node *n = m.buckets[i]; n; n = n->next)
            length++;
        longest = length > longest ? length : longest;
    }
    /* 3000 balls in 4096 bins: 12 in one has a chance below 10^-9. */
    assert_in_range(longest, 1, 12);
    map_free(&m);
}

/* ---- num ---- */

static void assert_i64(const char *s, int64_t expected)
{
    int64_t v = 77;

    assert_int_equal(num_parse_i64(s, strlen(s), &v), 0);
    assert_true(v == expected);
}

static void test_num_i64(void **state)
{
    static const char *const BAD[] = {"",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1a",
                                      "0x1",
                                      "1.0",
                                      "--1",
                                      "-+1",
                                      "1e3",
                                      "\t1",
                                      "1\n",
                                      "９",
                                      "1-1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "18446744073709551616",
                                      "99999999999999999999999999"};
    int64_t v = 77;

    (void)state;
    assert_i64("0", 0);
    assert_i64("-0", 0);
    assert_i64("000000000000000000000000000000000042", 42);
    assert_i64("-007", -7);
    assert_i64("9223372036854775807", INT64_MAX);
    assert_i64("-9223372036854775808", INT64_MIN);
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_int_equal(num_parse_i64(BAD[i], strlen(BAD[i]), &v), -1);
    assert_int_equal(num_parse_i64("12\0", 3, &v), -1);
    assert_int_equal(v, 77);
    assert_int_equal(num_parse_i64("123", 2, &v), 0); /* len rules */
    assert_int_equal(v, 12);
    assert_int_equal(num_parse_i64(NULL, 0, &v), -1);
}

static void test_redis_has_one_spelling(void **state)
{
    static const char *const bad[] = {"", "-", "00", "01", "-0", "-01", "+1"};
    int64_t v;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(num_parse_redis(bad[i], strlen(bad[i]), &v), -1);
    assert_int_equal(num_parse_redis("0", 1, &v), 0);
    assert_int_equal(v, 0);
    assert_int_equal(num_parse_redis("-10", 3, &v), 0);
    assert_int_equal(v, -10);
}

static void test_num_u64(void **state)
{
    uint64_t v = 77;

    (void)state;
    assert_int_equal(num_parse_u64("18446744073709551615", 20, &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(num_parse_u64("18446744073709551616", 20, &v), -1);
    assert_int_equal(num_parse_u64("18446744073709551620", 20, &v), -1);
    assert_int_equal(num_parse_u64("-1", 2, &v), -1);
    assert_int_equal(num_parse_u64("-0", 2, &v), -1);
    assert_int_equal(num_parse_u64("", 0, &v), -1);
    assert_true(v == UINT64_MAX);
}

static void assert_time(const char *s, int64_t expected)
{
    int64_t us = 77;

    assert_int_equal(num_parse_time_us(s, strlen(s), &us), 0);
    assert_true(us == expected);
}

static void test_num_time(void **state)
{
    static const char *const BAD[] = {
        "",     ".",          ".5",           "5.",
        "-1",   "-0",         "1..2",         "1.2.3",
        "1e9",  "1 ",         "1.x",          "nan",
        "inf",  "1.0000000x", "253402300800", "99999999999999999999",
        "1.-5", "1.+5"};
    int64_t us = 77;

    (void)state;
    assert_time("0", 0);
    assert_time("1700000000", INT64_C(1700000000000000));
    assert_time("1700000000.25", INT64_C(1700000000250000));
    assert_time("1.000001", 1000001);
    assert_time("1.0000019999999", 1000001);
    assert_time("0.5", 500000);
    assert_time("253402300799", INT64_C(253402300799000000));
    assert_time("253402300799.999999", INT64_C(253402300799999999));
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_int_equal(num_parse_time_us(BAD[i], strlen(BAD[i]), &us), -1);
    assert_int_equal(us, 77);
}

static void test_num_format_grouped(void **state)
{
    static const struct {
        int64_t v;
        const char *text;
    } CASES[] = {
        {0, "0"},
        {999, "999"},
        {1000, "1,000"},
        {1204, "1,204"},
        {-999, "-999"},
        {-100000, "-100,000"},
        {12345678, "12,345,678"},
        {INT64_MAX, "9,223,372,036,854,775,807"},
        {INT64_MIN, "-9,223,372,036,854,775,808"},
    };
    char out[NUM_GROUPED_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        assert_string_equal(num_format_grouped(CASES[i].v, out), CASES[i].text);
}

static void test_num_format_time(void **state)
{
    char out[NUM_TIME_MAX];
    int64_t back;

    (void)state;
    assert_int_equal(num_format_time_us(INT64_C(1700000000000042), out), 17);
    assert_string_equal(out, "1700000000.000042");
    num_format_time_us(0, out);
    assert_string_equal(out, "0.000000");
    num_format_time_us(-1500000, out);
    assert_string_equal(out, "-1.500000");
    num_format_time_us(INT64_MIN, out);
    assert_string_equal(out, "-9223372036854.775808");
    for (int i = 0; i < 10000; i++) {
        int64_t us = (int64_t)pick(1u << 30) * 200000 + pick(1000000);
        size_t len = num_format_time_us(us, out);

        assert_int_equal(num_parse_time_us(out, len, &back), 0);
        assert_true(back == us);
    }
}

/* ---- utf8 ---- */

static void check_plain(const char *text, size_t max, const char *expected)
{
    struct buf b = {0};

    utf8_put_plain(&b, text, max);
    assert_string_equal(buf_cstr(&b), expected);
    buf_free(&b);
}

static void test_utf8_put_plain(void **state)
{
    (void)state;
    check_plain("", 0, "");
    check_plain("caf\xc3\xa9 \xf0\x9f\x91\x8d \xc2\xa0", SIZE_MAX,
                "caf\xc3\xa9 \xf0\x9f\x91\x8d \xc2\xa0");
    check_plain("a\n\tb\r", SIZE_MAX, "a  b ");
    check_plain("\033[31m\007\177\xc2\x9b", SIZE_MAX, "?[31m???");
    check_plain("\x9b\xe9t\xe9 \xc3", SIZE_MAX, "??t? ?"); /* Latin-1 */
}

static void test_utf8_put_plain_cuts_between_characters(void **state)
{
    (void)state;
    check_plain("abc", 3, "abc");
    check_plain("abcd", 3, "abc...");
    check_plain("ab\xc3\xa9", 4, "ab\xc3\xa9");
    check_plain("ab\xc3\xa9", 3, "ab...");
    check_plain("\xe2\x82\xac\xe2\x82\xac", 5, "\xe2\x82\xac...");
    check_plain("\xc3", 0, "...");
    check_plain("ab\xc3", 3, "ab?");
    check_plain("ab\033cd", 3, "ab?...");
}

/* ---- backoff and random ---- */

static void test_backoff_bounds(void **state)
{
    struct backoff b;
    bool below = false, above = false;

    (void)state;
    for (int round = 0; round < 200; round++) {
        backoff_init(&b, 100, 5000);
        for (unsigned n = 0; n < 80; n++) {
            unsigned d = n < 6 ? 100u << n : 5000u;
            unsigned ms = backoff_next_ms(&b);

            assert_in_range(ms, d / 2, d);
            below = below || ms < d - d / 4;
            above = above || ms > d - d / 4;
        }
    }
    assert_true(below && above); /* there is jitter */
    backoff_reset(&b);
    assert_in_range(backoff_next_ms(&b), 50, 100);
}

static void test_backoff_extremes(void **state)
{
    struct backoff b;

    (void)state;
    backoff_init(&b, 0, 1000);
    assert_int_equal(backoff_next_ms(&b), 0);
    backoff_init(&b, 1, 1);
    for (int i = 0; i < 100; i++)
        assert_in_range(backoff_next_ms(&b), 0, 1);
    backoff_init(&b, 5000, 100); /* the cap rules */
    assert_in_range(backoff_next_ms(&b), 50, 100);
    backoff_init(&b, UINT32_MAX, UINT32_MAX);
    b.attempt = UINT32_MAX;
    assert_in_range(backoff_next_ms(&b), UINT32_MAX / 2, UINT32_MAX);
    assert_true(b.attempt == UINT32_MAX);
}

/* Each bit of the generator is seen both set and not. */
static void test_random(void **state)
{
    uint64_t any = 0, all = UINT64_MAX, last = random_u64();

    (void)state;
    for (int i = 0; i < 200; i++) {
        uint64_t v = random_u64();

        assert_true(v != last);
        any |= v;
        all &= v;
        last = v;
    }
    assert_true(any == UINT64_MAX);
    assert_true(all == 0);
}

/* ---- clock and log ---- */

static void test_clock(void **state)
{
    uint64_t before = clock_monotonic_us();
    int64_t now_s = clock_realtime_us() / 1000000;

    (void)state;
    assert_true(clock_monotonic_us() >= before);
    assert_true(now_s > INT64_C(1600000000) && now_s < INT64_C(253402300799));
}

static void test_log_limit(void **state)
{
    struct log_limit l = {0};
    uint64_t held = 77;

    (void)state;
    assert_true(log_allow(&l, 3600000, &held));
    assert_int_equal(held, 0);
    for (int i = 0; i < 5; i++)
        assert_false(log_allow(&l, 3600000, &held));
    assert_true(log_allow(&l, 0, &held));
    assert_int_equal(held, 5);
    assert_true(log_allow(&l, 0, &held));
    assert_int_equal(held, 0);
}

/* What `write` puts on stderr, as a string. */
static void capture(void (*write_lines)(void), char *out, size_t size)
{
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    size_t len;

    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    write_lines();
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    len = fread(out, 1, size - 1, file);
    out[len] = '\0';
    fclose(file);
}

static void write_levels(void)
{
    log_set_level(LOG_LEVEL_INFO);
    log_error("flusher", "commit: %s (batch %d)", "two\nlines\x1b[31m", 7);
    log_info("pg", "connected");
    log_debug("pg", "not shown");
    log_set_level(LOG_LEVEL_ERROR);
    log_warn("pg", "not shown");
    log_set_level(LOG_LEVEL_INFO);
}

/* What follows "2026-01-02T03:04:05.678Z ". */
static const char *after_time(const char *line)
{
    struct tm tm;
    const char *ms = strptime(line, "%Y-%m-%dT%H:%M:%S", &tm);

    assert_non_null(ms);
    assert_int_equal(ms - line, 19);
    assert_int_equal(ms[0], '.');
    assert_int_equal(strspn(ms + 1, "0123456789"), 3);
    assert_memory_equal(ms + 4, "Z ", 2);
    return ms + 6;
}

static void test_log_lines(void **state)
{
    static const char FIRST[] =
        "error flusher: commit: two lines [31m (batch 7)\n";
    char out[4096];
    const char *text;

    (void)state;
    capture(write_levels, out, sizeof(out));
    text = after_time(out);
    assert_memory_equal(text, FIRST, strlen(FIRST));
    text = after_time(text + strlen(FIRST));
    assert_string_equal(text, "info  pg: connected\n");
}

static void write_foreign(void)
{
    log_error("pg", "%s", "d\xc3\xa9j\xc3\xa0 \xf0\x9f\x91\x8d \xc2\xa0.");
    log_error("pg", "%s",
              "d\xe9j\xe0 \xc2\x9b"
              "31m \x7f\x9b\t.");
    log_error("pg", "%s", "cut \xf0\x9f\x91");
}

/* The journal takes a line that is not UTF-8 for a blob. */
static void test_log_lines_are_utf8(void **state)
{
    static const char *const lines[] = {
        "error pg: d\xc3\xa9j\xc3\xa0 \xf0\x9f\x91\x8d \xc2\xa0.\n",
        "error pg: d?j? ??31m  ? .\n",
        "error pg: cut ???\n",
    };
    char out[4096];
    const char *text = out;

    (void)state;
    capture(write_foreign, out, sizeof(out));
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        text = after_time(text);
        assert_memory_equal(text, lines[i], strlen(lines[i]));
        text += strlen(lines[i]);
    }
    assert_string_equal(text, "");
}

static void write_long(void)
{
    static char text[20000];

    memset(text, 'x', sizeof(text) - 1);
    log_error("pg", "%s", text);
}

static void test_log_cuts_long_lines(void **state)
{
    char out[30000];

    (void)state;
    capture(write_long, out, sizeof(out));
    assert_in_range(strlen(out), 1000, 4096);
    assert_int_equal(out[strlen(out) - 1], '\n');
    assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
}

#ifdef LIKESYNCD_FAULTS

/* A child with a variable passes `claimed` up to three times, and other points in
 * between. Its exit status is 0 if it lives, else the negative signal. */
static int run_with(const char *variable, const char *spec, int passages)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        setenv(variable, spec, 1);
        for (int i = 0; i < passages; i++) {
            fault_point("claimed_more");
            fault_point("claim");
            fault_point("claimed");
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int run_with_fault(const char *spec, int passages)
{
    return run_with("LIKESYNCD_FAULT", spec, passages);
}

static void test_fault_point(void **state)
{
    (void)state;
    assert_int_equal(run_with_fault("claimed", 1), -SIGKILL);
    assert_int_equal(run_with_fault("claimed:3", 2), 0);
    assert_int_equal(run_with_fault("claimed:3", 3), -SIGKILL);
    assert_int_equal(run_with_fault("acked", 3), 0);
    assert_int_equal(run_with_fault("", 3), 0);
    assert_int_equal(run_with("LIKESYNCD_TERM", "claimed:2", 2), -SIGTERM);
    assert_int_equal(run_with("LIKESYNCD_TERM", "claimed:2", 1), 0);
}

static void test_fault_after(void **state)
{
    (void)state;
    setenv("LIKESYNCD_AFTER", "claim", 1);
    assert_int_equal(run_with_fault("claimed_more", 1), 0);
    assert_int_equal(run_with_fault("claimed_more", 2), -SIGKILL);
    assert_int_equal(run_with_fault("claimed", 1), -SIGKILL);
    unsetenv("LIKESYNCD_AFTER");
}

static void test_fault_variant(void **state)
{
    (void)state;
    assert_false(fault_variant("wrong"));
    setenv("LIKESYNCD_VARIANT", "wrong:3", 1);
    for (int i = 1; i <= 6; i++)
        assert_int_equal(fault_variant("wrong"), i % 3 == 0);
    assert_false(fault_variant("wron"));
    unsetenv("LIKESYNCD_VARIANT");
}

static void test_fault_edit(void **state)
{
    static const char text[] = "one two three two";
    static const char other[] = "four";

    (void)state;
    assert_ptr_equal(fault_edit(text), text);
    setenv("LIKESYNCD_EDIT", "two", 1);
    assert_ptr_equal(fault_edit(text), text);
    setenv("LIKESYNCD_EDIT_TO", "2 and a half", 1);
    assert_string_equal(fault_edit(text), "one 2 and a half three two");
    assert_ptr_equal(fault_edit(text), fault_edit(text));
    assert_ptr_equal(fault_edit(other), other);
    unsetenv("LIKESYNCD_EDIT");
    unsetenv("LIKESYNCD_EDIT_TO");
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf_append),
        cmocka_unit_test(test_buf_reserve),
        cmocka_unit_test(test_buf_printf),
        cmocka_unit_test(test_buf_integers),
        cmocka_unit_test(test_buf_consume_and_clear),
        cmocka_unit_test(test_mem),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_map_against_oracle),
        cmocka_unit_test(test_map_spreads),
        cmocka_unit_test(test_num_i64),
        cmocka_unit_test(test_redis_has_one_spelling),
        cmocka_unit_test(test_num_u64),
        cmocka_unit_test(test_num_time),
        cmocka_unit_test(test_num_format_grouped),
        cmocka_unit_test(test_num_format_time),
        cmocka_unit_test(test_utf8_put_plain),
        cmocka_unit_test(test_utf8_put_plain_cuts_between_characters),
        cmocka_unit_test(test_backoff_bounds),
        cmocka_unit_test(test_backoff_extremes),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_log_limit),
        cmocka_unit_test(test_log_lines),
        cmocka_unit_test(test_log_lines_are_utf8),
        cmocka_unit_test(test_log_cuts_long_lines),
#ifdef LIKESYNCD_FAULTS
        cmocka_unit_test(test_fault_point),
        cmocka_unit_test(test_fault_after),
        cmocka_unit_test(test_fault_variant),
        cmocka_unit_test(test_fault_edit),
#endif
    };

    print_message("seed %" PRIx64 "\n", test_rng);
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
