/* SPDX-License-Identifier: MIT */
/* What JSON (RFC 8259) needs care for when it is written: text. */
#ifndef CORE_JSON_H
#define CORE_JSON_H

#include <stddef.h>

#include "base/buf.h"

/* In its quotes. What is not UTF-8 becomes U+FFFD, a byte at a time. */
void json_put(struct buf *out, const char *s, size_t len);
void json_put_text(struct buf *out, const char *s);

#endif
