/* SPDX-License-Identifier: MIT */
/* Fills in a page of the manual: a line `{NAME}` becomes the table of that name,
 * in mdoc(7). Run by the build.
 *
 *   man_tables TEMPLATE PAGE */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "ctl.h"
#include "core/histogram.h"
#include "core/metrics.h"
#include "core/option_table.h"
#include "services/commands.h"

/* What roff would take for its own. */
static void put_text(struct buf *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        buf_puts(out, "\\&");
    for (; *text; text++) {
        if (*text == '\\')
            buf_puts(out, "\\e");
        else if (*text == '-')
            buf_puts(out, "\\-");
        else
            buf_putc(out, *text);
    }
}

static void put_line(struct buf *out, const char *macro, const char *text)
{
    buf_puts(out, macro);
    put_text(out, text);
    buf_putc(out, '\n');
}

static void begin_list(struct buf *out)
{
    buf_puts(out, ".Bl -tag -width Ds\n");
}

static void end_list(struct buf *out)
{
    buf_puts(out, ".El\n");
}

/* ---- options ---- */

static void put_option(struct buf *out, const struct option *row)
{
    struct buf values = {0};

    buf_puts(out, ".It Ic ");
    put_text(out, row->name);
    buf_puts(out, row->fallback[0] ? " = " : " =");
    put_text(out, row->fallback);
    buf_putc(out, '\n');
    buf_putc(out, (char)toupper((unsigned char)row->help[0]));
    put_text(out, row->help + 1);
    buf_puts(out, ".\n");
    option_describe(row, &values);
    if (values.len) {
        buf_puts(out, "Values: ");
        put_text(out, buf_cstr(&values));
        buf_puts(out, ".\n");
    }
    if (row->reloadable)
        buf_puts(out, "(Reloaded.)\n");
    buf_free(&values);
}

static void put_options(struct buf *out)
{
    const char *section = "";

    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *row = &OPTION_TABLE[i];

        if (strcmp(section, row->section) != 0) {
            if (*section)
                end_list(out);
            section = row->section;
            buf_printf(out, ".Ss [%s]\\&\n", section);
            begin_list(out);
        }
        put_option(out, row);
    }
    end_list(out);
}

/* ---- commands ---- */

static void put_command(struct buf *out, const struct command *cmd)
{
    buf_puts(out, ".It Ic ");
    for (const char *p = cmd->name; *p; p++)
        buf_putc(out, *p == '|' ? ' ' : (char)toupper((unsigned char)*p));
    if (cmd->args[0]) {
        buf_puts(out, " No ");
        put_text(out, cmd->args);
    }
    buf_putc(out, '\n');
    put_line(out, "", cmd->summary);
}

static void put_commands(struct buf *out, const char *group)
{
    begin_list(out);
    COMMAND_FOREACH(cmd) {
        if (strcmp(cmd->group, group) != 0)
            continue;
        put_command(out, cmd);
        COMMAND_FOREACH_SUB(sub, cmd)
            put_command(out, sub);
    }
    end_list(out);
}

static void put_likes(struct buf *out)
{
    put_commands(out, "likes");
}

static void put_follows(struct buf *out)
{
    put_commands(out, "follows");
}

static void put_connection(struct buf *out)
{
    put_commands(out, "connection");
}

static void put_server(struct buf *out)
{
    put_commands(out, "server");
}

/* ---- metrics ---- */

#define HELP "# HELP "
#define TYPE "# TYPE "

/* From the text as Prometheus gets it: a HELP, a TYPE, and then the values. */
static void put_metrics(struct buf *out)
{
    struct buf text = {0};
    char *save = NULL;
    char *help = NULL;

    metrics_render(&text);
    histograms_render(&text);
    buf_cstr(&text);
    begin_list(out);
    for (char *line = strtok_r(text.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, HELP, strlen(HELP)) == 0) {
            help = strchr(line + strlen(HELP), ' ') + 1;
        } else if (help && strncmp(line, TYPE, strlen(TYPE)) == 0) {
            char *name = line + strlen(TYPE);
            char *type = strchr(name, ' ');

            *type++ = '\0';
            buf_printf(out, ".It Ic %s Pq %s\n", name, type);
            put_line(out, "", help);
        }
    }
    end_list(out);
    buf_free(&text);
}

