/* SPDX-License-Identifier: MIT */
/* Listening sockets: whose they are, when an old one may go, and that only our
 * own does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <sys/wait.h>

#include "server_fixture.h"

static void unix_address(const struct fixture *f, struct address *a)
{
    *a = (struct address){.kind = ADDRESS_UNIX};
    snprintf(a->path, sizeof(a->path), "%s/s.sock", f->dir);
}

static int try_listen(struct server *s, const struct address *a,
                      const char *expected_why)
{
    struct buf why = {0};
    int rc = server_listen(s, a, false, &why);

    if (rc < 0 && (!expected_why || !strstr(buf_cstr(&why), expected_why)))
        fail_msg("listen: %s", buf_cstr(&why));
    buf_free(&why);
    return rc;
}

static int raw_connect(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0)
        return fd;
    close(fd);
    return -1;
}

static int raw_listen(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    if (bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 || listen(fd, 1) < 0)
        return -1;
    return fd;
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static void remove_lock(const struct address *a)
{
    char lock[128];

    snprintf(lock, sizeof(lock), "%s.lock", a->path);
    assert_int_equal(unlink(lock), 0);
}

static void test_admin_socket_has_a_mode_of_its_own(void **state)
{
    struct fixture *f = *state;
    struct buf why = {0};
    struct address a;
    struct stat st;

    unix_address(f, &a);
    assert_int_equal(server_listen(f->server, &a, true, &why), 0);
    assert_int_equal(stat(a.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    buf_free(&why);
    server_stop_listening(f->server);
    fixture_turn(f);
    remove_lock(&a);
}

static void test_unix_socket_lives_and_goes(void **state)
{
    struct fixture *f = *state;
    struct address a;
    struct stat st;
    struct peer p = {.f = f};

    unix_address(f, &a);
    assert_int_equal(try_listen(f->server, &a, NULL), 0);
    assert_int_equal(stat(a.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    p.fd = raw_connect(a.path);
    fcntl(p.fd, F_SETFL, O_NONBLOCK);
    peer_puts(&p, "PING\r\n");
    peer_expects(&p, "+PONG\r\n");
    /* Clients stay when the listeners go. */
    server_stop_listening(f->server);
    fixture_turn(f);
    assert_false(exists(a.path));
    assert_int_equal(server_port(f->server, 0), -1);
    peer_puts(&p, "PING\r\n");
    peer_expects(&p, "+PONG\r\n");
    peer_close(&p);
    remove_lock(&a);
}

