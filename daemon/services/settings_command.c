/* SPDX-License-Identifier: MIT */
/* SETTINGS: what the daemon runs with, against what its file holds by now. */
#include "services/commands.h"

#include <string.h>

#include "services/engine.h"

struct reply {
    struct buf *b; /* ref */
    int proto;
};

static void put_option(void *arg, const struct option_shown *shown)
{
    const struct reply *r = arg;
    struct buf name = {0};

    buf_printf(&name, "%s.%s", shown->section, shown->name);
    resp_map(r->b, r->proto, 4);
    reply_put_text(r->b, "name", buf_cstr(&name));
    reply_put_text(r->b, "value", shown->value);
    reply_put_int(r->b, "reloadable", shown->reloadable);
    reply_put_int(r->b, "differs", shown->differs);
    buf_free(&name);
}

/* The file is read on the loop, as for a reload. Of its faults the first is told.
 */
void cmd_settings(struct commands *c, struct request *rq, int argc,
                  const struct resp_arg *argv)
{
    const struct options *o = c->services[0].engine.options;
    struct reply reply = {request_reply(rq), request_proto(rq)};
    struct options file;
    struct buf fault = {0};
    int rc;

    (void)argc;
    (void)argv;
    options_init(&file);
    rc = options_load(&file, c->config_path, &fault);
    buf_cstr(&fault);
    fault.len = strcspn(fault.data, "\n");
    resp_map(reply.b, reply.proto, 4);
    reply_put_text(reply.b, "version", LIKESYNCD_VERSION);
    reply_put_text(reply.b, "file", c->config_path);
    resp_bulk_str(reply.b, "fault");
    resp_bulk(reply.b, fault.data, fault.len);
    resp_bulk_str(reply.b, "options");
    resp_array(reply.b, options_count());
    options_each(o, rc == 0 ? &file : NULL, put_option, &reply);
    options_free(&file);
    buf_free(&fault);
    request_done(rq);
}
