/* SPDX-License-Identifier: MIT */
/* The Redis connection under random misfortune: whatever the peer does, each
 * call that was taken is answered exactly once and in order, and on_up and
 * on_down take turns. The seed is printed; LIKESYNCD_SEED repeats a run. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_redis.h"

#define ROUNDS  40
#define N_RULES 3
#define N_CALLS 400

static uint64_t seed = 20240229;

static unsigned pick(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 33) % n;
}

static struct fake_rule random_rule(void)
{
    static const char *const commands[] = {"INFO", "SCRIPT", "SET", "SET",
                                           "SET"};
    static const struct {
        enum fake_action action;
        const char *text;
    } acts[] = {
        {FAKE_LAST, NULL},
        {FAKE_HANG, NULL},
        {FAKE_CLOSE, NULL},
        {FAKE_RESET, NULL},
        {FAKE_PARTIAL, NULL},
        {FAKE_ANSWER, "-READONLY x\r\n"},
        {FAKE_ANSWER, "-NOSCRIPT x\r\n"},
        {FAKE_ANSWER, "-LOADING x\r\n"},
        {FAKE_ANSWER, "?\r\n"},
    };
    unsigned c = pick(ARRAY_LEN(commands));
    unsigned a = pick(ARRAY_LEN(acts));
    int n = 1 + (int)pick(c < 2 ? 3 : N_CALLS / 2);

    return (struct fake_rule){commands[c], n, n, acts[a].action, acts[a].text};
}

static void check_turns(struct fixture *f)
{
    assert_in_range(f->ups - f->downs, 0, 1);
}

static void check_answers(const struct probe *p, const bool *taken)
{
    int last = 0;

    for (int i = 0; i < N_CALLS; i++) {
        assert_int_equal(p[i].replies, taken[i]);
        if (!taken[i])
            continue;
        assert_true(p[i].seq > last);
        last = p[i].seq;
    }
}

static void play_round(void)
{
    static struct probe p[N_CALLS];
    bool taken[N_CALLS] = {false};
    struct fake_rule rules[N_RULES];
    struct fixture f;
    struct fake k;
    int n = 0;

    memset(p, 0, sizeof(p));
    for (int i = 0; i < N_RULES; i++)
        rules[i] = random_rule();
    fixture_init(&f);
    fake_start(&k, &f, 0, rules, N_RULES);
    f.config.connect_timeout_ms = 100;
    f.config.timeout_ms = 100;
    f.in_up = check_turns;
    f.in_down = check_turns;
    fixture_connect(&f);
    while (n < N_CALLS) {
        for (unsigned burst = pick(40); burst > 0 && n < N_CALLS; burst--) {
            taken[n] = probe_call(&f, &p[n], "SET a b") == 0;
            n += taken[n];
            if (!redis_is_up(f.redis))
                break;
        }
        uv_run(&f.loop, redis_is_up(f.redis) ? UV_RUN_NOWAIT : UV_RUN_ONCE);
    }
    if (pick(2))
        FIXTURE_WAIT(&f, redis_in_flight(f.redis) == 0);
    fixture_free_redis(&f);
    check_answers(p, taken);
    check_turns(&f);
    fake_stop(&k);
    fixture_end(&f);
}

static void test_rounds(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        print_message("round %d: seed %llu\n", i, (unsigned long long)seed);
        play_round();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds)};
    const char *text = getenv("LIKESYNCD_SEED");

    if (text)
        seed = strtoull(text, NULL, 10);
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
