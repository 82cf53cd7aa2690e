/* SPDX-License-Identifier: MIT */
/* INI files by inih, which has no quotes, cuts a value at " ;" and a line at
 * 200 bytes (Debian's build offers switches for some of this in one release
 * and not in another). So inih gets each line only up to its first '=' and
 * decides what it is: section, name, comment or nonsense. The value, which it
 * never sees, is taken from our own copy of the line when it calls back. As it
 * calls before it asks for the next line, the two always agree; this also
 * gives the line number.
 *
 * inih reports neither headers nor any malformed line but the first. Behind
 * each header we therefore slip in a line "=", whose empty name tells the
 * callback that a section begins; and a line with content for which no call
 * came is malformed. */
#include "core/config_reader.h"

#include <ctype.h>
#include <ini.h>
#include <stdbool.h>
#include <string.h>

#include "core/file.h"

enum { FILE_MAX_BYTES = 1024 * 1024 };

/* What inih was given last. */
enum given {
    GIVEN_START,   /* nothing yet */
    GIVEN_NOTHING, /* a blank line, a comment, or a line already answered */
    GIVEN_HEADER,  /* next comes the "=" that announces it */
    GIVEN_ANNOUNCEMENT,
    GIVEN_ENTRY /* its callback has not come yet */
};

struct reader {
    const char *path; /* ref */
    config_on_entry on_entry;
    void *arg;
    struct buf *errors; /* ref */
    bool failed;
    bool astray; /* behind a malformed header: the section is not known */
    char *rest;  /* ref: what was not read yet; ends with a NUL */
    char *end;   /* ref: that NUL */
    char *line;  /* ref: the line under way, without its newline */
    int line_no;
    enum given given;
};

static void fault(struct reader *r, const char *what)
{
    buf_printf(r->errors, "%s:%d: %s\n", r->path, r->line_no, what);
    r->failed = true;
}

static char *skip_space(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    return s;
}

static bool is_comment(char c)
{
    return c == ';' || c == '#';
}

/* Cuts the next line off; false at the end of the file. Leading space goes,
 * since to inih an indented line continues the one before. */
static bool take_line(struct reader *r)
{
    char *newline;

    if (r->rest == r->end)
        return false;
    newline = memchr(r->rest, '\n', (size_t)(r->end - r->rest));
    if (!newline)
        newline = r->end;
    *newline = '\0';
    r->line_no++;
    if (strlen(r->rest) != (size_t)(newline - r->rest)) {
        fault(r, "expected text, found a NUL byte");
        *r->rest = '\0';
    }
    r->line = skip_space(r->rest);
    r->rest = newline < r->end ? newline + 1 : newline;
    return true;
}

static enum given classify(const char *line)
{
    if (!*line || is_comment(*line))
        return GIVEN_NOTHING;
    return *line == '[' ? GIVEN_HEADER : GIVEN_ENTRY;
}

/* Gives inih `len` bytes as a line, or as many as it has room for. */
static char *give(char *to, int room, const char *s, size_t len)
{
    size_t most = (size_t)room - 2; /* less the newline and the NUL */

    if (len > most)
        len = most;
    memcpy(to, s, len);
    to[len] = '\n';
    to[len + 1] = '\0';
    return to;
}

/* inih asks for a line, as of fgets(3). */
static char *on_line_wanted(char *to, int room, void *stream)
{
    struct reader *r = stream;
    size_t len;

    if (r->given == GIVEN_START) { /* in which inih passes over a BOM */
        r->given = GIVEN_NOTHING;
        return give(to, room, ";", 1);
    }
    if (r->given == GIVEN_ENTRY)
        fault(r, "expected [section], name = value or a comment");
    if (r->given == GIVEN_HEADER) {
        r->given = GIVEN_ANNOUNCEMENT;
        return give(to, room, "=", 1);
    }
    if (!take_line(r))
        return NULL;
    r->given = classify(r->line);
    len = strcspn(r->line, "=");
    return give(to, room, r->line, r->line[len] ? len + 1 : len);
}

/* Nothing but a comment may stand behind a header or a quoted value: not
 * another option that would be lost without a word. */
static bool ends_here(char *s)
{
    s = skip_space(s);
    return !*s || is_comment(*s);
}

