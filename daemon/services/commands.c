/* SPDX-License-Identifier: MIT */
/* The way from a request to its handler, and replies that many give. */
#include "services/commands.h"

#include <ctype.h>
#include <string.h>

#include "core/metrics.h"
#include "services/auth.h"

/* ---- replies ---- */

void reply_arity(struct request *rq, const char *name)
{
    resp_error(request_reply(rq),
               "ERR wrong number of arguments for '%s' command", name);
    request_done(rq);
}

void reply_ok(struct request *rq)
{
    resp_simple(request_reply(rq), "OK");
    request_done(rq);
}

void reply_failed(struct request *rq, const char *why)
{
    if (strncmp(why, "TRYAGAIN", 8) == 0)
        metric_add(M_OVERLOADS, 1);
    resp_error(request_reply(rq), "%s", why);
    request_done(rq);
}

void reply_put_text(struct buf *b, const char *name, const char *text)
{
    resp_bulk_str(b, name);
    resp_bulk_str(b, text);
}

void reply_put_int(struct buf *b, const char *name, int64_t v)
{
    resp_bulk_str(b, name);
    resp_int(b, v);
}

void reply_text(struct request *rq, struct buf *text)
{
    struct buf *b = request_reply(rq);

    if (request_proto(rq) == 3) {
        buf_printf(b, "=%zu\r\ntxt:", text->len + 4);
        buf_append(b, text->data, text->len);
        buf_puts(b, "\r\n");
    } else {
        resp_bulk(b, text->data, text->len);
    }
    buf_free(text);
    request_done(rq);
}

/* "+CLIENT" of "client". */
static void put_upper(struct buf *b, const char *name)
{
    for (; *name; name++)
        buf_putc(b, (char)toupper((unsigned char)*name));
}

static void put_help_of(struct buf *b, const struct command *sub)
{
    buf_putc(b, '+');
    put_upper(b, strchr(sub->name, '|') + 1);
    buf_printf(b, "%s%s\r\n+    %s\r\n", sub->args[0] ? " " : "", sub->args,
               sub->summary);
}

void cmd_help(struct commands *c, struct request *rq, int argc,
              const struct resp_arg *argv)
{
    const struct command *cmd = command_find(&argv[0]);
    struct buf *b = request_reply(rq);
    size_t n = 1;

    (void)c;
    (void)argc;
    COMMAND_FOREACH_SUB(sub, cmd)
        n += 2;
    resp_array(b, n);
    buf_putc(b, '+');
    put_upper(b, cmd->name);
    buf_puts(b,
             " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n");
    COMMAND_FOREACH_SUB(sub, cmd)
        put_help_of(b, sub);
    request_done(rq);
}

/* ---- what is no command, or not for this client ---- */

/* Redis' words, with at most 128 bytes of the arguments. */
static void reply_unknown_command(struct request *rq, int argc,
                                  const struct resp_arg *argv)
{
    struct buf args = {0};

    for (int i = 1; i < argc && args.len < SHOWN_MAX; i++) {
        size_t room = SHOWN_MAX - args.len;
        size_t len = argv[i].len < room ? argv[i].len : room;

        buf_printf(&args, "'%.*s' ", (int)len, argv[i].data);
    }
    resp_error(request_reply(rq),
               "ERR unknown command '%.*s', with args beginning with: %s",
               SHOWN(argv[0]), buf_cstr(&args));
    buf_free(&args);
    request_done(rq);
}

static void reply_unknown_subcommand(struct request *rq,
                                     const struct command *cmd,
                                     const struct resp_arg *sub)
{
    struct buf name = {0};

    put_upper(&name, cmd->name);
    resp_error(request_reply(rq), "ERR unknown subcommand '%.*s'. Try %s HELP.",
               SHOWN(*sub), buf_cstr(&name));
    buf_free(&name);
    request_done(rq);
}

static void reply_no_perm(struct request *rq, const struct command *cmd)
{
    resp_error(request_reply(rq),
               "NOPERM this user has no permissions to run the '%s' command: "
               "it is for the admin listener only (server.admin_listen)",
               cmd->name);
    request_done(rq);
}

/* ---- ids ---- */

bool request_id(struct request *rq, enum id_type type, const char *what,
                const struct resp_arg *arg, struct id_key *id_r)
{
    char shown[RESP_SHOW_MAX];
    const char *why;

    if (id_parse(type, arg->data, arg->len, id_r->text, &id_r->len, &why) == 0)
        return true;
    resp_error(request_reply(rq), "ERR invalid %s id '%s': %s", what,
               resp_show(arg, shown), why);
    request_done(rq);
    return false;
}

/* ---- dispatch ---- */

static bool arity_fits(const struct command *cmd, int argc)
{
    return cmd->arity >= 0 ? argc == cmd->arity : argc >= -cmd->arity;
}

void commands_on_open(void *arg, struct session *s)
{
    const struct commands *c = arg;

    auth_open(c->auth, s);
}

bool commands_must_wait(void *arg, const struct session *s,
                        const struct resp_arg *name)
{
    const struct command *cmd = command_find(name);

    (void)arg;
    if (s->refused)
        return true;
    if (!cmd)
        return false;
    return cmd->flags & CMD_ALONE ||
           (s->writes > 0 && cmd->flags & (CMD_READ | CMD_ADMIN));
}

/* In Redis' order: what there is no such thing of, or not like this, is said to
 * anybody. NULL when it is not to be run, and that was answered. */
static const struct command *find_to_run(struct request *rq, int argc,
                                         const struct resp_arg *argv)
{
    const struct session *s = request_session(rq);
    const struct command *cmd = command_find(&argv[0]);
    const struct command *parent = cmd;

    if (cmd && argc > 1 && command_next_sub(cmd))
        cmd = command_find_sub(cmd, &argv[1]);
    if (!parent)
        reply_unknown_command(rq, argc, argv);
    else if (cmd && !arity_fits(cmd, argc))
        reply_arity(rq, cmd->name);
    else if (!s->authed && cmd && !(cmd->flags & CMD_NO_AUTH))
        reply_no_auth(rq);
    else if (parent->flags & CMD_ADMIN && s->authed && !s->admin)
        reply_no_perm(rq, parent);
    else if (!cmd)
        reply_unknown_subcommand(rq, parent, &argv[1]);
    else
        return cmd;
    return NULL;
}

void commands_on_request(void *arg, struct request *rq, int argc,
                         const struct resp_arg *argv)
{
    const struct command *cmd = find_to_run(rq, argc, argv);

    if (!cmd)
        return;
    request_session(rq)->last_command = cmd->name;
    if (cmd->flags & (CMD_WRITE | CMD_READ))
        request_set_class(rq, cmd->flags & CMD_WRITE ? H_REQUEST_EVENT
                                                     : H_REQUEST_READ);
    cmd->run(arg, rq, argc, argv);
}
