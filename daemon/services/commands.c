/* SPDX-License-Identifier: MIT */
/* The command table, and the way from a request to its handler. */
#include "services/commands.h"

#include <string.h>

#include "core/metrics.h"
#include "services/auth.h"

#define PAGE                                                                   \
    "[RANGE start stop | CURSOR cursor] [COUNT n] [ASC | DESC] [WITHTIMES]"
#define PAGE_VIEWER PAGE " [VIEWER user]"

const struct command command_table[] = {
    {"like", -3, CMD_WRITE | CMD_FAST, cmd_like, "likes",
     "user post [AT unix-time] [WITHCOUNT]",
     "The user likes the post: 1 changed, 0 already so."},
    {"unlike", -3, CMD_WRITE | CMD_FAST, cmd_unlike, "likes",
     "user post [AT unix-time] [WITHCOUNT]",
     "The user takes the like back: 1 changed, 0 already so."},
    {"liked", -3, CMD_READ | CMD_FAST, cmd_liked, "likes",
     "user post [post ...]",
     "Has the user liked each of these posts: array of 0 and 1."},
    {"likecount", -2, CMD_READ | CMD_FAST, cmd_likecount, "likes",
     "post [post ...]", "Likes of each post, durable and not yet synced."},
    {"likers", -2, CMD_READ, cmd_likers, "likes", "post " PAGE,
     "Who likes the post, by time of the like."},
    {"likedposts", -2, CMD_READ, cmd_likedposts, "likes", "user " PAGE,
     "What the user likes, by time of the like."},
    {"follow", -3, CMD_WRITE | CMD_FAST, cmd_follow, "follows",
     "user other [AT unix-time]",
     "The user follows the other: 1 changed, 0 already so."},
    {"unfollow", -3, CMD_WRITE | CMD_FAST, cmd_unfollow, "follows",
     "user other [AT unix-time]",
     "The user no longer follows the other: 1 changed, 0 already so."},
    {"following", -2, CMD_READ, cmd_following, "follows", "user " PAGE_VIEWER,
     "Whom the user follows, by time of the follow."},
    {"followers", -2, CMD_READ, cmd_followers, "follows", "user " PAGE_VIEWER,
     "Who follows the user, by time of the follow."},
    {"fans", -2, CMD_READ, cmd_followers, "follows", "user " PAGE_VIEWER,
     "FOLLOWERS by another name."},
    {"relation", -3, CMD_READ | CMD_FAST, cmd_relation, "follows",
     "user other [other ...]",
     "Array: 0 none, 1 the user follows the other, 2 the other follows the "
     "user, 3 both."},
    {"mutuals", -2, CMD_READ, cmd_mutuals, "follows", "user " PAGE,
     "Whom the user follows and who follows back."},
    {"common", -3, CMD_READ, cmd_common, "follows", "user other " PAGE,
     "Whom both follow, by the time of the user's follow."},
    {"followcount", -2, CMD_READ | CMD_FAST, cmd_followcount, "follows",
     "user [user ...]",
     "Array of pairs: how many the user follows, and how many follow the "
     "user."},
    {"flusher", -2, CMD_ADMIN, cmd_flusher, "server",
     "DRAIN [timeout-ms] | PAUSE | RESUME | STATUS",
     "Steers the flusher; admin listener only."},
    {"adopt", -2, CMD_ADMIN, cmd_adopt, "server",
     "START follows|likes | STATUS | STOP",
     "Takes over what an app wrote into Redis itself; admin listener only."},
    {"verify", -2, CMD_ADMIN, cmd_verify, "server",
     "START [REPAIR] | STATUS | STOP",
     "Compares Redis with PostgreSQL; admin listener only."},
    {"ping", -1, CMD_FAST, cmd_ping, "server", "[message]",
     "Is anybody there."},
    {"echo", 2, CMD_FAST, cmd_echo, "server", "message",
     "Returns the message."},
    {"hello", -1, CMD_NO_AUTH | CMD_FAST, cmd_hello, "server",
     "[protover [AUTH username password] [SETNAME name]]",
     "Chooses the protocol version."},
    {"auth", -2, CMD_NO_AUTH | CMD_FAST, cmd_auth, "server",
     "[username] password", "Authenticates the connection."},
    {"select", 2, CMD_FAST, cmd_select, "server", "index",
     "There is one database: 0."},
    {"client", -2, 0, cmd_client, "server",
     "GETNAME | ID | INFO | LIST | SETINFO LIB-NAME|LIB-VER value | "
     "SETNAME name",
     "Names and lists connections."},
    {"command", -1, 0, cmd_command, "server",
     "[COUNT | DOCS [name ...] | INFO [name ...]]",
     "Tells what commands there are."},
    {"config", -2, 0, cmd_config, "server", "GET parameter [parameter ...]",
     "Answers the few parameters that Redis tools ask for."},
    {"info", -1, 0, cmd_info, "server", "[section ...]",
     "Tells about the daemon."},
    {"readonly", 1, CMD_FAST, cmd_readonly, "server", "",
     "An error, as on a Redis without cluster."},
    {"reset", 1, CMD_NO_AUTH | CMD_FAST, cmd_reset, "server", "",
     "Makes the connection as new."},
    {"quit", -1, CMD_NO_AUTH | CMD_FAST, cmd_quit, "server", "",
     "Closes the connection."},
};

const size_t command_count = ARRAY_LEN(command_table);

const struct command *command_find(const struct resp_arg *name)
{
    for (size_t i = 0; i < command_count; i++) {
        if (resp_arg_is(name, command_table[i].name))
            return &command_table[i];
    }
    return NULL;
}

