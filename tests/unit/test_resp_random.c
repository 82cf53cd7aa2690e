/* SPDX-License-Identifier: MIT */
/* Requests made at random: pipelines that must come out as they went in, and
 * noise that must end somehow. A failure names its seed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

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

/* xorshift32, so that a seed means the same everywhere. */
static unsigned rnd(unsigned *seed, unsigned below)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed % below;
}

static size_t random_bytes(unsigned *seed, char *out, size_t max)
{
    size_t n = rnd(seed, (unsigned)max + 1);
    for (size_t i = 0; i < n; i++) {
        const char *common = "\r\n*$\"'\\ 0";
        out[i] =
            rnd(seed, 3) == 0 ? common[rnd(seed, 9)] : (char)rnd(seed, 256);
    }
    return n;
}

static void put_inline_arg(struct buf *in, const char *s, size_t len)
{
    buf_putc(in, '"');
    for (size_t i = 0; i < len; i++)
        buf_printf(in, "\\x%02x", (unsigned char)s[i]);
    buf_puts(in, "\" ");
}

static void put_random_request(unsigned *seed, struct buf *in,
                               struct buf *expected)
{
    int argc = 1 + (int)rnd(seed, 6);
    bool is_inline = rnd(seed, 3) == 0;
    char arg[40];
    if (!is_inline)
        buf_printf(in, "*%d\r\n", argc);
    for (int i = 0; i < argc; i++) {
        size_t n = random_bytes(seed, arg, sizeof(arg));
        buf_putc(expected, i == 0 ? '[' : ',');
        put_shown(expected, arg, n);
        if (is_inline) {
            put_inline_arg(in, arg, n);
            continue;
        }
        buf_printf(in, "$%zu\r\n", n);
        buf_append(in, arg, n);
        buf_puts(in, "\r\n");
    }
    buf_putc(expected, ']');
    if (is_inline)
        buf_puts(in, rnd(seed, 2) == 0 ? "\r\n" : "\n");
}

static void run_random_pipeline(unsigned seed_no)
{
    unsigned seed = seed_no * 2654435761u;
    struct buf in = {0};
    struct buf expected = {0};
    struct stream s;
    stream_open(&s, &roomy);
    for (unsigned n = 1 + rnd(&seed, 20); n > 0; n--)
        put_random_request(&seed, &in, &expected);
    for (size_t fed = 0; fed < in.len;) {
        fed += 1 + rnd(&seed, 60);
        stream_feed(&s, in.data, fed < in.len ? fed : in.len);
    }
    if (strcmp(buf_cstr(&s.out), buf_cstr(&expected)) != 0)
        fail_msg("seed %u: got %s, expected %s", seed_no, buf_cstr(&s.out),
                 buf_cstr(&expected));
    stream_close(&s);
    buf_free(&in);
    buf_free(&expected);
}

static void test_random_pipelines(void **state)
{
    (void)state;
    print_message("seeds 1 to 500\n");
    for (unsigned seed = 1; seed <= 500; seed++)
        run_random_pipeline(seed);
}

/* Whatever comes: it ends, within its bytes. */
static void test_random_noise(void **state)
{
    (void)state;
    print_message("seeds 1 to 2000\n");
    for (unsigned seed_no = 1; seed_no <= 2000; seed_no++) {
        unsigned seed = seed_no * 2654435761u;
        char noise[64];
        noise[0] = seed_no % 2 == 0 ? '*' : ' ';
        size_t n = 1 + random_bytes(&seed, noise + 1, sizeof(noise) - 1);
        struct stream s;
        stream_open(&s, &tight);
        stream_feed(&s, noise, n);
        if (s.start > n)
            fail_msg("seed %u: used %zu of %zu bytes", seed_no, s.start, n);
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pipelines),
        cmocka_unit_test(test_random_noise),
    };
    return cmocka_run_group_tests_name("resp_random", tests, NULL, NULL);
}
