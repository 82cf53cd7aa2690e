/* SPDX-License-Identifier: MIT */
/* likesyncd: the command line. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/pg.h"
#include "base/log.h"
#include "core/secret.h"
#include "daemon.h"

#define EXIT_USAGE 2

#define USAGE "usage: likesyncd -c FILE [--check-config | --print-config]\n"

static const char help[] = USAGE
    "\n"
    "Takes likes and follows over RESP into Redis and makes them rows in\n"
    "PostgreSQL. Runs in the foreground and logs to stderr.\n"
    "\n"
    "  -c, --config FILE  configuration (INI)\n"
    "      --check-config say whether it is good, and end\n"
    "      --print-config print all of it, defaults too, and end\n"
    "      --version      print the version, and end\n"
    "      --help         print this, and end\n"
    "\n"
    "SIGTERM drains and ends within 10 s; SIGHUP reads the configuration "
    "again.\n";

enum mode {
    MODE_RUN,
    MODE_CHECK,
    MODE_PRINT,
    MODE_VERSION,
    MODE_HELP,
    MODE_BAD
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, 'c'},
    {"check-config", no_argument, NULL, 'k'},
    {"print-config", no_argument, NULL, 'p'},
    {"version", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static enum mode parse(int argc, char **argv, const char **path_r)
{
    enum mode mode = MODE_RUN;
    int c;

    while ((c = getopt_long(argc, argv, "c:", long_options, NULL)) != -1) {
        switch (c) {
        case 'c':
            *path_r = optarg;
            break;
        case 'k':
            mode = MODE_CHECK;
            break;
        case 'p':
            mode = MODE_PRINT;
            break;
        case 'v':
            return MODE_VERSION;
        case 'h':
            return MODE_HELP;
        default:
            return MODE_BAD;
        }
    }
    if (optind < argc || !*path_r)
        return MODE_BAD;
    return mode;
}

/* Who only asks about the file gets the faults and no more. */
static int load(struct options *o, const char *path, enum mode mode)
{
    struct buf errors = {0};
    int rc = options_load(o, path, &errors);

    if (rc == 0) {
        buf_printf(&errors, "%s: postgres.conninfo: ", path);
        rc = pg_check_conninfo(o->pg_conninfo, &errors);
        buf_putc(&errors, '\n');
    }
    if (rc == 0) {
        errors.len = 0;
        buf_printf(&errors, "%s: ", path);
        rc = daemon_check_tls(o, &errors);
        buf_putc(&errors, '\n');
    }
    if (rc != 0 && mode == MODE_RUN)
        log_lines(LOG_LEVEL_ERROR, "config", buf_cstr(&errors));
    else if (rc != 0)
        fputs(buf_cstr(&errors), stderr);
    buf_free(&errors);
    return rc;
}

/* A credential is there for the unit only. */
static int check_secret(const char *path, const char *option, const char *where)
{
    struct buf why = {0};
    char *secret;
    int rc;

    if (!*where ||
        (secret_is_credential(where) && !getenv("CREDENTIALS_DIRECTORY")))
        return 0;
    rc = secret_read(where, &secret, &why);
    if (rc != 0)
        fprintf(stderr, "%s: %s: %s\n", path, option, buf_cstr(&why));
    secret_free(secret);
    buf_free(&why);
    return rc < 0 ? -1 : 0;
}

/* The options are good; what else would stop the start? */
static int check(const struct options *o, const char *path)
{
    int clients = check_secret(path, "server.password_file", o->password_file);
    int redis =
        check_secret(path, "redis.password_file", o->redis_password_file);

    if (clients != 0 || redis != 0)
        return EXIT_FAILURE;
    return printf("%s: good\n", path) < 0;
}

static int print(const struct options *o)
{
    struct buf text = {0};

    options_print(o, true, &text);
    fputs(buf_cstr(&text), stdout);
    buf_free(&text);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run(struct options *o, const char *path)
{
    struct daemon *d;
    int status;

    log_set_level((enum log_level)o->log_level);
    d = daemon_new(o, path);
    if (!d)
        return EXIT_FAILURE;
    status = daemon_run(d);
    daemon_free(d);
    return status;
}

static int with_config(enum mode mode, const char *path)
{
    struct options o;
    int status = EXIT_FAILURE;

    options_init(&o);
    if (load(&o, path, mode) == 0) {
        if (mode == MODE_RUN)
            status = run(&o, path);
        else if (mode == MODE_PRINT)
            status = print(&o);
        else
            status = check(&o, path);
    }
    options_free(&o);
    return status;
}

/* hiredis and others end the process without a word when they cannot allocate.
 * The log's functions are not for a signal handler; <3> is an error to journald,
 * see sd-daemon(3). */
static void on_abort(int signum)
{
    static const char words[] = "<3>likesyncd: error main: aborted: a library "
                                "has no memory, or what is said above\n";

    (void)signum;
    if (write(STDERR_FILENO, words, sizeof(words) - 1) < 0)
        return; /* there is nowhere to say so */
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    enum mode mode = parse(argc, argv, &path);

    signal(SIGABRT, on_abort);
    signal(SIGPIPE, SIG_IGN); /* hiredis and libpq write without MSG_NOSIGNAL */
    switch (mode) {
    case MODE_VERSION:
        printf("likesyncd %s\n", LIKESYNCD_VERSION);
        return EXIT_SUCCESS;
    case MODE_HELP:
        fputs(help, stdout);
        return EXIT_SUCCESS;
    case MODE_BAD:
        fputs(USAGE "likesyncd --help says more\n", stderr);
        return EXIT_USAGE;
    default:
        return with_config(mode, path);
    }
}