/* ---- verbs and options of likesyncctl ---- */

/* Each on a line of its own, as roff likes them. */
static void put_sentences(struct buf *out, const char *text)
{
    while (*text) {
        const char *end = strstr(text, ". ");
        size_t len = end ? (size_t)(end + 1 - text) : strlen(text);
        char *sentence = mem_strndup(text, len);

        put_line(out, "", sentence);
        free(sentence);
        text += len + (end != NULL);
    }
}

static void put_flag(struct buf *out, const struct ctl_option *o)
{
    buf_puts(out, "Fl \\-");
    put_text(out, o->name);
    if (o->arg)
        buf_printf(out, " Ar %s", o->arg);
}

static void put_verb(struct buf *out, const struct ctl_verb *verb)
{
    size_t optional = verb->arg[0] == '[';

    buf_printf(out, ".It Cm %s", verb->name);
    if (verb->arg[0])
        buf_printf(out, " %sAr %.*s%s", optional ? "Oo " : "",
                   (int)(strlen(verb->arg) - 2 * optional),
                   verb->arg + optional, optional ? " Oc" : "");
    for (size_t i = 0; i < ctl_option_count; i++) {
        if (!(ctl_options[i].flag & verb->options))
            continue;
        buf_puts(out, " Oo ");
        put_flag(out, &ctl_options[i]);
        buf_puts(out, " Oc");
    }
    buf_putc(out, '\n');
    put_sentences(out, verb->summary);
    put_sentences(out, verb->help);
}

static void put_verbs(struct buf *out)
{
    begin_list(out);
    for (size_t i = 0; i < ctl_verb_count; i++)
        put_verb(out, &ctl_verbs[i]);
    end_list(out);
}

static void put_flags(struct buf *out)
{
    begin_list(out);
    for (size_t i = 0; i < ctl_option_count; i++) {
        const struct ctl_option *o = &ctl_options[i];

        buf_puts(out, ".It ");
        if (o->letter)
            buf_printf(out, "Fl %c%s%s , ", o->letter, o->arg ? " Ar " : "",
                       o->arg ? o->arg : "");
        put_flag(out, o);
        buf_putc(out, '\n');
        put_sentences(out, o->help);
    }
    end_list(out);
}

/* Where it is not the one of all verbs, after the verb's name. */
static void put_statuses(struct buf *out)
{
    put_sentences(out, ctl_status);
    for (size_t i = 0; i < ctl_verb_count; i++) {
        if (!ctl_verbs[i].status)
            continue;
        buf_printf(out, "Of\n.Cm %s :\n", ctl_verbs[i].name);
        put_sentences(out, ctl_verbs[i].status);
    }
}

/* ---- the page ---- */

static const struct {
    const char *name;
    void (*put)(struct buf *out);
} tables[] = {
    {"{options}\n", put_options},   {"{likes}\n", put_likes},
    {"{follows}\n", put_follows},   {"{connection}\n", put_connection},
    {"{server}\n", put_server},     {"{metrics}\n", put_metrics},
    {"{verbs}\n", put_verbs},       {"{flags}\n", put_flags},
    {"{statuses}\n", put_statuses},
};

static void put_template_line(struct buf *out, const char *line)
{
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        if (strcmp(line, tables[i].name) == 0) {
            tables[i].put(out);
            return;
        }
    }
    buf_puts(out, line);
}

static int write_page(const char *path, const struct buf *page)
{
    FILE *f = fopen(path, "w");
    size_t n = f ? fwrite(page->data, 1, page->len, f) : 0;

    if (!f || fclose(f) != 0 || n != page->len) {
        perror(path);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    FILE *f = argc == 3 ? fopen(argv[1], "r") : NULL;
    struct buf page = {0};
    char line[512];
    int status;

    if (!f) {
        fprintf(stderr, "usage: man_tables TEMPLATE PAGE\n");
        return EXIT_FAILURE;
    }
    while (fgets(line, sizeof(line), f))
        put_template_line(&page, line);
    fclose(f);
    status = write_page(argv[2], &page);
    buf_free(&page);
    return status;
}
