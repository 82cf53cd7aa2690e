/* SPDX-License-Identifier: MIT */
/* The PostgreSQL adapter against a peer that speaks just enough of the protocol
 * (PostgreSQL manual, "Message Formats") to break off at any point of it. */
#include "pg_harness.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/buf.h"

/* What the peer does with a new client. */
enum greeting {
    ACCEPTS_AND_CLOSES,
    SAYS_NOTHING,
    CLOSES_ON_STARTUP,
    CLOSES_IN_MESSAGE,
    CLOSES_AFTER_AUTH,
    HANGS_AFTER_AUTH,
    TALKS_NONSENSE,
    REFUSES_PASSWORD,
    IS_STARTING,
    IS_READY,
};

/* What it does with a transaction of one statement. */
enum answer {
    COMMITS,
    CLOSES_AT_ONCE,
    CLOSES_BEFORE_COMMIT,
    CLOSES_AFTER_COMMIT,
    COMMIT_ROLLS_BACK,
    SHUTS_DOWN,
    SHUTS_DOWN_AFTER_COMMIT,
    NEVER_ANSWERS,
    FAILS, /* and rolls back when asked to */
    FAILS_AND_HANGS_IN_ROLLBACK,
    FAILS_AND_CANNOT_ROLL_BACK,
};

struct peer {
    char dir[32], path[64], conninfo[128];
    uv_pipe_t listener;
    enum greeting greeting;
    enum answer answer;
    int accepted, syncs; /* all clients together */
    struct client *clients;
};

struct client {
    uv_pipe_t pipe;
    struct peer *peer; /* ref */
    struct client *next;
    struct buf in;
    bool started;
    int syncs;
};

/* ---- messages ---- */

static void put(struct buf *b, char type, const char *body, size_t len)
{
    buf_putc(b, type);
    buf_put_be32(b, (uint32_t)len + 4);
    buf_append(b, body, len);
}

static void put_ready(struct buf *b, char transaction_status)
{
    put(b, 'Z', &transaction_status, 1);
}

/* A statement without rows that went well. */
static void put_done(struct buf *b, const char *tag)
{
    put(b, '1', NULL, 0);
    put(b, '2', NULL, 0);
    put(b, 'n', NULL, 0);
    put(b, 'C', tag, strlen(tag) + 1);
}

static void put_error(struct buf *b, const char *severity, const char *code,
                      const char *text)
{
    struct buf body = {.len = 0};

    buf_printf(&body, "S%s%cC%s%cM%s%c%c", severity, 0, code, 0, text, 0, 0);
    put(b, 'E', body.data, body.len);
    buf_free(&body);
}

/* ---- the peer ---- */

static void on_client_closed(uv_handle_t *h)
{
    struct client *c = h->data;

    buf_free(&c->in);
    free(c);
}

static void hang_up(struct client *c)
{
    struct client **p = &c->peer->clients;

    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    uv_close((uv_handle_t *)&c->pipe, on_client_closed);
}

/* Sends what is in b, and empties it. */
static void tell(struct client *c, struct buf *b)
{
    uv_buf_t out = uv_buf_init(b->data, (unsigned)b->len);

    assert_int_equal(uv_try_write((uv_stream_t *)&c->pipe, &out, 1), b->len);
    buf_free(b);
}

static void greet(struct client *c)
{
    struct buf b = {.len = 0};
    enum greeting greeting = c->peer->greeting;

    c->started = true;
    if (greeting == CLOSES_IN_MESSAGE) {
        buf_append(&b, "R\0\0", 3);
    } else if (greeting == TALKS_NONSENSE) {
        buf_puts(&b, "HTTP/1.1 400 Bad Request\r\n\r\n");
    } else if (greeting == REFUSES_PASSWORD) {
        put_error(&b, "FATAL", "28P01", "password authentication failed");
    } else if (greeting == IS_STARTING) {
        put_error(&b, "FATAL", "57P03", "the database system is starting up");
    } else if (greeting >= CLOSES_AFTER_AUTH) {
        put(&b, 'R', "\0\0\0\0", 4);
        if (greeting == IS_READY)
            put_ready(&b, 'I');
    }
    if (b.len > 0)
        tell(c, &b);
    if (greeting != HANGS_AFTER_AUTH && greeting != IS_READY)
        hang_up(c);
}

