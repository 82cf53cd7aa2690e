/* SPDX-License-Identifier: MIT */
/* The Redis connection against a fake peer that answers by a table and vanishes
 * at every stage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "adapters/redis_dial.h"
#include "fake_redis.h"

#define RULES(r) r, ARRAY_LEN(r)

static const struct fake_rule no_rules[1];

static void start(struct fixture *f, struct fake *k,
                  const struct fake_rule *rules, size_t n)
{
    fixture_init(f);
    fake_start(k, f, 0, rules, n);
}

static void end(struct fixture *f, struct fake *k)
{
    fake_stop(k);
    fixture_end(f);
}

static void start_up(struct fixture *f, struct fake *k,
                     const struct fake_rule *rules, size_t n)
{
    start(f, k, rules, n);
    fixture_connect(f);
    FIXTURE_WAIT(f, f->ups == 1);
}

/* ---- the way up ---- */

static void test_greeting(void **state)
{
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, no_rules, 0);
    f.config.username = "likes";
    f.config.password = "secret";
    f.config.db = 3;
    fixture_connect(&f);
    assert_false(redis_is_up(f.redis));
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_true(redis_is_up(f.redis));
    assert_string_equal(redis_state_text(f.redis), "connected");
    assert_string_equal(
        fake_log(&k), "AUTH likes secret;SELECT 3;INFO;"
                      "SCRIPT LOAD return redis.call('RPUSH', 'list', ARGV[1]);"
                      "SCRIPT LOAD return 1;");
    assert_string_equal(f.scripts[0].sha, FAKE_SHA);
    assert_string_equal(f.scripts[1].sha, FAKE_SHA);
    assert_string_equal(f.info.version, "7.0.15");
    assert_true(f.info.is_primary);
    assert_int_equal(redis_in_flight(f.redis), 0);
    assert_int_equal(redis_reconnects(f.redis), 0);
    end(&f, &k);
}

static void test_greeting_without_user(void **state)
{
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, no_rules, 0);
    f.config.password = "secret";
    f.config.n_scripts = 0;
    snprintf(f.config.address.host, sizeof(f.config.address.host), "localhost");
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_string_equal(fake_log(&k), "AUTH secret;INFO;");
    end(&f, &k);
}

/* The peer goes away at one step of the first greeting; the second works. */
static void vanish_in_greeting(const char *command, enum fake_action action)
{
    const struct fake_rule rules[] = {{command, 1, 1, action, NULL}};
    struct fixture f;
    struct fake k;

    start(&f, &k, RULES(rules));
    f.config.password = "secret";
    f.config.db = 1;
    f.config.connect_timeout_ms = 300;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_int_equal(k.connections, 2);
    assert_int_equal(f.downs, 0);
    end(&f, &k);
}

static void test_vanish_in_greeting(void **state)
{
    const char *commands[] = {"AUTH", "SELECT", "INFO", "SCRIPT"};
    const enum fake_action actions[] = {FAKE_HANG, FAKE_CLOSE, FAKE_RESET,
                                        FAKE_PARTIAL};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        for (size_t j = 0; j < ARRAY_LEN(actions); j++)
            vanish_in_greeting(commands[i], actions[j]);
}

