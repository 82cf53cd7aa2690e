/* SPDX-License-Identifier: MIT */
#include "services/status.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "core/history.h"
#include "core/hottest.h"
#include "core/json.h"
#include "core/metrics.h"
#include "services/dead_letters.h"
#include "services/ingest.h"
#include "services/service.h"

#define HOTTEST_SHOWN 10
#define TEXT_SHOWN    600 /* bytes of what others said */

const char *status_redis(const struct service *s)
{
    const struct engine *e = &s->engine;

    if (redis_is_up(e->redis) && !e->open)
        return ingest_why(s->ingest);
    return redis_state_text(e->redis);
}

/* ---- what is missing ---- */

/* What a backend said may have more lines than one. */
static void put_line(struct buf *out, const char *name, const char *text)
{
    buf_puts(out, name);
    utf8_put_plain(out, text, TEXT_SHOWN);
    buf_putc(out, '\n');
}

static bool is_paused(const struct status *s)
{
    for (int i = 0; i < EDGE_COUNT; i++) {
        if (s->kinds[i].paused)
            return true;
    }
    return false;
}

size_t status_missing(const struct status *s, struct buf *out)
{
    size_t n = 0;

    if (s->stopping && ++n)
        buf_puts(out, "stopping\n");
    if (!s->redis_open && ++n)
        put_line(out, "redis: ", s->redis);
    if (!s->pg_up && ++n)
        put_line(out, "postgres: ", s->postgres);
    if (is_paused(s) && ++n)
        buf_puts(out, "flusher: paused\n");
    return n;
}

/* ---- JSON ---- */

/* Between what came before and what comes. */
static void comma(struct buf *b)
{
    char last = b->data[b->len - 1];

    if (last != '[' && last != '{')
        buf_putc(b, ',');
}

static void put_key(struct buf *b, const char *key)
{
    comma(b);
    json_put_text(b, key);
    buf_putc(b, ':');
}

static void put_text(struct buf *b, const char *key, const char *text)
{
    put_key(b, key);
    json_put(b, text, strnlen(text, TEXT_SHOWN));
}

static void put_int(struct buf *b, const char *key, int64_t v)
{
    put_key(b, key);
    buf_put_i64(b, v);
}

static void put_null(struct buf *b, const char *key)
{
    put_key(b, key);
    buf_puts(b, "null");
}

/* Negative: not known. */
static void put_known(struct buf *b, const char *key, int64_t v)
{
    if (v < 0)
        put_null(b, key);
    else
        put_int(b, key, v);
}

static void put_bool(struct buf *b, const char *key, bool v)
{
    put_key(b, key);
    buf_puts(b, v ? "true" : "false");
}

static void put_missing(struct buf *b, const struct status *s)
{
    struct buf lines = {0};
    size_t n = status_missing(s, &lines);
    const char *line = buf_cstr(&lines);

    put_bool(b, "ready", n == 0);
    put_key(b, "missing");
    buf_putc(b, '[');
    for (; n > 0; n--) {
        size_t len = strcspn(line, "\n");

        comma(b);
        json_put(b, line, len);
        line += len + 1;
    }
    buf_putc(b, ']');
    buf_free(&lines);
}

static void put_backend(struct buf *b, const char *name, bool up,
                        const char *state)
{
    put_key(b, name);
    buf_putc(b, '{');
    put_bool(b, "up", up);
    put_text(b, "state", state);
    buf_putc(b, '}');
}

static int64_t both_verbs(const enum metric_id *ids)
{
    return (int64_t)(metric_get(ids[0]) + metric_get(ids[1]));
}

static void put_kind(struct buf *b, const struct edge_kind *kind,
                     const struct flusher_status *st)
{
    comma(b);
    buf_putc(b, '{');
    put_text(b, "kind", kind->name);
    put_int(b, "changed", both_verbs(kind->m_changed));
    put_int(b, "same", both_verbs(kind->m_same));
    put_int(b, "error", both_verbs(kind->m_error));
    put_known(b, "backlog_rows", st->rows_dirty);
    put_known(b, "owners_dirty", st->owners_dirty);
    put_known(b, "owners_on_record", st->owners_on_record);
    put_int(b, "batches_in_flight", st->batches_own);
    put_known(b, "lag_ms", st->lag_us < 0 ? -1 : st->lag_us / 1000);
    buf_putc(b, '}');
}

