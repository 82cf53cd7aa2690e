/* SPDX-License-Identifier: MIT */
/* The load generator of bench.sh: one thread, many connections, on each a
 * batch of requests, then all its replies, then the next batch, as
 * redis-benchmark does. Unlike that it makes every pair once, and can send the
 * four commands of one event together.
 *
 *   likebench -s SOCKET -m MODE [-v VERB] [-c N] [-p N] [-n N] [-f N] [-o N]
 *             [-t S]
 *
 *   -m event  "VERB user other" per event (VERB: LIKE, UNLIKE, FOLLOW, ...)
 *      four   SADD, SADD, HSET, INCR per event, straight into a Redis
 *      probe  one event every 2 ms on one connection until SIGTERM, or PING
 *             with -v PING; tells how long the replies took
 *   -c   connections (16)        -p   events of a batch (64)
 *   -n   events (100000)         -f   number of the first event (0)
 *   -o   others, which are posts or users (0: each event its own); 1: a hot one
 *   -t   seconds after which no more events are sent (0: as many as -n)
 *
 * Event number i is of user i and of other i % others, by a fixed shuffle, so
 * the same numbers give the same pairs. Prints one line of key=value. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ID_BASE   1000000000ULL /* all ids have ten digits */
#define EVENT_MAX 640           /* bytes of one event's requests */
#define PROBES    (1u << 20)    /* at most, of which the times are kept */

enum mode { MODE_EVENT, MODE_FOUR, MODE_PROBE };

struct options {
    const char *socket;
    const char *verb;
    enum mode mode;
    uint64_t connections;
    uint64_t pipeline;
    uint64_t events;
    uint64_t first;
    uint64_t others;
    uint64_t seconds;
};

struct conn {
    int fd;
    char *out;
    size_t out_len;
    size_t out_sent;
    uint64_t replies_due;
    bool line_open; /* in the middle of a reply's line */
    char first;     /* of that line */
    char second;
};

struct totals {
    uint64_t next;  /* event to be sent */
    uint64_t last;  /* and where it ends */
    double stop_at; /* 0: never */
    uint64_t due;   /* replies of all that was sent */
    uint64_t done;  /* replies */
    uint64_t ones;
    uint64_t errors;
    char error[256];
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static void die(const char *what)
{
    fprintf(stderr, "likebench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (strlen(path) >= sizeof(a.sun_path)) {
        errno = ENAMETOOLONG;
        die(path);
    }
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        die(path);
    return fd;
}

/* ---- events ---- */

static int put_verb(const struct options *o, char *p, uint64_t user,
                    uint64_t other)
{
    return sprintf(
        p, "*3\r\n$%zu\r\n%s\r\n$10\r\n%" PRIu64 "\r\n$10\r\n%" PRIu64 "\r\n",
        strlen(o->verb), o->verb, user, other);
}

static int put_four(char *p, uint64_t user, uint64_t post)
{
    time_t now = time(NULL);
    int n;

    n = sprintf(p,
                "*3\r\n$4\r\nSADD\r\n$8\r\npost_set\r\n$10\r\n%" PRIu64 "\r\n",
                post);
    n += sprintf(p + n,
                 "*3\r\n$4\r\nSADD\r\n$29\r\npost_user_like_set_%" PRIu64
                 "\r\n$10\r\n%" PRIu64 "\r\n",
                 post, user);
    n += sprintf(p + n,
                 "*12\r\n$4\r\nHSET\r\n$36\r\npost_user_like_%" PRIu64
                 "_%" PRIu64 "\r\n$6\r\nstatus\r\n$1\r\n1\r\n"
                 "$7\r\npost_id\r\n$10\r\n%" PRIu64 "\r\n"
                 "$7\r\nuser_id\r\n$10\r\n%" PRIu64 "\r\n"
                 "$5\r\nctime\r\n$10\r\n%lld\r\n$5\r\nmtime\r\n$10\r\n%lld\r\n",
                 post, user, post, user, (long long)now, (long long)now);
    n += sprintf(
        p + n, "*2\r\n$4\r\nINCR\r\n$23\r\npost_%" PRIu64 "_counter\r\n", post);
    return n;
}

static int put_event(const struct options *o, char *p, uint64_t i)
{
    uint64_t other = o->others ? (i * 2654435761ULL) % o->others : i;

    if (o->mode == MODE_FOUR)
        return put_four(p, ID_BASE + i, ID_BASE + other);
    return put_verb(o, p, ID_BASE + i, ID_BASE + other);
}

/* ---- connections ---- */

static void conn_send(struct conn *c)
{
    while (c->out_sent < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0)
            die("send");
        c->out_sent += (size_t)n;
    }
}

