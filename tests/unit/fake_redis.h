/* SPDX-License-Identifier: MIT */
/* A fake Redis on the test's own loop: it answers by a table, and can vanish in
 * every way at every command. */
#ifndef TESTS_FAKE_REDIS_H
#define TESTS_FAKE_REDIS_H

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "core/resp.h"
#include "redis_fixture.h"

#define FAKE_INFO                                                              \
    "# Server\r\nredis_version:7.0.15\r\n"                                     \
    "run_id:0123456789abcdef0123456789abcdef01234567\r\n"                      \
    "# Replication\r\nrole:master\r\n"                                         \
    "master_replid:76543210fedcba9876543210fedcba9876543210\r\n"               \
    "# Persistence\r\nloading:0\r\naof_enabled:1\r\n"                          \
    "# Memory\r\nmaxmemory_policy:noeviction\r\n"
#define FAKE_SHA "da39a3ee5e6b4b0d3255bfef95601890afd80709"

enum fake_action {
    FAKE_ANSWER, /* with `text` as it is on the wire */
    FAKE_LAST,   /* the same, then close */
    FAKE_HANG,   /* nothing more on this connection */
    FAKE_CLOSE,  /* at this command */
    FAKE_RESET,
    FAKE_PARTIAL, /* half of the normal answer, then close */
};

/* For the commands from the `from`th to the `to`th of this name (counted from
 * 1 over all connections; to 0: all). */
struct fake_rule {
    const char *command;
    int from;
    int to;
    enum fake_action action;
    const char *text;
};

struct fake_name {
    const char *name;
    int count;
};

struct fake {
    struct fixture *f;
    uv_tcp_t listener;
    int port;
    int connections; /* so far */
    const struct fake_rule *rules;
    size_t n_rules;
    bool slow; /* answers only as many commands as it may */
    int may;
    struct fake_conn *last;    /* ref; NULL: it is deaf */
    struct fake_name names[8]; /* how often each command came */
    struct buf log;            /* the commands, `NAME arg arg;` */
};

struct fake_conn {
    uv_tcp_t tcp;
    struct fake *fake;
    struct buf in;
    struct resp_parser parser;
    bool deaf;
};

static void fake_on_closed(uv_handle_t *h)
{
    struct fake_conn *c = CONTAINER_OF(h, struct fake_conn, tcp);

    resp_parser_free(&c->parser);
    buf_free(&c->in);
    free(c);
}

static void fake_deafen(struct fake_conn *c)
{
    c->deaf = true;
    if (c->fake->last == c)
        c->fake->last = NULL;
}

static void fake_close(struct fake_conn *c)
{
    fake_deafen(c);
    if (!uv_is_closing((uv_handle_t *)&c->tcp))
        uv_close((uv_handle_t *)&c->tcp, fake_on_closed);
}

static void fake_on_written(uv_write_t *w, int status)
{
    (void)status;
    free(w->data);
    free(w);
}

static void fake_write(struct fake_conn *c, const char *p, size_t len)
{
    uv_write_t *w = mem_zalloc(sizeof(*w));
    uv_buf_t b;

    w->data = mem_strndup(p, len);
    b = uv_buf_init(w->data, (unsigned)len);
    uv_write(w, (uv_stream_t *)&c->tcp, &b, 1, fake_on_written);
}

static int fake_count(struct fake *k, const struct resp_arg *name)
{
    for (size_t i = 0; i < ARRAY_LEN(k->names) && k->names[i].name; i++)
        if (resp_arg_is(name, k->names[i].name))
            return ++k->names[i].count;
    return 0;
}

static void fake_normal(const struct resp_arg *name, struct buf *out)
{
    if (resp_arg_is(name, "INFO"))
        resp_bulk_str(out, FAKE_INFO);
    else if (resp_arg_is(name, "SCRIPT"))
        resp_bulk_str(out, FAKE_SHA);
    else
        resp_simple(out, "OK");
}

static const struct fake_rule *fake_find(struct fake *k,
                                         const struct resp_arg *name)
{
    int n = fake_count(k, name);

    for (size_t i = 0; i < k->n_rules; i++) {
        const struct fake_rule *rule = &k->rules[i];

        if (resp_arg_is(name, rule->command) && n >= rule->from &&
            (rule->to == 0 || n <= rule->to))
            return rule;
    }
    return NULL;
}

static void fake_vanish(struct fake_conn *c, enum fake_action action)
{
    fake_deafen(c);
    if (action == FAKE_RESET)
        uv_tcp_close_reset(&c->tcp, fake_on_closed);
    else if (action != FAKE_HANG)
        fake_close(c);
}

