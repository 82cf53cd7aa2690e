/* SPDX-License-Identifier: MIT */
/* Connection commands, with Redis' replies (Redis 7.0: networking.c). */
#include "services/commands.h"

#include "base/num.h"
#include "services/auth.h"

void cmd_ping(struct commands *c, struct request *rq, int argc,
              const struct resp_arg *argv)
{
    (void)c;
    if (argc > 2) {
        reply_arity(rq, "ping");
        return;
    }
    if (argc == 2)
        resp_bulk(request_reply(rq), argv[1].data, argv[1].len);
    else
        resp_simple(request_reply(rq), "PONG");
    request_done(rq);
}

void cmd_echo(struct commands *c, struct request *rq, int argc,
              const struct resp_arg *argv)
{
    (void)c;
    (void)argc;
    resp_bulk(request_reply(rq), argv[1].data, argv[1].len);
    request_done(rq);
}

void cmd_select(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv)
{
    int64_t db;

    (void)c;
    (void)argc;
    if (num_parse_redis(argv[1].data, argv[1].len, &db) != 0)
        resp_error(request_reply(rq),
                   "ERR value is not an integer or out of range");
    else if (db < INT32_MIN || db > INT32_MAX)
        resp_error(request_reply(rq),
                   "ERR value is out of range, value must between %d and %d",
                   INT32_MIN, INT32_MAX);
    else if (db != 0)
        resp_error(request_reply(rq), "ERR DB index is out of range");
    else
        resp_simple(request_reply(rq), "OK");
    request_done(rq);
}

void cmd_readonly(struct commands *c, struct request *rq, int argc,
                  const struct resp_arg *argv)
{
    (void)c;
    (void)argc;
    (void)argv;
    resp_error(request_reply(rq),
               "ERR This instance has cluster support disabled");
    request_done(rq);
}

void cmd_reset(struct commands *c, struct request *rq, int argc,
               const struct resp_arg *argv)
{
    struct session *s = request_session(rq);

    (void)argc;
    (void)argv;
    auth_open(c->auth, s);
    s->proto = 2;
    s->name[0] = '\0';
    resp_simple(request_reply(rq), "RESET");
    request_done(rq);
}

void cmd_quit(struct commands *c, struct request *rq, int argc,
              const struct resp_arg *argv)
{
    (void)c;
    (void)argc;
    (void)argv;
    request_close_after(rq);
    reply_ok(rq);
}

/* ---- HELLO ---- */

struct hello {
    const struct resp_arg *user; /* refs */
    const struct resp_arg *password;
    const struct resp_arg *name;
    int64_t proto;
};

static const struct resp_arg client_names = {"Client names", 12};

/* False when an error was put. */
static bool hello_parse(struct request *rq, int argc,
                        const struct resp_arg *argv, struct hello *h)
{
    if (argc < 2)
        return true;
    if (num_parse_redis(argv[1].data, argv[1].len, &h->proto) != 0) {
        resp_error(request_reply(rq),
                   "ERR Protocol version is not an integer or out of range");
        return false;
    }
    if (h->proto < 2 || h->proto > 3) {
        resp_error(request_reply(rq), "NOPROTO unsupported protocol version");
        return false;
    }
    for (int i = 2; i < argc; i++) {
        if (resp_arg_is(&argv[i], "AUTH") && argc - i > 2) {
            h->user = &argv[i + 1];
            h->password = &argv[i + 2];
            i += 2;
        } else if (resp_arg_is(&argv[i], "SETNAME") && argc - i > 1) {
            h->name = &argv[++i];
            if (!client_text_fits(rq, h->name, &client_names))
                return false;
        } else {
            resp_error(request_reply(rq),
                       "ERR Syntax error in HELLO option '%.*s'",
                       (int)argv[i].len, argv[i].data);
            return false;
        }
    }
    return true;
}

static void put_hello(struct buf *b, const struct session *s)
{
    resp_map(b, s->proto, 7);
    resp_bulk_str(b, "server");
    resp_bulk_str(b, "redis"); /* clients refuse or warn about others */
    resp_bulk_str(b, "version");
    resp_bulk_str(b, "7.0.0");
    resp_bulk_str(b, "proto");
    resp_int(b, s->proto);
    resp_bulk_str(b, "id");
    resp_int(b, (int64_t)s->id);
    resp_bulk_str(b, "mode");
    resp_bulk_str(b, "standalone");
    resp_bulk_str(b, "role");
    resp_bulk_str(b, "master");
    resp_bulk_str(b, "modules");
    resp_array(b, 0);
}

/* False when the error is answered. */
static bool hello_apply(struct commands *c, struct request *rq,
                        const struct hello *h)
{
    struct session *s = request_session(rq);

    if (h->user && !auth_try(c->auth, rq, h->user, h->password))
        return false;
    if (!s->authed) {
        reply_hello_no_auth(rq);
        return false;
    }
    if (h->name)
        client_set_text(s->name, h->name);
    if (h->proto)
        s->proto = (int)h->proto;
    return true;
}

void cmd_hello(struct commands *c, struct request *rq, int argc,
               const struct resp_arg *argv)
{
    struct hello h = {0};

    if (!hello_parse(rq, argc, argv, &h)) {
        request_done(rq);
    } else if (hello_apply(c, rq, &h)) {
        put_hello(request_reply(rq), request_session(rq));
        request_done(rq);
    }
}
