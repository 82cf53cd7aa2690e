/* SPDX-License-Identifier: MIT */
/* Redis' patterns: * any run, ? any character, [abc], [a-z], [^abc], \x the
 * character x itself. Case does not count. */
#ifndef CORE_GLOB_H
#define CORE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* Longer patterns fit nothing: somebody else's time goes into them, and a set
 * may be as long as an argument. */
#define GLOB_MAX 64

/* Whether all of the text fits the pattern, in time bounded by the product of
 * the lengths. */
bool glob_match(const char *pattern, size_t len, const char *text);
bool glob_is_pattern(const char *pattern, size_t len);

#endif
