/* SPDX-License-Identifier: MIT */
/* A PostgreSQL of the test's own, in a new directory, on a unix socket and a
 * free port of localhost. It dies with the test. */
#ifndef TESTS_PG_SERVER_H
#define TESTS_PG_SERVER_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "pg_harness.h"

struct pg_server {
    char bin[256];
    char dir[64];
    char data[96];
    int port;
    pid_t pid; /* 0: stopped */
    char conninfo[256];
};

/* What pg_config says, or the newest of Debian's versions. */
static inline void find_binaries(struct pg_server *s)
{
    char initdb[300];
    glob_t found;
    FILE *f = popen("pg_config --bindir 2>/dev/null", "r");

    if (f && fgets(s->bin, sizeof(s->bin), f))
        s->bin[strcspn(s->bin, "\n")] = '\0';
    if (f)
        pclose(f);
    snprintf(initdb, sizeof(initdb), "%s/initdb", s->bin);
    if (access(initdb, X_OK) == 0)
        return;
    if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) != 0)
        fail_msg("PostgreSQL is not installed");
    snprintf(s->bin, sizeof(s->bin), "%s", found.gl_pathv[found.gl_pathc - 1]);
    globfree(&found);
}

/* PostgreSQL refuses to run as root. */
static inline const struct passwd *server_user(void)
{
    const struct passwd *pw = NULL;

    if (geteuid() == 0) {
        pw = getpwnam("postgres");
        if (!pw)
            pw = getpwnam("nobody");
        assert_non_null(pw);
    }
    return pw;
}

/* argv[0] is a program of s->bin. */
static inline pid_t spawn(const struct pg_server *s, const char *const *argv)
{
    const struct passwd *pw = server_user();
    char path[300], log[96];
    pid_t parent = getpid(), pid;

    snprintf(path, sizeof(path), "%s/%s", s->bin, argv[0]);
    snprintf(log, sizeof(log), "%s/log", s->dir);
    pid = fork();
    if (pid != 0) {
        assert_true(pid > 0);
        return pid;
    }
    if (pw && (initgroups(pw->pw_name, pw->pw_gid) != 0 ||
               setgid(pw->pw_gid) != 0 || setuid(pw->pw_uid) != 0))
        _exit(126);
    /* An immediate shutdown if the test goes first. */
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    if (getppid() != parent || chdir(s->dir) != 0)
        _exit(126);
    dup2(open(log, O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    setenv("PATH", s->bin, 1); /* where initdb looks for itself */
    execv(path, (char *const *)(uintptr_t)argv);
    _exit(127);
}

static inline int free_port(void)
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

/* Does not wait until it answers: the pool under test does that. */
static inline void server_start(struct pg_server *s)
{
    const char *const argv[] = {"postgres", "-D", s->data, NULL};

    s->pid = spawn(s, argv);
}

static inline void server_stop(struct pg_server *s)
{
    int status;

    kill(s->pid, SIGINT);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    s->pid = 0;
}

static inline void server_configure(const struct pg_server *s)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/postgresql.conf", s->data);
    f = fopen(path, "a");
    assert_non_null(f);
    fprintf(f,
            "listen_addresses = '127.0.0.1'\nport = %d\n"
            "unix_socket_directories = '%s'\nfsync = off\n"
            "max_connections = 30\nshared_buffers = 16MB\n"
            "timezone = 'UTC'\n",
            s->port, s->dir);
    fclose(f);
}

static inline void server_create(struct pg_server *s)
{
    const char *const initdb[] = {
        "initdb",   "-D", s->data, "-A", "trust",      "-U",
        "postgres", "-E", "UTF8",  "-N", "--locale=C", "--no-instructions",
        NULL};
    const struct passwd *pw = server_user();
    int status;

    find_binaries(s);
    snprintf(s->dir, sizeof(s->dir), "/tmp/test_pg.XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    if (pw)
        assert_int_equal(chown(s->dir, pw->pw_uid, pw->pw_gid), 0);
    snprintf(s->data, sizeof(s->data), "%s/data", s->dir);
    s->port = free_port();
    snprintf(s->conninfo, sizeof(s->conninfo),
             "host=%s port=%d user=postgres dbname=postgres", s->dir, s->port);
    assert_int_equal(waitpid(spawn(s, initdb), &status, 0) > 0, 1);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("initdb failed: see %s/log", s->dir);
    server_configure(s);
    server_start(s);
}

static inline int remove_entry(const char *path, const struct stat *st,
                               int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void server_destroy(struct pg_server *s)
{
    if (s->pid)
        server_stop(s);
    nftw(s->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
