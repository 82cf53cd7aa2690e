/* SPDX-License-Identifier: MIT */
/* CONFIG GET and INFO: what tools and client libraries ask. */
#include "services/commands.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/glob.h"
#include "core/metrics.h"
#include "services/flushers.h"
#include "services/status.h"

/* ---- CONFIG GET ---- */

static const struct {
    const char *name;
    const char *value;
} config_table[] = {
    {"save", ""},         /* redis-benchmark */
    {"appendonly", "no"}, /* redis-benchmark */
    {"databases", "1"},   /* redis-cli, some libraries */
    {"maxmemory", "0"},
};

/* False when it is not asked for; else as what: a name as it was written, its
 * own when a pattern fits. */
static bool config_asked(int argc, const struct resp_arg *argv,
                         const char *name, struct resp_arg *as_r)
{
    for (int i = 2; i < argc; i++) {
        *as_r = argv[i];
        if (resp_arg_is(&argv[i], name))
            return true;
        *as_r = (struct resp_arg){name, strlen(name)};
        if (glob_is_pattern(argv[i].data, argv[i].len) &&
            glob_match(argv[i].data, argv[i].len, name))
            return true;
    }
    return false;
}

void cmd_config_get(struct commands *c, struct request *rq, int argc,
                    const struct resp_arg *argv)
{
    struct buf found = {0};
    size_t n = 0;

    (void)c;
    for (size_t i = 0; i < ARRAY_LEN(config_table); i++) {
        struct resp_arg as;

        if (!config_asked(argc, argv, config_table[i].name, &as))
            continue;
        resp_bulk(&found, as.data, as.len);
        resp_bulk_str(&found, config_table[i].value);
        n++;
    }
    resp_map(request_reply(rq), request_proto(rq), n);
    buf_append(request_reply(rq), found.data, found.len);
    buf_free(&found);
    request_done(rq);
}

/* ---- INFO ---- */

static void info_server(struct commands *c, struct buf *b)
{
    uint64_t up_s = (clock_monotonic_ms() - c->started_ms) / 1000;

    buf_printf(b,
               "redis_version:7.0.0\r\n"
               "redis_mode:standalone\r\n"
               "likesyncd_version:%s\r\n"
               "process_id:%d\r\n"
               "run_id:%s\r\n"
               "uptime_in_seconds:%llu\r\n"
               "uptime_in_days:%llu\r\n",
               LIKESYNCD_VERSION, (int)getpid(), c->run_id,
               (unsigned long long)up_s, (unsigned long long)up_s / 86400);
}

static void info_clients(struct commands *c, struct buf *b)
{
    buf_printf(b,
               "connected_clients:%zu\r\n"
               "maxclients:%lld\r\n",
               server_clients(c->server),
               (long long)server_max_clients(c->server));
}

static void info_persistence(struct commands *c, struct buf *b)
{
    (void)c;
    buf_puts(b, "loading:0\r\n");
}

static void info_stats(struct commands *c, struct buf *b)
{
    (void)c;
    buf_printf(b,
               "total_connections_received:%.0f\r\n"
               "total_commands_processed:%.0f\r\n"
               "rejected_connections:%.0f\r\n",
               metric_get(M_CLIENTS_ACCEPTED), metric_get(M_REQUESTS),
               metric_get(M_CLIENTS_REFUSED));
}

static void info_replication(struct commands *c, struct buf *b)
{
    (void)c;
    buf_puts(b, "role:master\r\nconnected_slaves:0\r\n");
}

static void info_backlog(struct buf *b, const char *kind,
                         const struct flusher_status *st)
{
    const char *join = kind[0] ? "_" : "";

    buf_printf(b,
               "%s%sowners_dirty:%lld\r\n"
               "%s%sbatches_on_record:%lld\r\n",
               kind, join, (long long)st->owners_dirty, kind, join,
               (long long)st->batches);
}

static void info_likesync(struct commands *c, struct buf *b)
{
    const struct engine *e = &c->services[0].engine;
    struct flusher_status st;

    flushers_status(c->services, &st);
    buf_printf(b,
               "redis:%s\r\n"
               "postgres:%s\r\n"
               "flusher:%s\r\n",
               status_redis(&c->services[0]), pg_state_text(e->pg),
               st.paused ? "paused" : "running");
    info_backlog(b, "", &st);
    for (int i = 0; i < EDGE_COUNT; i++) {
        flusher_status(c->services[i].flusher, &st);
        info_backlog(b, edge_kinds[i]->name, &st);
    }
}

static const struct {
    const char *name;
    void (*put)(struct commands *c, struct buf *b);
} info_table[] = {
    {"Server", info_server},           {"Clients", info_clients},
    {"Persistence", info_persistence}, {"Stats", info_stats},
    {"Replication", info_replication}, {"Likesync", info_likesync},
};

static bool info_asked(int argc, const struct resp_arg *argv, const char *name)
{
    if (argc == 1)
        return true;
    for (int i = 1; i < argc; i++)
        if (resp_arg_is(&argv[i], "ALL") || resp_arg_is(&argv[i], "DEFAULT") ||
            resp_arg_is(&argv[i], "EVERYTHING") || resp_arg_is(&argv[i], name))
            return true;
    return false;
}

void cmd_info(struct commands *c, struct request *rq, int argc,
              const struct resp_arg *argv)
{
    struct buf text = {0};

    for (size_t i = 0; i < ARRAY_LEN(info_table); i++) {
        if (!info_asked(argc, argv, info_table[i].name))
            continue;
        if (text.len)
            buf_puts(&text, "\r\n");
        buf_printf(&text, "# %s\r\n", info_table[i].name);
        info_table[i].put(c, &text);
    }
    reply_text(rq, &text);
}