/* Answers to the first greeting that are no good, and what is said of them. */
static void test_bad_greeting(void **state)
{
    static const struct {
        struct fake_rule rule;
        const char *text;
        bool slow;
    } cases[] = {
        {{"AUTH", 1, 1, FAKE_ANSWER, "-WRONGPASS invalid\r\n"},
         "AUTH: WRONGPASS invalid",
         true},
        {{"AUTH", 1, 1, FAKE_ANSWER, "-ERR max number of clients reached\r\n"},
         "AUTH: ERR max number",
         false},
        {{"SELECT", 1, 1, FAKE_ANSWER, "-ERR DB index is out of range\r\n"},
         "SELECT: ERR DB index",
         true},
        {{"INFO", 1, 1, FAKE_ANSWER, "-NOAUTH Authentication required.\r\n"},
         "INFO: NOAUTH",
         true},
        {{"INFO", 1, 1, FAKE_ANSWER, "$5\r\nhello\r\n"},
         "INFO: unexpected reply",
         true},
        {{"INFO", 1, 1, FAKE_ANSWER,
          "$60\r\nrole:master\r\nrun_id:01\r\nredis_version:7\r\nloading:1\r\n"
          "a:34567\r\n\r\n"},
         "loading its data",
         false},
        {{"SCRIPT", 1, 1, FAKE_ANSWER, ":1\r\n"},
         "SCRIPT LOAD: unexpected reply",
         true},
        {{"SCRIPT", 2, 2, FAKE_ANSWER, "-LOADING wait\r\n"},
         "SCRIPT LOAD: LOADING",
         false},
        {{"SCRIPT", 2, 2, FAKE_ANSWER, "!what\r\n"}, "Protocol error", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture f;
        struct fake k;

        start(&f, &k, &cases[i].rule, 1);
        f.config.password = "secret";
        f.config.db = 1;
        fixture_connect(&f);
        FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), cases[i].text));
        assert_in_range(fixture_retry_ms(f.redis), cases[i].slow ? 1000 : 25,
                        cases[i].slow ? 2000 : 50);
        FIXTURE_WAIT(&f, f.ups == 1);
        assert_int_equal(k.connections, 2);
        end(&f, &k);
    }
}

static void test_refused(void **state)
{
    struct fixture f;
    struct fake k;
    int port;

    (void)state;
    start(&f, &k, no_rules, 0);
    port = k.port;
    fake_stop(&k);
    fixture_turn(&f);
    fixture_connect(&f);
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), "Connection refused"));
    fixture_run_ms(&f, 200);
    assert_int_equal(f.ups, 0);
    fake_start(&k, &f, port, no_rules, 0);
    FIXTURE_WAIT(&f, f.ups == 1);
    end(&f, &k);
}

static void test_no_unix_socket(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f);
    f.config.address.kind = ADDRESS_UNIX;
    snprintf(f.config.address.path, sizeof(f.config.address.path),
             "/nonexistent/redis.sock");
    fixture_connect(&f);
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), "No such file"));
    fixture_end(&f);
}

static void test_unknown_host(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f);
    f.config.address.kind = ADDRESS_TCP;
    snprintf(f.config.address.host, sizeof(f.config.address.host), "a..b");
    f.config.address.port = 1;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), "not connected: "));
    fixture_end(&f);
}

static void test_tls_is_never_plaintext(void **state)
{
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, no_rules, 0);
    f.config.address.kind = ADDRESS_TLS;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), "no TLS"));
    fixture_run_ms(&f, 50);
    assert_int_equal(k.connections, 0);
    end(&f, &k);
}

/* A listener whose queue is full: the connect itself gets no answer. */
struct blackhole {
    int listener;
    int filler[4];
};

static void blackhole_open(struct blackhole *b, struct fixture *f)
{
    struct sockaddr_in sin = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(sin);

    b->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(b->listener, (struct sockaddr *)&sin, size), 0);
    assert_int_equal(listen(b->listener, 0), 0);
    getsockname(b->listener, (struct sockaddr *)&sin, &size);
    for (size_t i = 0; i < ARRAY_LEN(b->filler); i++) {
        b->filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(b->filler[i], (struct sockaddr *)&sin, size);
    }
    f->config.address.kind = ADDRESS_TCP;
    f->config.address.port = ntohs(sin.sin_port);
    snprintf(f->config.address.host, sizeof(f->config.address.host),
             "127.0.0.1");
}

static void blackhole_close(struct blackhole *b)
{
    for (size_t i = 0; i < ARRAY_LEN(b->filler); i++)
        close(b->filler[i]);
    close(b->listener);
}

static void test_blackhole(void **state)
{
    struct fixture f;
    struct blackhole b;

    (void)state;
    fixture_init(&f);
    blackhole_open(&b, &f);
    f.config.connect_timeout_ms = 150;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis),
                            "connecting took more than 150 ms"));
    fixture_free_redis(&f);
    blackhole_close(&b);
    fixture_end(&f);
}

/* Of a host's two addresses the first one refuses. */
struct dialled {
    struct redis_dial dial;
    struct redis_link *link;
    int opened;
    int broken;
};

static void on_link_open(void *arg)
{
    ((struct dialled *)arg)->opened++;
}

