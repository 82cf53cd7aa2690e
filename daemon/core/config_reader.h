/* SPDX-License-Identifier: MIT */
/* Reads an INI file with inih and the quoting rules of this project.
 *
 * A comment is a line that starts with ';' or '#', or what follows " ;" behind
 * a value. A value in double quotes is taken literally, with \" and \\ for the
 * two characters that need it. An unquoted value with " #" in it is refused,
 * since it is unclear what is meant. Lines may be of any length. */
#ifndef CORE_CONFIG_READER_H
#define CORE_CONFIG_READER_H

#include "base/buf.h"
#include "base/compiler.h"

struct config_entry {
    int line;
    const char *section; /* "" before the first header */
    const char *name;    /* NULL: the header of the section itself */
    const char *value;   /* unquoted; NULL for a header */
};

typedef void (*config_on_entry)(void *arg, const struct config_entry *entry);

/* Calls on_entry for each header and each `name = value`, in order; what it is
 * given lives until it returns. 0, or -1 when the file cannot be read or has
 * malformed lines; each gives a line `FILE:LINE: ... expected ...` in
 * `errors`, to which on_entry may add its own. What stands behind a malformed
 * header, up to the next good one, is passed over. */
MUST_CHECK int config_read(const char *path, config_on_entry on_entry,
                           void *arg, struct buf *errors);

/* Appends a value so that config_read gives it back, quoted when it must be.
 * A value has no newline. */
void config_put_value(struct buf *out, const char *value);

#endif