static void put_transaction(struct buf *b, enum answer answer)
{
    if (answer == NEVER_ANSWERS || answer == CLOSES_AT_ONCE)
        return;
    put_done(b, "BEGIN");
    put_done(b, "SELECT 1");
    if (answer == SHUTS_DOWN) {
        put_error(b, "FATAL", "57P01", "terminating connection");
    } else if (answer >= FAILS) {
        put_error(b, "ERROR", "23514", "violates check constraint");
        put_ready(b, 'E');
    } else {
        put_done(b, "INSERT 0 1");
        if (answer != CLOSES_BEFORE_COMMIT)
            put_done(b, answer == COMMIT_ROLLS_BACK ? "ROLLBACK" : "COMMIT");
        if (answer == SHUTS_DOWN_AFTER_COMMIT)
            put_error(b, "FATAL", "57P01", "terminating connection");
        if (answer == COMMITS || answer == COMMIT_ROLLS_BACK)
            put_ready(b, 'I');
    }
}

static void answer_sync(struct client *c)
{
    struct buf b = {.len = 0};
    enum answer answer = c->peer->answer;

    c->peer->syncs++;
    if (c->syncs++ == 0) {
        put_transaction(&b, answer);
    } else if (answer != FAILS_AND_HANGS_IN_ROLLBACK) {
        put_done(&b, "ROLLBACK");
        put_ready(&b, answer == FAILS_AND_CANNOT_ROLL_BACK ? 'E' : 'I');
    }
    if (b.len > 0)
        tell(c, &b);
    if (answer == CLOSES_AT_ONCE || answer == CLOSES_BEFORE_COMMIT ||
        answer == CLOSES_AFTER_COMMIT || answer == SHUTS_DOWN ||
        answer == SHUTS_DOWN_AFTER_COMMIT)
        hang_up(c);
}

/* Length of the first message in the buffer, 0 when it is not all there. */
static size_t first_message(const struct client *c)
{
    size_t at = c->started ? 1 : 0, len = 0;

    if (c->in.len < at + 4)
        return 0;
    for (int i = 0; i < 4; i++)
        len = len << 8 | (unsigned char)c->in.data[at + (size_t)i];
    return at + len <= c->in.len ? at + len : 0;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct client *c = stream->data;
    size_t len;

    if (n > 0)
        buf_append(&c->in, buf->base, (size_t)n);
    if (n < 0) {
        hang_up(c);
        return;
    }
    while (!uv_is_closing((uv_handle_t *)stream) &&
           (len = first_message(c)) > 0) {
        char type = c->started ? c->in.data[0] : '\0';

        buf_consume(&c->in, len);
        if (type == '\0')
            greet(c);
        else if (type == 'S')
            answer_sync(c);
    }
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    static char bytes[65536];

    (void)h;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof(bytes));
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct peer *p = listener->data;
    struct client *c = calloc(1, sizeof(*c));

    assert_int_equal(status, 0);
    p->accepted++;
    c->peer = p;
    c->next = p->clients;
    p->clients = c;
    uv_pipe_init(listener->loop, &c->pipe, 0);
    c->pipe.data = c;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&c->pipe), 0);
    if (p->greeting == ACCEPTS_AND_CLOSES)
        hang_up(c);
    else if (p->greeting != SAYS_NOTHING)
        uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read);
}

static void peer_listen(struct peer *p, struct world *w)
{
    *p = (struct peer){.greeting = IS_READY};
    snprintf(p->dir, sizeof(p->dir), "/tmp/test_pg_peer.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->path, sizeof(p->path), "%s/.s.PGSQL.5432", p->dir);
    snprintf(p->conninfo, sizeof(p->conninfo),
             "host=%s port=5432 user=u dbname=d", p->dir);
    world_init(w, p->conninfo, 1);
    w->config.check.sql = NULL;
    w->config.connect_timeout_ms = 1000;
    uv_pipe_init(&w->loop, &p->listener, 0);
    p->listener.data = p;
    assert_int_equal(uv_pipe_bind(&p->listener, p->path), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&p->listener, 8, on_connection),
                     0);
}

static void peer_end(struct peer *p, struct world *w)
{
    world_free_pool(w);
    while (p->clients)
        hang_up(p->clients);
    uv_close((uv_handle_t *)&p->listener, NULL);
    world_end(w);
    unlink(p->path);
    rmdir(p->dir);
}

/* ---- connecting ---- */