static void on_link_broken(void *arg, const char *why)
{
    struct dialled *d = arg;
    char next_why[128];

    assert_string_equal(why, "Connection refused");
    d->broken++;
    redis_link_close(d->link);
    d->link = redis_dial_next(&d->dial, next_why, sizeof(next_why));
    assert_non_null(d->link);
}

static void test_next_address(void **state)
{
    const struct redis_link_events events = {.on_open = on_link_open,
                                             .on_broken = on_link_broken};
    struct fixture f;
    struct fake k;
    struct dialled d = {.opened = 0};
    char why[128];

    (void)state;
    start(&f, &k, no_rules, 0);
    d.dial =
        (struct redis_dial){.loop = &f.loop,
                            .address = &f.config.address,
                            .events = &events,
                            .arg = &d,
                            .addresses = {2, {"127.0.0.2", "127.0.0.1"}, ""}};
    d.link = redis_dial_next(&d.dial, why, sizeof(why));
    assert_non_null(d.link);
    FIXTURE_WAIT(&f, d.opened == 1);
    assert_int_equal(d.broken, 1);
    assert_int_equal(k.connections, 1);
    assert_null(redis_dial_next(&d.dial, why, sizeof(why)));
    assert_string_equal(why, "");
    redis_link_close(d.link);
    end(&f, &k);
}

static void test_on_up_refuses(void **state)
{
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, no_rules, 0);
    f.refuse = true;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 3);
    assert_non_null(strstr(redis_state_text(f.redis), "not wanted"));
    f.refuse = false;
    FIXTURE_WAIT(&f, f.ups == 4 && redis_is_up(f.redis));
    assert_int_equal(f.downs, 0);
    assert_int_equal(k.connections, 4);
    end(&f, &k);
}

/* ---- calls ---- */

static void test_values(void **state)
{
    const struct fake_rule rules[] = {
        {"GET", 1, 1, FAKE_ANSWER, ":-42\r\n"},
        {"GET", 2, 2, FAKE_ANSWER, "$2\r\n42\r\n"},
        {"GET", 3, 3, FAKE_ANSWER, "$3\r\n42x\r\n"},
        {"GET", 4, 4, FAKE_ANSWER, "$-1\r\n"},
        {"GET", 5, 5, FAKE_ANSWER, "+FINE\r\n"},
        {"GET", 6, 6, FAKE_ANSWER, "$0\r\n\r\n"},
        {"GET", 7, 7, FAKE_ANSWER, "*1\r\n:1\r\n"},
        {"GET", 8, 8, FAKE_ANSWER, "-ERR no\r\n"},
    };
    static const struct {
        enum redis_type type;
        int64_t number;
        const char *text;
        enum redis_outcome outcome;
    } want[] = {
        {REDIS_T_INT, -42, "", REDIS_OK},
        {REDIS_T_STR, 42, "42", REDIS_OK},
        {REDIS_T_STR, 0, "42x", REDIS_OK},
        {REDIS_T_NIL, 0, "", REDIS_OK},
        {REDIS_T_STR, 0, "FINE", REDIS_OK},
        {REDIS_T_STR, 0, "", REDIS_OK},
        {REDIS_T_ARRAY, 0, "", REDIS_OK},
        {REDIS_T_ERROR, 0, "ERR no", REDIS_ERROR},
    };
    struct probe p[ARRAY_LEN(want)] = {0};
    struct fixture f;
    struct fake k;

    (void)state;
    start_up(&f, &k, RULES(rules));
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        assert_int_equal(probe_call(&f, &p[i], "GET x"), 0);
    assert_int_equal(redis_in_flight(f.redis), ARRAY_LEN(want));
    FIXTURE_WAIT(&f, f.replies == (int)ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_int_equal(p[i].seq, (int)i + 1);
        assert_int_equal(p[i].type, want[i].type);
        assert_true(p[i].number == want[i].number);
        assert_string_equal(p[i].text, want[i].text);
        assert_int_equal(p[i].outcome, want[i].outcome);
    }
    assert_int_equal(redis_in_flight(f.redis), 0);
    end(&f, &k);
}

