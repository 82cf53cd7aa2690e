/* SPDX-License-Identifier: MIT */
/* CLIENT: what connections say of themselves. */
#include "services/commands.h"

#include <string.h>

#include "base/clock.h"

/* Redis: printable and no spaces, as CLIENT LIST would be ambiguous. */
static bool name_is_valid(const struct resp_arg *name)
{
    for (size_t i = 0; i < name->len; i++)
        if (name->data[i] < '!' || name->data[i] > '~')
            return false;
    return true;
}

bool client_set_text(struct request *rq, char *to, const struct resp_arg *name,
                     const char *what)
{
    if (name->len > SESSION_NAME_MAX) {
        resp_error(request_reply(rq), "ERR %s cannot be longer than %d bytes",
                   what, SESSION_NAME_MAX);
        return false;
    }
    if (!name_is_valid(name)) {
        resp_error(request_reply(rq),
                   "ERR %s cannot contain spaces, newlines or special "
                   "characters.",
                   what);
        return false;
    }
    memcpy(to, name->data, name->len);
    to[name->len] = '\0';
    return true;
}

static void put_client(struct buf *b, const struct session *s)
{
    buf_printf(b,
               "id=%llu addr=%s name=%s age=%llu db=0 resp=%d cmd=%s "
               "lib-name=%s lib-ver=%s admin=%d\n",
               (unsigned long long)s->id, s->addr, s->name,
               (unsigned long long)(clock_monotonic_ms() - s->created_ms) /
                   1000,
               s->proto, s->last_command ? s->last_command : "NULL",
               s->lib_name, s->lib_ver, s->admin);
}

static void on_session(void *arg, const struct session *s)
{
    put_client(arg, s);
}

static void client_text(struct commands *c, struct request *rq, bool all)
{
    struct buf text = {0};

    if (all)
        server_each_session(c->server, on_session, &text);
    else
        put_client(&text, request_session(rq));
    reply_text(rq, &text);
}

static void client_getname(struct request *rq)
{
    const struct session *s = request_session(rq);

    if (s->name[0])
        resp_bulk_str(request_reply(rq), s->name);
    else
        resp_null(request_reply(rq), request_proto(rq));
    request_done(rq);
}

static void client_setname(struct request *rq, const struct resp_arg *name)
{
    if (client_set_text(rq, request_session(rq)->name, name, "Client names"))
        resp_simple(request_reply(rq), "OK");
    request_done(rq);
}

static void client_setinfo(struct request *rq, const struct resp_arg *argv)
{
    struct session *s = request_session(rq);
    char shown[RESP_SHOW_MAX];

    if (resp_arg_is(&argv[2], "LIB-NAME")) {
        if (client_set_text(rq, s->lib_name, &argv[3], "lib-name"))
            resp_simple(request_reply(rq), "OK");
    } else if (resp_arg_is(&argv[2], "LIB-VER")) {
        if (client_set_text(rq, s->lib_ver, &argv[3], "lib-ver"))
            resp_simple(request_reply(rq), "OK");
    } else {
        resp_error(request_reply(rq), "ERR Unrecognized option '%s'",
                   resp_show(&argv[2], shown));
    }
    request_done(rq);
}

/* The subcommands; argc counts CLIENT and the subcommand. */
static const struct {
    const char *name;
    const char *full_name; /* in messages */
    int argc;
} client_table[] = {
    {"GETNAME", "client|getname", 2}, {"HELP", "client|help", 2},
    {"ID", "client|id", 2},           {"INFO", "client|info", 2},
    {"LIST", "client|list", 0},       {"SETINFO", "client|setinfo", 4},
    {"SETNAME", "client|setname", 3},
};

/* False when an error was put and the request is done. */
static bool client_arity_fits(struct request *rq, int argc,
                              const struct resp_arg *sub)
{
    for (size_t i = 0; i < ARRAY_LEN(client_table); i++) {
        if (!resp_arg_is(sub, client_table[i].name))
            continue;
        if (client_table[i].argc == 0 || client_table[i].argc == argc)
            return true;
        reply_arity(rq, client_table[i].full_name);
        return false;
    }
    reply_unknown_subcommand(rq, "CLIENT", sub);
    return false;
}

static void client_list(struct commands *c, struct request *rq, int argc)
{
    if (argc == 2) {
        client_text(c, rq, true);
        return;
    }
    resp_error(request_reply(rq), "ERR syntax error"); /* filters */
    request_done(rq);
}

void cmd_client(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv)
{
    const struct resp_arg *sub = &argv[1];

    if (!client_arity_fits(rq, argc, sub))
        return;
    if (resp_arg_is(sub, "SETNAME")) {
        client_setname(rq, &argv[2]);
    } else if (resp_arg_is(sub, "SETINFO")) {
        client_setinfo(rq, argv);
    } else if (resp_arg_is(sub, "GETNAME")) {
        client_getname(rq);
    } else if (resp_arg_is(sub, "HELP")) {
        reply_help(rq, "CLIENT");
    } else if (resp_arg_is(sub, "INFO")) {
        client_text(c, rq, false);
    } else if (resp_arg_is(sub, "LIST")) {
        client_list(c, rq, argc);
    } else { /* ID */
        resp_int(request_reply(rq), (int64_t)request_session(rq)->id);
        request_done(rq);
    }
}
