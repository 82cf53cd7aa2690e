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

static const char *const no_parts[] = {NULL};

static void test_script_prelude(void **state)
{
    struct edge_kind kind = edge_like;
    const char *const parts[] = {"-- common\n", "return 1\n", NULL};
    char *text = edge_script(&kind, NULL, parts);

    (void)state;
    assert_string_equal(text, "local KIND = 'like'\n"
                              "local REGISTRY = 'post_set'\n"
                              "local SET = 'post_user_like_set_'\n"
                              "local HASH = 'post_user_like_'\n"
                              "local OWNER_FIELD = 'post_id'\n"
                              "local MEMBER_FIELD = 'user_id'\n"
                              "local COUNTER_PRE = 'post_'\n"
                              "local COUNTER_POST = '_counter'\n"
                              "local LISTS = false\n"
                              "local FOLLOW_PRE, FOLLOW_POST, FANS_PRE, "
                              "FANS_POST\n"
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
    text = edge_script(&kind, NULL, no_parts);
    assert_non_null(strstr(text, "local COUNTER_PRE = false\n"));
    assert_non_null(strstr(text, "local COUNTER_POST = false\n"));
    free(text);
}

static void test_a_kind_with_lists(void **state)
{
    struct list_names names;
    char *text;

    (void)state;
    list_names_init(&names, "a'{user}", "{user}:\\");
    text = edge_script(&edge_follow, &names, no_parts);
    assert_non_null(strstr(text, "local LISTS = true\n"));
    assert_non_null(
        strstr(text, "local FOLLOW_PRE, FOLLOW_POST = 'a\\039', ''\n"));
    assert_non_null(strstr(text, "local FANS_PRE, FANS_POST = '', ':\\092'\n"));
    free(text);
    list_names_free(&names);
}

static void test_kinds_stand_at_their_index(void **state)
{
    (void)state;
    for (int i = 0; i < EDGE_COUNT; i++)
        assert_int_equal(edge_kinds[i]->index, i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_script_prelude),
        cmocka_unit_test(test_a_kind_without_counters),
        cmocka_unit_test(test_a_kind_with_lists),
        cmocka_unit_test(test_kinds_stand_at_their_index),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