static void on_array(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    int *done = arg;
    const struct redis_value *inner = redis_value_at(v, 1);
    size_t len = 99;

    assert_int_equal(outcome, REDIS_OK);
    assert_int_equal(redis_value_len(v), 2);
    assert_true(redis_value_int(redis_value_at(v, 0)) == 7);
    assert_int_equal(redis_value_len(inner), 1);
    assert_string_equal(redis_value_str(redis_value_at(inner, 0), &len), "abc");
    assert_int_equal(len, 3);
    assert_null(redis_value_at(v, 2));
    assert_null(redis_value_at(redis_value_at(v, 0), 0));
    assert_int_equal(redis_value_type(NULL), REDIS_T_NIL);
    assert_string_equal(redis_value_str(NULL, &len), "");
    assert_int_equal(len, 0);
    assert_true(redis_value_int(NULL) == 0);
    ++*done;
}

static void test_arrays(void **state)
{
    const struct fake_rule rules[] = {
        {"GET", 1, 1, FAKE_ANSWER, "*2\r\n:7\r\n*1\r\n$3\r\nabc\r\n"}};
    const char *argv[] = {"GET"};
    const size_t len[] = {3};
    struct fixture f;
    struct fake k;
    int done = 0;

    (void)state;
    start_up(&f, &k, RULES(rules));
    assert_int_equal(redis_call(f.redis, 1, argv, len, on_array, &done), 0);
    FIXTURE_WAIT(&f, done == 1);
    end(&f, &k);
}

static void test_script_arguments(void **state)
{
    struct probe p = {0};
    struct fixture f;
    struct fake k;

    (void)state;
    start_up(&f, &k, no_rules, 0);
    buf_clear(&k.log, 0);
    assert_int_equal(probe_script(&f, &p, 0, "x"), 0);
    FIXTURE_WAIT(&f, p.replies == 1);
    assert_string_equal(fake_log(&k), "EVALSHA " FAKE_SHA " 0 x;");
    end(&f, &k);
}

static void then_again(struct probe *p)
{
    if (p->replies < 3)
        assert_int_equal(probe_call(p->f, p, "SET a b"), 0);
}

static void test_call_in_callback(void **state)
{
    struct probe p = {.then = then_again};
    struct fixture f;
    struct fake k;

    (void)state;
    start_up(&f, &k, no_rules, 0);
    assert_int_equal(probe_call(&f, &p, "SET a b"), 0);
    FIXTURE_WAIT(&f, p.replies == 3);
    end(&f, &k);
}

static void test_not_connected(void **state)
{
    struct probe p = {0};
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, no_rules, 0);
    fixture_connect(&f);
    assert_int_equal(probe_call(&f, &p, "GET a"), REDIS_NOT_CONNECTED);
    FIXTURE_WAIT(&f, k.connections == 1);
    assert_int_equal(probe_call(&f, &p, "GET a"), REDIS_NOT_CONNECTED);
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_int_equal(p.replies, 0);
    end(&f, &k);
}

static int call_of_size(struct fixture *f, struct probe *p, size_t size)
{
    char *big = mem_zalloc(size);
    const char *argv[] = {"SET", "a", big};
    const size_t len[] = {3, 1, size};
    int rc;

    p->f = f;
    rc = redis_call(f->redis, 3, argv, len, probe_on_reply, p);
    free(big);
    return rc;
}

static void test_caps(void **state)
{
    static struct probe probes[REDIS_MAX_CALLS];
    struct probe p = {0};
    struct fixture f;
    struct fake k;

    (void)state;
    memset(probes, 0, sizeof(probes));
    start_up(&f, &k, no_rules, 0);
    for (size_t i = 0; i < REDIS_MAX_CALLS; i++)
        assert_int_equal(probe_call(&f, &probes[i], "SET a b"), 0);
    assert_int_equal(probe_call(&f, &p, "SET a b"), REDIS_BUSY);
    FIXTURE_WAIT(&f, f.replies == (int)REDIS_MAX_CALLS);
    for (size_t i = 0; i < REDIS_MAX_CALLS; i++)
        assert_int_equal(probes[i].seq, (int)i + 1);
    assert_int_equal(call_of_size(&f, &p, REDIS_MAX_BYTES / 2), 0);
    assert_int_equal(call_of_size(&f, &p, REDIS_MAX_BYTES / 2), REDIS_BUSY);
    assert_int_equal(call_of_size(&f, &p, 1000), 0);
    FIXTURE_WAIT(&f, p.replies == 2);
    assert_int_equal(call_of_size(&f, &p, REDIS_MAX_BYTES + 1), 0);
    FIXTURE_WAIT(&f, p.replies == 3);
    end(&f, &k);
}

