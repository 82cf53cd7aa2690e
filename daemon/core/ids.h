/* SPDX-License-Identifier: MIT */
/* Ids of users and posts. One spelling of an id, one key.
 *
 * Key form is how an id stands in Redis key names and set members:
 *   bigint  decimal, no leading zeros
 *   uuid    lower case, 8-4-4-4-12
 *   text    UTF-8 of 1 to 128 bytes; '%', '_', '{', '}', ':', 0x7f and bytes
 *           below 0x21 are written %XX (upper-case hex), the id "set" as
 *           "%73et" and the id "likesync" as "%6Cikesync". So no two ids share
 *           a key, `post_user_like_set_5` is always a set, `{user}:follow` never
 *           starts with `likesync:`, and key forms hold no space.
 * Raw form is what the client sent, made canonical: key form without the
 * escapes. */
#ifndef CORE_IDS_H
#define CORE_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"

enum id_type { ID_BIGINT, ID_UUID, ID_TEXT };

#define ID_TEXT_MAX 128
#define ID_KEY_MAX  (3 * ID_TEXT_MAX)

/* PostgreSQL's type and array type oids (pg_type.dat: bigint 20/1016, uuid
 * 2950/2951, text 25/1009) and the SQL name. */
uint32_t id_type_oid(enum id_type t);
uint32_t id_type_array_oid(enum id_type t);
const char *id_type_name(enum id_type t);

/* Raw id from a client → key form in out, its length in *len_r. 0, or -1 with
 * *why_r a static text such as "expected a decimal from 0 to
 * 9223372036854775807". */
MUST_CHECK int id_parse(enum id_type t, const char *s, size_t len,
                        char out[ID_KEY_MAX], size_t *len_r,
                        const char **why_r);
/* Checks that s is exactly a key form (a member that somebody else put into a
 * set may not be). */
MUST_CHECK int id_check_key(enum id_type t, const char *s, size_t len);
/* Whether a key form may hold this byte. */
bool id_may_hold(enum id_type t, char c);
/* Appends the raw form of a valid key form. */
void id_put_raw(enum id_type t, const char *key, size_t len, struct buf *out);
/* Appends the PostgreSQL binary value (without its length word) of a valid key
 * form: int8, 16 bytes, or the text. */
void id_put_binary(enum id_type t, const char *key, size_t len,
                   struct buf *out);
/* PostgreSQL binary value → key form. 0, or -1 when it is not of that type. */
MUST_CHECK int id_from_binary(enum id_type t, const char *p, size_t len,
                              char out[ID_KEY_MAX], size_t *len_r);
/* The order in which every daemon sorts rows: bigint by value, others by the
 * bytes of the raw form. */
int id_compare(enum id_type t, const char *a, size_t a_len, const char *b,
               size_t b_len);

#endif
