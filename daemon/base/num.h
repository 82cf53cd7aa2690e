/* SPDX-License-Identifier: MIT */
/* Strict numbers: the whole string or nothing, no sign but '-', no spaces,
 * no hex, no overflow. */
#ifndef BASE_NUM_H
#define BASE_NUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* 0, or -1 when s[0..len) is not a decimal within the type. Leading zeros are
 * accepted. */
MUST_CHECK int num_parse_i64(const char *s, size_t len, int64_t *v_r);
MUST_CHECK int num_parse_u64(const char *s, size_t len, uint64_t *v_r);
/* As Redis has its integers, in one spelling only: no leading zeros, no -0. */
MUST_CHECK int num_parse_redis(const char *s, size_t len, int64_t *v_r);

/* Unix seconds with optional decimals ("1700000000", "1700000000.25") as
 * microseconds; digits after the sixth are cut. 0, or -1 when malformed,
 * negative, or later than the year 9999 (second 253402300799). */
MUST_CHECK int num_parse_time_us(const char *s, size_t len, int64_t *us_r);

/* Writes microseconds as "seconds.micros" with six decimals and a NUL. */
#define NUM_TIME_MAX 24
size_t num_format_time_us(int64_t us, char out[NUM_TIME_MAX]);

/* Writes "1,204,000" for people to read, with a NUL; returns out. */
#define NUM_GROUPED_MAX 28
const char *num_format_grouped(int64_t v, char out[NUM_GROUPED_MAX]);

#endif