static void fake_on_command(struct fake_conn *c)
{
    const struct resp_arg *argv = c->parser.argv;
    const struct fake_rule *rule = fake_find(c->fake, &argv[0]);
    enum fake_action action = rule ? rule->action : FAKE_ANSWER;
    struct buf out = {0};

    for (int i = 0; i < c->parser.argc; i++)
        buf_printf(&c->fake->log, "%s%.*s", i ? " " : "", (int)argv[i].len,
                   argv[i].data);
    buf_putc(&c->fake->log, ';');
    if (rule && rule->text)
        buf_puts(&out, rule->text);
    else
        fake_normal(&argv[0], &out);
    if (action == FAKE_PARTIAL)
        out.len /= 2;
    if (action == FAKE_ANSWER || action == FAKE_LAST || action == FAKE_PARTIAL)
        fake_write(c, out.data, out.len);
    buf_free(&out);
    if (action != FAKE_ANSWER)
        fake_vanish(c, action);
}

static bool fake_may(struct fake *k)
{
    return !k->slow || k->may-- > 0;
}

static void fake_on_data(struct fake_conn *c)
{
    const struct resp_limits limits = {100000, 16u << 20, 65536, 64u << 20,
                                       false};

    while (!c->deaf && fake_may(c->fake) &&
           resp_parse(&c->parser, &limits, c->in.data, c->in.len) ==
               RESP_REQUEST) {
        size_t used = c->parser.used;

        fake_on_command(c);
        buf_consume(&c->in, used);
    }
}

static void fake_alloc(uv_handle_t *h, size_t size, uv_buf_t *b)
{
    struct fake_conn *c = CONTAINER_OF(h, struct fake_conn, tcp);

    *b = uv_buf_init(buf_reserve(&c->in, size), (unsigned)size);
}

static void fake_on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct fake_conn *c = CONTAINER_OF(s, struct fake_conn, tcp);

    (void)b;
    if (n < 0) {
        fake_close(c);
        return;
    }
    c->in.len += (size_t)n;
    if (!uv_is_closing((uv_handle_t *)&c->fake->listener))
        fake_on_data(c);
}

static void fake_on_connection(uv_stream_t *s, int status)
{
    struct fake *k = CONTAINER_OF(s, struct fake, listener);
    struct fake_conn *c = mem_zalloc(sizeof(*c));

    assert_int_equal(status, 0);
    k->connections++;
    k->last = c;
    c->fake = k;
    resp_parser_init(&c->parser);
    uv_tcp_init(&k->f->loop, &c->tcp);
    assert_int_equal(uv_accept(s, (uv_stream_t *)&c->tcp), 0);
    uv_read_start((uv_stream_t *)&c->tcp, fake_alloc, fake_on_read);
}

/* Listens on 127.0.0.1; port 0: any. Points the fixture's address there. */
static inline void fake_start(struct fake *k, struct fixture *f, int port,
                              const struct fake_rule *rules, size_t n_rules)
{
    static const char *const names[] = {"AUTH",    "SELECT", "INFO", "SCRIPT",
                                        "EVALSHA", "SET",    "GET"};
    struct sockaddr_in sin;
    int size = sizeof(sin);

    memset(k, 0, sizeof(*k));
    k->f = f;
    k->rules = rules;
    k->n_rules = n_rules;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        k->names[i].name = names[i];
    uv_ip4_addr("127.0.0.1", port, &sin);
    uv_tcp_init(&f->loop, &k->listener);
    assert_int_equal(
        uv_tcp_bind(&k->listener, (const struct sockaddr *)&sin, 0), 0);
    uv_tcp_getsockname(&k->listener, (struct sockaddr *)&sin, &size);
    k->port = ntohs(sin.sin_port);
    assert_int_equal(
        uv_listen((uv_stream_t *)&k->listener, 64, fake_on_connection), 0);
    f->config.address.kind = ADDRESS_TCP;
    snprintf(f->config.address.host, sizeof(f->config.address.host),
             "127.0.0.1");
    f->config.address.port = k->port;
}

/* Connections end when the peer closes them. */
static inline void fake_stop(struct fake *k)
{
    uv_close((uv_handle_t *)&k->listener, NULL);
    buf_free(&k->log);
}

/* A slow one answers one command more. */
static inline void fake_go_on(struct fake *k)
{
    k->may = 1;
    if (k->last)
        fake_on_data(k->last);
}

/* The commands so far. */
static inline const char *fake_log(struct fake *k)
{
    return buf_cstr(&k->log);
}

static inline int fake_seen(const struct fake *k, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(k->names) && k->names[i].name; i++)
        if (strcmp(name, k->names[i].name) == 0)
            return k->names[i].count;
    return -1;
}

#endif
