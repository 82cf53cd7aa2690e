/* SPDX-License-Identifier: MIT */
/* What libpq's messages say, made fit for a log line. Internal to the
 * PostgreSQL adapter. */
#ifndef ADAPTERS_PG_TEXT_H
#define ADAPTERS_PG_TEXT_H

#include <stddef.h>

/* One line without control characters, cut to size with its NUL. Lines are
 * joined by "; "; indented advice and the LOCATION lines of verbose messages
 * are left out. NULL gives "". */
void pg_text_line(char *out, size_t size, const char *text);

/* libpq does not tell the SQLSTATE of a refused connect, except inside a
 * verbose message: `severity:  SQLSTATE: text`. Takes the first one out of it;
 * "" when there is none. */
void pg_text_cut_sqlstate(char *message, char sqlstate[6]);

#endif
