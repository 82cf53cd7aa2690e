/* SPDX-License-Identifier: MIT */
/* Values of options as text: one pair of parse and format per type. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "core/option_table.h"

/* A cause that is not told by a text of its own but by option_describe. */
static const char OUT_OF_BOUNDS[] = "";

static void *field_of(const struct option *row, struct options *o)
{
    return (char *)o + row->offset;
}

static const void *value_of(const struct option *row, const struct options *o)
{
    return (const char *)o + row->offset;
}

static int parse_octal(const char *s, int64_t *v_r)
{
    size_t len = strlen(s);
    int64_t v = 0;

    if (len == 0 || len > 8 || strspn(s, "01234567") != len)
        return -1;
    for (; *s; s++)
        v = v * 8 + (*s - '0');
    *v_r = v;
    return 0;
}

/* These take a row's field; NULL, or what was expected. */
static const char *parse_number(const struct option *row, const char *text,
                                int64_t *field)
{
    int64_t v;
    int rc;

    if (row->type == OPTION_OCTAL)
        rc = parse_octal(text, &v);
    else
        rc = num_parse_i64(text, strlen(text), &v);
    if (rc < 0 || ((v < row->min || v > row->max) && !(row->zero && v == 0)))
        return OUT_OF_BOUNDS;
    *field = v;
    return NULL;
}

static const char *parse_word(const struct option *row, const char *text,
                              int64_t *field)
{
    for (int64_t i = 0; row->words[i]; i++) {
        if (strcmp(row->words[i], text) == 0) {
            *field = i;
            return NULL;
        }
    }
    return OUT_OF_BOUNDS;
}

static const char *parse_string(const struct option *row, const char *text,
                                char **field)
{
    const char *why = row->check ? row->check(text) : NULL;

    if (why)
        return why;
    free(*field);
    *field = mem_strdup(text);
    return NULL;
}

static const char *parse_address(const char *text, struct address *field)
{
    const char *why;

    return address_parse(text, field, &why) < 0 ? why : NULL;
}

static const char *parse_list_item(const char *s, size_t len,
                                   struct address_list *list)
{
    const char *why;
    char *item;

    if (memchr(s, ',', len))
        return "expected spaces between the addresses, not commas";
    if (list->n == OPTIONS_MAX_LISTEN)
        return OUT_OF_BOUNDS;
    item = mem_strndup(s, len);
    why = parse_address(item, &list->items[list->n]);
    if (!why)
        list->n++;
    free(item);
    return why;
}

static const char *parse_address_list(const struct option *row,
                                      const char *text,
                                      struct address_list *field)
{
    static const char SPACE[] = " \t";
    struct address_list list = {.n = 0};

    for (text += strspn(text, SPACE); *text; text += strspn(text, SPACE)) {
        size_t len = strcspn(text, SPACE);
        const char *why = parse_list_item(text, len, &list);

        if (why)
            return why;
        text += len;
    }
    if (list.n < row->min)
        return OUT_OF_BOUNDS;
    *field = list;
    return NULL;
}

static const char *parse_field(const struct option *row, const char *text,
                               void *field)
{
    switch (row->type) {
    case OPTION_STRING:
        return parse_string(row, text, field);
    case OPTION_INT:
    case OPTION_OCTAL:
        return parse_number(row, text, field);
    case OPTION_ENUM:
        return parse_word(row, text, field);
    case OPTION_ADDRESS:
        return parse_address(text, field);
    case OPTION_ADDRESS_LIST:
        return parse_address_list(row, text, field);
    }
    return OUT_OF_BOUNDS;
}

int option_parse(const struct option *row, const char *text, struct options *o,
                 struct buf *expected)
{
    const char *why = parse_field(row, text, field_of(row, o));

    if (!why)
        return 0;
    if (why == OUT_OF_BOUNDS) {
        buf_puts(expected, "expected ");
        option_describe(row, expected);
    } else {
        buf_puts(expected, why);
    }
    return -1;
}

static void format_address(const struct address *a, struct buf *out)
{
    char text[ADDRESS_TEXT_MAX];

    address_format(a, text, sizeof(text));
    buf_puts(out, text);
}

static void format_address_list(const struct address_list *list,
                                struct buf *out)
{
    for (int i = 0; i < list->n; i++) {
        if (i > 0)
            buf_putc(out, ' ');
        format_address(&list->items[i], out);
    }
}

void option_format(const struct option *row, const struct options *o,
                   struct buf *out)
{
    const void *value = value_of(row, o);

    switch (row->type) {
    case OPTION_STRING:
        buf_puts(out, *(char *const *)value);
        break;
    case OPTION_INT:
        buf_put_i64(out, *(const int64_t *)value);
        break;
    case OPTION_OCTAL:
        buf_printf(out, "%04" PRIo64, (uint64_t)*(const int64_t *)value);
        break;
    case OPTION_ENUM:
        buf_puts(out, row->words[*(const int64_t *)value]);
        break;
    case OPTION_ADDRESS:
        format_address(value, out);
        break;
    case OPTION_ADDRESS_LIST:
        format_address_list(value, out);
        break;
    }
}

static void describe_words(const char *const *words, struct buf *out)
{
    for (size_t i = 0; words[i]; i++) {
        if (i > 0)
            buf_puts(out, words[i + 1] ? ", " : " or ");
        buf_puts(out, words[i]);
    }
}

void option_describe(const struct option *row, struct buf *out)
{
    switch (row->type) {
    case OPTION_STRING:
        break;
    case OPTION_INT:
        buf_printf(out, "%s%" PRId64 " to %" PRId64, row->zero ? "0, or " : "",
                   row->min, row->max);
        if (row->unit)
            buf_printf(out, " %s", row->unit);
        break;
    case OPTION_OCTAL:
        buf_printf(out, "octal, %04" PRIo64 " to %04" PRIo64,
                   (uint64_t)row->min, (uint64_t)row->max);
        break;
    case OPTION_ENUM:
        describe_words(row->words, out);
        break;
    case OPTION_ADDRESS:
        buf_puts(out, "unix:/path, tcp:host:port or tls:host:port");
        break;
    case OPTION_ADDRESS_LIST:
        buf_printf(out,
                   "%" PRId64 " to %" PRId64 " of unix:/path and tcp:host:port",
                   row->min, row->max);
        break;
    }
}
