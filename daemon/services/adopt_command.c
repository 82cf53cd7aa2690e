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

void cmd_adopt_start(struct commands *c, struct request *rq, int argc,
                     const struct resp_arg *argv)
{
    const struct resp_arg *name = &argv[2];
    enum edge_index kind;
    struct adopt_status st;
    char shown[RESP_SHOW_MAX];

    (void)argc;
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

void cmd_adopt_status(struct commands *c, struct request *rq, int argc,
                      const struct resp_arg *argv)
{
    struct buf *b = request_reply(rq);
    struct adopt_status st;
    char kind[32] = "";

    (void)argc;
    (void)argv;
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

void cmd_adopt_stop(struct commands *c, struct request *rq, int argc,
                    const struct resp_arg *argv)
{
    (void)argc;
    (void)argv;
    adopt_stop(c->adopt);
    reply_ok(rq);
}
