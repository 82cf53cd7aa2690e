/* SPDX-License-Identifier: MIT */
/* The configuration as a whole: defaults, reload, print. Reading it from a
 * file is in options_load.c. */
#include "core/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_reader.h"
#include "core/option_table.h"

enum { COMMENT_WIDTH = 79 };

static void set_text(struct options *o, const struct option *row,
                     const char *text)
{
    struct buf expected = {0};

    if (option_parse(row, text, o, &expected) < 0) {
        log_error("options", "%s.%s = \"%s\": %s", row->section, row->name,
                  text, buf_cstr(&expected));
        abort();
    }
    buf_free(&expected);
}

void options_init(struct options *o)
{
    *o = (struct options){0};
    for (size_t i = 0; i < OPTION_COUNT; i++)
        set_text(o, &OPTION_TABLE[i], OPTION_TABLE[i].fallback);
}

void options_free(struct options *o)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *row = &OPTION_TABLE[i];

        if (row->type == OPTION_STRING)
            free(*(char **)(void *)((char *)o + row->offset));
    }
    *o = (struct options){0};
}

static int reload_row(const struct option *row, struct options *o,
                      const struct options *from, struct buf *notes)
{
    struct buf now = {0}, next = {0};
    int changed = 0;

    option_format(row, o, &now);
    option_format(row, from, &next);
    if (strcmp(buf_cstr(&now), buf_cstr(&next)) != 0) {
        if (row->reloadable) {
            set_text(o, row, buf_cstr(&next));
            changed = 1;
        } else {
            buf_printf(notes, "%s.%s changed: takes effect after a restart\n",
                       row->section, row->name);
        }
    }
    buf_free(&now);
    buf_free(&next);
    return changed;
}

int options_reload(struct options *o, const struct options *from,
                   struct buf *notes)
{
    int changed = 0;

    for (size_t i = 0; i < OPTION_COUNT; i++)
        changed += reload_row(&OPTION_TABLE[i], o, from, notes);
    return changed;
}

static void show_row(const struct option *row, const struct options *o,
                     const struct options *file,
                     void (*each)(void *arg, const struct option_shown *shown),
                     void *arg)
{
    struct buf now = {0}, next = {0};
    struct option_shown shown = {row->section, row->name, NULL, row->reloadable,
                                 false};

    option_format(row, o, &now);
    option_format(row, file ? file : o, &next);
    shown.differs = strcmp(buf_cstr(&now), buf_cstr(&next)) != 0;
    shown.value = row->hidden ? "(hidden)" : buf_cstr(&now);
    each(arg, &shown);
    buf_free(&now);
    buf_free(&next);
}

void options_each(const struct options *o, const struct options *file,
                  void (*each)(void *arg, const struct option_shown *shown),
                  void *arg)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        show_row(&OPTION_TABLE[i], o, file, each, arg);
}

size_t options_count(void)
{
    return OPTION_COUNT;
}

static void print_head(struct buf *out)
{
    buf_puts(out,
             "# Configuration of likesyncd.\n"
             "#\n"
             "# A comment is a line that starts with # or ;, or follows a "
             "value as \" ; ...\".\n"
             "# A value in double quotes is taken literally, so that it may "
             "hold ; and # and\n"
             "# outer spaces. In quotes write \\\" for \" and \\\\ for \\, as "
             "in\n"
             "#   conninfo = \"host=/tmp application_name='a;b # c'\"\n"
             "# Passwords belong in files of their own: the app servers' "
             "group may read\n# this one.\n"
             "# What is marked \"reload\" takes effect on SIGHUP, the rest "
             "after a restart.\n\n");
}

/* Writes the text as comment lines, broken between words. */
static void print_comment(const char *text, struct buf *out)
{
    size_t column = 0;

    while (*text) {
        size_t len = strcspn(text, " ");

        if (column == 0 || column + 1 + len > COMMENT_WIDTH) {
            buf_puts(out, column ? "\n#" : "#");
            column = 1;
        }
        buf_putc(out, ' ');
        buf_append(out, text, len);
        column += 1 + len;
        text += len + strspn(text + len, " ");
    }
    buf_putc(out, '\n');
}

static void print_help(const struct option *row, struct buf *out)
{
    struct buf help = {0}, values = {0};
    const char *separator;

    option_describe(row, &values);
    separator = values.len && row->reloadable ? "; " : "";
    buf_puts(&help, row->help);
    if (values.len || row->reloadable)
        buf_printf(&help, " (%s%s%s)", buf_cstr(&values), separator,
                   row->reloadable ? "reload" : "");
    print_comment(buf_cstr(&help), out);
    buf_free(&values);
    buf_free(&help);
}

static void print_row(const struct option *row, const struct options *o,
                      struct buf *out)
{
    struct buf value = {0};

    option_format(row, o, &value);
    buf_printf(out, "%s =", row->name);
    if (value.len) {
        buf_putc(out, ' ');
        config_put_value(out, buf_cstr(&value));
    }
    buf_putc(out, '\n');
    buf_free(&value);
}

void options_print(const struct options *o, bool comments, struct buf *out)
{
    const char *section = "";

    if (comments)
        print_head(out);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *row = &OPTION_TABLE[i];

        if (strcmp(section, row->section) != 0) {
            buf_printf(out, "%s[%s]\n", *section ? "\n" : "", row->section);
            section = row->section;
        }
        if (comments)
            print_help(row, out);
        print_row(row, o, out);
    }
}
