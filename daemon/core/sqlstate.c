/* SPDX-License-Identifier: MIT */
/* The table of SQLSTATEs. */
#include "core/sqlstate.h"

#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"

/* A class (two characters) or a code. No class has a code of its own here, so
 * the order does not matter. */
static const struct {
    const char *prefix;
    enum sql_action action;
} table[] = {
    {"08", SQL_RECONNECT},    /* connection exception */
    {"25006", SQL_RECONNECT}, /* read_only_sql_transaction: a standby */
    {"25P03", SQL_RECONNECT}, /* idle_in_transaction_session_timeout */
    {"40003", SQL_RECONNECT}, /* statement_completion_unknown */
    {"57P01", SQL_RECONNECT}, /* admin_shutdown */
    {"57P02", SQL_RECONNECT}, /* crash_shutdown */
    {"57P03", SQL_RECONNECT}, /* cannot_connect_now */
    {"57P05", SQL_RECONNECT}, /* idle_session_timeout */
    {"23505", SQL_RETRY},     /* unique_violation: another daemon was first */
    {"40001", SQL_RETRY},     /* serialization_failure */
    {"40P01", SQL_RETRY},     /* deadlock_detected */
    {"55P03", SQL_RETRY},     /* lock_not_available */
    {"57014", SQL_RETRY},     /* query_canceled */
    {"53", SQL_RESOURCE},     /* insufficient resources */
    {"58", SQL_RESOURCE},     /* system error */
    {"22", SQL_DATA},         /* data exception */
    {"23502", SQL_DATA},      /* not_null_violation */
    {"23503", SQL_DATA},      /* foreign_key_violation */
    {"23514", SQL_DATA},      /* check_violation */
    {"23P01", SQL_DATA},      /* exclusion_violation */
    {"44", SQL_DATA},         /* with_check_option_violation */
    {"54", SQL_DATA},         /* program limit: a row too large for its index */
    {"P0", SQL_DATA},         /* PL/pgSQL: a trigger refuses the row */
    {"28", SQL_CONFIG},       /* invalid authorization */
    {"3D", SQL_CONFIG},       /* invalid catalog name */
    {"3F", SQL_CONFIG},       /* invalid schema name */
    {"42", SQL_CONFIG},       /* syntax error or access rule violation */
};

/* The standard leaves classes that begin with 5 to 9 or I to Z to others, and a
 * trigger that refuses a row may use any that PostgreSQL does not. */
static bool is_of_a_trigger(const char *sqlstate)
{
    static const char *const taken[] = {"53", "55", "57", "58", "72", "XX"};
    char c = sqlstate[0];

    if (strlen(sqlstate) != 5 || c < '5' || (c > '9' && c < 'I'))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        if (strncmp(sqlstate, taken[i], 2) == 0)
            return false;
    return true;
}

enum sql_action sqlstate_action(const char *sqlstate)
{
    if (sqlstate == NULL || sqlstate[0] == '\0')
        return SQL_RECONNECT;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *prefix = table[i].prefix;
        if (strncmp(sqlstate, prefix, strlen(prefix)) == 0)
            return table[i].action;
    }
    return is_of_a_trigger(sqlstate) ? SQL_DATA : SQL_OTHER;
}