/* ---- the peer vanishes with commands under way ---- */

#define MANY 100

static void vanish_in_flight(enum fake_action action)
{
    const struct fake_rule rules[] = {{"SET", 11, 11, action, NULL}};
    struct probe p[MANY] = {0};
    struct fixture f;
    struct fake k;

    start(&f, &k, RULES(rules));
    f.config.timeout_ms = 300;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(probe_call(&f, &p[i], "SET a b"), 0);
    FIXTURE_WAIT(&f, f.downs == 1);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(p[i].replies, 1);
        assert_int_equal(p[i].seq, i + 1);
        /* A reset may take away answers that were already on their way. */
        if (action != FAKE_RESET || i >= 10)
            assert_int_equal(p[i].outcome, i < 10 ? REDIS_OK : REDIS_UNKNOWN);
    }
    assert_false(redis_is_up(f.redis));
    assert_int_equal(redis_in_flight(f.redis), 0);
    FIXTURE_WAIT(&f, f.ups == 2);
    assert_int_equal(f.downs, 1);
    assert_int_equal(f.replies, MANY);
    assert_int_equal(redis_reconnects(f.redis), 1);
    end(&f, &k);
}

static void test_vanish_in_flight(void **state)
{
    (void)state;
    vanish_in_flight(FAKE_HANG);
    vanish_in_flight(FAKE_CLOSE);
    vanish_in_flight(FAKE_RESET);
    vanish_in_flight(FAKE_PARTIAL);
}

static void test_vanish_idle(void **state)
{
    const struct fake_rule rules[] = {{"SET", 1, 1, FAKE_LAST, NULL}};
    struct probe p = {0};
    struct fixture f;
    struct fake k;

    (void)state;
    start_up(&f, &k, RULES(rules));
    assert_int_equal(probe_call(&f, &p, "SET a b"), 0);
    FIXTURE_WAIT(&f, f.downs == 1);
    assert_int_equal(f.outcomes[REDIS_OK], 1);
    assert_string_equal(f.down_why, "Server closed the connection");
    FIXTURE_WAIT(&f, f.ups == 2);
    end(&f, &k);
}

/* The deadline is that of the oldest command, whatever is queued behind it. */
static void test_deadline_under_load(void **state)
{
    const struct fake_rule rules[] = {{"SET", 3, 3, FAKE_HANG, NULL}};
    static struct probe p[2000];
    struct fixture f;
    struct fake k;
    uint64_t start_us;
    int n = 0;

    (void)state;
    memset(p, 0, sizeof(p));
    start(&f, &k, RULES(rules));
    f.config.timeout_ms = 400;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    start_us = clock_monotonic_us();
    while (f.downs == 0 && n < (int)ARRAY_LEN(p)) {
        assert_int_equal(probe_call(&f, &p[n++], "SET a b"), 0);
        fixture_run_ms(&f, 5);
    }
    assert_int_equal(f.downs, 1);
    assert_string_equal(f.down_why, "no answer within 400 ms");
    assert_in_range(clock_monotonic_us() - start_us, 400000, 5000000);
    assert_int_equal(f.replies, n);
    assert_int_equal(f.outcomes[REDIS_OK], 2);
    assert_int_equal(f.outcomes[REDIS_UNKNOWN], n - 2);
    end(&f, &k);
}

/* ---- error replies ---- */

