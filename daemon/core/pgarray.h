/* SPDX-License-Identifier: MIT */
/* One-dimensional arrays in PostgreSQL's binary format (array_recv in
 * src/backend/utils/adt/arrayfuncs.c: ndim, flags, element oid, length, lower
 * bound, then a length word and the bytes of each element). */
#ifndef CORE_PGARRAY_H
#define CORE_PGARRAY_H

#include <stdint.h>

#include "base/buf.h"
#include "core/ids.h"

#define PG_OID_INT2              21u
#define PG_OID_INT2_ARRAY        1005u
#define PG_OID_INT8              20u
#define PG_OID_INT8_ARRAY        1016u
#define PG_OID_TEXT              25u
#define PG_OID_TEXT_ARRAY        1009u
#define PG_OID_TIMESTAMPTZ       1184u
#define PG_OID_TIMESTAMPTZ_ARRAY 1185u

/* PostgreSQL counts microseconds from 2000-01-01; Unix time is this less. */
#define PG_EPOCH_US INT64_C(946684800000000)

/* Starts an array of n elements; then put exactly n elements. */
void pgarray_begin(struct buf *b, uint32_t element_oid, uint32_t n);
void pgarray_put_i16(struct buf *b, int16_t v);
void pgarray_put_i64(struct buf *b, int64_t v);
void pgarray_put_time_us(struct buf *b, int64_t unix_us);
void pgarray_put_text(struct buf *b, const char *s, uint32_t len);
/* An id in key form, as an element of its type. */
void pgarray_put_id(struct buf *b, enum id_type t, const char *key, size_t len);

/* Single binary values as they come in results. */
int64_t pgvalue_i16(const char *p);
int64_t pgvalue_i64(const char *p);
/* Unix microseconds; PostgreSQL's "infinity" and "-infinity" are INT64_MAX and
 * INT64_MIN. */
int64_t pgvalue_time_us(const char *p);

#endif
