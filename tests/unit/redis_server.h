/* SPDX-License-Identifier: MIT */
/* A redis-server of the test's own, on a unix socket in a directory of its own.
 * Without redis-server on this machine the test fails. */
#ifndef TESTS_REDIS_SERVER_H
#define TESTS_REDIS_SERVER_H

#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "redis_fixture.h"

struct redis_server {
    char dir[64];
    char socket[96];
    pid_t pid; /* 0: not running */
};

static int server_try_connect(const struct redis_server *s)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int rc;

    snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", s->socket);
    rc = connect(fd, (const struct sockaddr *)&sun, sizeof(sun));
    if (rc == 0)
        return fd;
    close(fd);
    return -1;
}

static void server_wait(struct redis_server *s)
{
    uint64_t until_us = clock_monotonic_us() + FIXTURE_PATIENCE_MS * 1000u;
    int fd;

    while ((fd = server_try_connect(s)) < 0) {
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            s->pid = 0;
            fail_msg("redis-server does not run (is it installed?)");
        }
        if (clock_monotonic_us() > until_us)
            fail_msg("redis-server does not answer");
        usleep(5000);
    }
    close(fd);
}

/* With one more pair of arguments, or NULL. */
static void server_start(struct redis_server *s, const char *option,
                         const char *value)
{
    const char *argv[] = {
        "redis-server", "--port", "0", "--unixsocket", s->socket,   "--dir",
        s->dir,         "--save", "",  "--logfile",    "redis.log", option,
        value,          NULL};

    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        /* It must not outlive a test that crashes, nor hold its output. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!freopen("/dev/null", "w", stdout))
            _exit(126);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    server_wait(s);
}

static void server_kill(struct redis_server *s)
{
    if (s->pid <= 0)
        return;
    kill(s->pid, SIGKILL);
    kill(s->pid, SIGCONT);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

static void server_init(struct redis_server *s)
{
    snprintf(s->dir, sizeof(s->dir), "/tmp/likesyncd-redis-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->socket, sizeof(s->socket), "%s/redis.sock", s->dir);
}

static void server_remove(struct redis_server *s)
{
    char path[128];

    server_kill(s);
    unlink(s->socket);
    snprintf(path, sizeof(path), "%s/redis.log", s->dir);
    unlink(path);
    assert_int_equal(rmdir(s->dir), 0);
}

/* One command (inline, without its newline) by a connection of its own; the
 * first line of the answer goes to out. */
static void server_command(const struct redis_server *s, const char *line,
                           char *out, size_t size)
{
    char text[512];
    size_t n = (size_t)snprintf(text, sizeof(text), "%s\r\n", line);
    int fd = server_try_connect(s);
    ssize_t got;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    got = read(fd, out, size - 1);
    assert_true(got > 0);
    out[got] = '\0';
    out[strcspn(out, "\r")] = '\0';
    close(fd);
}

static inline void server_ok(const struct redis_server *s, const char *line)
{
    char out[256];

    server_command(s, line, out, sizeof(out));
    assert_string_equal(out, "+OK");
}

#endif