static void on_header(struct reader *r, const char *section)
{
    struct config_entry entry = {.line = r->line_no, .section = section};
    size_t len = strlen(section);
    char *name = r->line + 1;

    /* inih cuts long names, and keeps the old section if there is no ']'. */
    r->astray = strncmp(name, section, len) != 0 || name[len] != ']' ||
                !ends_here(name + len + 1);
    if (r->astray)
        fault(r, "expected [section] and nothing behind it");
    else
        r->on_entry(r->arg, &entry);
}

/* Both take the value apart in place. NULL, or what was expected. */
static const char *unquote(char *s)
{
    char *to = s;
    char *from = s + 1;

    for (; *from != '"'; from++) {
        if (!*from)
            return "expected a closing double quote";
        if (*from == '\\') {
            from++;
            if (*from != '"' && *from != '\\')
                return "expected \\\" or \\\\ where a quoted value has a "
                       "backslash";
        }
        *to++ = *from;
    }
    if (!ends_here(from + 1))
        return "expected nothing but a comment behind the closing quote";
    *to = '\0';
    return NULL;
}

static const char *trim_plain(char *s)
{
    char *at = s;

    /* s[-1] is the '=' or a space in front of the value. */
    for (; *at && !(isspace((unsigned char)at[-1]) && is_comment(*at)); at++)
        ;
    if (*at == '#')
        return "expected double quotes around a value with \" #\" "
               "(a comment behind a value starts with \" ;\")";
    while (at > s && isspace((unsigned char)at[-1]))
        at--;
    *at = '\0';
    return NULL;
}

static void on_pair(struct reader *r, const char *section, const char *name)
{
    char *value = skip_space(r->line + strcspn(r->line, "=") + 1);
    const char *expected = *value == '"' ? unquote(value) : trim_plain(value);
    struct config_entry entry = {
        .line = r->line_no, .section = section, .name = name, .value = value};

    if (r->astray)
        return;
    if (!expected) {
        r->on_entry(r->arg, &entry);
        return;
    }
    buf_printf(r->errors, "%s:%d: %s.%s: %s\n", r->path, r->line_no, section,
               name, expected);
    r->failed = true;
}

/* inih found `name =`. Something between the two means that it took a ':' for
 * the '='; left unanswered, that line is reported as malformed. */
static int on_inih_pair(void *user, const char *section, const char *name,
                        const char *between)
{
    struct reader *r = user;

    if (*between)
        return 1;
    if (r->given == GIVEN_ANNOUNCEMENT) {
        on_header(r, section);
    } else if (*name && r->line[strcspn(r->line, "=")]) {
        r->given = GIVEN_NOTHING;
        on_pair(r, section, name);
    }
    return 1;
}

int config_read(const char *path, config_on_entry on_entry, void *arg,
                struct buf *errors)
{
    struct reader r = {
        .path = path, .on_entry = on_entry, .arg = arg, .errors = errors};
    struct buf text = {0};
    const char *why;

    if (file_read(path, FILE_MAX_BYTES, &text, &why) < 0) {
        buf_printf(errors, "%s: expected a readable file: %s\n", path, why);
        buf_free(&text);
        return -1;
    }
    buf_cstr(&text);
    r.rest = text.data;
    r.end = text.data + text.len;
    if (strncmp(r.rest, "\xef\xbb\xbf", 3) == 0)
        r.rest += 3; /* a byte order mark */
    r.line_no = ini_parse_stream(on_line_wanted, &r, on_inih_pair, &r);
    if (r.line_no && !r.failed)
        fault(&r, "expected a line that inih can read");
    buf_free(&text);
    return r.failed ? -1 : 0;
}

static bool needs_quotes(const char *value)
{
    size_t len = strlen(value);

    return len && (strpbrk(value, "\";#") || isspace((unsigned char)*value) ||
                   isspace((unsigned char)value[len - 1]));
}

void config_put_value(struct buf *out, const char *value)
{
    if (!needs_quotes(value)) {
        buf_puts(out, value);
        return;
    }
    buf_putc(out, '"');
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            buf_putc(out, '\\');
        buf_putc(out, *value);
    }
    buf_putc(out, '"');
}
