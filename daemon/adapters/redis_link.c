/* SPDX-License-Identifier: MIT */
/* hiredis on libuv, for hiredis 0.14 and 1.x.
 *
 * Happy path: connect → the socket becomes writable, hiredis finds itself
 * connected → on_open; from then on each poll event lets hiredis read (which
 * delivers replies) and write.
 *
 * Failure modes. Whatever goes wrong, hiredis frees its context: ev.cleanup is
 * called last, and on_broken follows as soon as hiredis has returned. Callbacks
 * for connect and disconnect are not used: freeing a context inside of one
 * crashes 0.14. For the same reason a link that is closed by one of its own
 * events is only marked, and freed when hiredis has returned. Commands without
 * an answer get NULL replies from hiredis; those are dropped here, since the
 * owner knows by on_broken.
 *
 * TLS lies below hiredis, which drives its handshake by reading and by writing
 * the first commands; what fails in it looks like a failed read or write.
 *
 * libuv reports POLLERR as a bare error status and stops polling; the verdict
 * is hiredis' to find, by writing while connecting, else by reading. */
#include "adapters/redis_link.h"
#include "adapters/redis.h"
#include "adapters/redis_tls.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hiredis/async.h>
#if HIREDIS_MAJOR < 1
#include <hiredis/sds.h>
#endif
#include <uv.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"

enum link_state {
    LINK_CONNECTING,
    LINK_OPEN,
    LINK_CLOSED, /* by the owner */
};

struct redis_link {
    uv_poll_t poll;
    int poll_events;              /* what poll is waiting for */
    redisAsyncContext *ac;        /* owned; NULL once hiredis has freed it */
    const struct redis_tls *tls;  /* ref; NULL: plaintext */
    const struct ssl_st *session; /* ref; of TLS, lives as long as ac */
    enum link_state state;
    bool in_hiredis; /* hiredis is on the stack: ac must not be freed */
    const struct redis_link_events *events; /* ref */
    void *arg;                              /* ref */
    char why[128];
};

/* ---- libuv under hiredis ---- */

static void on_poll(uv_poll_t *poll, int status, int events);

static void set_poll_events(struct redis_link *l, int events)
{
    if (events == l->poll_events)
        return;
    l->poll_events = events;
    if (events)
        uv_poll_start(&l->poll, events, on_poll);
    else
        uv_poll_stop(&l->poll);
}

static void add_read(void *data)
{
    struct redis_link *l = data;

    set_poll_events(l, l->poll_events | UV_READABLE);
}

static void del_read(void *data)
{
    struct redis_link *l = data;

    set_poll_events(l, l->poll_events & ~UV_READABLE);
}

static void add_write(void *data)
{
    struct redis_link *l = data;

    set_poll_events(l, l->poll_events | UV_WRITABLE);
}

static void del_write(void *data)
{
    struct redis_link *l = data;

    set_poll_events(l, l->poll_events & ~UV_WRITABLE);
}

/* The error is in ac->c: 0.14 leaves ac->err 0 when a connect fails, and 1.x may
 * leave both 0 with the reason in errno. */
static void keep_reason(struct redis_link *l, int error)
{
    if (l->session &&
        redis_tls_failure(l->tls, l->session, l->why, sizeof(l->why)))
        return;
    if (l->ac->c.err)
        snprintf(l->why, sizeof(l->why), "%s", l->ac->c.errstr);
    else
        snprintf(l->why, sizeof(l->why), "%s",
                 error ? strerror(error) : "connection failed");
}

/* hiredis is about to close the socket and free the context. */
static void cleanup(void *data)
{
    struct redis_link *l = data;
    int error = errno;

    if (!l->ac)
        return;
    set_poll_events(l, 0);
    keep_reason(l, error);
    l->ac = NULL;
    l->session = NULL;
}

static void on_poll_closed(uv_handle_t *poll)
{
    free(CONTAINER_OF(poll, struct redis_link, poll));
}

/* hiredis is not on the stack. */
static void destroy(struct redis_link *l)
{
    if (l->ac)
        redisAsyncFree(l->ac);
    uv_close((uv_handle_t *)&l->poll, on_poll_closed);
}

