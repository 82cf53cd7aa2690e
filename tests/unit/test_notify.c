/* SPDX-License-Identifier: MIT */
/* What arrives at the service manager's socket, here a socket of the test. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "adapters/notify.h"
#include "base/clock.h"

static int manager_fd;

/* An abstract socket needs no file; the kernel chooses its name. */
static int setup(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(sa_family_t);
    char name[sizeof(un.sun_path) + 1];

    (void)state;
    manager_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(manager_fd >= 0);
    assert_int_equal(bind(manager_fd, (struct sockaddr *)&un, len), 0);
    len = sizeof(un);
    assert_int_equal(getsockname(manager_fd, (struct sockaddr *)&un, &len), 0);
    snprintf(name, sizeof(name), "@%.*s",
             (int)(len - offsetof(struct sockaddr_un, sun_path) - 1),
             un.sun_path + 1);
    setenv("NOTIFY_SOCKET", name, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close(manager_fd);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return 0;
}

/* A datagram to a unix socket is there when send has returned. */
static const char *received(void)
{
    static char text[4096];
    ssize_t n = recv(manager_fd, text, sizeof(text) - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void test_plain_states(void **state)
{
    (void)state;
    notify_ready();
    assert_string_equal(received(), "READY=1");
    notify_stopping();
    assert_string_equal(received(), "STOPPING=1");
    notify_watchdog();
    assert_string_equal(received(), "WATCHDOG=1");
}

static void test_reloading_says_when(void **state)
{
    static const char start[] = "RELOADING=1\nMONOTONIC_USEC=";
    uint64_t before = clock_monotonic_us();
    const char *got;
    uint64_t us;

    (void)state;
    notify_reloading();
    got = received();
    assert_int_equal(strncmp(got, start, strlen(start)), 0);
    us = strtoull(got + strlen(start), NULL, 10);
    assert_true(us >= before && us <= clock_monotonic_us());
}

static void test_status_is_one_line_of_bounded_length(void **state)
{
    char text[2000];
    const char *got;

    (void)state;
    notify_status("7 of a\nREADY=1\xe9");
    assert_string_equal(received(), "STATUS=7 of a READY=1?");
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    notify_status(text);
    got = received();
    assert_int_equal(strncmp(got, "STATUS=xxx", 10), 0);
    assert_true(strlen(got) > 1000 && strlen(got) < 1100);
    assert_string_equal(got + strlen(got) - 4, "x...");
}

static void test_without_a_manager_nothing_happens(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    notify_ready();
    notify_status("nobody listens");
    assert_string_equal(received(), "");
}

static void test_watchdog_interval(void **state)
{
    char pid[32];

    (void)state;
    assert_int_equal(notify_watchdog_ms(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_int_equal(notify_watchdog_ms(), 15000);
    setenv("WATCHDOG_USEC", "1000", 1);
    assert_int_equal(notify_watchdog_ms(), 1);
    /* Meant for another process. */
    setenv("WATCHDOG_PID", "1", 1);
    assert_int_equal(notify_watchdog_ms(), 0);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(notify_watchdog_ms(), 1);
}

#define NOTIFY_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NOTIFY_TEST(test_plain_states),
        NOTIFY_TEST(test_reloading_says_when),
        NOTIFY_TEST(test_status_is_one_line_of_bounded_length),
        NOTIFY_TEST(test_without_a_manager_nothing_happens),
        NOTIFY_TEST(test_watchdog_interval),
    };

    return cmocka_run_group_tests_name("notify", tests, NULL, NULL);
}