/* Vanishes at each point of the handshake, twice; then it works. */
static void test_broken_handshake(void **state)
{
    const struct {
        enum greeting greeting;
        unsigned connect_timeout_ms;
        const char *text;
    } rows[] = {
        {ACCEPTS_AND_CLOSES, 1000, "cannot connect: "},
        {SAYS_NOTHING, 50, "cannot connect: no answer within 50 ms"},
        {CLOSES_ON_STARTUP, 1000, "closed the connection unexpectedly"},
        {CLOSES_IN_MESSAGE, 1000, "closed the connection unexpectedly"},
        {CLOSES_AFTER_AUTH, 1000, "closed the connection unexpectedly"},
        {HANGS_AFTER_AUTH, 50, "cannot connect: no answer within 50 ms"},
        {TALKS_NONSENSE, 1000, "cannot connect: "},
        {IS_STARTING, 1000, "FATAL: the database system is starting up"},
    };
    struct peer p;
    struct world w;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        peer_listen(&p, &w);
        p.greeting = rows[i].greeting;
        w.config.connect_timeout_ms = rows[i].connect_timeout_ms;
        world_start(&w);
        WAIT_FOR(&w,
                 p.accepted == 2 && strstr(pg_state_text(w.pool), "retry in"));
        if (!strstr(pg_state_text(w.pool), rows[i].text))
            fail_msg("row %zu: %s", i, pg_state_text(w.pool));
        assert_int_equal(w.ups + w.downs, 0);
        p.greeting = IS_READY;
        WAIT_FOR(&w, w.ups);
        assert_int_equal(w.downs, 0);
        peer_end(&p, &w);
    }
}

/* A silent host takes all the time there is; the next attempt begins with the
 * one behind it, and the one after that connection was lost does not. */
static void test_silent_host_does_not_hide_others(void **state)
{
    struct peer silent, p;
    struct world idle, w;
    char conninfo[192];

    (void)state;
    peer_listen(&silent, &idle);
    peer_listen(&p, &w);
    silent.greeting = SAYS_NOTHING;
    snprintf(conninfo, sizeof(conninfo), "host=%s,%s,%s user=u dbname=d",
             silent.dir, silent.dir, p.dir);
    w.config.conninfo = conninfo;
    w.config.connect_timeout_ms = 50;
    world_start(&w);
    WAIT_FOR(&w, w.ups == 1);
    hang_up(p.clients);
    WAIT_FOR(&w, strstr(pg_state_text(w.pool), "no answer within 50 ms"));
    WAIT_FOR(&w, w.ups == 2);
    peer_end(&p, &w);
    peer_end(&silent, &idle);
}

/* The pool is freed while the peer keeps it waiting. */
static void test_free_while_connecting(void **state)
{
    const enum greeting greetings[] = {SAYS_NOTHING, HANGS_AFTER_AUTH};
    struct peer p;
    struct world w;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        peer_listen(&p, &w);
        p.greeting = greetings[i];
        world_start(&w);
        WAIT_FOR(&w, p.accepted);
        uv_run(&w.loop, UV_RUN_NOWAIT);
        peer_end(&p, &w);
    }
}

static void test_wrong_password_is_slow(void **state)
{
    struct peer p;
    struct world w;
    uint64_t start;

    (void)state;
    peer_listen(&p, &w);
    p.greeting = REFUSES_PASSWORD;
    world_start(&w);
    WAIT_FOR(&w, p.accepted == 1 && strstr(pg_state_text(w.pool), "retry in"));
    assert_int_equal(strncmp(pg_state_text(w.pool), "refused: ", 9), 0);
    assert_non_null(strstr(pg_state_text(w.pool),
                           "FATAL: password authentication failed, retry in"));
    start = uv_hrtime();
    WAIT_FOR(&w, p.accepted == 2);
    assert_true(uv_hrtime() - start > UINT64_C(400000000));
    peer_end(&p, &w);
}

static int unused_port(void)
{
    struct sockaddr_in sin = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sin);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&sin, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
    close(fd);
    return ntohs(sin.sin_port);
}

