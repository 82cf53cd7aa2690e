/* SPDX-License-Identifier: MIT */
/* The configuration: the documented defaults, each kind of fault and its
 * message, quotes and comments, reload and printing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/options.h"

/* Files are made in a directory of their own, which is the current one, so
 * that messages start with the bare name. */
#define FILE_NAME "t.ini"

static char directory[] = "/tmp/likesyncd-options-XXXXXX";

static void write_file(const char *name, const void *data, size_t len)
{
    FILE *file = fopen(name, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static int load_bytes(struct options *o, const void *data, size_t len,
                      struct buf *errors)
{
    write_file(FILE_NAME, data, len);
    options_init(o);
    return options_load(o, FILE_NAME, errors);
}

static void load_good(struct options *o, const char *text)
{
    struct buf errors = {0};
    int rc = load_bytes(o, text, strlen(text), &errors);

    assert_string_equal(buf_cstr(&errors), "");
    assert_int_equal(rc, 0);
    buf_free(&errors);
}

/* The whole of the messages, in order. */
static void assert_faults(const char *text, const char *expected)
{
    struct buf errors = {0};
    struct options o;
    int rc = load_bytes(&o, text, strlen(text), &errors);

    assert_string_equal(buf_cstr(&errors), expected);
    assert_int_equal(rc, -1);
    options_free(&o);
    buf_free(&errors);
}

static char *printed(const struct options *o, bool comments)
{
    struct buf out = {0};

    options_print(o, comments, &out);
    buf_cstr(&out);
    return out.data;
}

/* ---- defaults ---- */

/* As documented, names and values. */
static const char DEFAULTS[] =
    "[server]\n"
    "listen = unix:/run/likesyncd/likesyncd.sock tcp:127.0.0.1:6480\n"
    "admin_listen = unix:/run/likesyncd/admin.sock\n"
    "password_file =                ; needed for TCP beyond loopback\n"
    "auth_delay_ms = 500\n"
    "max_clients = 10000\n"
    "max_client_memory = 536870912\n"
    "max_pipeline = 1024\n"
    "max_args = 1024\n"
    "max_arg_bytes = 65536\n"
    "output_soft_bytes = 1048576\n"
    "output_hard_bytes = 16777216\n"
    "idle_timeout = 0\n"
    "max_requests_before_auth = 100\n"
    "auth_timeout = 60\n"
    "socket_mode = 0660\n"
    "admin_socket_mode = 0600\n"
    "socket_group =\n"
    "admin_socket_group =\n"
    "[ids]\n"
    "user = bigint                  ; bigint, uuid or text\n"
    "post = bigint\n"
    "[redis]\n"
    "address = tcp:127.0.0.1:6379   ; unix:/path, tcp:host:port\n"
    "username =\n"
    "password_file =\n"
    "db = 0\n"
    "tls_ca =\n"
    "tls_cert =\n"
    "tls_key =\n"
    "tls_server_name =\n"
    "connect_timeout_ms = 5000\n"
    "timeout_ms = 2000\n"
    "max_queue = 100000\n"
    "[postgres]\n"
    "conninfo = host=/var/run/postgresql dbname=likesync\n"
    "connections = 2\n"
    "connect_timeout_ms = 5000\n"
    "lookup_timeout_ms = 2000\n"
    "write_timeout_ms = 30000\n"
    "lock_timeout_ms = 5000\n"
    "[keys]\n"
    "follow = {user}:follow         ; an app's own name\n"
    "fans = {user}:fans\n"
    "[like]\n"
    "lookup = strict                ; strict or optimistic\n"
    "lists = no                     ; LIKERS and LIKEDPOSTS\n"
    "page_max = 10000\n"
    "[follow]\n"
    "lookup = strict                ; strict or optimistic\n"
    "max_following = 0              ; no limit\n"
    "idle_ttl = 604800              ; seconds\n"
    "page_max = 10000\n"
    "[cache]\n"
    "ttl = 3600                     ; seconds\n"
    "[flush]\n"
    "interval_ms = 1000\n"
    "batch_rows = 5000\n"
    "claim_rows = 500\n"
    "lease_ms = 15000\n"
    "ledger_keep = 86400\n"
    "[metrics]\n"
    "listen = 127.0.0.1:9480\n"
    "page = yes\n"
    "[log]\n"
    "level = info\n";

static void test_defaults(void **state)
{
    struct options initial, loaded;
    char *ours, *documented;

    (void)state;
    options_init(&initial);
    load_good(&loaded, DEFAULTS);
    ours = printed(&initial, false);
    documented = printed(&loaded, false);
    assert_string_equal(ours, documented);
    assert_int_equal(initial.listen.n, 2);
    assert_int_equal(initial.listen.items[1].port, 6480);
    assert_int_equal(initial.socket_mode, 0660);
    assert_int_equal(initial.admin_socket_mode, 0600);
    assert_int_equal(initial.id_user, ID_BIGINT);
    assert_int_equal(initial.like_lookup, LOOKUP_STRICT);
    assert_int_equal(initial.log_level, LOG_LEVEL_INFO);
    assert_string_equal(initial.password_file, "");
    assert_string_equal(initial.pg_conninfo,
                        "host=/var/run/postgresql dbname=likesync");
    free(ours);
    free(documented);
    options_free(&initial);
    options_free(&loaded);
}

static int count_options(const char *text)
{
    int n = 0;

    while (*text) {
        n += *text != '[' && *text != '\n';
        text = strchr(text, '\n') + 1;
    }
    return n;
}

/* The table has no option that DEFAULTS does not know. */
static void test_no_other_options(void **state)
{
    struct options o;
    char *text;

    (void)state;
    options_init(&o);
    text = printed(&o, false);
    assert_int_equal(count_options(text), count_options(DEFAULTS));
    free(text);
    options_free(&o);
}

/* ---- values ---- */

static void test_values(void **state)
{
    struct options o;

    (void)state;
    load_good(&o, "[server]\n"
                  "listen =\tunix:/a  tcp:[::1]:5\tlocalhost:6\n"
                  "admin_listen =\n"
                  "max_clients = 0007\n"
                  "socket_mode = 600\n"
                  "[ids]\nuser = uuid\npost = text\n"
                  "[redis]\naddress = unix:/r.sock\n"
                  "[like]\nlookup = optimistic\nlists = yes\n"
                  "page_max = 100000\n"
                  "[follow]\nlookup = optimistic\n"
                  "max_following = 1000000000\nidle_ttl = 0\npage_max = 1\n"
                  "[metrics]\nlisten =\n"
                  "[log]\nlevel = debug\n"
                  "[server]\nidle_timeout = 60\n");
    assert_int_equal(o.listen.n, 3);
    assert_string_equal(o.listen.items[0].path, "/a");
    assert_string_equal(o.listen.items[1].host, "::1");
    assert_int_equal(o.listen.items[2].port, 6);
    assert_int_equal(o.admin_listen.n, 0);
    assert_int_equal(o.max_clients, 7);
    assert_int_equal(o.socket_mode, 0600);
    assert_int_equal(o.id_user, ID_UUID);
    assert_int_equal(o.id_post, ID_TEXT);
    assert_int_equal(o.redis_address.kind, ADDRESS_UNIX);
    assert_int_equal(o.like_lookup, LOOKUP_OPTIMISTIC);
    assert_int_equal(o.like_lists, 1);
    assert_int_equal(o.like_page_max, 100000);
    assert_int_equal(o.follow_lookup, LOOKUP_OPTIMISTIC);
    assert_int_equal(o.follow_max_following, 1000000000);
    assert_int_equal(o.follow_idle_ttl_s, 0);
    assert_int_equal(o.follow_page_max, 1);
    assert_string_equal(o.metrics_listen, "");
    assert_int_equal(o.log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(o.idle_timeout_s, 60);
    options_free(&o);
}

static void test_bad_values(void **state)
{
    (void)state;
    assert_faults(
        "[flush]\ninterval_ms = 0\nbatch_rows = 1e3\nclaim_rows = 1001\n"
        "lease_ms =\n",
        "t.ini:2: flush.interval_ms = \"0\": expected 1 to 3600000 ms\n"
        "t.ini:3: flush.batch_rows = \"1e3\": expected 1 to 100000 rows\n"
        "t.ini:4: flush.claim_rows = \"1001\": expected 1 to 1000 rows\n"
        "t.ini:5: flush.lease_ms = \"\": expected 500 to 600000 ms\n");
    assert_faults(
        "[ids]\nuser = BIGINT\n[like]\nlookup = maybe\nlists = 1\n"
        "page_max = 100001\n[log]\nlevel = 3\n",
        "t.ini:2: ids.user = \"BIGINT\": expected bigint, uuid or text\n"
        "t.ini:4: like.lookup = \"maybe\": expected strict or optimistic\n"
        "t.ini:5: like.lists = \"1\": expected no or yes\n"
        "t.ini:6: like.page_max = \"100001\": expected 1 to 100000\n"
        "t.ini:8: log.level = \"3\": expected error, warn, info or debug\n");
    assert_faults(
        "[server]\nsocket_mode = 0888\n[redis]\naddress = localhost\n",
        "t.ini:2: server.socket_mode = \"0888\": "
        "expected octal, 0000 to 0777\n"
        "t.ini:4: redis.address = \"localhost\": "
        "expected unix:/path or tcp:host:port\n");
    assert_faults("[server]\nsocket_mode = 01000\n",
                  "t.ini:2: server.socket_mode = \"01000\": "
                  "expected octal, 0000 to 0777\n");
}

static void test_bad_follow_values(void **state)
{
    static const char *const GOOD[] = {"0", "60", "31536000"};
    static const char *const BAD[] = {"1", "59", "31536001", "-1", ""};
    struct options o;
    char text[128], expected[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++) {
        snprintf(text, sizeof(text), "[follow]\nidle_ttl = %s\n", GOOD[i]);
        load_good(&o, text);
        assert_int_equal(o.follow_idle_ttl_s, atoi(GOOD[i]));
        options_free(&o);
    }
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        snprintf(text, sizeof(text), "[follow]\nidle_ttl = %s\n", BAD[i]);
        snprintf(expected, sizeof(expected),
                 "t.ini:2: follow.idle_ttl = \"%s\": "
                 "expected 0, or 60 to 31536000 s\n",
                 BAD[i]);
        assert_faults(text, expected);
    }
    assert_faults("[follow]\nlookup = lax\nmax_following = 1000000001\n"
                  "page_max = 0\n",
                  "t.ini:2: follow.lookup = \"lax\": "
                  "expected strict or optimistic\n"
                  "t.ini:3: follow.max_following = \"1000000001\": "
                  "expected 0 to 1000000000\n"
                  "t.ini:4: follow.page_max = \"0\": "
                  "expected 1 to 100000\n");
}

static void test_bad_lists(void **state)
{
    (void)state;
    assert_faults(
        "[server]\nlisten = ; none\nadmin_listen = unix:/a nonsense\n",
        "t.ini:2: server.listen = \"\": "
        "expected 1 to 8 of unix:/path and tcp:host:port\n"
        "t.ini:3: server.admin_listen = \"unix:/a nonsense\": "
        "expected unix:/path or tcp:host:port\n");
    assert_faults("[server]\nlisten = unix:/a, unix:/b\n",
                  "t.ini:2: server.listen = \"unix:/a, unix:/b\": "
                  "expected spaces between the addresses, not commas\n");
    assert_faults("[server]\nlisten = unix:/1 unix:/2 unix:/3 unix:/4 unix:/5 "
                  "unix:/6 unix:/7 unix:/8 unix:/9\n",
                  "t.ini:2: server.listen = \"unix:/1 unix:/2 unix:/3 unix:/4 "
                  "unix:/5 unix:/6 unix:/7 unix:/8 unix:/9\": "
                  "expected 1 to 8 of unix:/path and tcp:host:port\n");
    assert_faults("[server]\nlisten = unix:/"
                  "123456789012345678901234567890123456789012345678901234567890"
                  "123456789012345678901234567890123456789012345678\n",
                  "t.ini:2: server.listen = \"unix:/"
                  "123456789012345678901234567890123456789012345678901234567890"
                  "123456789012345678901234567890123456789012345678\": "
                  "expected a socket path of at most 107 bytes\n");
}

static void test_key_names(void **state)
{
    static const char *const TAKEN[] = {"likesync:{user}", "post_{user}",
                                        "user_follow_set_{user}"};
    struct options o;
    char text[128], expected[256];

    (void)state;
    assert_faults("[keys]\nfollow = follow\nfans = {user}{user}\n",
                  "t.ini:2: keys.follow = \"follow\": "
                  "expected a key name with {user} in it exactly once\n"
                  "t.ini:3: keys.fans = \"{user}{user}\": "
                  "expected a key name with {user} in it exactly once\n");
    for (size_t i = 0; i < ARRAY_LEN(TAKEN); i++) {
        snprintf(text, sizeof(text), "[keys]\nfans = %s\n", TAKEN[i]);
        snprintf(expected, sizeof(expected),
                 "t.ini:2: keys.fans = \"%s\": expected a key name that does "
                 "not start with likesync:, post_ or user_follow_, which are "
                 "taken\n",
                 TAKEN[i]);
        assert_faults(text, expected);
    }
    load_good(&o, "[keys]\nfollow = follow:{user}\nfans = fans:{user}:z\n");
    assert_string_equal(o.key_follow, "follow:{user}");
    options_free(&o);
}

static void test_long_key_names(void **state)
{
    struct buf errors = {0};
    struct options o;
    char text[300];

    (void)state;
    snprintf(text, sizeof(text), "[keys]\nfans = {user}%0194d\n", 0);
    load_good(&o, text);
    options_free(&o);
    snprintf(text, sizeof(text), "[keys]\nfans = {user}%0195d\n", 0);
    assert_int_equal(load_bytes(&o, text, strlen(text), &errors), -1);
    assert_non_null(strstr(buf_cstr(&errors),
                           ": expected a key name of at most 200 bytes\n"));
    options_free(&o);
    buf_free(&errors);
}

/* Which names meet is tested in test_option_keys.c. */
static void test_key_names_that_meet(void **state)
{
    struct options o;

    (void)state;
    assert_faults("[keys]\nfollow = x{user}\nfans = x{user}\n",
                  "t.ini:3: keys.fans = \"x{user}\": expected a key name that "
                  "cannot be the keys.follow of another user (\"x{user}\", "
                  "ids of type bigint)\n");
    load_good(&o, "[keys]\nfollow = follow:{user}\n");
    options_free(&o);
    assert_faults("[keys]\nfollow = follow:{user}\n[ids]\nuser = text\n",
                  "t.ini: keys.fans = \"{user}:fans\": expected a key name "
                  "that cannot be the keys.follow of another user "
                  "(\"follow:{user}\", ids of type text)\n");
    load_good(&o, "[keys]\nfollow = follow:{user}\nfans = fans:{user}\n"
                  "[ids]\nuser = text\n");
    options_free(&o);
    assert_faults("[keys]\nfollow = {user}_set\nfans = like{user}:fans\n"
                  "[ids]\nuser = text\n",
                  "t.ini:2: keys.follow = \"{user}_set\": expected a key name "
                  "that cannot be one of the daemon's own, such as follow_set, "
                  "post_set or likesync:..., for any user\n"
                  "t.ini:3: keys.fans = \"like{user}:fans\": expected a key "
                  "name that cannot be one of the daemon's own, such as "
                  "follow_set, post_set or likesync:..., for any user\n");
    load_good(&o, "[keys]\nfollow = {user}_set\nfans = like{user}:fans\n");
    options_free(&o);
}

static void test_metrics_listen(void **state)
{
    static const char *const BAD[] = {"unix:/m.sock", "tls:127.0.0.1:9480",
                                      "metrics.example.com:9480", "9480",
                                      "127.0.0.1:94800"};
    char text[128], expected[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        snprintf(text, sizeof(text), "[metrics]\nlisten = %s\n", BAD[i]);
        snprintf(expected, sizeof(expected),
                 "t.ini:2: metrics.listen = \"%s\": "
                 "expected IP:port or localhost:port (a port from 1 to "
                 "65535), or nothing\n",
                 BAD[i]);
        assert_faults(text, expected);
    }
}

/* ---- structure ---- */

static void test_unknown(void **state)
{
    (void)state;
    assert_faults("[flush]\nintervall_ms = 5\nbatch_row = 6\nfrobnicate = 7\n"
                  "interval = 8\nmax_clients = 9\n",
                  "t.ini:2: flush.intervall_ms = \"5\": "
                  "expected a known option, perhaps flush.interval_ms\n"
                  "t.ini:3: flush.batch_row = \"6\": "
                  "expected a known option, perhaps flush.batch_rows\n"
                  "t.ini:4: flush.frobnicate = \"7\": expected a known option\n"
                  "t.ini:5: flush.interval = \"8\": "
                  "expected a known option, perhaps flush.interval_ms\n"
                  "t.ini:6: flush.max_clients = \"9\": "
                  "expected a known option, perhaps server.max_clients\n");
    assert_faults("[flsh]\ninterval_ms = 5\n[bookmarks]\nx = 1\n[]\n",
                  "t.ini:1: [flsh]: expected a known section, perhaps [flush]\n"
                  "t.ini:3: [bookmarks]: expected a known section\n"
                  "t.ini:5: []: expected a known section\n");
    assert_faults("level = info\n[log]\nLevel = info\n",
                  "t.ini:1: level: expected a [section] above it\n"
                  "t.ini:3: log.Level = \"info\": "
                  "expected a known option, perhaps log.level\n");
}

static void test_duplicates(void **state)
{
    (void)state;
    assert_faults("[log]\nlevel = info\n[redis]\ndb = 1\n[log]\nlevel = warn\n"
                  "level = warn\n",
                  "t.ini:6: log.level = \"warn\": "
                  "expected once, but line 2 has it too\n"
                  "t.ini:7: log.level = \"warn\": "
                  "expected once, but line 2 has it too\n");
}

/* No message repeats what may be a password. */
static void test_secrets_are_not_shown(void **state)
{
    (void)state;
    assert_faults(
        "[redis]\npassword = hunter2\n"
        "[postgres]\nconninfo = password=hunter2\nconninfo = "
        "password=hunter2\nconnection = password=hunter2\n"
        "[server]\npassword_file = \"hunter2\n",
        "t.ini:2: redis.password: "
        "expected a known option, perhaps redis.password_file\n"
        "t.ini:5: postgres.conninfo: expected once, but line 4 has it too\n"
        "t.ini:6: postgres.connection: "
        "expected a known option, perhaps postgres.connections\n"
        "t.ini:8: server.password_file: expected a closing double quote\n");
}

static void test_malformed_lines(void **state)
{
    (void)state;
    assert_faults("[log]\nlevel\nlevel: info\nlevel:=info\n= info\n;ok\n#ok\n"
                  "level ; = info\n",
                  "t.ini:2: expected [section], name = value or a comment\n"
                  "t.ini:3: expected [section], name = value or a comment\n"
                  "t.ini:4: expected [section], name = value or a comment\n"
                  "t.ini:5: expected [section], name = value or a comment\n"
                  "t.ini:8: expected [section], name = value or a comment\n");
    assert_faults("[log\n[log] level = info\n[log]x\n",
                  "t.ini:1: expected [section] and nothing behind it\n"
                  "t.ini:2: expected [section] and nothing behind it\n"
                  "t.ini:3: expected [section] and nothing behind it\n");
    assert_faults("level", /* no newline at the end */
                  "t.ini:1: expected [section], name = value or a comment\n");
}

/* Whose options they are is not known, and no guess is made: neither the section
 * before nor a name that inih has cut short. */
static void test_behind_malformed_header(void **state)
{
    (void)state;
    assert_faults("[log]\n[redis\naddress = unix:/r\nlevel = loud\n"
                  "[log]\nlevel = quiet\n",
                  "t.ini:2: expected [section] and nothing behind it\n"
                  "t.ini:6: log.level = \"quiet\": "
                  "expected error, warn, info or debug\n");
}

static void test_nul_byte(void **state)
{
    static const char TEXT[] = "[log]\nlevel = in\0fo\nlevel = warn\n";
    struct buf errors = {0};
    struct options o;

    (void)state;
    assert_int_equal(load_bytes(&o, TEXT, sizeof(TEXT) - 1, &errors), -1);
    assert_string_equal(buf_cstr(&errors),
                        "t.ini:2: expected text, found a NUL byte\n");
    assert_int_equal(o.log_level, LOG_LEVEL_WARN);
    options_free(&o);
    buf_free(&errors);
}

static void test_unreadable(void **state)
{
    static char big[1024 * 1024 + 1];
    struct buf errors = {0};
    struct options o;

    (void)state;
    options_init(&o);
    assert_int_equal(options_load(&o, "absent.ini", &errors), -1);
    assert_int_equal(options_load(&o, directory, &errors), -1);
    memset(big, '\n', sizeof(big));
    write_file(FILE_NAME, big, sizeof(big));
    assert_int_equal(options_load(&o, FILE_NAME, &errors), -1);
    assert_non_null(strstr(buf_cstr(&errors),
                           "absent.ini: expected a readable file: No "
                           "such file or directory\n"));
    assert_non_null(strstr(buf_cstr(&errors),
                           ": expected a readable file: Is a directory\n"));
    assert_non_null(strstr(buf_cstr(&errors), "t.ini: expected a readable "
                                              "file: the file is too large\n"));
    options_free(&o);
    buf_free(&errors);
}

/* A byte order mark, CR LF, indented and blank lines, no last newline. */
static void test_layout_is_free(void **state)
{
    struct options o;

    (void)state;
    assert_faults("\xef\xbb\xbf\xef\xbb\xbf[log]\n",
                  "t.ini:1: expected [section], name = value or a comment\n");
    load_good(&o, "\xef\xbb\xbf[log] ; where\r\n"
                  "  level=warn\r\n\r\n \t \r\n"
                  "\t[redis]\n"
                  "    username = bob\n"
                  "        ; indented\n"
                  "  db\t=\t3  \r\n"
                  "password_file = /p");
    assert_int_equal(o.log_level, LOG_LEVEL_WARN);
    assert_string_equal(o.redis_username, "bob");
    assert_int_equal(o.redis_db, 3);
    assert_string_equal(o.redis_password_file, "/p");
    options_free(&o);
}

/* ---- quotes and comments ---- */

static void assert_conninfo(const char *written, const char *expected)
{
    struct options o;
    char text[256];

    snprintf(text, sizeof(text), "[postgres]\nconninfo = %s\n", written);
    load_good(&o, text);
    assert_string_equal(o.pg_conninfo, expected);
    options_free(&o);
}

static void test_quotes(void **state)
{
    (void)state;
    assert_conninfo("\"host=/tmp password='a;b # c'\"",
                    "host=/tmp password='a;b # c'");
    assert_conninfo("\"a ; b\" ; c", "a ; b");
    assert_conninfo("\"a # b\"# c", "a # b");
    assert_conninfo("\"say \\\"x\\\" \\\\\"", "say \"x\" \\");
    assert_conninfo("\"  outer  \"", "  outer  ");
    assert_conninfo("\"\"", "");
    assert_conninfo("", "");
    assert_conninfo("a=b c=d ; e=f", "a=b c=d");
    assert_conninfo("a;b#c", "a;b#c");
    assert_conninfo("a\\b \"c\"", "a\\b \"c\"");
    assert_conninfo("a ; b # c", "a");
    assert_conninfo("; all", "");
    assert_conninfo(" \t x \t ", "x");
}

static void test_bad_quotes(void **state)
{
    (void)state;
    assert_faults(
        "[postgres]\nconninfo = \"a\nconninfo = \"a\\\"\n"
        "conninfo = \"a\\nb\"\nconninfo = \"a\\\nconninfo = \"a\" b\n"
        "conninfo = a # b\nconninfo = # b\n",
        "t.ini:2: postgres.conninfo: expected a closing double quote\n"
        "t.ini:3: postgres.conninfo: expected a closing double quote\n"
        "t.ini:4: postgres.conninfo: "
        "expected \\\" or \\\\ where a quoted value has a backslash\n"
        "t.ini:5: postgres.conninfo: "
        "expected \\\" or \\\\ where a quoted value has a backslash\n"
        "t.ini:6: postgres.conninfo: "
        "expected nothing but a comment behind the closing quote\n"
        "t.ini:7: postgres.conninfo: expected double quotes around a value "
        "with \" #\" (a comment behind a value starts with \" ;\")\n"
        "t.ini:8: postgres.conninfo: expected double quotes around a value "
        "with \" #\" (a comment behind a value starts with \" ;\")\n");
}

/* Lengths around inih's own limit and far over it; each line is one line. */
static void test_long_lines(void **state)
{
    static const size_t LENGTHS[] = {180, 190, 197, 198,  199,
                                     200, 201, 400, 4096, 100000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(LENGTHS); i++) {
        char *long_text = calloc(1, LENGTHS[i] + 1);
        struct buf text = {0};
        struct options o;

        memset(long_text, 'x', LENGTHS[i]);
        buf_printf(&text,
                   "; = %s\n[postgres] ; %s = \nconninfo = %s\n"
                   "connections = 7 ; %s\n%*sconnect_timeout_ms = 700\n",
                   long_text, long_text, long_text, long_text, (int)LENGTHS[i],
                   "");
        load_good(&o, buf_cstr(&text));
        assert_string_equal(o.pg_conninfo, long_text);
        assert_int_equal(o.pg_connections, 7);
        assert_int_equal(o.pg_connect_timeout_ms, 700);
        options_free(&o);
        buf_free(&text);
        free(long_text);
    }
}

static void test_long_nonsense(void **state)
{
    struct buf text = {0};

    (void)state;
    buf_printf(&text, "%01000d\n%0300d = 1\n[%0300d]\n[log]\n%0150d = 2\n", 0,
               0, 0, 0);
    buf_puts(&text, "level = loud\n");
    assert_faults(buf_cstr(&text),
                  "t.ini:1: expected [section], name = value or a comment\n"
                  "t.ini:2: expected [section], name = value or a comment\n"
                  "t.ini:3: expected [section] and nothing behind it\n"
                  "t.ini:5: log.0000000000000000000000000000000000000000000000"
                  "000000000000000000000000000000000000000000000000000000000000"
                  "00000000000000000000000000000000000000000000 = \"2\": "
                  "expected a known option\n"
                  "t.ini:6: log.level = \"loud\": "
                  "expected error, warn, info or debug\n");
    buf_free(&text);
}

/* ---- options that must agree ---- */

static void test_password_needed(void **state)
{
    struct options o;

    (void)state;
    assert_faults("[server]\nlisten = tcp:0.0.0.0:6480\n"
                  "admin_listen = tcp:[2001:db8::1]:6481\n",
                  "t.ini:2: server.listen = \"tcp:0.0.0.0:6480\": "
                  "expected server.password_file to be set, since a TCP "
                  "address here is not loopback\n"
                  "t.ini:3: server.admin_listen = \"tcp:[2001:db8::1]:6481\": "
                  "expected server.password_file to be set, since a TCP "
                  "address here is not loopback\n");
    load_good(&o, "[server]\nlisten = tcp:0.0.0.0:6480\n"
                  "password_file = /etc/likesyncd/password\n");
    options_free(&o);
}

static void test_listen_conflicts(void **state)
{
    (void)state;
    assert_faults("[server]\nlisten = tls:127.0.0.1:6480\n",
                  "t.ini:2: server.listen = \"tls:127.0.0.1:6480\": "
                  "expected unix: and tcp: addresses, tls: is for "
                  "redis.address only\n");
    assert_faults("[server]\nlisten = tcp:127.0.0.1:5 127.0.0.1:05\n"
                  "admin_listen = unix:/x 127.0.0.1:5\n",
                  "t.ini:2: server.listen = \"tcp:127.0.0.1:5 "
                  "tcp:127.0.0.1:5\": expected each address once\n"
                  "t.ini:3: server.admin_listen = \"unix:/x "
                  "tcp:127.0.0.1:5\": expected each address once, and none of "
                  "server.listen\n");
    /* The one that is wrong may be the default: then there is no line. */
    assert_faults("[server]\nlisten = unix:/run/likesyncd/admin.sock\n",
                  "t.ini: server.admin_listen = "
                  "\"unix:/run/likesyncd/admin.sock\": expected each address "
                  "once, and none of server.listen\n");
}

static void test_tls_needs_hiredis(void **state)
{
    static const char config[] = "[redis]\naddress = tls:r.example.com:6380\n";
    struct options o;

    (void)state;
    if (LIKESYNCD_TLS) {
        load_good(&o, config);
        options_free(&o);
    } else {
        assert_faults(config,
                      "t.ini:2: redis.address = \"tls:r.example.com:6380\": "
                      "expected unix: or tcp:, this build has no TLS support "
                      "for Redis\n");
    }
}

static void test_server_name(void **state)
{
    static const char *const bad[] = {".r.example.com", "r.example.com:6380",
                                      "[::1]", "\" \"", "a b"};
    char config[128], fault[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *value = bad[i];
        size_t outer = *value == '"';

        snprintf(config, sizeof(config), "[redis]\ntls_server_name = %s\n",
                 value);
        snprintf(fault, sizeof(fault),
                 "t.ini:2: redis.tls_server_name = \"%.*s\": expected a host "
                 "name or IP address, without port and brackets\n",
                 (int)(strlen(value) - 2 * outer), value + outer);
        assert_faults(config, fault);
    }
}

static void test_redis_conflicts(void **state)
{
    struct options o;

    (void)state;
    assert_faults("[redis]\ntls_ca = /ca\ntls_server_name = r\n"
                  "tls_key = /key\ntls_cert =\n",
                  "t.ini:2: redis.tls_ca = \"/ca\": expected redis.address to "
                  "be tls:, without which it is of no use\n"
                  "t.ini:4: redis.tls_key = \"/key\": expected redis.address "
                  "to be tls:, without which it is of no use\n"
                  "t.ini:3: redis.tls_server_name = \"r\": expected "
                  "redis.address to be tls:, without which it is of no use\n"
                  "t.ini:4: redis.tls_key = \"/key\": expected redis.tls_cert "
                  "to be set, too\n");
    assert_faults("[redis]\nusername = likes\n",
                  "t.ini:2: redis.username = \"likes\": expected "
                  "redis.password_file to be set, too: without a password "
                  "nobody logs in\n");
    load_good(&o, "[redis]\nusername = likes\npassword_file = /secret\n");
    options_free(&o);
    if (!LIKESYNCD_TLS)
        return;
    assert_faults("[redis]\naddress = tls:r:6380\ntls_cert = /cert\n",
                  "t.ini:3: redis.tls_cert = \"/cert\": expected "
                  "redis.tls_key to be set, too\n");
    load_good(&o, "[redis]\naddress = tls:r:6380\ntls_cert = /cert\n"
                  "tls_key = /key\ntls_server_name = 10.0.0.1\n");
    options_free(&o);
}

static void test_size_conflicts(void **state)
{
    struct options o;

    (void)state;
    assert_faults("[flush]\nclaim_rows = 501\nbatch_rows = 500\n",
                  "t.ini:3: flush.batch_rows = \"500\": "
                  "expected no less than flush.claim_rows\n");
    load_good(&o, "[flush]\nclaim_rows = 500\nbatch_rows = 500\n");
    options_free(&o);
    assert_faults("[server]\nauth_timeout = 2\nauth_delay_ms = 2000\n",
                  "t.ini:2: server.auth_timeout = \"2\": expected more than "
                  "server.auth_delay_ms, or a wrong password is never "
                  "answered\n");
    load_good(&o, "[server]\nauth_timeout = 0\nauth_delay_ms = 2000\n");
    options_free(&o);
    assert_faults("[server]\noutput_soft_bytes = 20000000\n",
                  "t.ini: server.output_hard_bytes = \"16777216\": "
                  "expected no less than server.output_soft_bytes\n");
    assert_faults("[server]\nmax_args = 1025\n",
                  "t.ini: server.max_arg_bytes = \"65536\": "
                  "expected at most 67108864 bytes (64 MiB) of it times "
                  "server.max_args\n");
    load_good(&o, "[server]\nmax_args = 64\nmax_arg_bytes = 1048576\n");
    options_free(&o);
    assert_faults("[cache]\nttl = 60\n[flush]\nlease_ms = 30000\n",
                  "t.ini:2: cache.ttl = \"60\": expected more than "
                  "postgres.write_timeout_ms and flush.lease_ms together, "
                  "which a batch may live\n");
}

/* ---- reload ---- */

static void test_reload(void **state)
{
    static const char *const RESTART[] = {"server.listen", "ids.user",
                                          "redis.db",      "postgres.conninfo",
                                          "keys.fans",     "like.lists"};
    struct options o, from;
    struct buf notes = {0};
    char note[100];

    (void)state;
    options_init(&o);
    load_good(&from,
              "[server]\nlisten = unix:/a\nmax_clients = 1\nmax_pipeline = 2\n"
              "output_soft_bytes = 30000\noutput_hard_bytes = 100000\n"
              "idle_timeout = 3\n"
              "[ids]\nuser = text\n[redis]\ndb = 1\n"
              "[postgres]\nconninfo = password=hunter2\n"
              "[keys]\nfans = {user}:f\n"
              "[like]\nlookup = optimistic\nlists = yes\npage_max = 11\n"
              "[cache]\nttl = 100\n"
              "[follow]\nlookup = optimistic\nmax_following = 8\n"
              "idle_ttl = 90\npage_max = 9\n"
              "[flush]\ninterval_ms = 4\nbatch_rows = 7\nclaim_rows = 6\n"
              "lease_ms = 5000\n[log]\nlevel = debug\n");
    assert_int_equal(options_reload(&o, &from, &notes), 17);
    assert_int_equal(o.max_clients, 1);
    assert_int_equal(o.max_pipeline, 2);
    assert_int_equal(o.output_soft_bytes, 30000);
    assert_int_equal(o.output_hard_bytes, 100000);
    assert_int_equal(o.idle_timeout_s, 3);
    assert_int_equal(o.like_lookup, LOOKUP_OPTIMISTIC);
    assert_int_equal(o.like_page_max, 11);
    assert_int_equal(o.like_lists, 0);
    assert_int_equal(o.follow_lookup, LOOKUP_OPTIMISTIC);
    assert_int_equal(o.follow_max_following, 8);
    assert_int_equal(o.follow_idle_ttl_s, 90);
    assert_int_equal(o.follow_page_max, 9);
    assert_int_equal(o.cache_ttl_s, 100);
    assert_int_equal(o.flush_interval_ms, 4);
    assert_int_equal(o.flush_batch_rows, 7);
    assert_int_equal(o.flush_claim_rows, 6);
    assert_int_equal(o.log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(o.id_user, ID_BIGINT);
    assert_int_equal(o.flush_lease_ms, 5000);
    assert_int_equal(o.listen.n, 2);
    buf_cstr(&notes);
    for (size_t i = 0; i < ARRAY_LEN(RESTART); i++) {
        snprintf(note, sizeof(note),
                 "%s changed: takes effect after a restart\n", RESTART[i]);
        assert_non_null(strstr(notes.data, note));
    }
    assert_null(strstr(notes.data, "hunter2"));
    buf_clear(&notes, 0);
    options_free(&from);
    options_init(&from);
    from.log_level = LOG_LEVEL_DEBUG;
    from.max_clients = 1;
    assert_int_equal(options_reload(&o, &from, &notes), 15);
    assert_string_equal(buf_cstr(&notes), "");
    assert_int_equal(options_reload(&o, &from, &notes), 0);
    options_free(&from);
    options_free(&o);
    buf_free(&notes);
}

/* ---- print ---- */

static void assert_round_trip(const struct options *o)
{
    struct options back;
    char *bare = printed(o, false), *full = printed(o, true), *again;

    load_good(&back, bare);
    again = printed(&back, false);
    assert_string_equal(again, bare);
    free(again);
    options_free(&back);
    load_good(&back, full);
    again = printed(&back, true);
    assert_string_equal(again, full);
    free(again);
    options_free(&back);
    free(bare);
    free(full);
}

static void test_print_round_trip(void **state)
{
    static const char *const HARD[] = {
        "",      "plain", "a b", "a;b",   "a ; b", "#",      "a # b", "\"",
        "\"a\"", "a\"b",  "\\",  "a\\",   " a",    "a ",     "\ta\t", "\\\"",
        "\\;",   "a\\b",  "=",   "a = b", "[x]",   "\\\\\"", "é ; ü"};
    struct options o;

    (void)state;
    options_init(&o);
    assert_round_trip(&o);
    for (size_t i = 0; i < ARRAY_LEN(HARD); i++) {
        struct options back;
        char *text;

        free(o.pg_conninfo);
        o.pg_conninfo = strdup(HARD[i]);
        assert_round_trip(&o);
        text = printed(&o, false);
        load_good(&back, text);
        assert_string_equal(back.pg_conninfo, HARD[i]);
        options_free(&back);
        free(text);
    }
    options_free(&o);
    load_good(&o, "[server]\nlisten = unix:/a b.example.com:5 [::1]:6\n"
                  "admin_listen =\nsocket_mode = 7\npassword_file = /p\n"
                  "[ids]\nuser = uuid\npost = text\n[metrics]\nlisten =\n"
                  "[log]\nlevel = error\n[flush]\nledger_keep = 3600\n"
                  "[follow]\nidle_ttl = 0\n");
    assert_round_trip(&o);
    options_free(&o);
}

static void test_print_help(void **state)
{
    struct options o;
    char *text;

    (void)state;
    options_init(&o);
    text = printed(&o, true);
    assert_non_null(strstr(text, "(1 to 3600000 ms; reload)\n"
                                 "interval_ms = 1000\n"));
    assert_non_null(strstr(text, "# type of user ids (bigint, uuid or text)\n"
                                 "user = bigint\n"));
    assert_non_null(strstr(text, "\npassword_file =\n"));
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        assert_in_range(strcspn(line, "\n"), 0, 79);
    free(text);
    options_free(&o);
}

/* The sample is what --print-config would say of the defaults. */
static void test_sample_file(void **state)
{
    struct options o;
    char path[4096], sample[65536];
    const char *slash = strrchr(__FILE__, '/');
    FILE *file;
    char *text;
    size_t len;

    (void)state;
    if (__FILE__[0] != '/')
        skip(); /* built by hand: the source tree is not known */
    snprintf(path, sizeof(path), "%.*s/../../etc/likesyncd.ini",
             (int)(slash - __FILE__), __FILE__);
    file = fopen(path, "r");
    assert_non_null(file);
    len = fread(sample, 1, sizeof(sample) - 1, file);
    sample[len] = '\0';
    fclose(file);
    options_init(&o);
    text = printed(&o, true);
    assert_string_equal(sample, text);
    free(text);
    options_free(&o);
}

static int enter_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(FILE_NAME);
    return chdir("/") == 0 ? rmdir(directory) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_no_other_options),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_bad_follow_values),
        cmocka_unit_test(test_bad_lists),
        cmocka_unit_test(test_key_names),
        cmocka_unit_test(test_long_key_names),
        cmocka_unit_test(test_key_names_that_meet),
        cmocka_unit_test(test_metrics_listen),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_secrets_are_not_shown),
        cmocka_unit_test(test_malformed_lines),
        cmocka_unit_test(test_behind_malformed_header),
        cmocka_unit_test(test_nul_byte),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_layout_is_free),
        cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_bad_quotes),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_long_nonsense),
        cmocka_unit_test(test_password_needed),
        cmocka_unit_test(test_listen_conflicts),
        cmocka_unit_test(test_tls_needs_hiredis),
        cmocka_unit_test(test_server_name),
        cmocka_unit_test(test_redis_conflicts),
        cmocka_unit_test(test_size_conflicts),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_print_round_trip),
        cmocka_unit_test(test_print_help),
        cmocka_unit_test(test_sample_file),
    };

    return cmocka_run_group_tests_name("options", tests, enter_directory,
                                       remove_directory);
}
