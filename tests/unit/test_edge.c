/* SPDX-License-Identifier: MIT */
/* The table of edge kinds makes the locals in front of each script. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/edge.h"

static void test_script_prelude(void **state)
{
    struct edge_kind kind = edge_like;
    char *text = edge_script(&kind, "-- common\n", "return 1\n");

    (void)state;
    assert_string_equal(text, "local KIND = 'like'\n"
                              "local REGISTRY = 'post_set'\n"
                              "local SET = 'post_user_like_set_'\n"
                              "local HASH = 'post_user_like_'\n"
                              "local OWNER_FIELD = 'post_id'\n"
                              "local MEMBER_FIELD = 'user_id'\n"
                              "local COUNTER_PRE = 'post_'\n"
                              "local COUNTER_POST = '_counter'\n"
                              "-- common\n"
                              "return 1\n");
    free(text);
}

static void test_a_kind_without_counters(void **state)
{
    struct edge_kind kind = edge_like;
    char *text;

    (void)state;
    kind.counter_prefix = NULL;
    kind.counter_suffix = NULL;
    text = edge_script(&kind, "", "");
    assert_non_null(strstr(text, "local COUNTER_PRE = false\n"));
    assert_non_null(strstr(text, "local COUNTER_POST = false\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_script_prelude),
        cmocka_unit_test(test_a_kind_without_counters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
