/* SPDX-License-Identifier: MIT */
/* The Redis connection against a real redis-server. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "redis_server.h"

static struct redis_server server;
static struct fixture f;

static int setup(void **state)
{
    (void)state;
    server_init(&server);
    fixture_init(&f);
    f.config.address.kind = ADDRESS_UNIX;
    snprintf(f.config.address.path, sizeof(f.config.address.path), "%s",
             server.socket);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_end(&f);
    server_remove(&server);
    return 0;
}

/* Also after a failed test: the next one starts from nothing. */
static int teardown_hard(void **state)
{
    (void)state;
    server_kill(&server);
    return 0;
}

static void start_up(void)
{
    server_start(&server, NULL, NULL);
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
}

static void test_up(void **state)
{
    struct probe p = {0};

    (void)state;
    start_up();
    assert_int_equal(strlen(f.info.run_id), 40);
    assert_int_equal(strlen(f.info.replid), 40);
    assert_string_not_equal(f.info.version, "");
    assert_string_equal(f.info.maxmemory_policy, "noeviction");
    assert_true(f.info.is_primary);
    assert_false(f.info.aof_enabled);
    assert_int_equal(strlen(f.scripts[0].sha), 40);
    assert_string_not_equal(f.scripts[0].sha, f.scripts[1].sha);
    assert_int_equal(probe_script(&f, &p, 1, "x"), 0);
    FIXTURE_WAIT(&f, p.replies == 1);
    assert_int_equal(p.outcome, REDIS_OK);
    assert_true(p.number == 1);
}

static void on_info(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct redis_info info;
    size_t len;
    const char *text = redis_value_str(v, &len);

    assert_int_equal(outcome, REDIS_OK);
    assert_int_equal(redis_parse_info(text, len, &info), 0);
    assert_string_equal(info.maxmemory_policy, "allkeys-lru");
    assert_string_equal(info.run_id, f.info.run_id);
    ++*(int *)arg;
}

static void test_info_refresh(void **state)
{
    const char *argv[] = {"INFO"};
    const size_t len[] = {4};
    int done = 0;

    (void)state;
    start_up();
    server_ok(&server, "CONFIG SET maxmemory-policy allkeys-lru");
    assert_int_equal(redis_call(f.redis, 1, argv, len, on_info, &done), 0);
    FIXTURE_WAIT(&f, done == 1);
}

static void test_many_arguments(void **state)
{
    enum { N = 700 };
    static const char *argv[N];
    static size_t len[N];
    struct probe p = {.f = &f};

    (void)state;
    f.scripts[1].source = "return #ARGV .. ':' .. ARGV[700]";
    start_up();
    for (int i = 0; i < N; i++) {
        argv[i] = i == N - 1 ? "the last" : "a\0b";
        len[i] = i == N - 1 ? 8 : 3;
    }
    assert_int_equal(
        redis_script(f.redis, &f.scripts[1], N, argv, len, probe_on_reply, &p),
        0);
    FIXTURE_WAIT(&f, p.replies == 1);
    assert_string_equal(p.text, "700:the last");
}

/* ---- scripts flushed: order is kept ---- */

enum { EVENTS = 200 };

static struct probe events[EVENTS];

static void send_unanswered(struct fixture *fx)
{
    for (int i = 0; i < EVENTS; i++) {
        char text[16];

        if (events[i].replies && events[i].outcome == REDIS_OK)
            continue;
        snprintf(text, sizeof(text), "%d", i);
        events[i].replies = 0;
        assert_int_equal(probe_script(fx, &events[i], 0, text), 0);
    }
}

