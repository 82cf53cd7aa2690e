/* SPDX-License-Identifier: MIT */
/* Passwords and their commands, with Redis' replies (Redis 7.0: acl.c). */
#include "services/auth.h"

#include <string.h>

#include "core/metrics.h"

void auth_open(const struct commands *c, struct session *s)
{
    s->authed = c->password[0] == '\0' || s->admin;
}

/* Takes the same time wherever the two differ. */
static bool same_secret(const char *secret, const struct resp_arg *given)
{
    size_t len = strlen(secret);
    unsigned char differ = len != given->len;

    for (size_t i = 0; i < given->len; i++)
        differ |= (unsigned char)((unsigned char)given->data[i] ^
                                  (unsigned char)secret[len ? i % len : 0]);
    return !differ;
}

/* Without a password anybody is `default`, as in Redis. */
bool auth_try(struct commands *c, struct request *rq,
              const struct resp_arg *user, const struct resp_arg *password)
{
    bool is_default = user->len == 7 && memcmp(user->data, "default", 7) == 0;
    bool good = !c->password[0] || same_secret(c->password, password);

    if (is_default && good) {
        request_session(rq)->authed = true;
        return true;
    }
    metric_add(M_AUTH_FAILURES, 1);
    resp_error(request_reply(rq), "WRONGPASS invalid username-password pair or "
                                  "user is disabled.");
    request_done(rq);
    return false;
}

void cmd_auth(struct commands *c, struct request *rq, int argc,
              const struct resp_arg *argv)
{
    static const struct resp_arg user_default = {"default", 7};
    const struct resp_arg *user = argc == 3 ? &argv[1] : &user_default;

    if (argc > 3) {
        resp_error(request_reply(rq), "ERR syntax error");
        request_done(rq);
    } else if (argc == 2 && !c->password[0]) {
        resp_error(request_reply(rq),
                   "ERR AUTH <password> called without any password configured "
                   "for the default user. Are you sure your configuration is "
                   "correct?");
        request_done(rq);
    } else if (auth_try(c, rq, user, &argv[argc - 1])) {
        reply_ok(rq);
    }
}

void reply_no_auth(struct request *rq)
{
    resp_error(request_reply(rq), "NOAUTH Authentication required.");
    request_done(rq);
}

void reply_hello_no_auth(struct request *rq)
{
    resp_error(request_reply(rq),
               "NOAUTH HELLO must be called with the client already "
               "authenticated, otherwise the HELLO <proto> AUTH <user> "
               "<pass> option can be used to authenticate the client and "
               "select the RESP protocol version at the same time");
    request_done(rq);
}
