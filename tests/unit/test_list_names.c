/* SPDX-License-Identifier: MIT */
/* Keys of lists: from templates, and back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/list_names.h"

static const struct {
    const char *follow, *fans;           /* templates */
    const char *follow_key, *fans_key;   /* of user 42 */
    const char *follow_glob, *fans_glob; /* of all users */
} CASES[] = {
    {"{user}:follow", "{user}:fans", "42:follow", "42:fans", "*:follow",
     "*:fans"},
    {"follow:{user}", "fans:{user}", "follow:42", "fans:42", "follow:*",
     "fans:*"},
    {"a:{user}:b", "{user}", "a:42:b", "42", "a:*:b", "*"},
    {"{{user}}:f", "[{user}]", "{42}:f", "[42]", "{*}:f", "\\[*\\]"},
    {"a*?{user}", "{user}\\^-", "a*?42", "42\\^-", "a\\*\\?*", "*\\\\^-"},
};

static void check_side(const struct list_names *n, enum list_side side,
                       const char *key, const char *glob)
{
    struct buf out = {0};
    const char *user = NULL;
    size_t len = 0;

    list_key_put(n, side, "4200", 2, &out);
    assert_string_equal(buf_cstr(&out), key);
    assert_int_equal(list_key_parse(n, side, out.data, out.len, &user, &len),
                     0);
    assert_int_equal(len, 2);
    assert_memory_equal(user, "42", 2);
    buf_clear(&out, 0);
    list_key_glob(n, side, &out);
    assert_string_equal(buf_cstr(&out), glob);
    assert_int_equal(fnmatch(buf_cstr(&out), key, 0), 0);
    buf_free(&out);
}

static void test_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        struct list_names n;

        list_names_init(&n, CASES[i].follow, CASES[i].fans);
        check_side(&n, LIST_FOLLOW, CASES[i].follow_key, CASES[i].follow_glob);
        check_side(&n, LIST_FANS, CASES[i].fans_key, CASES[i].fans_glob);
        list_names_free(&n);
        assert_null(n.pre[LIST_FOLLOW]);
        assert_null(n.post[LIST_FANS]);
    }
}

/* All go behind what is there already. */
static void test_appends(void **state)
{
    struct list_names n;
    struct buf out = {0};

    (void)state;
    list_names_init(&n, "{user}:follow", "fans:{user}");
    list_key_put(&n, LIST_FOLLOW, "1", 1, &out);
    list_key_put(&n, LIST_FANS, "2", 1, &out);
    list_key_glob(&n, LIST_FANS, &out);
    assert_string_equal(buf_cstr(&out), "1:followfans:2fans:*");
    buf_free(&out);
    list_names_free(&n);
}

/* The key is copied to where ASan sees a read past its end. */
static void assert_parses(const struct list_names *n, const char *key,
                          const char *expected)
{
    size_t len = strlen(key), user_len = 0;
    char *bare = memcpy(mem_alloc(len > 0 ? len : 1), key, len);
    const char *user = NULL;
    int rc = list_key_parse(n, LIST_FOLLOW, bare, len, &user, &user_len);

    assert_int_equal(rc, expected ? 0 : -1);
    if (expected) {
        assert_int_equal(user_len, strlen(expected));
        assert_memory_equal(user, expected, user_len);
        assert_in_range(user - bare, 0, (intmax_t)len - 1);
    }
    free(bare);
}

static void test_parse(void **state)
{
    static const char *const BAD[] = {
        "",       "a",     "ab", "aba",    "abba",   "abXba",   "abXbb",
        "aaXba:", "a:X:a", ":a", "ab:Xba", "ab:X:b", "xab:X:ba"};
    struct list_names n;

    (void)state;
    list_names_init(&n, "ab:{user}:ba", "{user}");
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++)
        assert_parses(&n, BAD[i], NULL);
    assert_parses(&n, "ab:X:ba", "X");
    assert_parses(&n, "ab::ba", NULL);
    assert_parses(&n, "ab:::ba", ":");
    assert_parses(&n, "ab:a b%5F:ba", "a b%5F");
    list_names_free(&n);

    /* Before and behind must not overlap. */
    list_names_init(&n, "aba{user}aba", "{user}");
    assert_parses(&n, "aba", NULL);
    assert_parses(&n, "ababa", NULL);
    assert_parses(&n, "abaaba", NULL);
    assert_parses(&n, "ababaaba", "ba");
    list_names_free(&n);

    list_names_init(&n, "{user}", "x{user}");
    assert_parses(&n, "", NULL);
    assert_parses(&n, "7", "7");
    list_names_free(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_appends),
        cmocka_unit_test(test_parse),
    };
    return cmocka_run_group_tests_name("list_names", tests, NULL, NULL);
}
