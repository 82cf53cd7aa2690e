/* SPDX-License-Identifier: MIT */
/* Happy path: a request that asks for a list becomes a job; the oldest job
 * writes up to STEP_CLIENTS lines a turn, by rising id, or looks up to STEP_IDS
 * given ids up. The first step is taken at once, and nearly always the last.
 *
 * Failure modes: the client goes → its job ends. Clients that come or go
 * meanwhile are listed or not. */
#include "services/client_list.h"

#include <stdlib.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/num.h"
#include "services/commands.h"

#define STEP_CLIENTS 256
#define STEP_IDS     16

struct client_list {
    struct server *server; /* ref */
    struct timer *timer;   /* runs while there are jobs */
    struct list jobs;
};

struct job {
    struct list node;
    struct request *rq;
    struct buf text;
    uint64_t after; /* id of the last client listed */
    uint64_t *ids;  /* owned; NULL: all clients */
    size_t n_ids;
    size_t next; /* of ids */
};

/* ---- lines ---- */

void client_list_put(struct buf *b, const struct session *s)
{
    struct session_usage u;

    session_usage(s, &u);
    buf_printf(
        b,
        "id=%llu addr=%s laddr=%s fd=%d name=%s age=%llu idle=%llu flags=%s "
        "db=0 sub=0 psub=0 ssub=0 multi=-1 qbuf=%zu qbuf-free=%zu obl=%zu "
        "oll=%zu omem=%zu tot-mem=%zu events=%s%s cmd=%s user=default redir=-1 "
        "resp=%d lib-name=%s lib-ver=%s admin=%d\n",
        (unsigned long long)s->id, s->addr, u.local_addr, u.fd, s->name,
        (unsigned long long)(clock_monotonic_ms() - s->created_ms) / 1000,
        (unsigned long long)u.idle_ms / 1000,
        u.closing   ? "c"
        : u.is_unix ? "U"
                    : "N",
        u.in_bytes, u.in_free_bytes, u.out_bytes, u.held_requests, u.held_bytes,
        u.memory_bytes, u.reads ? "r" : "", u.writes ? "w" : "",
        s->last_command ? s->last_command : "NULL", s->proto, s->lib_name,
        s->lib_ver, s->admin);
}

/* ---- jobs ---- */

static struct job *job_new(struct client_list *l, struct request *rq)
{
    struct job *job = mem_zalloc(sizeof(*job));

    job->rq = rq;
    list_push_back(&l->jobs, &job->node);
    return job;
}

static void job_free(struct job *job)
{
    list_remove(&job->node);
    buf_free(&job->text);
    free(job->ids);
    free(job);
}

static void on_session(void *arg, const struct session *s)
{
    struct job *job = arg;

    job->after = s->id;
    client_list_put(&job->text, s);
}

/* Whether it is done. */
static bool job_step(struct client_list *l, struct job *job)
{
    size_t end = job->next + STEP_IDS;

    if (!job->ids)
        return server_sessions_after(l->server, job->after, STEP_CLIENTS,
                                     on_session, job) < STEP_CLIENTS;
    for (; job->next < job->n_ids && job->next < end; job->next++) {
        const struct session *s =
            server_session_by_id(l->server, job->ids[job->next]);

        if (s)
            client_list_put(&job->text, s);
    }
    return job->next == job->n_ids;
}

static void on_timer(void *arg)
{
    struct client_list *l = arg;
    struct list *node = l->jobs.next;

    if (node != &l->jobs) {
        struct job *job = LIST_ENTRY(node, struct job, node);

        if (!request_session(job->rq)) {
            request_done(job->rq);
            job_free(job);
        } else if (job_step(l, job)) {
            reply_text(job->rq, &job->text);
            job_free(job);
        }
    }
    if (!list_empty(&l->jobs))
        timer_start(l->timer, 0, 0);
}

static void job_start(struct client_list *l)
{
    if (!timer_active(l->timer))
        on_timer(l);
}

struct client_list *client_list_new(struct uv_loop_s *loop,
                                    struct server *server)
{
    struct client_list *l = mem_zalloc(sizeof(*l));

    l->server = server;
    l->timer = timer_new(loop, on_timer, l);
    list_init(&l->jobs);
    return l;
}

void client_list_free(struct client_list *l)
{
    if (!l)
        return;
    LIST_FOREACH_SAFE(node, &l->jobs) {
        struct job *job = LIST_ENTRY(node, struct job, node);

        reply_failed(job->rq, "ERR the daemon stops");
        job_free(job);
    }
    timer_free(l->timer);
    free(l);
}

/* ---- the command ---- */

/* Redis' types: all our clients are normal ones. */
static void list_by_type(struct commands *c, struct request *rq,
                         const struct resp_arg *type)
{
    static const char *const others[] = {"master", "slave", "replica",
                                         "pubsub"};
    struct buf none = {0};

    if (resp_arg_is(type, "normal")) {
        job_new(c->client_list, rq);
        job_start(c->client_list);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (resp_arg_is(type, others[i])) {
            reply_text(rq, &none);
            return;
        }
    }
    resp_error(request_reply(rq), "ERR Unknown client type '%.*s'",
               (int)type->len, type->data);
    request_done(rq);
}

static void list_by_id(struct commands *c, struct request *rq, int argc,
                       const struct resp_arg *argv)
{
    struct job *job = job_new(c->client_list, rq);

    job->ids = mem_alloc((size_t)argc * sizeof(*job->ids));
    for (int i = 3; i < argc; i++) {
        int64_t id;

        if (num_parse_redis(argv[i].data, argv[i].len, &id) != 0) {
            job_free(job);
            reply_failed(rq, "ERR Invalid client ID");
            return;
        }
        job->ids[job->n_ids++] = (uint64_t)id;
    }
    job_start(c->client_list);
}

void cmd_client_list(struct commands *c, struct request *rq, int argc,
                     const struct resp_arg *argv)
{
    if (argc == 2) {
        job_new(c->client_list, rq);
        job_start(c->client_list);
    } else if (argc == 4 && resp_arg_is(&argv[2], "TYPE")) {
        list_by_type(c, rq, &argv[3]);
    } else if (argc > 3 && resp_arg_is(&argv[2], "ID")) {
        list_by_id(c, rq, argc, argv);
    } else {
        reply_failed(rq, "ERR syntax error");
    }
}
