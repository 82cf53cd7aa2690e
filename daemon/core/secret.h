/* SPDX-License-Identifier: MIT */
/* Passwords that options and likesyncctl name by where they stand: a path, or
 * `credential:NAME` for what systemd's LoadCredential=NAME:... hands over, the
 * file NAME in $CREDENTIALS_DIRECTORY.
 *
 * The password is all that the file holds, less one newline (LF or CR LF) at
 * its end. */
#ifndef CORE_SECRET_H
#define CORE_SECRET_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/compiler.h"

#define SECRET_MAX     4096 /* bytes of the file */
#define SECRET_EXPOSED 1

bool secret_is_credential(const char *where);
/* NULL for a path or credential:NAME, else what was expected. */
const char *secret_check(const char *where);
/* The password as an owned string. 0; SECRET_EXPOSED when it was read, but
 * everybody may read the file, as `why` says then; or -1 with where and reason
 * in `why` and *secret_r NULL: no such credential, the file cannot be read, is
 * empty, longer than SECRET_MAX or one line, or holds a NUL byte. */
MUST_CHECK int secret_read(const char *where, char **secret_r, struct buf *why);
/* Wipes and frees it; NULL is allowed. */
void secret_free(char *secret);

#endif