static void conn_fill(const struct options *o, struct conn *c, struct totals *t)
{
    c->out_len = 0;
    c->out_sent = 0;
    if (t->stop_at > 0 && now_s() >= t->stop_at)
        t->last = t->next;
    for (uint64_t n = 0; n < o->pipeline && t->next < t->last; n++) {
        c->out_len += (size_t)put_event(o, c->out + c->out_len, t->next++);
        c->replies_due += o->mode == MODE_FOUR ? 4 : 1;
    }
    t->due += c->replies_due;
    conn_send(c);
}

static void reply_done(struct conn *c, struct totals *t)
{
    if (c->replies_due == 0) {
        errno = EPROTO;
        die("more replies than requests");
    }
    c->replies_due--;
    t->done++;
    if (c->first == '-')
        t->errors++;
    else if (c->first == ':' && c->second == '1')
        t->ones++;
    c->line_open = false;
}

static void conn_read(struct conn *c, struct totals *t)
{
    static char bytes[64 * 1024];
    ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    const char *p = bytes;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        if (n == 0)
            errno = ECONNRESET;
        die("recv");
    }
    while (p < bytes + n) {
        const char *end = memchr(p, '\n', (size_t)(bytes + n - p));
        const char *stop = end ? end : bytes + n;

        if (!c->line_open) {
            c->line_open = true;
            c->first = *p;
            c->second = '\0';
            if (*p == '-' && !t->error[0])
                snprintf(t->error, sizeof(t->error), "%.*s",
                         (int)(stop - p > 1 ? stop - p - 1 : 1), p);
            p++;
        }
        if (c->second == '\0' && p < stop)
            c->second = *p;
        if (!end)
            return;
        reply_done(c, t);
        p = end + 1;
    }
}

static void conn_watch(int ep, const struct conn *c, int op)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = (void *)c};

    if (c->out_sent < c->out_len)
        ev.events |= EPOLLOUT;
    if (epoll_ctl(ep, op, c->fd, &ev) < 0)
        die("epoll_ctl");
}

static void on_ready(const struct options *o, struct conn *c, int ep,
                     struct totals *t)
{
    bool was_blocked = c->out_sent < c->out_len;

    conn_send(c);
    conn_read(c, t);
    if (c->replies_due == 0)
        conn_fill(o, c, t);
    if (was_blocked || c->out_sent < c->out_len)
        conn_watch(ep, c, EPOLL_CTL_MOD);
}

static void run_load(const struct options *o)
{
    struct conn *conns = calloc(o->connections, sizeof(*conns));
    struct totals t = {.next = o->first, .last = o->first + o->events};
    int ep = epoll_create1(0);
    double start;

    for (uint64_t i = 0; i < o->connections; i++) {
        conns[i].fd = dial(o->socket);
        conns[i].out = malloc(o->pipeline * EVENT_MAX);
    }
    start = now_s();
    t.stop_at = o->seconds ? start + (double)o->seconds : 0;
    for (uint64_t i = 0; i < o->connections; i++) {
        conn_fill(o, &conns[i], &t);
        conn_watch(ep, &conns[i], EPOLL_CTL_ADD);
    }
    while (t.done < t.due) {
        struct epoll_event ready[64];
        int n = epoll_wait(ep, ready, 64, 60000);

        if (n == 0) {
            errno = ETIMEDOUT;
            die("no reply in 60 s");
        }
        for (int i = 0; i < n; i++)
            on_ready(o, ready[i].data.ptr, ep, &t);
    }
    printf("events=%" PRIu64 " seconds=%.6f ones=%" PRIu64 " errors=%" PRIu64
           "\n",
           t.next - o->first, now_s() - start, t.ones, t.errors);
    if (t.errors)
        fprintf(stderr, "likebench: the first error: %s\n", t.error);
}