/* 0.14 does not look at what it could not allocate, neither for what it sends next
 * nor for who waits for a reply. */
static void out_of_memory(const char *what)
{
    log_error("redis", "cannot allocate a %s", what);
    abort();
}

#if HIREDIS_MAJOR < 1
#define KEPT_BYTES 65536 /* of an empty buffer */

/* What waits in the buffer is written, as hiredis would. But 0.14 allocates a new
 * one then, and looks into it whether or not it is there; this keeps the old one.
 * False: hiredis has to find out what is wrong. */
static bool write_buffer(struct redis_link *l)
{
    redisContext *c = &l->ac->c;
    ssize_t n;

    if (l->state != LINK_OPEN || c->err || sdslen(c->obuf) == 0)
        return false;
    n = write(c->fd, c->obuf, sdslen(c->obuf));
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if ((size_t)n < sdslen(c->obuf)) {
        sdsrange(c->obuf, (int)n, -1);
        return true;
    }
    sdsclear(c->obuf);
    if (sdsalloc(c->obuf) > KEPT_BYTES) {
        sds less = sdsRemoveFreeSpace(c->obuf);

        c->obuf = less ? less : c->obuf;
    }
    del_write(l);
    return true;
}
#else
static bool write_buffer(struct redis_link *l)
{
    (void)l;
    return false;
}
#endif

/* Each step may end with the context gone. */
static void let_hiredis_work(struct redis_link *l, int events)
{
    l->in_hiredis = true;
    if (l->session)
        redis_tls_forget_errors();
    errno = 0;
    if (events & UV_READABLE)
        redisAsyncHandleRead(l->ac);
    if ((events & UV_WRITABLE) && l->ac && l->state != LINK_CLOSED &&
        !write_buffer(l))
        redisAsyncHandleWrite(l->ac);
    if (l->ac && !l->ac->c.obuf)
        out_of_memory("buffer");
    l->in_hiredis = false;
}

