/* SPDX-License-Identifier: MIT */
#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "workload.h"

#define SILENCE_NS 60000000000ULL
#define TICK_NS    200000 /* with a rate: so late an event may be sent */
#define CHECK_MS   1000

struct conn {
    uv_pipe_t pipe;
    uv_write_t write;
    struct load *load; /* ref */
    bool writing;      /* `sent` bytes of `out` are on their way */
    char *out;         /* owned */
    size_t len;
    size_t room;
    size_t sent;
    uint64_t *due; /* owned: a ring of times (ns) of events not answered */
    size_t due_from;
    size_t due_n;
    size_t due_room;
    unsigned replies_left; /* of the first of them */
    struct replies replies;
};

struct load {
    const struct options *options; /* ref */
    struct result *result;         /* ref */
    uv_loop_t loop;
    uv_timer_t check;
    uv_poll_t ticks;
    uv_signal_t term;
    struct conn *conns; /* owned */
    uint64_t next;      /* event to be sent */
    uint64_t last;      /* and where they end */
    uint64_t begun_ns;
    uint64_t heard_ns;
    uint64_t open; /* events that are not answered */
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "likebench: %s: %s\n", what, why);
    exit(1);
}

static void *grown(void *old, size_t bytes)
{
    void *p = realloc(old, bytes);

    if (!p)
        die("memory", strerror(ENOMEM));
    return p;
}

/* ---- times of events under way ---- */

static void due_push(struct conn *c, uint64_t ns)
{
    if (c->due_n == c->due_room) {
        size_t room = c->due_room ? 2 * c->due_room : 64;
        uint64_t *ring = grown(NULL, room * sizeof(*ring));

        for (size_t i = 0; i < c->due_n; i++)
            ring[i] = c->due[(c->due_from + i) % c->due_room];
        free(c->due);
        c->due = ring;
        c->due_room = room;
        c->due_from = 0;
    }
    c->due[(c->due_from + c->due_n++) % c->due_room] = ns;
}

static uint64_t due_pop(struct conn *c)
{
    uint64_t ns = c->due[c->due_from];

    c->due_from = (c->due_from + 1) % c->due_room;
    c->due_n--;
    return ns;
}

/* ---- sending ---- */

static void conn_fill(struct conn *c);
static void conn_flush(struct conn *c);

static void put_event(struct conn *c, uint64_t due_ns)
{
    struct load *l = c->load;

    if (c->len + EVENT_MAX > c->room) {
        c->room = 2 * c->room + EVENT_MAX;
        c->out = grown(c->out, c->room);
    }
    c->len += l->options->workload->put(l->options, c->out + c->len, l->next++);
    if (c->due_n == 0)
        c->replies_left = l->options->workload->replies;
    due_push(c, due_ns);
    l->open++;
}

static void on_written(uv_write_t *write, int status)
{
    struct conn *c = write->data;

    if (status == UV_ECANCELED) /* by load_free */
        return;
    if (status < 0)
        die("write", uv_strerror(status));
    c->writing = false;
    memmove(c->out, c->out + c->sent, c->len - c->sent);
    c->len -= c->sent;
    if (c->load->options->rate > 0)
        conn_flush(c);
    else if (c->due_n == 0)
        conn_fill(c);
}

/* What is in `out` stays where it is until it is written. */
static void conn_flush(struct conn *c)
{
    uv_buf_t buf = uv_buf_init(c->out, (unsigned)c->len);
    int n;

    if (c->writing || c->len == 0)
        return;
    n = uv_try_write((uv_stream_t *)&c->pipe, &buf, 1);
    if (n < 0 && n != UV_EAGAIN)
        die("write", uv_strerror(n));
    if (n == (int)c->len) {
        c->len = 0;
        return;
    }
    n = n > 0 ? n : 0;
    memmove(c->out, c->out + n, c->len - (size_t)n);
    c->len -= (size_t)n;
    c->sent = c->len;
    c->writing = true;
    c->write.data = c;
    buf = uv_buf_init(c->out, (unsigned)c->len);
    n = uv_write(&c->write, (uv_stream_t *)&c->pipe, &buf, 1, on_written);
    if (n < 0)
        die("write", uv_strerror(n));
}

static void end_when_answered(struct load *l)
{
    if (l->open == 0 && l->next >= l->last)
        uv_stop(&l->loop);
}

static bool is_over(struct load *l, uint64_t now)
{
    double seconds = l->options->seconds;

    if (seconds > 0 && (double)(now - l->begun_ns) >= seconds * 1e9)
        l->last = l->next;
    return l->next >= l->last;
}

/* The next batch. */
static void conn_fill(struct conn *c)
{
    struct load *l = c->load;
    uint64_t now = uv_hrtime();

    if (!is_over(l, now))
        for (uint64_t n = 0; n < l->options->pipeline && l->next < l->last; n++)
            put_event(c, now);
    conn_flush(c);
    end_when_answered(l);
}

