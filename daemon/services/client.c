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
    return name->len <= SESSION_NAME_MAX;
}

bool client_set_text(struct request *rq, char *to, const struct resp_arg *name,
                     const char *what)
{
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
    buf_printf(
        b,
        "id=%llu addr=%s name=%s age=%llu db=0 resp=%d cmd=%s "
        "lib-name=%s lib-ver=%s admin=%d\n",
        (unsigned long long)s->id, s->addr, s->name,
        (unsigned long long)(clock_monotonic_us() / 1000 - s->created_ms) /
            1000,
        s->proto, s->last_command ? s->last_command : "NULL", s->lib_name,
        s->lib_ver, s->admin);
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
    resp_bulk(request_reply(rq), text.data, text.len);
    buf_free(&text);
    request_done(rq);
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

void cmd_client(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv)
{
    const struct resp_arg *sub = &argv[1];

    if (resp_arg_is(sub, "SETNAME") && argc == 3) {
        client_setname(rq, &argv[2]);
    } else if (resp_arg_is(sub, "SETNAME")) {
        reply_arity(rq, "client|setname");
    } else if (resp_arg_is(sub, "SETINFO") && argc == 4) {
        client_setinfo(rq, argv);
    } else if (resp_arg_is(sub, "SETINFO")) {
        reply_arity(rq, "client|setinfo");
    } else if (resp_arg_is(sub, "GETNAME")) {
        client_getname(rq);
    } else if (resp_arg_is(sub, "ID")) {
        resp_int(request_reply(rq), (int64_t)request_session(rq)->id);
        request_done(rq);
    } else if (resp_arg_is(sub, "INFO") || resp_arg_is(sub, "LIST")) {
        client_text(c, rq, resp_arg_is(sub, "LIST"));
    } else {
        reply_unknown_subcommand(rq, "CLIENT", sub);
    }
}
