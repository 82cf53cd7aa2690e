/* SPDX-License-Identifier: MIT */
/* The options, one row each. Their order is that of --print-config. */
#include "core/option_table.h"

#include <arpa/inet.h>
#include <string.h>

#include "core/secret.h"

#define FIELD(sect, key, member)                                               \
    .section = (sect), .name = (key), .offset = offsetof(struct options, member)
#define INT(text, low, high)                                                   \
    .type = OPTION_INT, .fallback = (text), .min = (low), .max = (high)
#define ENUM(text, list)                                                       \
    .type = OPTION_ENUM, .fallback = (text), .words = (list)
#define STRING(text)  .type = OPTION_STRING, .fallback = (text)
#define ADDRESS(text) .type = OPTION_ADDRESS, .fallback = (text)
#define ADDRESSES(text, least)                                                 \
    .type = OPTION_ADDRESS_LIST, .fallback = (text), .min = (least),           \
    .max = OPTIONS_MAX_LISTEN

/* A key name is matched against others step by step (option_keys.c). */
enum { KEY_TEMPLATE_MAX = 200 };

#define KIB (INT64_C(1) << 10)
#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

/* In the order of their enums. */
static const char *const ID_TYPES[] = {"bigint", "uuid", "text", NULL};
static const char *const LOOKUP_MODES[] = {"strict", "optimistic", NULL};
static const char *const NO_YES[] = {"no", "yes", NULL};
static const char *const LOG_LEVELS[] = {"error", "warn", "info", "debug",
                                         NULL};

/* Key names of others in Redis that a template must not run into. */
static bool is_taken(const char *template)
{
    static const char *const PREFIXES[] = {"likesync:", "post_",
                                           "user_follow_"};

    for (size_t i = 0; i < ARRAY_LEN(PREFIXES); i++) {
        if (strncmp(template, PREFIXES[i], strlen(PREFIXES[i])) == 0)
            return true;
    }
    return false;
}

static const char *check_key(const char *template)
{
    const char *user = strstr(template, "{user}");

    if (!user || strstr(user + 1, "{user}"))
        return "expected a key name with {user} in it exactly once";
    if (strlen(template) > KEY_TEMPLATE_MAX)
        return "expected a key name of at most 200 bytes";
    if (is_taken(template))
        return "expected a key name that does not start with likesync:, post_ "
               "or user_follow_, which are taken";
    return NULL;
}

/* The HTTP server does not resolve names. What is wrong with a port alone is
 * said together with the rest: unix: and tls: are none of its choices. */
static const char *check_metrics_listen(const char *value)
{
    unsigned char ip[sizeof(struct in6_addr)];
    struct address a;
    const char *why;

    if (!*value)
        return NULL;
    if (address_parse(value, &a, &why) < 0 || a.kind != ADDRESS_TCP ||
        (strcmp(a.host, "localhost") != 0 &&
         inet_pton(AF_INET, a.host, ip) != 1 &&
         inet_pton(AF_INET6, a.host, ip) != 1))
        return "expected IP:port or localhost:port (a port from 1 to 65535), "
               "or nothing";
    return NULL;
}

/* As long as the server name extension of TLS takes. */
static const char *check_server_name(const char *value)
{
    if (*value && !address_is_host(value))
        return "expected a host name or IP address, without port and brackets";
    return strlen(value) < ADDRESS_HOST_MAX
               ? NULL
               : "expected a name of at most 255 bytes";
}