/* All that are due by now, each on the next connection. */
static void on_tick(uv_poll_t *ticks, int status, int events)
{
    struct load *l = ticks->data;
    const struct options *o = l->options;
    uint64_t now = uv_hrtime();
    uint64_t from = l->next;
    uint64_t expirations;
    int fd;

    (void)status;
    (void)events;
    if (uv_fileno((uv_handle_t *)ticks, &fd) == 0 &&
        read(fd, &expirations, sizeof(expirations)) < 0)
        return;
    while (!is_over(l, now)) {
        uint64_t i = l->next - o->first;
        uint64_t due = l->begun_ns + (uint64_t)((double)i * 1e9 / o->rate);

        if (due > now)
            break;
        put_event(&l->conns[i % o->connections], due);
    }
    for (uint64_t i = from; i < l->next && i - from < o->connections; i++)
        conn_flush(&l->conns[(i - o->first) % o->connections]);
    end_when_answered(l);
}

/* ---- replies ---- */

static bool on_reply(void *arg, enum reply reply, const char *line)
{
    struct conn *c = arg;
    struct load *l = c->load;
    struct result *r = l->result;

    if (c->due_n == 0)
        die("protocol", "more replies than requests");
    r->kinds[reply]++;
    if (reply == REPLY_ERROR && !r->error[0])
        snprintf(r->error, sizeof(r->error), "%s", line + 1);
    if (--c->replies_left > 0)
        return true;
    c->replies_left = l->options->workload->replies;
    hist_add(&r->took, (l->heard_ns - due_pop(c)) / 1000);
    r->events++;
    l->open--;
    return true;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[256 * 1024]; /* one read at a time */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof(bytes));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    struct load *l = c->load;

    if (n < 0)
        die("read", uv_strerror((int)n));
    l->heard_ns = uv_hrtime();
    replies_read(&c->replies, buf->base, (size_t)n, on_reply, c);
    if (l->options->rate > 0)
        end_when_answered(l);
    else if (c->due_n == 0 && !c->writing)
        conn_fill(c);
}

/* ---- begin and end ---- */

/* Blocking, so that a full backlog is waited for. */
static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof(a.sun_path))
        die(path, strerror(ENAMETOOLONG));
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        die(path, strerror(errno));
    return fd;
}

static void conn_open(struct load *l, struct conn *c)
{
    int status;

    c->load = l;
    uv_pipe_init(&l->loop, &c->pipe, 0);
    c->pipe.data = c;
    status = uv_pipe_open(&c->pipe, dial(l->options->socket));
    if (status == 0)
        status = uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read);
    if (status < 0)
        die(l->options->socket, uv_strerror(status));
}

static void on_check(uv_timer_t *timer)
{
    struct load *l = timer->data;
    uint64_t now = uv_hrtime();

    if (l->open > 0 && now - l->heard_ns > SILENCE_NS)
        die("no reply", "in 60 s");
    if (is_over(l, now))
        end_when_answered(l);
}

static void on_term(uv_signal_t *term, int number)
{
    struct load *l = term->data;

    (void)number;
    l->last = l->next;
    end_when_answered(l);
}

static void start_ticks(struct load *l)
{
    struct itimerspec every = {{0, TICK_NS}, {0, TICK_NS}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

    if (fd < 0 || timerfd_settime(fd, 0, &every, NULL) < 0)
        die("timerfd", strerror(errno));
    uv_poll_init(&l->loop, &l->ticks, fd);
    l->ticks.data = l;
    uv_poll_start(&l->ticks, UV_READABLE, on_tick);
}

static void raise_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static double cpu_s(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void load_free(struct load *l)
{
    uv_walk(&l->loop, close_handle, NULL);
    uv_run(&l->loop, UV_RUN_DEFAULT);
    uv_loop_close(&l->loop);
    for (uint64_t i = 0; i < l->options->connections; i++) {
        free(l->conns[i].out);
        free(l->conns[i].due);
    }
    free(l->conns);
}

void load_run(const struct options *o, struct result *r)
{
    struct load l = {.options = o, .result = r, .next = o->first};

    l.last = o->first + o->events;
    l.conns = calloc(o->connections, sizeof(*l.conns));
    if (!l.conns)
        die("memory", strerror(ENOMEM));
    raise_limit();
    uv_loop_init(&l.loop);
    for (uint64_t i = 0; i < o->connections; i++)
        conn_open(&l, &l.conns[i]);
    uv_timer_init(&l.loop, &l.check);
    uv_signal_init(&l.loop, &l.term);
    l.check.data = l.term.data = &l;
    uv_timer_start(&l.check, on_check, CHECK_MS, CHECK_MS);
    uv_signal_start(&l.term, on_term, SIGTERM);
    l.begun_ns = l.heard_ns = uv_hrtime();
    if (o->rate > 0)
        start_ticks(&l);
    else
        for (uint64_t i = 0; i < o->connections; i++)
            conn_fill(&l.conns[i]);
    uv_run(&l.loop, UV_RUN_DEFAULT);
    r->seconds = (double)(l.heard_ns - l.begun_ns) / 1e9;
    r->cpu_seconds = cpu_s();
    load_free(&l);
}