/* NaN: not known, which JSON has no number for. */
static void put_known_double(struct buf *b, int decimals, double v)
{
    if (isnan(v))
        buf_puts(b, "null");
    else
        buf_printf(b, "%.*f", decimals, v);
}

static void put_samples(struct buf *b)
{
    const struct history_sample *s;

    put_key(b, "samples");
    buf_putc(b, '[');
    for (size_t i = 0; (s = history_sample_at(i)) != NULL; i++) {
        comma(b);
        buf_printf(b, "[%lld,%.1f,%.1f,%.1f,", (long long)s->at_ms, s->events,
                   s->reads, s->written);
        put_known_double(b, 0, s->backlog);
        buf_putc(b, ',');
        put_known_double(b, 3, s->lag_s);
        buf_putc(b, ']');
    }
    buf_putc(b, ']');
}

static void put_flushes(struct buf *b)
{
    const struct history_flush *f;

    put_key(b, "flushes");
    buf_putc(b, '[');
    for (size_t i = 0; (f = history_flush_at(i)) != NULL; i++) {
        comma(b);
        buf_printf(b, "[%lld,\"%s\",%zu,%.1f]", (long long)f->at_ms,
                   edge_kinds[f->kind]->name, f->rows, (double)f->us / 1000);
    }
    buf_putc(b, ']');
}

static void put_hottest(struct buf *b, const struct status *s)
{
    struct hottest_entry top[HOTTEST_SHOWN];
    size_t n = hottest_top(s->hottest, top, HOTTEST_SHOWN);
    struct buf id = {0};

    put_key(b, "hottest");
    buf_putc(b, '[');
    for (size_t i = 0; i < n; i++) {
        buf_clear(&id, SIZE_MAX);
        id_put_raw(s->post_type, top[i].key, top[i].len, &id);
        comma(b);
        buf_putc(b, '[');
        json_put(b, id.data, id.len);
        buf_printf(b, ",%llu]", (unsigned long long)top[i].count);
    }
    buf_putc(b, ']');
    buf_free(&id);
}

static void put_dead_letter(struct buf *b, const struct dead_letter *d)
{
    comma(b);
    buf_putc(b, '{');
    put_int(b, "id", d->id);
    put_text(b, "what", d->what);
    put_text(b, "sqlstate", d->sqlstate);
    put_text(b, "reason", d->reason);
    put_int(b, "at_ms", d->refused_us / 1000);
    buf_putc(b, '}');
}

static void put_dead_letters(struct buf *b, const struct dead_letters_recent *r)
{
    put_key(b, "dead_letters");
    buf_putc(b, '{');
    put_bool(b, "known", r->known);
    if (r->why)
        put_text(b, "error", r->why);
    else
        put_null(b, "error");
    put_int(b, "total", r->total);
    put_key(b, "newest");
    buf_putc(b, '[');
    for (int i = 0; i < r->n; i++)
        put_dead_letter(b, &r->items[i]);
    buf_puts(b, "]}");
}

static void put_clients(struct buf *b)
{
    put_key(b, "clients");
    buf_putc(b, '{');
    put_int(b, "connected", (int64_t)metric_get(M_CLIENTS));
    put_int(b, "refused", (int64_t)metric_get(M_CLIENTS_REFUSED));
    buf_putc(b, '}');
}

void status_json(const struct status *s, struct buf *out)
{
    buf_putc(out, '{');
    put_missing(out, s);
    put_text(out, "version", LIKESYNCD_VERSION);
    put_text(out, "instance", s->instance);
    put_int(out, "now_ms", s->now_us / 1000);
    put_int(out, "uptime_s", (int64_t)s->uptime_s);
    put_backend(out, "redis", s->redis_open, s->redis);
    put_backend(out, "postgres", s->pg_up, s->postgres);
    put_text(out, "flusher", is_paused(s) ? "paused" : "running");
    put_clients(out);
    put_key(out, "kinds");
    buf_putc(out, '[');
    for (int i = 0; i < EDGE_COUNT; i++)
        put_kind(out, edge_kinds[i], &s->kinds[i]);
    buf_putc(out, ']');
    put_samples(out);
    put_flushes(out);
    put_hottest(out, s);
    put_dead_letters(out, s->dead_letters);
    buf_puts(out, "}\n");
}
