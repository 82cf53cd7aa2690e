/* SPDX-License-Identifier: MIT */
/* COMMAND: the command table, for programs (INFO) and for people (DOCS: redis-cli
 * completes and hints by it). */
#include "services/commands.h"

#include <string.h>

#include "core/glob.h"
#include "services/command_args.h"

/* ---- INFO ---- */

static void put_flags(struct buf *b, int proto, const struct command *cmd)
{
    static const struct {
        unsigned flag;
        const char *name;
    } names[] = {
        {CMD_WRITE, "write"},     {CMD_READ, "readonly"}, {CMD_ADMIN, "admin"},
        {CMD_NO_AUTH, "no_auth"}, {CMD_FAST, "fast"},
    };
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        n += (cmd->flags & names[i].flag) != 0;
    resp_set(b, proto, n);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (cmd->flags & names[i].flag)
            resp_simple(b, names[i].name);
}

/* Redis' categories, as far as they follow from what the table says. */
static bool in_category(const struct command *cmd, const char *category)
{
    static const struct {
        unsigned flag;
        const char *name;
    } by_flag[] = {
        {CMD_READ, "read"}, {CMD_WRITE, "write"},     {CMD_ADMIN, "admin"},
        {CMD_FAST, "fast"}, {CMD_ADMIN, "dangerous"},
    };

    if (strcmp(category, "slow") == 0)
        return !(cmd->flags & CMD_FAST);
    for (size_t i = 0; i < ARRAY_LEN(by_flag); i++)
        if (strcmp(category, by_flag[i].name) == 0)
            return (cmd->flags & by_flag[i].flag) != 0;
    return strcmp(category, cmd->group) == 0;
}

static const char *const categories[] = {
    /* in Redis' order */
    "read", "write", "admin", "fast", "slow", "dangerous", "connection",
};

static void put_categories(struct buf *b, int proto, const struct command *cmd)
{
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(categories); i++)
        n += in_category(cmd, categories[i]);
    resp_set(b, proto, n);
    for (size_t i = 0; i < ARRAY_LEN(categories); i++)
        if (in_category(cmd, categories[i]))
            buf_printf(b, "+@%s\r\n", categories[i]);
}

static size_t count_subs(const struct command *cmd)
{
    size_t n = 0;

    COMMAND_FOREACH_SUB(sub, cmd)
        n++;
    return n;
}

/* Name, arity, flags, first key, last key, step, categories, tips, key
 * specifications, and all but the subcommands. Ids are not keys. */
static void put_command(struct buf *b, int proto, const struct command *cmd)
{
    resp_array(b, 10);
    resp_bulk_str(b, cmd->name);
    resp_int(b, cmd->arity);
    put_flags(b, proto, cmd);
    for (int i = 0; i < 3; i++)
        resp_int(b, 0);
    put_categories(b, proto, cmd);
    resp_array(b, 0);
    resp_array(b, 0);
}

static void put_command_tree(struct buf *b, int proto,
                             const struct command *cmd)
{
    bool is_sub = strchr(cmd->name, '|') != NULL;

    put_command(b, proto, cmd);
    resp_array(b, is_sub ? 0 : count_subs(cmd));
    if (is_sub)
        return;
    COMMAND_FOREACH_SUB(sub, cmd) {
        put_command(b, proto, sub);
        resp_array(b, 0);
    }
}

static void put_all_commands(struct buf *b, int proto)
{
    resp_array(b, command_count_all());
    COMMAND_FOREACH(cmd)
        put_command_tree(b, proto, cmd);
}

void cmd_command(struct commands *c, struct request *rq, int argc,
                 const struct resp_arg *argv)
{
    (void)c;
    (void)argc;
    (void)argv;
    put_all_commands(request_reply(rq), request_proto(rq));
    request_done(rq);
}

void cmd_command_info(struct commands *c, struct request *rq, int argc,
                      const struct resp_arg *argv)
{
    struct buf *b = request_reply(rq);
    int proto = request_proto(rq);

    (void)c;
    if (argc == 2)
        put_all_commands(b, proto);
    else
        resp_array(b, (size_t)argc - 2);
    for (int i = 2; i < argc; i++) {
        const struct command *cmd = command_find_full(&argv[i]);

        if (cmd)
            put_command_tree(b, proto, cmd);
        else
            resp_null(b, proto);
    }
    request_done(rq);
}

void cmd_command_count(struct commands *c, struct request *rq, int argc,
                       const struct resp_arg *argv)
{
    (void)c;
    (void)argc;
    (void)argv;
    resp_int(request_reply(rq), (int64_t)command_count_all());
    request_done(rq);
}