/* ---- replies ---- */

void reply_arity(struct request *rq, const char *name)
{
    resp_error(request_reply(rq),
               "ERR wrong number of arguments for '%s' command", name);
    request_done(rq);
}

void reply_unknown_subcommand(struct request *rq, const char *command,
                              const struct resp_arg *sub)
{
    char shown[RESP_SHOW_MAX];

    resp_error(request_reply(rq), "ERR unknown subcommand '%s'. Try %s HELP.",
               resp_show(sub, shown), command);
    request_done(rq);
}

void reply_ok(struct request *rq)
{
    resp_simple(request_reply(rq), "OK");
    request_done(rq);
}

void reply_failed(struct request *rq, const char *why)
{
    if (strncmp(why, "TRYAGAIN", 8) == 0)
        metric_add(M_OVERLOADS, 1);
    resp_error(request_reply(rq), "%s", why);
    request_done(rq);
}

void reply_put_text(struct buf *b, const char *name, const char *text)
{
    resp_bulk_str(b, name);
    resp_bulk_str(b, text);
}

void reply_put_int(struct buf *b, const char *name, int64_t v)
{
    resp_bulk_str(b, name);
    resp_int(b, v);
}

void reply_text(struct request *rq, struct buf *text)
{
    struct buf *b = request_reply(rq);

    if (request_proto(rq) == 3) {
        buf_printf(b, "=%zu\r\ntxt:", text->len + 4);
        buf_append(b, text->data, text->len);
        buf_puts(b, "\r\n");
    } else {
        resp_bulk(b, text->data, text->len);
    }
    buf_free(text);
    request_done(rq);
}

/* A line per subcommand, from the table's "[A | B | C]". */
void reply_help(struct request *rq, const char *command)
{
    static const char head[] =
        "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
    const struct resp_arg name = {command, strlen(command)};
    const struct command *cmd = command_find(&name);
    size_t optional = cmd->args[0] == '[';
    const char *p = cmd->args + optional;
    const char *end = cmd->args + strlen(cmd->args) - optional;
    struct buf lines = {0};
    size_t n = 2;

    for (; p < end; n++) {
        const char *bar = strstr(p, " | ");
        const char *to = bar ? bar : end;

        buf_printf(&lines, "+%.*s\r\n", (int)(to - p), p);
        p = bar ? bar + 3 : end;
    }
    resp_array(request_reply(rq), n);
    buf_printf(request_reply(rq), "+%s %s\r\n", command, head);
    buf_append(request_reply(rq), lines.data, lines.len);
    resp_simple(request_reply(rq), "HELP");
    buf_free(&lines);
    request_done(rq);
}

/* Redis' words, with at most 128 bytes of the arguments. */
static void reply_unknown_command(struct request *rq, int argc,
                                  const struct resp_arg *argv)
{
    char shown[RESP_SHOW_MAX];
    struct buf args = {0};

    for (int i = 1; i < argc && args.len < 128; i++)
        buf_printf(&args, "'%.*s' ", 128 - (int)args.len,
                   resp_show(&argv[i], shown));
    resp_error(request_reply(rq),
               "ERR unknown command '%s', with args beginning with: %s",
               resp_show(&argv[0], shown), buf_cstr(&args));
    buf_free(&args);
    request_done(rq);
}

static void reply_no_perm(struct request *rq, const struct command *cmd)
{
    resp_error(request_reply(rq),
               "NOPERM '%s' is for the admin listener only "
               "(server.admin_listen)",
               cmd->name);
    request_done(rq);
}

/* ---- ids ---- */

bool request_id(struct request *rq, enum id_type type, const char *what,
                const struct resp_arg *arg, struct id_key *id_r)
{
    char shown[RESP_SHOW_MAX];
    const char *why;

    if (id_parse(type, arg->data, arg->len, id_r->text, &id_r->len, &why) == 0)
        return true;
    resp_error(request_reply(rq), "ERR invalid %s id '%s': %s", what,
               resp_show(arg, shown), why);
    request_done(rq);
    return false;
}

/* ---- dispatch ---- */

static bool arity_fits(const struct command *cmd, int argc)
{
    return cmd->arity >= 0 ? argc == cmd->arity : argc >= -cmd->arity;
}

void commands_on_open(void *arg, struct session *s)
{
    const struct commands *c = arg;

    auth_open(c->auth, s);
}

bool commands_must_wait(void *arg, const struct session *s,
                        const struct resp_arg *name)
{
    const struct command *cmd;

    (void)arg;
    if (s->refused)
        return true;
    if (s->writes == 0)
        return false;
    cmd = command_find(name);
    return cmd && cmd->flags & (CMD_READ | CMD_ADMIN);
}

void commands_on_request(void *arg, struct request *rq, int argc,
                         const struct resp_arg *argv)
{
    struct commands *c = arg;
    struct session *s = request_session(rq);
    const struct command *cmd = command_find(&argv[0]);

    if (!s->authed && !(cmd && cmd->flags & CMD_NO_AUTH)) {
        reply_no_auth(rq);
    } else if (!cmd) {
        reply_unknown_command(rq, argc, argv);
    } else if (!arity_fits(cmd, argc)) {
        reply_arity(rq, cmd->name);
    } else if (cmd->flags & CMD_ADMIN && !s->admin) {
        reply_no_perm(rq, cmd);
    } else {
        s->last_command = cmd->name;
        cmd->run(c, rq, argc, argv);
    }
}
