/* SPDX-License-Identifier: MIT */
/* Key names that can meet: cases with their reasons, and a comparison with all
 * keys of short templates. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "core/list_names.h"
#include "core/option_keys.h"

/* ---- two templates ---- */

static void test_templates(void **state)
{
    static const struct {
        const char *a, *b;
        bool bigint, uuid, text; /* whether they meet */
    } CASES[] = {
        {"{user}:follow", "{user}:fans", false, false, false},
        {"follow:{user}", "fans:{user}", false, false, false},
        /* The user "fans" of one, the user "follow" of the other. */
        {"follow:{user}", "{user}:fans", false, false, true},
        {"f:{user}", "{user}:f", false, true, true},
        {"x{user}", "x{user}", true, true, true},
        {"{user}", "{user}", true, true, true},
        {"{user}", "x{user}", false, false, true},
        {"{user}", "a{user}", false, true, true},
        {"{user}", "7{user}", true, true, true},
        {"{user}0", "{user}:0", false, false, false},
        {"{user}0", "{user}-0", false, true, true},
        {"a{user}", "{user}b", false, true, true},
        {":{user}", "{user}:", false, false, false},
        {":{user}:", "{user}", false, false, false},
        {"_{user}", "{user}_", false, false, false},
        {"{{user}}", "{user}", false, false, false},
        /* No id holds the ':' by which the longer one differs. */
        {"{user}:follow", "{user}:x:follow", false, false, false},
        {"x:{user}", "x:y:{user}", false, false, false},
        {"x:{user}", "x:y{user}", false, false, true},
        {"1:{user}:2", "{user}:5:2", true, true, true},
        {"1:{user}:2", "{user}:x:2", false, false, true},
        {"1:{user}:2", "{user}:5:3", false, false, false},
        {"\xc3\xa9{user}", "{user}", false, false, true},
        {"a b{user}", "a{user}", false, false, false},
        {"%{user}", "{user}", false, false, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        const bool expected[] = {[ID_BIGINT] = CASES[i].bigint,
                                 [ID_UUID] = CASES[i].uuid,
                                 [ID_TEXT] = CASES[i].text};

        for (int t = ID_BIGINT; t <= ID_TEXT; t++) {
            enum id_type type = (enum id_type)t;

            if (key_meets_key(CASES[i].a, CASES[i].b, type) != expected[t] ||
                key_meets_key(CASES[i].b, CASES[i].a, type) != expected[t])
                fail_msg("%s, %s, %s", CASES[i].a, CASES[i].b,
                         id_type_name(type));
        }
    }
}

/* ---- against all keys ---- */

enum { PART_MAX = 2, IDS = 62, PAIRS = 3000 };

static uint64_t seed = UINT64_C(20260);

static unsigned below(unsigned n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(seed >> 33) % n;
}

static void put_part(struct buf *out)
{
    for (unsigned n = below(PART_MAX + 1); n > 0; n--)
        buf_putc(out, "ab:"[below(3)]);
}

static void make_template(struct buf *out)
{
    buf_clear(out, 0);
    put_part(out);
    buf_puts(out, "{user}");
    put_part(out);
    buf_cstr(out);
}

/* All of 1 to 5 letters a and b. None needs to be longer: it covers at most both
 * parts of the other template and one byte of its id. */
static const char *id_number(int n, char out[8])
{
    int len = 0;

    for (n += 2; n > 1; n /= 2)
        out[len++] = n % 2 ? 'b' : 'a';
    out[len] = '\0';
    return out;
}

static bool finds_equal(const struct list_names *names)
{
    char a[8], b[8];
    struct buf key = {0};
    bool found = false;

    for (int i = 0; i < IDS && !found; i++) {
        const char *rest;
        size_t len;

        buf_clear(&key, 0);
        list_key_put(names, LIST_FOLLOW, a, strlen(id_number(i, a)), &key);
        if (list_key_parse(names, LIST_FANS, key.data, key.len, &rest, &len) !=
            0)
            continue;
        for (int j = 0; j < IDS && !found; j++)
            found = strlen(id_number(j, b)) == len && memcmp(b, rest, len) == 0;
    }
    buf_free(&key);
    return found;
}

static void test_against_all_keys(void **state)
{
    struct buf a = {0}, b = {0};
    int n_meet = 0;

    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < PAIRS; i++) {
        struct list_names names;
        bool meet;

        make_template(&a);
        make_template(&b);
        list_names_init(&names, a.data, b.data);
        meet = finds_equal(&names);
        if (key_meets_key(a.data, b.data, ID_TEXT) != meet)
            fail_msg("%s, %s: %d", a.data, b.data, meet);
        n_meet += meet;
        list_names_free(&names);
    }
    assert_in_range(n_meet, PAIRS / 10, PAIRS - PAIRS / 10);
    buf_free(&a);
    buf_free(&b);
}

