/* SPDX-License-Identifier: MIT */
/* Small files that are read whole, before the loop runs. */
#ifndef CORE_FILE_H
#define CORE_FILE_H

#include <stddef.h>

#include "base/buf.h"
#include "base/compiler.h"

/* Appends the content of a file. 0, or -1 with the reason as a static text (of
 * strerror(3) or ours) in *why_r, also when it is over max_bytes. */
MUST_CHECK int file_read(const char *path, size_t max_bytes, struct buf *out,
                         const char **why_r);

#endif
