/* SPDX-License-Identifier: MIT */
/* A command's arguments, from the one line in which the command table has them
 * to the tree that COMMAND DOCS gives to programs, out of which redis-cli makes
 * the same line again.
 *
 *   name            a value
 *   TOKEN           a word as it is
 *   TOKEN a b       a word and the values behind it
 *   [a b]           may be left out
 *   a|b             one of them; between [ and ] or in all of the line
 *   a [a ...]       one or more
 *   [a [a ...]]     none or more */
#ifndef SERVICES_COMMAND_ARGS_H
#define SERVICES_COMMAND_ARGS_H

#include "base/buf.h"

/* The "arguments" of COMMAND DOCS: an array of maps. */
void command_args_put(struct buf *b, int proto, const char *args);

#endif