/* A process listens, is killed, and leaves its socket behind. */
static void leave_stale_socket(struct fixture *f, const struct address *a)
{
    int ready[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct buf why = {0};

        c = server_listen(f->server, a, false, &why) == 0 ? 'y' : 'n';
        if (write(ready[1], &c, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    /* While it lives, there is no way in. */
    assert_int_equal(try_listen(f->server, a, "another process holds"), -1);
    assert_true(exists(a->path));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
}

static void test_socket_of_a_killed_process_is_replaced(void **state)
{
    struct fixture *f = *state;
    struct address a;
    int fd;

    unix_address(f, &a);
    leave_stale_socket(f, &a);
    assert_true(exists(a.path));
    assert_int_equal(raw_connect(a.path), -1);
    assert_int_equal(try_listen(f->server, &a, NULL), 0);
    fd = raw_connect(a.path);
    assert_true(fd >= 0);
    PUMP_UNTIL(f, server_clients(f->server) == 1);
    close(fd);
    server_stop_listening(f->server);
    remove_lock(&a);
}

/* The lock holds within one process too (the same path twice). */
static void test_same_path_twice_is_refused(void **state)
{
    struct fixture *f = *state;
    struct address a;

    unix_address(f, &a);
    assert_int_equal(try_listen(f->server, &a, NULL), 0);
    assert_int_equal(try_listen(f->server, &a, "another process holds"), -1);
    fixture_turn(f);
    assert_true(exists(a.path));
    server_stop_listening(f->server);
    remove_lock(&a);
}

/* Whoever answers without holding a lock is left alone. */
static void test_answering_socket_is_left_alone(void **state)
{
    struct fixture *f = *state;
    struct address a;
    int fd;

    unix_address(f, &a);
    fd = raw_listen(a.path);
    assert_true(fd >= 0);
    /* The probes fill the backlog of 1: later ones would have to wait. */
    for (int i = 0; i < 5; i++)
        assert_int_equal(try_listen(f->server, &a, "answers on it"), -1);
    assert_true(exists(a.path));
    close(fd);
    unlink(a.path);
    remove_lock(&a);
}

static void test_a_file_is_no_socket(void **state)
{
    struct fixture *f = *state;
    struct address a;
    FILE *file;

    unix_address(f, &a);
    file = fopen(a.path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(try_listen(f->server, &a, "is not a socket"), -1);
    assert_true(exists(a.path));
    unlink(a.path);
    remove_lock(&a);
}

static void test_bad_directory(void **state)
{
    struct fixture *f = *state;
    struct address a = {.kind = ADDRESS_UNIX};

    snprintf(a.path, sizeof(a.path), "%s/none/s.sock", f->dir);
    assert_int_equal(try_listen(f->server, &a, "No such file"), -1);
}

/* At the end only the file that we made is removed. */
static void test_anothers_socket_is_not_removed(void **state)
{
    struct fixture *f = *state;
    struct address a;
    int fd;

    unix_address(f, &a);
    assert_int_equal(try_listen(f->server, &a, NULL), 0);
    unlink(a.path);
    fd = raw_listen(a.path);
    assert_true(fd >= 0);
    server_stop_listening(f->server);
    fixture_turn(f);
    assert_true(exists(a.path));
    close(fd);
    unlink(a.path);
    remove_lock(&a);
}

static void test_tcp_port_in_use(void **state)
{
    struct fixture *f = *state;
    struct address a = {.kind = ADDRESS_TCP, .host = "127.0.0.1"};

    a.port = server_port(f->server, 0);
    assert_true(a.port > 0);
    assert_int_equal(try_listen(f->server, &a, "address already in use"), -1);
    assert_int_equal(server_port(f->server, 1), -1);
}

/* However many addresses the name has, they share a port. */
static void test_tcp_by_name(void **state)
{
    struct fixture *f = *state;
    struct address a = {.kind = ADDRESS_TCP, .host = "localhost"};
    struct peer p;

    assert_int_equal(try_listen(f->server, &a, NULL), 0);
    for (int i = 2; server_port(f->server, i) != -1; i++)
        assert_int_equal(server_port(f->server, i), server_port(f->server, 1));
    peer_connect(&p, f, 1);
    peer_puts(&p, "PING\r\n");
    peer_expects(&p, "+PONG\r\n");
    peer_close(&p);
}

static void test_addresses_that_cannot_be(void **state)
{
    struct fixture *f = *state;
    struct address tls = {.kind = ADDRESS_TLS, .host = "127.0.0.1"};
    struct address foreign = {.kind = ADDRESS_TCP, .host = "192.0.2.1"};

    assert_int_equal(try_listen(f->server, &tls, "tls:"), -1);
    assert_int_equal(try_listen(f->server, &foreign, "192.0.2.1"), -1);
}

/* ---- many at the door ---- */

/* Whoever is in is not kept waiting for all who come. */
static void test_few_come_in_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct peer p[100];

    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        peer_connect(&p[i], f, 0);
    for (size_t before = 0; before < ARRAY_LEN(p);) {
        size_t now;

        PUMP_UNTIL(f, server_clients(f->server) > before);
        now = server_clients(f->server);
        assert_in_range(now, before + 1, before + 16);
        before = now;
    }
    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        peer_puts(&p[i], "PING\r\n");
        peer_expects(&p[i], "+PONG\r\n");
        peer_close(&p[i]);
    }
}

/* One of them is accepted and not taken in yet. */
static void test_the_end_while_some_wait_at_the_door(void **state)
{
    struct fixture *f = *state;
    struct peer p[30];

    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        peer_connect(&p[i], f, 0);
    PUMP_UNTIL(f, server_clients(f->server) > 0);
    server_stop_listening(f->server);
    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        peer_close(&p[i]);
    PUMP_UNTIL(f, server_clients(f->server) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(test_admin_socket_has_a_mode_of_its_own),
        SERVER_TEST(test_unix_socket_lives_and_goes),
        SERVER_TEST(test_socket_of_a_killed_process_is_replaced),
        SERVER_TEST(test_same_path_twice_is_refused),
        SERVER_TEST(test_answering_socket_is_left_alone),
        SERVER_TEST(test_a_file_is_no_socket),
        SERVER_TEST(test_bad_directory),
        SERVER_TEST(test_anothers_socket_is_not_removed),
        SERVER_TEST(test_tcp_port_in_use),
        SERVER_TEST(test_tcp_by_name),
        SERVER_TEST(test_addresses_that_cannot_be),
        SERVER_TEST(test_few_come_in_at_a_time),
        SERVER_TEST(test_the_end_while_some_wait_at_the_door),
    };

    return cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
