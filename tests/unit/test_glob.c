/* SPDX-License-Identifier: MIT */
/* Patterns, as CONFIG GET and COMMAND LIST take them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "core/glob.h"

struct glob_case {
    const char *pattern;
    const char *text;
    bool fits;
};

static const struct glob_case cases[] = {
    {"", "", true},
    {"", "a", false},
    {"a", "", false},
    {"save", "save", true},
    {"SaVe", "sAvE", true},
    {"save", "saves", false},
    {"saves", "save", false},
    {"*", "", true},
    {"*", "save", true},
    {"s*", "save", true},
    {"*e", "save", true},
    {"*v*", "save", true},
    {"**a**e**", "save", true},
    {"s*x", "save", false},
    {"*ab", "aab", true},
    {"*aab*", "aaaab", true},
    {"a*b*c", "abbbcbc", true},
    {"a*b*c", "abbbcb", false},
    {"s?ve", "save", true},
    {"s??e", "save", true},
    {"?save", "save", false},
    {"save?", "save", false},
    {"s[abc]ve", "save", true},
    {"s[^abc]ve", "save", false},
    {"s[^xyz]ve", "save", true},
    {"s[x-z]ve", "save", false},
    {"s[A-C]ve", "save", true},
    {"s[c-a]ve", "save", true},
    {"s[a", "sa", true}, /* not closed */
    {"s[", "s", false},
    {"s[]", "sa", false},
    {"[\\]]", "]", true},
    {"[a\\-c]", "b", false},
    {"\\*", "*", true},
    {"\\*", "a", false},
    {"\\[a]", "[a]", true},
    {"a\\", "a\\", true},
};

/* Each pattern is a piece of memory of its own, so that reading on is found. */
static bool match(const char *pattern, size_t len, const char *text)
{
    char *copy = malloc(len + !len);
    bool fits;

    memcpy(copy, pattern, len);
    fits = glob_match(copy, len, text);
    free(copy);
    return fits;
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct glob_case *c = &cases[i];

        if (match(c->pattern, strlen(c->pattern), c->text) != c->fits)
            fail_msg("'%s' and '%s'", c->pattern, c->text);
    }
    assert_false(match("a\0", 2, "a")); /* len rules */
    assert_true(match("abc", 2, "ab"));
}

/* Steps are bounded by the product of the lengths: without that bound, this
 * would take more than 10^20 of them. */
static void test_many_stars_take_no_time(void **state)
{
    char pattern[GLOB_MAX];
    char text[401];

    (void)state;
    for (size_t i = 0; i < sizeof(pattern); i += 2)
        memcpy(pattern + i, "*a", 2);
    pattern[sizeof(pattern) - 1] = 'b';
    memset(text, 'a', 400);
    text[400] = '\0';
    assert_false(match(pattern, sizeof(pattern), text));
    text[399] = 'b';
    assert_true(match(pattern, sizeof(pattern), text));
}

/* A long set is read again for each place of each text. */
static void test_long_patterns_fit_nothing(void **state)
{
    char pattern[GLOB_MAX + 1];

    (void)state;
    memset(pattern, 'a', sizeof(pattern));
    memcpy(pattern, "*[", 2);
    assert_true(match(pattern, GLOB_MAX, "save and a"));
    assert_false(match(pattern, GLOB_MAX + 1, "save and a"));
}

static void test_what_is_a_pattern(void **state)
{
    (void)state;
    assert_true(glob_is_pattern("a*", 2));
    assert_true(glob_is_pattern("?", 1));
    assert_true(glob_is_pattern("[a", 2));
    assert_false(glob_is_pattern("a*", 1));
    assert_false(glob_is_pattern("save", 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_many_stars_take_no_time),
        cmocka_unit_test(test_long_patterns_fit_nothing),
        cmocka_unit_test(test_what_is_a_pattern),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
