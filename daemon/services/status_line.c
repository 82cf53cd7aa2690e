/* SPDX-License-Identifier: MIT */
/* What `systemctl status` shows: one line that says what is wrong if something is. */
#include "services/status.h"

#include "base/num.h"
#include "base/utf8.h"
#include "core/metrics.h"
#include "services/dead_letters.h"

#define TEXT_SHOWN 240 /* bytes of what a backend said */

static void put_backend(struct buf *b, const char *name, const char *text)
{
    buf_printf(b, "%s: ", name);
    utf8_put_plain(b, text, TEXT_SHOWN);
    buf_puts(b, "; ");
}

static void put_backends(struct buf *b, const struct status *s)
{
    bool pg_first = s->redis_open && !s->pg_up;

    if (pg_first)
        put_backend(b, "postgres", s->postgres);
    put_backend(b, "redis", s->redis);
    if (!pg_first)
        put_backend(b, "postgres", s->postgres);
}

static void put_backlog(struct buf *b, const struct flusher_status *st)
{
    char number[NUM_GROUPED_MAX];
    int64_t s = st->lag_us / 1000000;

    if (st->rows_dirty < 0) {
        buf_puts(b, "backlog unknown");
        return;
    }
    buf_printf(b, "backlog %s row%s",
               num_format_grouped(st->rows_dirty, number),
               st->rows_dirty == 1 ? "" : "s");
    if (st->lag_us < 0)
        buf_puts(b, ", age unknown");
    else if (s < 10)
        buf_printf(b, ", %.1f s", (double)st->lag_us / 1e6);
    else
        buf_printf(b, ", %s s", num_format_grouped(s, number));
}

/* Behind nothing stands nothing: what is normal takes no room. */
static void put_count(struct buf *b, int64_t n, const char *one,
                      const char *many)
{
    char number[NUM_GROUPED_MAX];

    if (n > 0)
        buf_printf(b, "; %s %s", num_format_grouped(n, number),
                   n == 1 ? one : many);
}

/* As many as the table has; until PostgreSQL has told, those of this process. */
static void put_dead_letters(struct buf *b, const struct dead_letters_recent *r)
{
    char number[NUM_GROUPED_MAX];

    if (!r->known)
        put_count(b, (int64_t)metric_get(M_DEAD_LETTERS),
                  "dead letter since the start",
                  "dead letters since the start");
    else if (r->total > DEAD_LETTERS_COUNTED)
        buf_printf(b, "; more than %s dead letters",
                   num_format_grouped(DEAD_LETTERS_COUNTED, number));
    else
        put_count(b, r->total, "dead letter", "dead letters");
}

void status_line(const struct status *s, struct buf *out)
{
    if (s->stopping)
        buf_puts(out, "stopping; ");
    put_backends(out, s);
    put_backlog(out, &s->all);
    put_count(out, s->all.batches, "batch under way", "batches under way");
    if (s->all.paused)
        buf_puts(out, "; flusher paused");
    put_dead_letters(out, s->dead_letters);
}
