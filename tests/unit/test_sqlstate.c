/* SPDX-License-Identifier: MIT */
/* What is done about each SQLSTATE that the flusher may meet. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/compiler.h"
#include "core/sqlstate.h"

struct sqlstate_case {
    const char *sqlstate;
    enum sql_action action;
};

static void test_actions(void **state)
{
    static const struct sqlstate_case cases[] = {
        {NULL, SQL_RECONNECT},    {"", SQL_RECONNECT},
        {"08000", SQL_RECONNECT}, {"08006", SQL_RECONNECT},
        {"08P01", SQL_RECONNECT}, {"25006", SQL_RECONNECT},
        {"25P03", SQL_RECONNECT}, {"40003", SQL_RECONNECT},
        {"57P01", SQL_RECONNECT}, {"57P02", SQL_RECONNECT},
        {"57P03", SQL_RECONNECT}, {"57P05", SQL_RECONNECT},
        {"40001", SQL_RETRY},     {"40P01", SQL_RETRY},
        {"55P03", SQL_RETRY},     {"57014", SQL_RETRY},
        {"23505", SQL_RETRY},     {"53100", SQL_RESOURCE},
        {"53200", SQL_RESOURCE},  {"53300", SQL_RESOURCE},
        {"58030", SQL_RESOURCE},  {"58P01", SQL_RESOURCE},
        {"22003", SQL_DATA},      {"22P02", SQL_DATA},
        {"23502", SQL_DATA},      {"23503", SQL_DATA},
        {"23514", SQL_DATA},      {"28P01", SQL_CONFIG},
        {"28000", SQL_CONFIG},    {"3D000", SQL_CONFIG},
        {"3F000", SQL_CONFIG},    {"42501", SQL_CONFIG},
        {"42P01", SQL_CONFIG},    {"42703", SQL_CONFIG},
        {"21000", SQL_OTHER},     {"23001", SQL_OTHER},
        {"23P01", SQL_DATA},      {"25P02", SQL_OTHER},
        {"40002", SQL_OTHER},     {"57P04", SQL_OTHER},
        {"P0001", SQL_DATA},      {"XX000", SQL_OTHER},
        {"5", SQL_OTHER},         {"44000", SQL_DATA},
        {"54000", SQL_DATA},      {"P0004", SQL_DATA},
        {"LS001", SQL_DATA},      {"99999", SQL_DATA},
        {"72000", SQL_OTHER},     {"55000", SQL_OTHER},
        {"HV000", SQL_OTHER},     {"0A000", SQL_OTHER},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (sqlstate_action(cases[i].sqlstate) != cases[i].action)
            fail_msg("%s", cases[i].sqlstate ? cases[i].sqlstate : "NULL");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_actions),
    };
    return cmocka_run_group_tests_name("sqlstate", tests, NULL, NULL);
}
