/* SPDX-License-Identifier: MIT */
/* The table of options and what can be done with one row of it. For options*.c
 * only; others use core/options.h. */
#ifndef CORE_OPTION_TABLE_H
#define CORE_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "core/options.h"

/* How the text is read, and the type of the field in struct options. */
enum option_type {
    OPTION_STRING,      /* char *, owned */
    OPTION_INT,         /* int64_t, min to max; or 0, see zero */
    OPTION_OCTAL,       /* int64_t, min to max */
    OPTION_ENUM,        /* int64_t, an index of words */
    OPTION_ADDRESS,     /* struct address */
    OPTION_ADDRESS_LIST /* struct address_list of min addresses or more */
};

struct option {
    const char *section;
    const char *name;
    size_t offset;        /* of the field */
    const char *fallback; /* default, spelled as in the file */
    int64_t min, max;
    const char *unit;         /* of numbers, for the help; may be NULL */
    const char *const *words; /* OPTION_ENUM: ends with NULL */
    /* OPTION_STRING: NULL for a good value, else what was expected. */
    const char *(*check)(const char *value);
    const char *help;
    enum option_type type;
    bool reloadable;
    bool zero;   /* OPTION_INT: 0 is taken, too, though it is below min */
    bool hidden; /* may hold a password: not shown in messages */
};

extern const struct option OPTION_TABLE[];
extern const size_t OPTION_COUNT;

/* NULL when there is none. */
const struct option *option_find(const char *section, const char *name);
/* The row whose field is at this offset of struct options. */
const struct option *option_at(size_t offset);

/* Reads the text into the row's field. 0, or -1 with "expected ..." appended
 * to `expected`; the field is unchanged then. */
MUST_CHECK int option_parse(const struct option *row, const char *text,
                            struct options *o, struct buf *expected);
/* The text that option_parse reads back to the same value, without quotes. */
void option_format(const struct option *row, const struct options *o,
                   struct buf *out);
/* What values there are: "1 to 64", "strict or optimistic"; nothing for text. */
void option_describe(const struct option *row, struct buf *out);

#endif