static void test_script_flush(void **state)
{
    char line[32];

    (void)state;
    memset(events, 0, sizeof(events));
    start_up();
    server_ok(&server, "SCRIPT FLUSH");
    f.in_up = send_unanswered;
    send_unanswered(&f);
    FIXTURE_WAIT(&f, f.outcomes[REDIS_OK] == EVENTS);
    assert_int_equal(f.outcomes[REDIS_RETRY], EVENTS);
    assert_int_equal(f.replies, 2 * EVENTS);
    assert_int_equal(f.ups, 2);
    assert_int_equal(f.downs, 1);
    assert_int_equal(redis_reconnects(f.redis), 0);
    for (int i = 0; i < EVENTS; i++) {
        struct probe p = {0};
        char command[32];

        snprintf(command, sizeof(command), "LINDEX list %d", i);
        assert_int_equal(probe_call(&f, &p, command), 0);
        FIXTURE_WAIT(&f, p.replies == 1);
        snprintf(line, sizeof(line), "%d", i);
        assert_string_equal(p.text, line);
    }
}

/* ---- settings ---- */

static void test_wrong_password(void **state)
{
    (void)state;
    server_start(&server, "--requirepass", "right");
    f.config.password = "wrong";
    fixture_connect(&f);
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), "AUTH: WRONGPASS"));
    assert_in_range(fixture_retry_ms(f.redis), 1000, 2000);
    fixture_free_redis(&f);
    f.config.password = "";
    fixture_connect(&f);
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), "INFO: NOAUTH"));
    assert_in_range(fixture_retry_ms(f.redis), 1000, 2000);
    fixture_free_redis(&f);
    f.config.password = "right";
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
}

static void test_user(void **state)
{
    struct probe p = {0};

    (void)state;
    server_start(&server, NULL, NULL);
    server_ok(&server, "ACL SETUSER likes on >pw ~* +@all -flushall");
    f.config.username = "likes";
    f.config.password = "pw";
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_int_equal(probe_call(&f, &p, "FLUSHALL"), 0);
    FIXTURE_WAIT(&f, p.replies == 1);
    assert_int_equal(p.outcome, REDIS_AWAY);
    FIXTURE_WAIT(&f, f.downs == 1);
    assert_in_range(fixture_retry_ms(f.redis), 1000, 2000);
}

static void test_db(void **state)
{
    struct probe p = {0};

    (void)state;
    f.config.db = 999;
    server_start(&server, NULL, NULL);
    fixture_connect(&f);
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), "SELECT: ERR DB index"));
    fixture_run_ms(&f, 100);
    assert_int_equal(f.ups, 0);
    fixture_free_redis(&f);
    f.config.db = 5;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_int_equal(probe_script(&f, &p, 0, "x"), 0);
    FIXTURE_WAIT(&f, p.replies == 1);
    assert_int_equal(probe_call(&f, &p, "MOVE list 6"), 0);
    FIXTURE_WAIT(&f, p.replies == 2);
    assert_true(p.number == 1);
}

static void test_full(void **state)
{
    struct probe p = {0};

    (void)state;
    start_up();
    server_ok(&server, "CONFIG SET maxmemory 1");
    assert_int_equal(probe_call(&f, &p, "SET a b"), 0);
    FIXTURE_WAIT(&f, p.replies == 1);
    assert_int_equal(p.outcome, REDIS_FULL);
    assert_int_equal(probe_script(&f, &p, 0, "x"), 0);
    FIXTURE_WAIT(&f, p.replies == 2);
    assert_int_equal(p.outcome, REDIS_FULL);
    assert_true(redis_is_up(f.redis));
}

static void test_replica(void **state)
{
    struct probe p = {0};

    (void)state;
    start_up();
    server_ok(&server, "REPLICAOF 127.0.0.1 1");
    assert_int_equal(probe_call(&f, &p, "SET a b"), 0);
    FIXTURE_WAIT(&f, p.replies == 1);
    assert_int_equal(p.outcome, REDIS_AWAY);
    FIXTURE_WAIT(&f, f.ups == 2);
    assert_false(f.info.is_primary);
}

static enum redis_outcome set_again(struct probe *p)
{
    p->replies = 0;
    assert_int_equal(probe_call(&f, p, "SET a b"), 0);
    FIXTURE_WAIT(&f, p->replies == 1);
    return p->outcome;
}