static void test_errors_that_stay(void **state)
{
    const struct fake_rule rules[] = {
        {"GET", 1, 1, FAKE_ANSWER, "-LOADING x\r\n"},
        {"GET", 2, 2, FAKE_ANSWER, "-BUSY x\r\n"},
        {"GET", 3, 3, FAKE_ANSWER, "-TRYAGAIN x\r\n"},
        {"GET", 4, 4, FAKE_ANSWER, "-OOM x\r\n"},
        {"GET", 5, 5, FAKE_ANSWER, "-MISCONF x\r\n"},
        {"GET", 6, 6, FAKE_ANSWER, "-MOVED 1 a:1\r\n"},
    };
    struct probe p[7] = {0};
    struct fixture f;
    struct fake k;

    (void)state;
    start_up(&f, &k, RULES(rules));
    for (int i = 0; i < 7; i++)
        assert_int_equal(probe_call(&f, &p[i], "GET a"), 0);
    FIXTURE_WAIT(&f, f.replies == 7);
    assert_int_equal(f.outcomes[REDIS_RETRY], 3);
    assert_int_equal(f.outcomes[REDIS_FULL], 2);
    assert_int_equal(f.outcomes[REDIS_ERROR], 1);
    assert_int_equal(f.outcomes[REDIS_OK], 1);
    assert_string_equal(p[3].text, "OOM x");
    fixture_run_ms(&f, 50);
    assert_true(redis_is_up(f.redis));
    assert_int_equal(f.downs, 0);
    end(&f, &k);
}

static void then_refused(struct probe *p)
{
    struct probe other = {0};

    assert_int_equal(probe_call(p->f, &other, "GET a"), REDIS_NOT_CONNECTED);
}

/* The calls behind the one that was refused still get their own answers. */
static void leaves(const char *error, unsigned min_ms, unsigned max_ms)
{
    const struct fake_rule rules[] = {{"SET", 1, 1, FAKE_ANSWER, error}};
    struct probe p[3] = {{.then = then_refused}};
    struct fixture f;
    struct fake k;

    start_up(&f, &k, RULES(rules));
    for (int i = 0; i < 3; i++)
        assert_int_equal(probe_call(&f, &p[i], "SET a b"), 0);
    FIXTURE_WAIT(&f, f.replies == 3);
    assert_int_equal(p[0].outcome, REDIS_AWAY);
    assert_int_equal(p[1].outcome, REDIS_OK);
    assert_int_equal(p[2].outcome, REDIS_OK);
    assert_int_equal(f.downs, 1);
    assert_string_equal(f.down_why, p[0].text);
    assert_in_range(fixture_retry_ms(f.redis), min_ms, max_ms);
    FIXTURE_WAIT(&f, f.ups == 2);
    assert_int_equal(f.downs, 1);
    end(&f, &k);
}

static void test_errors_that_leave(void **state)
{
    (void)state;
    leaves("-READONLY You can't write\r\n", 25, 50);
    leaves("-NOPERM no\r\n", 1000, 2000);
}

static void test_leaving_has_a_deadline(void **state)
{
    const struct fake_rule rules[] = {
        {"SET", 1, 1, FAKE_ANSWER, "-READONLY x\r\n"},
        {"SET", 2, 2, FAKE_HANG, NULL}};
    struct probe p[2] = {0};
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, RULES(rules));
    f.config.timeout_ms = 200;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_int_equal(probe_call(&f, &p[0], "SET a b"), 0);
    assert_int_equal(probe_call(&f, &p[1], "SET a b"), 0);
    FIXTURE_WAIT(&f, f.replies == 2);
    assert_int_equal(p[0].outcome, REDIS_AWAY);
    assert_int_equal(p[1].outcome, REDIS_UNKNOWN);
    assert_int_equal(f.downs, 1);
    FIXTURE_WAIT(&f, f.ups == 2);
    end(&f, &k);
}

static void test_noscript(void **state)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 2, FAKE_ANSWER, "-NOSCRIPT No matching script.\r\n"}};
    struct probe p[3] = {{.then = then_refused}};
    struct fixture f;
    struct fake k;

    (void)state;
    start_up(&f, &k, RULES(rules));
    for (int i = 0; i < 3; i++)
        assert_int_equal(probe_script(&f, &p[i], 0, "x"), 0);
    FIXTURE_WAIT(&f, f.downs == 1);
    assert_string_equal(f.down_why, "scripts are being loaded again");
    assert_false(redis_is_up(f.redis));
    assert_true(redis_is_connected(f.redis));
    FIXTURE_WAIT(&f, f.ups == 2);
    assert_int_equal(f.replies, 3);
    assert_int_equal(f.outcomes[REDIS_RETRY], 2);
    assert_int_equal(f.outcomes[REDIS_OK], 1);
    assert_int_equal(k.connections, 1);
    assert_int_equal(fake_seen(&k, "SCRIPT"), 4);
    assert_int_equal(fake_seen(&k, "INFO"), 1);
    end(&f, &k);
}