/* ---- probe ---- */

/* A reply is of one line, or an array of one number: whether it is a 1. */
static bool probe_read(int fd)
{
    char reply[256];
    size_t len = 0;
    size_t lines = 1;

    while (lines > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;

        while (poll(&p, 1, 60000) < 0 && errno == EINTR)
            ;
        n = recv(fd, reply + len, sizeof(reply) - 1 - len, 0);
        if (n <= 0)
            die("no reply");
        if (len == 0 && reply[0] == '*')
            lines++;
        for (; n > 0; n--)
            lines -= reply[len++] == '\n';
    }
    reply[len] = '\0';
    if (reply[0] == '-') {
        fprintf(stderr, "likebench: %s", reply);
        exit(1);
    }
    return strcmp(reply + len - 4, ":1\r\n") == 0;
}

static double probe(const struct options *o, int fd, uint64_t i, uint64_t *ones)
{
    char request[EVENT_MAX];
    size_t len;
    double start;

    if (strcmp(o->verb, "PING") == 0)
        len = (size_t)sprintf(request, "PING\r\n");
    else
        len = (size_t)put_event(o, request, i);
    start = now_s();
    if (send(fd, request, len, MSG_NOSIGNAL) != (ssize_t)len)
        die("send");
    *ones += probe_read(fd);
    return now_s() - start;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void run_probe(const struct options *o)
{
    double *took = calloc(PROBES, sizeof(*took));
    int fd = dial(o->socket);
    uint64_t n = 0;
    uint64_t ones = 0;

    while ((!stopped || n == 0) && n < PROBES) {
        struct timespec pause = {.tv_nsec = 2000000};

        took[n] = probe(o, fd, o->first + n, &ones);
        n++;
        nanosleep(&pause, NULL);
    }
    qsort(took, n, sizeof(*took), compare);
    printf("probes=%" PRIu64 " ones=%" PRIu64
           " p50_ms=%.3f p99_ms=%.3f longest_ms=%.3f\n",
           n, ones, took[n / 2] * 1e3, took[n * 99 / 100] * 1e3,
           took[n - 1] * 1e3);
}

/* ---- command line ---- */

static void usage(void)
{
    fprintf(stderr, "usage: likebench -s SOCKET -m event|four|probe [-v VERB] "
                    "[-c N] [-p N] [-n N] [-f N] [-o N]\n");
    exit(2);
}

static uint64_t number(const char *s)
{
    char *end;
    uint64_t v = strtoull(s, &end, 10);

    if (!*s || *end || v >= ID_BASE)
        usage();
    return v;
}

static enum mode mode_of(const char *s)
{
    static const char *const names[] = {"event", "four", "probe"};

    for (int i = 0; i < 3; i++)
        if (strcmp(s, names[i]) == 0)
            return (enum mode)i;
    usage();
    return MODE_EVENT;
}

int main(int argc, char **argv)
{
    struct options o = {
        .verb = "LIKE", .connections = 16, .pipeline = 64, .events = 100000};
    struct sigaction on_term = {.sa_handler = on_signal};
    int c;

    while ((c = getopt(argc, argv, "s:m:v:c:p:n:f:o:t:")) != -1) {
        switch (c) {
        case 's':
            o.socket = optarg;
            break;
        case 'm':
            o.mode = mode_of(optarg);
            break;
        case 'v':
            o.verb = optarg;
            break;
        case 'c':
            o.connections = number(optarg);
            break;
        case 'p':
            o.pipeline = number(optarg);
            break;
        case 'n':
            o.events = number(optarg);
            break;
        case 'f':
            o.first = number(optarg);
            break;
        case 'o':
            o.others = number(optarg);
            break;
        case 't':
            o.seconds = number(optarg);
            break;
        default:
            usage();
        }
    }
    if (!o.socket || optind != argc || !o.connections || !o.pipeline)
        usage();
    sigaction(SIGTERM, &on_term, NULL);
    if (o.mode == MODE_PROBE)
        run_probe(&o);
    else
        run_load(&o);
    return 0;
}
