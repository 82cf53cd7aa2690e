/* SPDX-License-Identifier: MIT */
/* COMMAND, CONFIG GET and INFO: what tools and client libraries ask. */
#include "services/commands.h"

#include <unistd.h>

#include "base/clock.h"
#include "core/metrics.h"
#include "services/flushers.h"

/* ---- COMMAND ---- */

static void put_flags(struct buf *b, const struct command *cmd)
{
    static const struct {
        unsigned flag;
        const char *name;
    } names[] = {
        {CMD_ADMIN, "admin"},   {CMD_NO_AUTH, "no_auth"}, {CMD_WRITE, "write"},
        {CMD_READ, "readonly"}, {CMD_FAST, "fast"},
    };
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        n += (cmd->flags & names[i].flag) != 0;
    resp_array(b, n);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (cmd->flags & names[i].flag)
            resp_simple(b, names[i].name);
}

/* Name, arity, flags, first key, last key, step, then Redis 7's categories,
 * tips, key specifications and subcommands. Ids are not keys. */
static void put_command(struct buf *b, const struct command *cmd)
{
    resp_array(b, 10);
    resp_bulk_str(b, cmd->name);
    resp_int(b, cmd->arity);
    put_flags(b, cmd);
    resp_int(b, 0);
    resp_int(b, 0);
    resp_int(b, 0);
    for (int i = 0; i < 4; i++)
        resp_array(b, 0);
}

static void put_docs(struct buf *b, int proto, const struct command *cmd)
{
    resp_bulk_str(b, cmd->name);
    resp_map(b, proto, 4);
    resp_bulk_str(b, "summary");
    resp_bulk_str(b, cmd->summary);
    resp_bulk_str(b, "since");
    resp_bulk_str(b, LIKESYNCD_VERSION);
    resp_bulk_str(b, "group");
    resp_bulk_str(b, cmd->group);
    resp_bulk_str(b, "arguments");
    resp_array(b, cmd->args[0] != '\0');
    if (!cmd->args[0])
        return;
    resp_map(b, proto, 3);
    resp_bulk_str(b, "name");
    resp_bulk_str(b, "arguments");
    resp_bulk_str(b, "type");
    resp_bulk_str(b, "string");
    resp_bulk_str(b, "display_text");
    resp_bulk_str(b, cmd->args);
}

static void command_docs(struct request *rq, int argc,
                         const struct resp_arg *argv)
{
    struct buf *b = request_reply(rq);
    int proto = request_proto(rq);
    size_t n = 0;

    if (argc == 2) {
        resp_map(b, proto, command_count);
        for (size_t i = 0; i < command_count; i++)
            put_docs(b, proto, &command_table[i]);
    } else {
        for (int i = 2; i < argc; i++)
            n += command_find(&argv[i]) != NULL;
        resp_map(b, proto, n);
        for (int i = 2; i < argc; i++) {
            const struct command *cmd = command_find(&argv[i]);

            if (cmd)
                put_docs(b, proto, cmd);
        }
    }
    request_done(rq);
}

static void command_info(struct request *rq, int argc,
                         const struct resp_arg *argv)
{
    struct buf *b = request_reply(rq);

    resp_array(b, argc > 2 ? (size_t)argc - 2 : command_count);
    for (size_t i = 0; argc <= 2 && i < command_count; i++)
        put_command(b, &command_table[i]);
    for (int i = 2; i < argc; i++) {
        const struct command *cmd = command_find(&argv[i]);

        if (cmd)
            put_command(b, cmd);
        else
            resp_null(b, request_proto(rq));
    }
    request_done(rq);
}

void cmd_command(struct commands *c, struct request *rq, int argc,
                 const struct resp_arg *argv)
{
    (void)c;
    if (argc == 1 || resp_arg_is(&argv[1], "INFO")) {
        command_info(rq, argc, argv);
    } else if (resp_arg_is(&argv[1], "COUNT") && argc > 2) {
        reply_arity(rq, "command|count");
    } else if (resp_arg_is(&argv[1], "COUNT")) {
        resp_int(request_reply(rq), (int64_t)command_count);
        request_done(rq);
    } else if (resp_arg_is(&argv[1], "HELP")) {
        reply_help(rq, "COMMAND");
    } else if (resp_arg_is(&argv[1], "DOCS")) {
        command_docs(rq, argc, argv);
    } else {
        reply_unknown_subcommand(rq, "COMMAND", &argv[1]);
    }
}

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

static bool config_asked(int argc, const struct resp_arg *argv, size_t row)
{
    const char *name = config_table[row].name;

    for (int i = 2; i < argc; i++)
        if (resp_arg_is(&argv[i], "*") || resp_arg_is(&argv[i], name))
            return true;
    return false;
}

void cmd_config(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv)
{
    struct buf *b = request_reply(rq);
    size_t n = 0;

    (void)c;
    if (resp_arg_is(&argv[1], "HELP")) {
        reply_help(rq, "CONFIG");
        return;
    }
    if (!resp_arg_is(&argv[1], "GET")) {
        reply_unknown_subcommand(rq, "CONFIG", &argv[1]);
        return;
    }
    if (argc < 3) {
        reply_arity(rq, "config|get");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(config_table); i++)
        n += config_asked(argc, argv, i);
    resp_map(b, request_proto(rq), n);
    for (size_t i = 0; i < ARRAY_LEN(config_table); i++) {
        if (!config_asked(argc, argv, i))
            continue;
        resp_bulk_str(b, config_table[i].name);
        resp_bulk_str(b, config_table[i].value);
    }
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
               "uptime_in_seconds:%llu\r\n",
               LIKESYNCD_VERSION, (int)getpid(), c->run_id,
               (unsigned long long)up_s);
}

static void info_clients(struct commands *c, struct buf *b)
{
    buf_printf(b, "connected_clients:%zu\r\n", server_clients(c->server));
}

static void info_persistence(struct commands *c, struct buf *b)
{
    (void)c;
    buf_puts(b, "loading:0\r\n");
}

static void info_stats(struct commands *c, struct buf *b)
{
    (void)c;
    buf_printf(b, "total_commands_processed:%.0f\r\n", metric_get(M_REQUESTS));
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
               redis_state_text(e->redis), pg_state_text(e->pg),
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
