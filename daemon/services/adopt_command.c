/* SPDX-License-Identifier: MIT */
/* ADOPT: for the operator. */
#include <stdio.h>
#include <string.h>

#include "services/adopt.h"
#include "services/commands.h"

/* The kinds by the plural of their names. */
static bool find_kind(const struct resp_arg *name, enum edge_index *kind_r)
{
    for (int i = 0; i < EDGE_COUNT; i++) {
        char plural[32];

        snprintf(plural, sizeof(plural), "%ss", edge_kinds[i]->name);
        if (resp_arg_is(name, plural)) {
            *kind_r = (enum edge_index)i;
            return true;
        }
    }
    return false;
}

static void adopt_cmd_start(struct commands *c, struct request *rq,
                            const struct resp_arg *name)
{
    enum edge_index kind;
    struct adopt_status st;
    char shown[RESP_SHOW_MAX];

    adopt_status(c->adopt, &st);
    if (!find_kind(name, &kind))
        resp_error(request_reply(rq),
                   "ERR unknown graph '%s': expected follows or likes",
                   resp_show(name, shown));
    else if (adopt_start(c->adopt, kind) != 0)
        resp_error(request_reply(rq),
                   "ERR an adoption of %ss is running: see ADOPT STATUS, or "
                   "ADOPT STOP",
                   st.kind->name);
    else
        resp_simple(request_reply(rq), "OK");
    request_done(rq);
}

static void adopt_cmd_status(struct commands *c, struct request *rq)
{
    struct buf *b = request_reply(rq);
    struct adopt_status st;
    char kind[32] = "";

    adopt_status(c->adopt, &st);
    if (st.kind)
        snprintf(kind, sizeof(kind), "%ss", st.kind->name);
    resp_map(b, request_proto(rq), 12);
    reply_put_text(b, "state", job_state_name(st.state));
    reply_put_text(b, "why", st.why);
    reply_put_text(b, "kind", kind);
    reply_put_text(b, "phase", st.phase);
    reply_put_int(b, "scanned", st.scanned);
    reply_put_int(b, "total", st.total);
    reply_put_int(b, "keys", st.counts.keys);
    reply_put_int(b, "edges", st.counts.edges);
    reply_put_int(b, "adopted", st.counts.adopted);
    reply_put_int(b, "known", st.counts.known);
    reply_put_int(b, "refused", st.counts.refused);
    reply_put_text(b, "example", st.example);
    request_done(rq);
}

void cmd_adopt(struct commands *c, struct request *rq, int argc,
               const struct resp_arg *argv)
{
    const struct resp_arg *sub = &argv[1];
    char shown[RESP_SHOW_MAX];

    if (resp_arg_is(sub, "START") && argc == 3) {
        adopt_cmd_start(c, rq, &argv[2]);
    } else if (resp_arg_is(sub, "STATUS") && argc == 2) {
        adopt_cmd_status(c, rq);
    } else if (resp_arg_is(sub, "STOP") && argc == 2) {
        adopt_stop(c->adopt);
        reply_ok(rq);
    } else {
        resp_error(request_reply(rq),
                   "ERR unknown ADOPT request '%s' with %d arguments: expected "
                   "START follows|likes, STATUS or STOP",
                   resp_show(sub, shown), argc - 2);
        request_done(rq);
    }
}
