/* SPDX-License-Identifier: MIT */
/* CLIENT: what connections say of themselves. LIST is in client_list.c. */
#include "services/commands.h"

#include <string.h>

#include "services/client_list.h"

/* Redis: printable and no spaces, as CLIENT LIST would be ambiguous. */
static bool is_plain(const struct resp_arg *text)
{
    for (size_t i = 0; i < text->len; i++)
        if (text->data[i] < '!' || text->data[i] > '~')
            return false;
    return true;
}

bool client_text_fits(struct request *rq, const struct resp_arg *text,
                      const struct resp_arg *what)
{
    if (!is_plain(text)) {
        resp_error(request_reply(rq),
                   "ERR %.*s cannot contain spaces, newlines or special "
                   "characters.",
                   SHOWN(*what));
        return false;
    }
    if (text->len > SESSION_NAME_MAX) {
        resp_error(request_reply(rq), "ERR %.*s cannot be longer than %d bytes",
                   SHOWN(*what), SESSION_NAME_MAX);
        return false;
    }
    return true;
}

void client_set_text(char *to, const struct resp_arg *text)
{
    memcpy(to, text->data, text->len);
    to[text->len] = '\0';
}

void cmd_client_getname(struct commands *c, struct request *rq, int argc,
                        const struct resp_arg *argv)
{
    const struct session *s = request_session(rq);

    (void)c;
    (void)argc;
    (void)argv;
    if (s->name[0])
        resp_bulk_str(request_reply(rq), s->name);
    else
        resp_null(request_reply(rq), request_proto(rq));
    request_done(rq);
}

void cmd_client_id(struct commands *c, struct request *rq, int argc,
                   const struct resp_arg *argv)
{
    (void)c;
    (void)argc;
    (void)argv;
    resp_int(request_reply(rq), (int64_t)request_session(rq)->id);
    request_done(rq);
}

void cmd_client_info(struct commands *c, struct request *rq, int argc,
                     const struct resp_arg *argv)
{
    struct buf text = {0};

    (void)c;
    (void)argc;
    (void)argv;
    client_list_put(&text, request_session(rq));
    reply_text(rq, &text);
}

static void client_set(struct request *rq, char *to,
                       const struct resp_arg *text, const struct resp_arg *what)
{
    if (client_text_fits(rq, text, what)) {
        client_set_text(to, text);
        resp_simple(request_reply(rq), "OK");
    }
    request_done(rq);
}

void cmd_client_setname(struct commands *c, struct request *rq, int argc,
                        const struct resp_arg *argv)
{
    static const struct resp_arg what = {"Client names", 12};

    (void)c;
    (void)argc;
    client_set(rq, request_session(rq)->name, &argv[2], &what);
}

void cmd_client_setinfo(struct commands *c, struct request *rq, int argc,
                        const struct resp_arg *argv)
{
    struct session *s = request_session(rq);

    (void)c;
    (void)argc;
    if (resp_arg_is(&argv[2], "LIB-NAME")) {
        client_set(rq, s->lib_name, &argv[3], &argv[2]);
    } else if (resp_arg_is(&argv[2], "LIB-VER")) {
        client_set(rq, s->lib_ver, &argv[3], &argv[2]);
    } else {
        resp_error(request_reply(rq), "ERR Unrecognized option '%.*s'",
                   (int)argv[2].len, argv[2].data);
        request_done(rq);
    }
}