static void test_nobody_listens(void **state)
{
    const struct {
        const char *host, *text;
    } rows[] = {
        {"127.0.0.1", "Connection refused"},
        {"localhost", "Connection refused"},
        {"/nonexistent", "No such file or directory"},
        {"no-such-host.invalid", "no-such-host.invalid: "},
    };
    char conninfo[128];
    struct world w;
    struct call c;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(conninfo, sizeof(conninfo), "host=%s port=%d user=u",
                 rows[i].host, unused_port());
        world_init(&w, conninfo, 2);
        world_start(&w);
        call_sql(&c, &w, "SELECT 1");
        assert_int_equal(pg_submit(w.pool, PG_LANE_LOOKUP, &c.job),
                         PG_NOT_CONNECTED);
        WAIT_FOR(&w, strstr(pg_state_text(w.pool), "cannot connect: "));
        if (!strstr(pg_state_text(w.pool), rows[i].text))
            fail_msg("row %zu: %s", i, pg_state_text(w.pool));
        assert_int_equal(w.ups + w.downs + c.answers, 0);
        world_end(&w);
    }
}

/* ---- transactions ---- */

static void test_outcome_of_transactions(void **state)
{
    const struct {
        enum answer answer;
        enum pg_outcome outcome;
        const char *sqlstate;
        int downs; /* the connection was given up */
        int syncs;
    } rows[] = {
        {COMMITS, PG_DONE, "", 0, 1},
        {CLOSES_AT_ONCE, PG_UNKNOWN, "", 1, 1},
        {CLOSES_BEFORE_COMMIT, PG_UNKNOWN, "", 1, 1},
        {CLOSES_AFTER_COMMIT, PG_DONE, "", 1, 1},
        {COMMIT_ROLLS_BACK, PG_FAILED, "", 1, 1},
        {SHUTS_DOWN, PG_UNKNOWN, "57P01", 1, 1},
        {SHUTS_DOWN_AFTER_COMMIT, PG_DONE, "", 1, 1},
        {NEVER_ANSWERS, PG_UNKNOWN, "", 1, 1},
        {FAILS, PG_FAILED, "23514", 0, 2},
        {FAILS_AND_HANGS_IN_ROLLBACK, PG_FAILED, "23514", 1, 2},
        {FAILS_AND_CANNOT_ROLL_BACK, PG_FAILED, "23514", 1, 2},
    };
    struct peer p;
    struct world w;
    struct call c;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        peer_listen(&p, &w);
        p.answer = rows[i].answer;
        world_start_up(&w);
        call_sql(&c, &w, "INSERT");
        c.job.transaction = true;
        if (rows[i].answer == NEVER_ANSWERS ||
            rows[i].answer == FAILS_AND_HANGS_IN_ROLLBACK)
            c.job.timeout_ms = 100;
        run(&c);
        for (int turn = 0; turn < 5; turn++)
            uv_run(&w.loop, UV_RUN_NOWAIT);
        if (c.outcome != rows[i].outcome || w.downs != rows[i].downs ||
            p.syncs != rows[i].syncs ||
            strcmp(c.sqlstate, rows[i].sqlstate) != 0)
            fail_msg("row %zu: outcome %d, %d downs, %d syncs, %s %s", i,
                     (int)c.outcome, w.downs, p.syncs, c.sqlstate, c.message);
        assert_int_equal(c.message[0] != '\0', rows[i].outcome != PG_DONE);
        peer_end(&p, &w);
    }
}

/* A peer that stops reading and answering in the middle of a large job. */
static void test_deadline_while_sending(void **state)
{
    enum { LARGE = 8 << 20 };
    struct peer p;
    struct world w;
    struct call c;
    struct pg_param param = {.data = calloc(1, LARGE), .len = LARGE};

    (void)state;
    peer_listen(&p, &w);
    world_start_up(&w);
    uv_read_stop((uv_stream_t *)&p.clients->pipe);
    call_sql(&c, &w, "SELECT");
    c.stmt.params = &param;
    c.stmt.n_params = 1;
    c.job.timeout_ms = 100;
    run(&c);
    assert_int_equal(c.outcome, PG_UNKNOWN);
    assert_string_equal(c.message, "a job's deadline has passed");
    assert_int_equal(p.syncs, 0);
    peer_end(&p, &w);
    free((void *)(uintptr_t)param.data);
}

static int ignore_sigpipe(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_handshake),
        cmocka_unit_test(test_silent_host_does_not_hide_others),
        cmocka_unit_test(test_free_while_connecting),
        cmocka_unit_test(test_wrong_password_is_slow),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_outcome_of_transactions),
        cmocka_unit_test(test_deadline_while_sending),
    };

    return cmocka_run_group_tests(tests, ignore_sigpipe, NULL);
}
