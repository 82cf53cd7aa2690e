/* SPDX-License-Identifier: MIT */
/* What to do about a PostgreSQL error, by SQLSTATE (PostgreSQL manual,
 * appendix A). One row per class or code in sqlstate.c. */
#ifndef CORE_SQLSTATE_H
#define CORE_SQLSTATE_H

enum sql_action {
    /* No SQLSTATE, 08, 57P01-03, 57P05, 25P03, 25006, 40003: the connection is
     * of no use or the outcome unknown; the same batch again. */
    SQL_RECONNECT,
    /* 40001, 40P01, 55P03, 57014, 23505: again with jitter, then halve. */
    SQL_RETRY,
    /* 53, 58: back off up to 60 s, alarm, keep everything. */
    SQL_RESOURCE,
    /* 22, 23502, 23503, 23514, 23P01, P0001: find the row, dead letter. */
    SQL_DATA,
    /* 28, 3D, 3F, 42: stop, alarm, try again slowly. */
    SQL_CONFIG,
    /* Anything else: treated like SQL_RESOURCE. */
    SQL_OTHER
};

/* NULL or "" means that the connection broke. */
enum sql_action sqlstate_action(const char *sqlstate);

#endif
