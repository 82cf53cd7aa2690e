/* SPDX-License-Identifier: MIT */
/* VERIFY: for the operator. */
#include <stdio.h>

#include "services/commands.h"
#include "services/verify.h"

void cmd_verify_start(struct commands *c, struct request *rq, int argc,
                      const struct resp_arg *argv)
{
    bool repair = argc == 3 && resp_arg_is(&argv[2], "REPAIR");
    char shown[RESP_SHOW_MAX];

    if (argc > 3) {
        reply_arity(rq, "verify|start");
        return;
    }
    if (argc == 3 && !repair)
        resp_error(request_reply(rq),
                   "ERR unknown option '%s': expected REPAIR",
                   resp_show(&argv[2], shown));
    else if (verify_start(c->verify, repair) != 0)
        resp_error(request_reply(rq),
                   "ERR a verification is running: see VERIFY STATUS, or "
                   "VERIFY STOP");
    else
        resp_simple(request_reply(rq), "OK");
    request_done(rq);
}

static void put_part(struct buf *b, const char *part, const char *what,
                     int64_t v)
{
    char name[64];

    snprintf(name, sizeof(name), "%s_%s", part, what);
    reply_put_int(b, name, v);
}

void cmd_verify_status(struct commands *c, struct request *rq, int argc,
                       const struct resp_arg *argv)
{
    struct buf *b = request_reply(rq);
    struct verify_status st;

    (void)argc;
    (void)argv;
    verify_status(c->verify, &st);
    resp_map(b, request_proto(rq), 7 + 3 * VERIFY_PARTS + st.n_shown);
    reply_put_text(b, "state", job_state_name(st.state));
    reply_put_text(b, "why", st.why);
    reply_put_int(b, "repair", st.repair);
    reply_put_text(b, "phase", st.phase);
    reply_put_int(b, "scanned", st.scanned);
    reply_put_int(b, "total", st.total);
    reply_put_int(b, "unsettled", st.unsettled);
    for (int i = 0; i < VERIFY_PARTS; i++) {
        put_part(b, verify_part_names[i], "looked", st.counts[i].looked);
        put_part(b, verify_part_names[i], "different", st.counts[i].different);
        put_part(b, verify_part_names[i], "mended", st.counts[i].mended);
    }
    for (size_t i = 0; i < st.n_shown; i++)
        reply_put_text(b, "example", st.shown[i]);
    request_done(rq);
}

void cmd_verify_stop(struct commands *c, struct request *rq, int argc,
                     const struct resp_arg *argv)
{
    (void)argc;
    (void)argv;
    verify_stop(c->verify);
    reply_ok(rq);
}