static void after_hiredis(struct redis_link *l)
{
    if (l->state == LINK_CLOSED) {
        destroy(l);
    } else if (!l->ac) {
        l->events->on_broken(l->arg, l->why);
    } else if (l->state == LINK_CONNECTING &&
               (l->ac->c.flags & REDIS_CONNECTED)) {
        l->state = LINK_OPEN;
        l->events->on_open(l->arg);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct redis_link *l = CONTAINER_OF(poll, struct redis_link, poll);

    if (status < 0) {
        /* libuv has stopped polling. If hiredis finds no error (there may be
         * data to read before it), we wait on. */
        int wanted = l->poll_events;

        l->poll_events = 0;
        set_poll_events(l, wanted);
        events = l->state == LINK_CONNECTING ? UV_WRITABLE : UV_READABLE;
    }
    let_hiredis_work(l, events);
    after_hiredis(l);
}

/* ---- open and close ---- */

static struct redis_link *link_new(struct uv_loop_s *loop,
                                   redisAsyncContext *ac,
                                   const struct redis_link_events *events,
                                   void *arg, char *why, size_t size)
{
    struct redis_link *l;
    int status;

    if (!ac || ac->c.err) {
        snprintf(why, size, "%s", ac ? ac->c.errstr : "out of memory");
        if (ac)
            redisAsyncFree(ac);
        return NULL;
    }
    l = mem_zalloc(sizeof(*l));
    status = uv_poll_init(loop, &l->poll, ac->c.fd);
    if (status < 0) {
        snprintf(why, size, "%s", uv_strerror(status));
        redisAsyncFree(ac);
        free(l);
        return NULL;
    }
    l->ac = ac;
    l->events = events;
    l->arg = arg;
    ac->ev.data = l;
    ac->ev.addRead = add_read;
    ac->ev.delRead = del_read;
    ac->ev.addWrite = add_write;
    ac->ev.delWrite = del_write;
    ac->ev.cleanup = cleanup;
    add_write(l);
    return l;
}

struct redis_link *redis_link_open_unix(struct uv_loop_s *loop,
                                        const char *path,
                                        const struct redis_link_events *events,
                                        void *arg, char *why, size_t size)
{
    return link_new(loop, redisAsyncConnectUnix(path), events, arg, why, size);
}

struct redis_link *redis_link_open_tcp(struct uv_loop_s *loop, const char *ip,
                                       int port, const struct redis_tls *tls,
                                       const struct redis_link_events *events,
                                       void *arg, char *why, size_t size)
{
    redisAsyncContext *ac = redisAsyncConnect(ip, port);
    struct ssl_st *session = NULL;
    struct redis_link *l;

    if (ac && !ac->c.err) {
        /* A peer that vanishes while nothing is under way is found by this. */
        redisEnableKeepAlive(&ac->c);
        if (tls) {
            session = redis_tls_start(tls, &ac->c, why, size);
            if (!session) {
                redisAsyncFree(ac);
                return NULL;
            }
        }
    }
    l = link_new(loop, ac, events, arg, why, size);
    if (l) {
        l->tls = tls;
        l->session = session;
    }
    return l;
}

void redis_link_close(struct redis_link *l)
{
    if (!l)
        return;
    assert(l->state != LINK_CLOSED);
    l->state = LINK_CLOSED;
    if (!l->in_hiredis)
        destroy(l);
}

bool redis_link_in_handshake(const struct redis_link *l)
{
    return l->session && !redis_tls_is_open(l->session);
}

/* ---- commands and replies ---- */

static void on_hiredis_reply(redisAsyncContext *ac, void *reply, void *data)
{
    struct redis_link *l = data;

    (void)ac;
    if (reply && l->state == LINK_OPEN)
        l->events->on_reply(l->arg, reply);
}

int redis_link_send(struct redis_link *l, int argc, const char *const *argv,
                    const size_t *len)
{
    const struct redisCallback *last;

    if (!l->ac || l->state != LINK_OPEN)
        return -1;
    last = l->ac->replies.tail;
    /* hiredis changes neither the array nor the strings. */
    if (redisAsyncCommandArgv(l->ac, on_hiredis_reply, l, argc,
                              (const char **)(uintptr_t)argv, len) != 0)
        return -1;
    /* The command is on its way all the same, and the next would get its reply. */
    if (l->ac->replies.tail == last)
        out_of_memory("callback");
    return 0;
}

static const redisReply *reply_of(const struct redis_value *v)
{
    return (const void *)v;
}

enum redis_type redis_value_type(const struct redis_value *v)
{
    if (!v)
        return REDIS_T_NIL;
    switch (reply_of(v)->type) {
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
        return REDIS_T_STR;
    case REDIS_REPLY_ARRAY:
        return REDIS_T_ARRAY;
    case REDIS_REPLY_INTEGER:
        return REDIS_T_INT;
    case REDIS_REPLY_ERROR:
        return REDIS_T_ERROR;
    default:
        return REDIS_T_NIL;
    }
}

int64_t redis_value_int(const struct redis_value *v)
{
    int64_t n;

    switch (redis_value_type(v)) {
    case REDIS_T_INT:
        return reply_of(v)->integer;
    case REDIS_T_STR:
        return num_parse_i64(reply_of(v)->str, reply_of(v)->len, &n) < 0 ? 0
                                                                         : n;
    default:
        return 0;
    }
}

const char *redis_value_str(const struct redis_value *v, size_t *len_r)
{
    enum redis_type type = redis_value_type(v);
    bool has_text = type == REDIS_T_STR || type == REDIS_T_ERROR;

    *len_r = has_text ? reply_of(v)->len : 0;
    return has_text ? reply_of(v)->str : "";
}

size_t redis_value_len(const struct redis_value *v)
{
    return redis_value_type(v) == REDIS_T_ARRAY ? reply_of(v)->elements : 0;
}

const struct redis_value *redis_value_at(const struct redis_value *v, size_t i)
{
    return i < redis_value_len(v) ? (const void *)reply_of(v)->element[i]
                                  : NULL;
}
