/* SPDX-License-Identifier: MIT */
/* Reads the configuration file and reports every fault in it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_reader.h"
#include "core/option_keys.h"
#include "core/option_table.h"

/* The most memory that the arguments of one request may take. */
#define REQUEST_MAX_BYTES (INT64_C(64) << 20)

struct loader {
    struct options *o;  /* ref */
    const char *path;   /* ref */
    struct buf *errors; /* ref */
    int *lines;         /* owned: per row, where it was set; 0 is not */
    bool section_known; /* else its options are passed over in silence */
    unsigned n_faults;
};

/* ---- messages ---- */

/* An option that does not exist may still be a password in the wrong place. */
static bool may_be_secret(const char *name)
{
    return strstr(name, "pass") || strstr(name, "secret") ||
           strstr(name, "conn") || strstr(name, "auth");
}

/* FILE:LINE: section.name = "value": and then the caller says the rest. */
static void begin_fault(struct loader *ld, const struct config_entry *e,
                        bool show_value)
{
    ld->n_faults++;
    buf_puts(ld->errors, ld->path);
    if (e->line)
        buf_printf(ld->errors, ":%d", e->line);
    buf_printf(ld->errors, ": %s.%s", e->section, e->name);
    if (show_value)
        buf_printf(ld->errors, " = \"%s\"", e->value);
    buf_puts(ld->errors, ": ");
}

/* A value that does not go with that of another option. */
static void conflict(struct loader *ld, size_t offset, const char *expected)
{
    const struct option *row = option_at(offset);
    struct buf value = {0};
    struct config_entry e = {.line = ld->lines[row - OPTION_TABLE],
                             .section = row->section,
                             .name = row->name};

    option_format(row, ld->o, &value);
    e.value = buf_cstr(&value);
    begin_fault(ld, &e, !row->hidden);
    buf_printf(ld->errors, "%s\n", expected);
    buf_free(&value);
}

#define CONFLICT(ld, member, expected)                                         \
    conflict(ld, offsetof(struct options, member), expected)

/* ---- misspellings ---- */

enum { GUESS_MAX_LEN = 40, GUESS_MAX_EDITS = 3 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many letters to insert, drop or change (Levenshtein), row by row. */
static size_t edits(const char *a, const char *b)
{
    size_t row[GUESS_MAX_LEN + 1];
    size_t len = strlen(b);

    if (strlen(a) > GUESS_MAX_LEN || len > GUESS_MAX_LEN)
        return SIZE_MAX / 2;
    for (size_t j = 0; j <= len; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < len; j++) {
            size_t change = diagonal + (a[i] != b[j]);

            diagonal = row[j + 1];
            row[j + 1] = least(change, least(row[j], diagonal) + 1);
        }
    }
    return row[len];
}

/* A name cut short ("password" for "password_file") is as near as one edit. */
static size_t distance(const char *name, const char *word)
{
    size_t len = strlen(name);

    if (len >= 3 && len < strlen(word) && strncmp(name, word, len) == 0)
        return 1;
    return edits(name, word);
}

/* The nearest row by section alone, or by name; another section counts as one
 * edit. NULL when nothing is near. */
static const struct option *guess(const char *section, const char *name)
{
    const struct option *best = NULL;
    size_t best_edits = GUESS_MAX_EDITS + 1;

    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *row = &OPTION_TABLE[i];
        const char *word = name ? row->name : row->section;
        size_t n = distance(name ? name : section, word);

        if (name && strcmp(section, row->section) != 0)
            n++;
        if (n < best_edits && n * 2 <= strlen(word)) {
            best_edits = n;
            best = row;
        }
    }
    return best;
}

/* ---- entries ---- */

static bool is_section(const char *name)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (strcmp(OPTION_TABLE[i].section, name) == 0)
            return true;
    }
    return false;
}

static void on_section(struct loader *ld, const struct config_entry *e)
{
    const struct option *near;

    ld->section_known = is_section(e->section);
    if (ld->section_known)
        return;
    ld->n_faults++;
    near = guess(e->section, NULL);
    buf_printf(ld->errors, "%s:%d: [%s]: expected a known section", ld->path,
               e->line, e->section);
    if (near)
        buf_printf(ld->errors, ", perhaps [%s]", near->section);
    buf_putc(ld->errors, '\n');
}

