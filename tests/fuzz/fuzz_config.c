/* SPDX-License-Identifier: MIT */
/* Any bytes as a configuration file. It is taken without a word or refused with
 * one; what was read is the same after printing, and with lines that end as on
 * other systems. */
#include "fuzz.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/config_reader.h"
#include "core/options.h"

/* The file under test, in memory. */
struct file {
    int fd;
    char path[32];
    long lines;
};

static void file_write(struct file *f, const void *data, size_t size)
{
    const char *bytes = data;

    if (f->fd == 0) {
        f->fd = memfd_create("fuzz_config", MFD_CLOEXEC);
        CHECK(f->fd > 0);
        snprintf(f->path, sizeof(f->path), "/proc/self/fd/%d", f->fd);
    }
    f->lines = 1;
    for (size_t i = 0; i < size; i++)
        f->lines += bytes[i] == '\n';
    CHECK(ftruncate(f->fd, 0) == 0);
    CHECK(pwrite(f->fd, data, size, 0) == (ssize_t)size);
}

/* One file for all inputs. */
static struct file file;

/* FILE:LINE: or, of an option that is not set there, FILE: */
static void check_place(const char *at)
{
    size_t len = strlen(file.path);
    char *end;
    long line;

    CHECK(strncmp(at, file.path, len) == 0 && at[len] == ':');
    at += len + 1;
    if (*at == ' ')
        return;
    line = strtol(at, &end, 10);
    CHECK(*end == ':' && line >= 1 && line <= file.lines);
}

/* Each fault is a line that names its place. */
static void check_faults(int rc, struct buf *errors)
{
    const char *at = buf_cstr(errors);

    CHECK((rc == 0) == (errors->len == 0));
    CHECK(strlen(at) == errors->len);
    while (*at) {
        const char *end = strchr(at, '\n');

        CHECK(end);
        check_place(at);
        at = end + 1;
    }
}

/* ---- entries ---- */

struct entries {
    struct buf printed; /* owned: as a file of the same meaning */
    struct buf section; /* owned: of the entry before */
    int line;           /* of the entry before */
};

static void check_entry(const struct entries *list,
                        const struct config_entry *e)
{
    CHECK(e->line > list->line);
    CHECK(e->section && !strchr(e->section, '\n'));
    CHECK(!e->name == !e->value);
    if (e->name) {
        CHECK(*e->name && !strpbrk(e->name, "=\n"));
        CHECK(!strchr(e->value, '\n'));
    }
}

/* What stands between two headers is of the first one's section. */
static void on_entry(void *arg, const struct config_entry *e)
{
    struct entries *list = arg;

    check_entry(list, e);
    list->line = e->line;
    if (!e->name) {
        buf_clear(&list->section, SIZE_MAX);
        buf_puts(&list->section, e->section);
        buf_printf(&list->printed, "[%s]\n", e->section);
        return;
    }
    CHECK(strcmp(buf_cstr(&list->section), e->section) == 0);
    /* No longer than it was: inih has room for some 200 bytes of a name. */
    buf_printf(&list->printed, "%s=", e->name);
    config_put_value(&list->printed, e->value);
    buf_putc(&list->printed, '\n');
}

static int read_entries(const void *data, size_t size, struct buf *printed)
{
    struct entries list = {0};
    struct buf errors = {0};
    int rc;

    buf_puts(&list.printed, "#\n"); /* only a file may begin with a BOM */
    file_write(&file, data, size);
    rc = config_read(file.path, on_entry, &list, &errors);
    check_faults(rc, &errors);
    *printed = list.printed;
    buf_free(&list.section);
    buf_free(&errors);
    return rc;
}

static void check_entries(const uint8_t *data, size_t size)
{
    struct buf printed, again;

    if (read_entries(data, size, &printed) == 0) {
        CHECK(read_entries(printed.data ? printed.data : "", printed.len,
                           &again) == 0);
        CHECK(buf_same(&printed, &again));
        buf_free(&again);
    }
    buf_free(&printed);
}

/* ---- options ---- */

struct loaded {
    struct options options; /* owned */
    struct buf errors;      /* owned */
    struct buf printed;     /* owned */
    int rc;
};

static void load(struct loaded *l, const void *data, size_t size)
{
    *l = (struct loaded){0};
    file_write(&file, data, size);
    options_init(&l->options);
    l->rc = options_load(&l->options, file.path, &l->errors);
    check_faults(l->rc, &l->errors);
    options_print(&l->options, false, &l->printed);
}

static void loaded_free(struct loaded *l)
{
    options_free(&l->options);
    buf_free(&l->errors);
    buf_free(&l->printed);
}

static void check_printed_again(const struct loaded *l, bool comments)
{
    struct loaded again;
    struct buf text = {0};

    options_print(&l->options, comments, &text);
    load(&again, text.data, text.len);
    CHECK(again.rc == 0);
    CHECK(buf_same(&l->printed, &again.printed));
    buf_free(&text);
    loaded_free(&again);
}

/* A reload takes what it may and names the rest; after it, only the rest
 * differs. */
static void check_reload(const struct loaded *l)
{
    struct buf notes = {0}, again = {0};
    struct options o;

    options_init(&o);
    CHECK(options_reload(&o, &l->options, &notes) >= 0);
    CHECK(options_reload(&o, &l->options, &again) == 0);
    CHECK(buf_same(&notes, &again));
    buf_clear(&again, 0);
    CHECK(options_reload(&o, &o, &again) == 0 && again.len == 0);
    options_free(&o);
    buf_free(&notes);
    buf_free(&again);
}

static void check_crlf(const struct loaded *l, const uint8_t *data, size_t size)
{
    struct buf text = {0};
    struct loaded crlf;

    for (size_t i = 0; i < size; i++) {
        if (data[i] == '\n')
            buf_putc(&text, '\r');
        buf_putc(&text, (char)data[i]);
    }
    load(&crlf, text.data ? text.data : "", text.len);
    CHECK(crlf.rc == l->rc);
    CHECK(buf_same(&l->printed, &crlf.printed));
    CHECK(buf_same(&l->errors, &crlf.errors));
    loaded_free(&crlf);
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct loaded l;

    check_entries(data, size);
    load(&l, data, size);
    check_crlf(&l, data, size);
    check_reload(&l);
    if (l.rc == 0) {
        check_printed_again(&l, false);
        check_printed_again(&l, true);
    }
    loaded_free(&l);
    return 0;
}