/* Nothing is slow, whatever fits into a template. */
static void test_long_templates(void **state)
{
    char a[201], b[201];

    (void)state;
    memset(a, 'a', 200);
    memset(b, 'a', 200);
    a[200] = b[200] = '\0';
    memcpy(a, "{user}", 6);
    memcpy(b + 194, "{user}", 6);
    assert_true(key_meets_key(a, b, ID_TEXT));
    a[199] = ':';
    assert_false(key_meets_key(a, b, ID_TEXT));
    assert_false(key_meets_own(a, ID_TEXT));
}

/* ---- the daemon's own keys ---- */

static void test_own(void **state)
{
    static const struct {
        const char *key;
        bool bigint, uuid, text; /* whether it meets one */
    } CASES[] = {
        {"{user}:follow", false, false, false},
        {"{user}:fans", false, false, false},
        {"follow:{user}", false, false, false},
        {"{user}_follow", false, false, false},
        {"follow_{user}", false, false, true},
        {"{user}", false, false, false},
        {"x{user}", false, false, false},
        {"{{user}}:follow", false, false, false},
        /* The users "post" and "follow". */
        {"{user}_set", false, false, true},
        {"p{user}_set", false, false, true},
        {"f{user}w_set", false, false, true},
        {"x{user}_set", false, false, false},
        {"post{user}", false, false, false},
        {"user_follow{user}", false, false, false},
        {"user{user}", false, false, false},
        /* The counter of post 1, the set of user 1, a hash. */
        {"{user}_1_counter", false, false, true},
        {"{user}_counter", false, false, false},
        {"{user}_user_like_set_x", false, false, true},
        {"{user}_user_like_x_y", false, false, true},
        {"{user}_follow_set_1", false, false, true},
        {"{user}_follow_1_2", false, false, true},
        {"{user}_follow_1:2", false, false, false},
        {"u{user}_follow_x", false, false, false},
        /* Behind likesync: may be anything. */
        {"likesync:{user}", true, true, true},
        {"likesync:list:{user}", true, true, true},
        {"likesync{user}", false, false, false},
        {"likesync{user}:x", false, false, false},
        {"like{user}:x", false, false, true},
        {"l{user}c:", false, false, true},
        {"{user}c:follow", false, false, true},
        {"{user}nc:follow", false, false, true},
        {"{user}d:follow", false, false, false},
        /* "c" is not too short for a UUID, as far as bytes go. */
        {"likesyn{user}:follow", false, true, true},
        {"likesyn{user}", false, false, false},
        /* The sets of likes that are not synced, among those of the lists. */
        {"like:post:{user}", true, true, true},
        {"{user}:user:7", false, false, true},
        {"like:posts:{user}", false, false, false},
        {"like:{user}", false, false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        if (key_meets_own(CASES[i].key, ID_BIGINT) != CASES[i].bigint ||
            key_meets_own(CASES[i].key, ID_UUID) != CASES[i].uuid ||
            key_meets_own(CASES[i].key, ID_TEXT) != CASES[i].text)
            fail_msg("%s", CASES[i].key);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_against_all_keys),
        cmocka_unit_test(test_long_templates),
        cmocka_unit_test(test_own),
    };
    return cmocka_run_group_tests_name("option_keys", tests, NULL, NULL);
}
