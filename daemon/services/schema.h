/* SPDX-License-Identifier: MIT */
/* Whether the tables are those that this daemon writes. */
#ifndef SERVICES_SCHEMA_H
#define SERVICES_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

#include "adapters/pg.h"

struct options;

#define SCHEMA_VERSION 2

/* For pg_config.check; reads catalogs only, so it succeeds on any database. */
struct pg_stmt schema_check(void);
/* For pg_config.on_check: 0, or -1 with what is wrong and what to run. */
int schema_judge(const struct options *o, const struct pg_result *result,
                 char *why, size_t size);
/* Whether the indexes of sql/likers.sql are there, from the same result. */
bool schema_has_likers(const struct pg_result *result);

#endif