/* ---- DOCS ---- */

static void put_docs(struct buf *b, int proto, const struct command *cmd,
                     size_t n_subs)
{
    resp_bulk_str(b, cmd->name);
    resp_map(b, proto, 3 + (cmd->args[0] != '\0') + (n_subs > 0));
    reply_put_text(b, "summary", cmd->summary);
    reply_put_text(b, "since", LIKESYNCD_VERSION);
    reply_put_text(b, "group", cmd->group);
    if (cmd->args[0]) {
        resp_bulk_str(b, "arguments");
        command_args_put(b, proto, cmd->args);
    }
}

static void put_docs_tree(struct buf *b, int proto, const struct command *cmd)
{
    size_t n_subs = strchr(cmd->name, '|') ? 0 : count_subs(cmd);

    put_docs(b, proto, cmd, n_subs);
    if (n_subs == 0)
        return;
    resp_bulk_str(b, "subcommands");
    resp_map(b, proto, n_subs);
    COMMAND_FOREACH_SUB(sub, cmd)
        put_docs(b, proto, sub, 0);
}

void cmd_command_docs(struct commands *c, struct request *rq, int argc,
                      const struct resp_arg *argv)
{
    struct buf *b = request_reply(rq);
    int proto = request_proto(rq);
    size_t n = 0;

    (void)c;
    if (argc == 2) {
        resp_map(b, proto, command_count_all());
        COMMAND_FOREACH(cmd)
            put_docs_tree(b, proto, cmd);
        request_done(rq);
        return;
    }
    for (int i = 2; i < argc; i++)
        n += command_find_full(&argv[i]) != NULL;
    resp_map(b, proto, n);
    for (int i = 2; i < argc; i++) {
        const struct command *cmd = command_find_full(&argv[i]);

        if (cmd)
            put_docs_tree(b, proto, cmd);
    }
    request_done(rq);
}

/* ---- LIST ---- */

struct filter {
    enum { FILTER_NONE, FILTER_MODULE, FILTER_CATEGORY, FILTER_PATTERN } by;
    const struct resp_arg *value;
};

static bool filter_parse(struct filter *f, int argc,
                         const struct resp_arg *argv)
{
    if (argc == 2)
        return true;
    if (argc != 5 || !resp_arg_is(&argv[2], "FILTERBY"))
        return false;
    f->value = &argv[4];
    if (resp_arg_is(&argv[3], "MODULE"))
        f->by = FILTER_MODULE;
    else if (resp_arg_is(&argv[3], "ACLCAT"))
        f->by = FILTER_CATEGORY;
    else if (resp_arg_is(&argv[3], "PATTERN"))
        f->by = FILTER_PATTERN;
    else
        return false;
    return true;
}

static bool filter_fits(const struct filter *f, const struct command *cmd)
{
    if (f->by == FILTER_MODULE)
        return false;
    if (f->by == FILTER_PATTERN)
        return glob_match(f->value->data, f->value->len, cmd->name);
    for (size_t i = 0; i < ARRAY_LEN(categories); i++)
        if (resp_arg_is(f->value, categories[i]))
            return in_category(cmd, categories[i]);
    return false;
}

/* Subcommands are listed only when a filter asks for them, as in Redis. */
void cmd_command_list(struct commands *c, struct request *rq, int argc,
                      const struct resp_arg *argv)
{
    struct filter f = {FILTER_NONE, NULL};
    struct buf names = {0};
    size_t n = 0;

    (void)c;
    if (!filter_parse(&f, argc, argv)) {
        reply_failed(rq, "ERR syntax error");
        return;
    }
    COMMAND_FOREACH(cmd) {
        if (!f.value || filter_fits(&f, cmd)) {
            resp_bulk_str(&names, cmd->name);
            n++;
        }
        COMMAND_FOREACH_SUB(sub, cmd) {
            if (f.value && filter_fits(&f, sub)) {
                resp_bulk_str(&names, sub->name);
                n++;
            }
        }
    }
    resp_array(request_reply(rq), n);
    buf_append(request_reply(rq), names.data, names.len);
    buf_free(&names);
    request_done(rq);
}

/* ---- GETKEYS ---- */

void cmd_command_getkeys(struct commands *c, struct request *rq, int argc,
                         const struct resp_arg *argv)
{
    const struct command *cmd = command_find(&argv[2]);

    (void)c;
    if (cmd && argc > 3 && command_next_sub(cmd))
        cmd = command_find_sub(cmd, &argv[3]);
    reply_failed(rq, cmd ? "ERR The command has no key arguments"
                         : "ERR Invalid command specified");
}