static void on_unknown(struct loader *ld, const struct config_entry *e)
{
    const struct option *near = guess(e->section, e->name);

    begin_fault(ld, e, !may_be_secret(e->name));
    buf_puts(ld->errors, "expected a known option");
    if (near)
        buf_printf(ld->errors, ", perhaps %s.%s", near->section, near->name);
    buf_putc(ld->errors, '\n');
}

static void on_option(struct loader *ld, const struct option *row,
                      const struct config_entry *e)
{
    int *line = &ld->lines[row - OPTION_TABLE];
    struct buf expected = {0};

    if (*line) {
        buf_printf(&expected, "expected once, but line %d has it too", *line);
    } else {
        *line = e->line;
        if (option_parse(row, e->value, ld->o, &expected) == 0)
            return;
    }
    begin_fault(ld, e, !row->hidden);
    buf_printf(ld->errors, "%s\n", buf_cstr(&expected));
    buf_free(&expected);
}

static void on_entry(void *arg, const struct config_entry *e)
{
    struct loader *ld = arg;
    const struct option *row;

    if (!e->name) {
        on_section(ld, e);
        return;
    }
    if (!*e->section) {
        ld->n_faults++;
        buf_printf(ld->errors, "%s:%d: %s: expected a [section] above it\n",
                   ld->path, e->line, e->name);
        return;
    }
    row = option_find(e->section, e->name);
    if (row)
        on_option(ld, row, e);
    else if (ld->section_known)
        on_unknown(ld, e);
}

/* ---- what needs more than one option ---- */

/* Who reaches a unix socket or loopback is on this machine already. */
static bool needs_password(const struct address_list *list)
{
    for (int i = 0; i < list->n; i++) {
        if (!address_is_local(&list->items[i]))
            return true;
    }
    return false;
}

static bool has_tls(const struct address_list *list)
{
    for (int i = 0; i < list->n; i++) {
        if (list->items[i].kind == ADDRESS_TLS)
            return true;
    }
    return false;
}

static void check_listen(struct loader *ld, size_t offset,
                         const struct address_list *list)
{
    if (has_tls(list))
        conflict(ld, offset,
                 "expected unix: and tcp: addresses, tls: is for "
                 "redis.address only");
    if (needs_password(list) && !*ld->o->password_file)
        conflict(ld, offset,
                 "expected server.password_file to be set, since a TCP "
                 "address here is not loopback");
}

static bool in_list(const struct address_list *list, int n,
                    const struct address *a)
{
    char text[ADDRESS_TEXT_MAX], other[ADDRESS_TEXT_MAX];

    address_format(a, text, sizeof(text));
    for (int i = 0; i < n; i++) {
        address_format(&list->items[i], other, sizeof(other));
        if (strcmp(text, other) == 0)
            return true;
    }
    return false;
}

static void check_listen_distinct(struct loader *ld)
{
    const struct address_list *listen = &ld->o->listen;
    const struct address_list *admin = &ld->o->admin_listen;

    for (int i = 1; i < listen->n; i++) {
        if (in_list(listen, i, &listen->items[i])) {
            CONFLICT(ld, listen, "expected each address once");
            break;
        }
    }
    for (int i = 0; i < admin->n; i++) {
        if (in_list(listen, listen->n, &admin->items[i]) ||
            in_list(admin, i, &admin->items[i])) {
            CONFLICT(ld, admin_listen,
                     "expected each address once, and none of server.listen");
            break;
        }
    }
}