/* Scripts that never stay do not make a storm of loads, and cost no
 * connection. */
static void test_noscript_again(void **state)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 3, FAKE_ANSWER, "-NOSCRIPT No matching script.\r\n"}};
    struct probe p = {0};
    struct fixture f;
    struct fake k;
    uint64_t start_us;

    (void)state;
    start_up(&f, &k, RULES(rules));
    start_us = clock_monotonic_us();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(probe_script(&f, &p, 0, "x"), 0);
        FIXTURE_WAIT(&f, f.ups == i + 2);
    }
    /* Twice 100 ms, as a loop counts them. */
    assert_true(clock_monotonic_us() - start_us > 180000);
    assert_int_equal(k.connections, 1);
    assert_int_equal(fake_seen(&k, "SCRIPT"), 8);
    assert_int_equal(f.outcomes[REDIS_RETRY], 3);
    assert_int_equal(f.downs, 3);
    end(&f, &k);
}

/* While a load waits for its time: the connection may break, and be freed. */
static void vanish_before_reload(bool free_it)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 2, FAKE_ANSWER, "-NOSCRIPT No matching script.\r\n"},
        {"SET", 1, 1, FAKE_LAST, NULL}};
    struct probe p[3] = {0};
    struct fixture f;
    struct fake k;

    start_up(&f, &k, RULES(rules));
    assert_int_equal(probe_script(&f, &p[0], 0, "x"), 0);
    FIXTURE_WAIT(&f, f.ups == 2);
    assert_int_equal(probe_script(&f, &p[1], 0, "x"), 0);
    assert_int_equal(probe_call(&f, &p[2], "SET a b"), 0);
    FIXTURE_WAIT(&f, f.downs == 2);
    if (!free_it) {
        FIXTURE_WAIT(&f, f.ups == 3);
        assert_int_equal(k.connections, 2);
    }
    end(&f, &k);
}

static void test_vanish_before_reload(void **state)
{
    (void)state;
    vanish_before_reload(false);
    vanish_before_reload(true);
}

static void vanish_in_reload(enum fake_action action)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 1, FAKE_ANSWER, "-NOSCRIPT No matching script.\r\n"},
        {"SCRIPT", 3, 3, action, NULL}};
    struct probe p = {0};
    struct fixture f;
    struct fake k;

    start(&f, &k, RULES(rules));
    f.config.timeout_ms = 200;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_int_equal(probe_script(&f, &p, 0, "x"), 0);
    FIXTURE_WAIT(&f, f.ups == 2);
    assert_int_equal(f.downs, 1);
    assert_int_equal(k.connections, 2);
    end(&f, &k);
}

static void test_vanish_in_reload(void **state)
{
    (void)state;
    vanish_in_reload(FAKE_HANG);
    vanish_in_reload(FAKE_CLOSE);
    vanish_in_reload(FAKE_RESET);
    vanish_in_reload(FAKE_PARTIAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greeting),
        cmocka_unit_test(test_greeting_without_user),
        cmocka_unit_test(test_vanish_in_greeting),
        cmocka_unit_test(test_bad_greeting),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_unix_socket),
        cmocka_unit_test(test_unknown_host),
        cmocka_unit_test(test_tls_is_never_plaintext),
        cmocka_unit_test(test_blackhole),
        cmocka_unit_test(test_next_address),
        cmocka_unit_test(test_on_up_refuses),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_script_arguments),
        cmocka_unit_test(test_call_in_callback),
        cmocka_unit_test(test_not_connected),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_vanish_in_flight),
        cmocka_unit_test(test_vanish_idle),
        cmocka_unit_test(test_deadline_under_load),
        cmocka_unit_test(test_errors_that_stay),
        cmocka_unit_test(test_errors_that_leave),
        cmocka_unit_test(test_leaving_has_a_deadline),
        cmocka_unit_test(test_noscript),
        cmocka_unit_test(test_noscript_again),
        cmocka_unit_test(test_vanish_before_reload),
        cmocka_unit_test(test_vanish_in_reload),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