/* Somebody else's script does not end. */
static void test_busy(void **state)
{
    const char line[] = "EVAL 'while true do end' 0\r\n";
    struct probe p = {0};
    int fd;

    (void)state;
    start_up();
    server_ok(&server, "CONFIG SET busy-reply-threshold 20");
    fd = server_try_connect(&server);
    assert_int_equal(write(fd, line, sizeof(line) - 1), sizeof(line) - 1);
    FIXTURE_WAIT(&f, set_again(&p) == REDIS_RETRY);
    assert_true(strncmp(p.text, "BUSY ", 5) == 0);
    server_ok(&server, "SCRIPT KILL");
    FIXTURE_WAIT(&f, set_again(&p) == REDIS_OK);
    assert_int_equal(f.downs, 0);
    close(fd);
}

/* ---- restarts and hangs ---- */

static void test_restart(void **state)
{
    struct probe blocked = {0};
    struct probe p = {0};
    char run_id[48];

    (void)state;
    start_up();
    snprintf(run_id, sizeof(run_id), "%s", f.info.run_id);
    assert_int_equal(probe_call(&f, &blocked, "BLPOP none 0"), 0);
    fixture_run_ms(&f, 50);
    server_kill(&server);
    FIXTURE_WAIT(&f, f.downs == 1);
    assert_int_equal(blocked.replies, 1);
    assert_int_equal(blocked.outcome, REDIS_UNKNOWN);
    assert_int_equal(probe_call(&f, &p, "SET a b"), REDIS_NOT_CONNECTED);
    fixture_run_ms(&f, 200);
    server_start(&server, NULL, NULL);
    FIXTURE_WAIT(&f, f.ups == 2);
    assert_string_not_equal(f.info.run_id, run_id);
    assert_int_equal(redis_reconnects(f.redis), 1);
    assert_int_equal(probe_script(&f, &p, 0, "x"), 0);
    FIXTURE_WAIT(&f, p.replies == 1);
    assert_int_equal(p.outcome, REDIS_OK);
}

static void test_server_stopped(void **state)
{
    static struct probe p[2000];
    int n = 0;

    (void)state;
    memset(p, 0, sizeof(p));
    f.config.timeout_ms = 300;
    f.config.connect_timeout_ms = 300;
    start_up();
    kill(server.pid, SIGSTOP);
    while (f.downs == 0 && n < 2000) {
        assert_int_equal(probe_call(&f, &p[n++], "SET a b"), 0);
        fixture_run_ms(&f, 5);
    }
    assert_int_equal(f.outcomes[REDIS_UNKNOWN], n);
    assert_string_equal(f.down_why, "no answer within 300 ms");
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), "greeting took"));
    kill(server.pid, SIGCONT);
    FIXTURE_WAIT(&f, f.ups == 2);
}

/* When it is we who were stopped, an answer that has come meanwhile counts. */
static void test_stopped_ourselves(void **state)
{
    struct probe p = {0};

    (void)state;
    f.config.timeout_ms = 200;
    start_up();
    assert_int_equal(probe_call(&f, &p, "SET a b"), 0);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    uv_sleep(500);
    FIXTURE_WAIT(&f, p.replies == 1);
    assert_int_equal(p.outcome, REDIS_OK);
    assert_int_equal(f.downs, 0);
}

#define SERVER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(test_up),
        SERVER_TEST(test_info_refresh),
        SERVER_TEST(test_many_arguments),
        SERVER_TEST(test_script_flush),
        SERVER_TEST(test_wrong_password),
        SERVER_TEST(test_user),
        SERVER_TEST(test_db),
        SERVER_TEST(test_full),
        SERVER_TEST(test_replica),
        SERVER_TEST(test_busy),
        SERVER_TEST(test_restart),
        SERVER_TEST(test_server_stopped),
        SERVER_TEST(test_stopped_ourselves),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, teardown_hard);
}