static void check_sizes(struct loader *ld)
{
    const struct options *o = ld->o;

    if (o->max_args * o->max_arg_bytes > REQUEST_MAX_BYTES)
        CONFLICT(ld, max_arg_bytes,
                 "expected at most 67108864 bytes (64 MiB) of it times "
                 "server.max_args");
    if (o->output_hard_bytes < o->output_soft_bytes)
        CONFLICT(ld, output_hard_bytes,
                 "expected no less than server.output_soft_bytes");
    if (o->auth_timeout_s > 0 && o->auth_timeout_s * 1000 <= o->auth_delay_ms)
        CONFLICT(ld, auth_timeout_s,
                 "expected more than server.auth_delay_ms, or a wrong password "
                 "is never answered");
    if (o->flush_batch_rows < o->flush_claim_rows)
        CONFLICT(ld, flush_batch_rows,
                 "expected no less than flush.claim_rows");
    if (o->cache_ttl_s * 1000 <= o->pg_write_timeout_ms + o->flush_lease_ms)
        CONFLICT(ld, cache_ttl_s,
                 "expected more than postgres.write_timeout_ms and "
                 "flush.lease_ms together, which a batch may live");
}

static void check_key_names(struct loader *ld)
{
    static const char OWN[] =
        "expected a key name that cannot be one of the daemon's own, such as "
        "follow_set, post_set or likesync:..., for any user";
    const struct options *o = ld->o;
    enum id_type type = (enum id_type)o->id_user;
    struct buf expected = {0};

    if (key_meets_own(o->key_follow, type))
        CONFLICT(ld, key_follow, OWN);
    if (key_meets_own(o->key_fans, type))
        CONFLICT(ld, key_fans, OWN);
    if (!key_meets_key(o->key_follow, o->key_fans, type))
        return;
    buf_printf(&expected,
               "expected a key name that cannot be the keys.follow of another "
               "user (\"%s\", ids of type %s)",
               o->key_follow, id_type_name(type));
    CONFLICT(ld, key_fans, buf_cstr(&expected));
    buf_free(&expected);
}

static void check_tls_is_used(struct loader *ld)
{
    const struct options *o = ld->o;
    const struct {
        size_t offset;
        const char *value;
    } of_tls[] = {
        {offsetof(struct options, redis_tls_ca), o->redis_tls_ca},
        {offsetof(struct options, redis_tls_cert), o->redis_tls_cert},
        {offsetof(struct options, redis_tls_key), o->redis_tls_key},
        {offsetof(struct options, redis_tls_server_name),
         o->redis_tls_server_name},
    };

    for (size_t i = 0; i < ARRAY_LEN(of_tls); i++) {
        if (*of_tls[i].value)
            conflict(ld, of_tls[i].offset,
                     "expected redis.address to be tls:, without which it is "
                     "of no use");
    }
}

static void check_redis(struct loader *ld)
{
    const struct options *o = ld->o;

    if (o->redis_address.kind != ADDRESS_TLS)
        check_tls_is_used(ld);
    else if (!LIKESYNCD_TLS)
        CONFLICT(ld, redis_address,
                 "expected unix: or tcp:, this build has no TLS support for "
                 "Redis");
    if (*o->redis_tls_cert && !*o->redis_tls_key)
        CONFLICT(ld, redis_tls_cert, "expected redis.tls_key to be set, too");
    if (*o->redis_tls_key && !*o->redis_tls_cert)
        CONFLICT(ld, redis_tls_key, "expected redis.tls_cert to be set, too");
    if (*o->redis_username && !*o->redis_password_file)
        CONFLICT(ld, redis_username,
                 "expected redis.password_file to be set, too: without a "
                 "password nobody logs in");
}

static void check_together(struct loader *ld)
{
    const struct options *o = ld->o;

    check_listen(ld, offsetof(struct options, listen), &o->listen);
    check_listen(ld, offsetof(struct options, admin_listen), &o->admin_listen);
    check_listen_distinct(ld);
    check_sizes(ld);
    check_redis(ld);
    check_key_names(ld);
}

int options_load(struct options *o, const char *path, struct buf *errors)
{
    struct loader ld = {.o = o, .path = path, .errors = errors};
    int rc;

    ld.lines = mem_zalloc(OPTION_COUNT * sizeof(*ld.lines));
    rc = config_read(path, on_entry, &ld, errors);
    check_together(&ld);
    free(ld.lines);
    return rc < 0 || ld.n_faults ? -1 : 0;
}