/* clang-format off */
const struct option OPTION_TABLE[] = {
    {FIELD("server", "listen", listen),
     ADDRESSES("unix:/run/likesyncd/likesyncd.sock tcp:127.0.0.1:6480", 1),
     .help = "where clients connect; what likesyncd.socket has is open, too, "
             "also when it is taken out here: systemctl edit likesyncd.socket"},
    {FIELD("server", "admin_listen", admin_listen),
     ADDRESSES("unix:/run/likesyncd/admin.sock", 0),
     .help = "where likesyncctl connects; with likesyncd-admin.socket likewise"},
    {FIELD("server", "password_file", password_file), STRING(""),
     .check = secret_check,
     .help = "file with the password of clients, or credential:NAME "
             "(LoadCredential= of systemd); needed for any TCP address that is "
             "not loopback"},
    {FIELD("server", "auth_delay_ms", auth_delay_ms),
     INT("500", 0, 60000), .unit = "ms", .reloadable = true,
     .help = "a wrong password is answered after this time"},
    {FIELD("server", "max_clients", max_clients),
     INT("10000", 1, 1000000), .reloadable = true,
     .help = "clients at a time"},
    {FIELD("server", "max_client_memory", max_client_memory),
     INT("536870912", MIB, 1024 * GIB), .unit = "bytes", .reloadable = true,
     .help = "memory of all clients; over it, those that hold most are closed"},
    {FIELD("server", "max_pipeline", max_pipeline),
     INT("1024", 1, 65536), .reloadable = true,
     .help = "requests of one client under way"},
    {FIELD("server", "max_args", max_args), INT("1024", 16, 65536),
     .help = "arguments of one request"},
    {FIELD("server", "max_arg_bytes", max_arg_bytes),
     INT("65536", 1024, MIB), .unit = "bytes",
     .help = "length of one argument"},
    {FIELD("server", "output_soft_bytes", output_soft_bytes),
     INT("1048576", 16 * KIB, 256 * MIB), .unit = "bytes", .reloadable = true,
     .help = "unread replies at which a client is no longer read"},
    {FIELD("server", "output_hard_bytes", output_hard_bytes),
     INT("16777216", 64 * KIB, 1024 * MIB), .unit = "bytes",
     .reloadable = true,
     .help = "unread replies at which a client is closed"},
    {FIELD("server", "idle_timeout", idle_timeout_s),
     INT("0", 0, 604800), .unit = "s", .reloadable = true,
     .help = "a silent client is closed after this time; 0 is never"},
    {FIELD("server", "max_requests_before_auth", max_requests_before_auth),
     INT("100", 1, 1000000), .reloadable = true,
     .help = "requests of a client without AUTH, where a password is set; "
             "then it is closed"},
    {FIELD("server", "auth_timeout", auth_timeout_s),
     INT("60", 0, 604800), .unit = "s", .reloadable = true,
     .help = "a client without AUTH, where a password is set, is closed after "
             "this time; 0 is never"},
    {FIELD("server", "socket_mode", socket_mode),
     .type = OPTION_OCTAL, .fallback = "0660", .min = 0, .max = 0777,
     .help = "permissions of the unix sockets in listen, but for those that "
             "systemd makes"},
    {FIELD("server", "admin_socket_mode", admin_socket_mode),
     .type = OPTION_OCTAL, .fallback = "0600", .min = 0, .max = 0777,
     .help = "permissions of the unix sockets in admin_listen, but for those that "
             "systemd makes"},
    {FIELD("server", "socket_group", socket_group), STRING(""),
     .help = "group of the unix sockets in listen, by name or number, which the "
             "daemon must be in; empty is its own"},
    {FIELD("server", "admin_socket_group", admin_socket_group), STRING(""),
     .help = "group of the unix sockets in admin_listen"},

    {FIELD("ids", "user", id_user), ENUM("bigint", ID_TYPES),
     .help = "type of user ids"},
    {FIELD("ids", "post", id_post), ENUM("bigint", ID_TYPES),
     .help = "type of post ids"},

    {FIELD("redis", "address", redis_address), ADDRESS("tcp:127.0.0.1:6379"),
     .help = "the Redis that takes the events"},
    {FIELD("redis", "username", redis_username), STRING(""),
     .help = "ACL user; empty is the default user"},
    {FIELD("redis", "password_file", redis_password_file), STRING(""),
     .check = secret_check,
     .help = "file with the password for Redis, or credential:NAME; empty is "
             "no AUTH"},
    {FIELD("redis", "db", redis_db), INT("0", 0, 65535),
     .help = "database number"},
    {FIELD("redis", "tls_ca", redis_tls_ca), STRING(""),
     .help = "PEM file with the CA certificates to trust for tls:; empty is "
             "the system's; SIGHUP reads it again"},
    {FIELD("redis", "tls_cert", redis_tls_cert), STRING(""),
     .help = "PEM file with the client certificate and those between it and "
             "its CA; empty is none; SIGHUP reads it again"},
    {FIELD("redis", "tls_key", redis_tls_key), STRING(""),
     .help = "PEM file with the key of tls_cert; SIGHUP reads it again"},
    {FIELD("redis", "tls_server_name", redis_tls_server_name), STRING(""),
     .check = check_server_name,
     .help = "name or IP address that the certificate of Redis has to be for; "
             "empty is the host of the address"},
    {FIELD("redis", "connect_timeout_ms", redis_connect_timeout_ms),
     INT("5000", 100, 60000), .unit = "ms",
     .help = "time to connect and log in, then for each script loaded"},
    {FIELD("redis", "timeout_ms", redis_timeout_ms),
     INT("2000", 100, 60000), .unit = "ms",
     .help = "time for the answer to a command"},
    {FIELD("redis", "max_queue", max_queue), INT("100000", 1, 10000000),
     .help = "events that wait for Redis; more are refused with TRYAGAIN"},

    {FIELD("postgres", "conninfo", pg_conninfo), .hidden = true,
     STRING("host=/var/run/postgresql dbname=likesync"),
     .help = "connection string of libpq; keep the password in a passfile"},
    {FIELD("postgres", "connections", pg_connections), INT("2", 1, 64),
     .help = "connections of this daemon"},
    {FIELD("postgres", "connect_timeout_ms", pg_connect_timeout_ms),
     INT("5000", 100, 60000), .unit = "ms", .help = "time to connect"},
    {FIELD("postgres", "lookup_timeout_ms", pg_lookup_timeout_ms),
     INT("2000", 100, 30000), .unit = "ms", .reloadable = true,
     .help = "time for a lookup that a client waits for"},
    {FIELD("postgres", "write_timeout_ms", pg_write_timeout_ms),
     INT("30000", 100, 600000), .unit = "ms", .reloadable = true,
     .help = "time for a batch; then the connection is given up"},
    {FIELD("postgres", "lock_timeout_ms", pg_lock_timeout_ms),
     INT("5000", 10, 600000), .unit = "ms",
     .help = "time that a batch waits for a row lock"},

    {FIELD("keys", "follow", key_follow), STRING("{user}:follow"),
     .check = check_key, .help = "sorted set of those whom a user follows"},
    {FIELD("keys", "fans", key_fans), STRING("{user}:fans"),
     .check = check_key, .help = "sorted set of those who follow a user"},

    {FIELD("like", "lookup", like_lookup), ENUM("strict", LOOKUP_MODES),
     .reloadable = true,
     .help = "a state that Redis does not know: ask PostgreSQL, or assume "
             "\"not liked\""},
    {FIELD("like", "lists", like_lists), ENUM("no", NO_YES),
     .help = "keep what LIKERS and LIKEDPOSTS need; they also need "
             "sql/likers.sql"},
    {FIELD("like", "page_max", like_page_max), INT("10000", 1, 100000),
     .reloadable = true, .help = "most entries of one page"},

    {FIELD("follow", "lookup", follow_lookup), ENUM("strict", LOOKUP_MODES),
     .reloadable = true,
     .help = "a state that Redis does not know: ask PostgreSQL, or assume "
             "\"not followed\""},
    {FIELD("follow", "max_following", follow_max_following),
     INT("0", 0, 1000000000), .reloadable = true,
     .help = "most people a user may follow; 0 is no limit"},
    {FIELD("follow", "idle_ttl", follow_idle_ttl_s),
     INT("604800", 60, 31536000), .zero = true, .unit = "s",
     .reloadable = true,
     .help = "time that a clean list which nobody reads stays in Redis; 0 is "
             "for ever"},
    {FIELD("follow", "page_max", follow_page_max), INT("10000", 1, 100000),
     .reloadable = true, .help = "most entries of one page"},

    {FIELD("cache", "ttl", cache_ttl_s), INT("3600", 60, 604800), .unit = "s",
     .reloadable = true, .help = "time that a clean state stays in Redis"},

    {FIELD("flush", "interval_ms", flush_interval_ms),
     INT("1000", 1, 3600000), .unit = "ms", .reloadable = true,
     .help = "pause between looks for unsynced rows"},
    {FIELD("flush", "batch_rows", flush_batch_rows),
     INT("5000", 1, 100000), .unit = "rows", .reloadable = true,
     .help = "most rows of one PostgreSQL transaction"},
    {FIELD("flush", "claim_rows", flush_claim_rows),
     INT("500", 1, 1000), .unit = "rows", .reloadable = true,
     .help = "most rows of one call of the claim script"},
    {FIELD("flush", "lease_ms", flush_lease_ms),
     INT("15000", 500, 600000), .unit = "ms", .reloadable = true,
     .help = "a batch whose daemon is silent this long is taken over"},
    {FIELD("flush", "ledger_keep", flush_ledger_keep_s),
     INT("86400", 3600, 31536000), .unit = "s", .reloadable = true,
     .help = "time that a row stays in sync_batch"},

    {FIELD("metrics", "listen", metrics_listen), STRING("127.0.0.1:9480"),
     .check = check_metrics_listen,
     .help = "IP:port of /metrics, /healthz, /readyz and a status page, which "
             "ask for no password; empty is off"},
    {FIELD("metrics", "page", metrics_page), ENUM("yes", NO_YES),
     .reloadable = true,
     .help = "the status page / and /status.json, which show ids; no where "
             "others may read /metrics"},

    {FIELD("log", "level", log_level), ENUM("info", LOG_LEVELS),
     .reloadable = true, .help = "how much is logged"},
};
/* clang-format on */

const size_t OPTION_COUNT = ARRAY_LEN(OPTION_TABLE);

const struct option *option_find(const char *section, const char *name)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *row = &OPTION_TABLE[i];

        if (strcmp(row->section, section) == 0 && strcmp(row->name, name) == 0)
            return row;
    }
    return NULL;
}

const struct option *option_at(size_t offset)
{
    const struct option *row = OPTION_TABLE;

    while (row->offset != offset)
        row++;
    return row;
}
