/* SPDX-License-Identifier: MIT */
/* The command table. Subcommands stand right behind their command. What comes
 * most often comes first. */
#include "services/commands.h"

#include <string.h>

#define EVENT       "user post [AT unix-time] [WITHCOUNT]"
#define PAGE        "[RANGE start stop|CURSOR cursor] [COUNT n] [ASC|DESC] [WITHTIMES]"
#define PAGE_VIEWER PAGE " [VIEWER user]"
#define NAMES       "[command-name [command-name ...]]"

#define HELP_OF(command, flags)                                                \
    {command "|help", 2, flags, cmd_help, "server", "", "Prints this help."}

const struct command command_table[] = {
    {"like", -3, CMD_WRITE | CMD_FAST, cmd_like, "likes", EVENT,
     "The user likes the post: 1 changed, 0 already so."},
    {"unlike", -3, CMD_WRITE | CMD_FAST, cmd_unlike, "likes", EVENT,
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
    {"ping", -1, CMD_FAST, cmd_ping, "connection", "[message]",
     "Is anybody there."},
    {"echo", 2, CMD_FAST, cmd_echo, "connection", "message",
     "Returns the message."},
    {"hello", -1, CMD_NO_AUTH | CMD_FAST, cmd_hello, "connection",
     "[protover [AUTH username password] [SETNAME clientname]]",
     "Chooses the protocol version."},
    {"auth", -2, CMD_NO_AUTH | CMD_FAST, cmd_auth, "connection",
     "[username] password", "Authenticates the connection."},
    {"select", 2, CMD_FAST, cmd_select, "connection", "index",
     "There is one database: 0."},
    {"readonly", 1, CMD_FAST, cmd_readonly, "connection", "",
     "An error, as on a Redis without cluster."},
    {"reset", 1, CMD_NO_AUTH | CMD_FAST, cmd_reset, "connection", "",
     "Makes the connection as new."},
    {"quit", -1, CMD_NO_AUTH | CMD_FAST, cmd_quit, "connection", "",
     "Closes the connection."},

    {"client", -2, CMD_ALONE, NULL, "connection", "",
     "Names and lists connections."},
    {"client|getname", 2, 0, cmd_client_getname, "connection", "",
     "Returns the name of the connection."},
    {"client|id", 2, 0, cmd_client_id, "connection", "",
     "Returns the ID of the connection."},
    {"client|info", 2, 0, cmd_client_info, "connection", "",
     "Tells about the connection."},
    {"client|list", -2, 0, cmd_client_list, "connection",
     "[TYPE client-type] [ID client-id [client-id ...]]",
     "Tells about all connections, or those of a type (normal, master, "
     "replica, pubsub) or with these IDs."},
    {"client|setinfo", 4, 0, cmd_client_setinfo, "connection",
     "LIB-NAME libname|LIB-VER libver",
     "Says what library the client is, or which version of it."},
    {"client|setname", 3, 0, cmd_client_setname, "connection",
     "connection-name", "Gives the connection a name."},
    HELP_OF("client", 0),

    {"command", -1, 0, cmd_command, "server", "",
     "Tells about all commands, as programs see them."},
    {"command|count", 2, 0, cmd_command_count, "server", "",
     "Returns how many commands there are."},
    {"command|docs", -2, 0, cmd_command_docs, "server", NAMES,
     "Tells about these commands, or all, as people see them."},
    {"command|getkeys", -3, 0, cmd_command_getkeys, "server",
     "command [arg [arg ...]]", "An error: no command has keys."},
    {"command|info", -2, 0, cmd_command_info, "server", NAMES,
     "Tells about these commands, or all, as programs see them."},
    {"command|list", -2, 0, cmd_command_list, "server",
     "[FILTERBY [MODULE module-name|ACLCAT category|PATTERN pattern]]",
     "Returns the names of all commands, or those that match."},
    HELP_OF("command", 0),

    {"config", -2, 0, NULL, "server", "",
     "Answers the few parameters that Redis tools ask for."},
    {"config|get", -3, 0, cmd_config_get, "server", "parameter [parameter ...]",
     "Returns the parameters with these names or patterns."},
    HELP_OF("config", 0),

    {"info", -1, 0, cmd_info, "server", "[section [section ...]]",
     "Tells about the daemon."},

    {"flusher", -2, CMD_ADMIN, NULL, "server", "",
     "Steers the flusher; admin listener only."},
    {"flusher|drain", -2, CMD_ADMIN, cmd_flusher_drain, "server",
     "[timeout-ms]",
     "Returns once all that was answered before is in PostgreSQL."},
    {"flusher|pause", 2, CMD_ADMIN, cmd_flusher_pause, "server", "",
     "Stops flushing; likes and follows are still taken."},
    {"flusher|resume", 2, CMD_ADMIN, cmd_flusher_resume, "server", "",
     "Flushes again."},
    {"flusher|status", 2, CMD_ADMIN, cmd_flusher_status, "server", "",
     "Tells how far the flusher is."},
    HELP_OF("flusher", CMD_ADMIN),

    {"adopt", -2, CMD_ADMIN, NULL, "server", "",
     "Takes over what an app wrote into Redis itself; admin listener only."},
    {"adopt|start", 3, CMD_ADMIN, cmd_adopt_start, "server", "FOLLOWS|LIKES",
     "Begins; one at a time."},
    {"adopt|status", 2, CMD_ADMIN, cmd_adopt_status, "server", "",
     "Tells how far it is."},
    {"adopt|stop", 2, CMD_ADMIN, cmd_adopt_stop, "server", "", "Ends it."},
    HELP_OF("adopt", CMD_ADMIN),

    {"verify", -2, CMD_ADMIN, NULL, "server", "",
     "Compares Redis with PostgreSQL; admin listener only."},
    {"verify|start", -2, CMD_ADMIN, cmd_verify_start, "server", "[REPAIR]",
     "Begins, and mends what differs when asked to."},
    {"verify|status", 2, CMD_ADMIN, cmd_verify_status, "server", "",
     "Tells how far it is."},
    {"verify|stop", 2, CMD_ADMIN, cmd_verify_stop, "server", "", "Ends it."},
    HELP_OF("verify", CMD_ADMIN),

    {"deadletter", -2, CMD_ADMIN, NULL, "server", "",
     "Rows that PostgreSQL refused; admin listener only."},
    {"deadletter|drop", 3, CMD_ADMIN, cmd_deadletter_drop, "server", "id",
     "Deletes it."},
    {"deadletter|list", -2, CMD_ADMIN, cmd_deadletter_list, "server",
     "[FROM id] [COUNT count]", "Lists them, the newest first."},
    {"deadletter|retry", 3, CMD_ADMIN, cmd_deadletter_retry, "server", "id",
     "Applies it, and deletes it."},
    HELP_OF("deadletter", CMD_ADMIN),

    {"settings", 1, CMD_ADMIN, cmd_settings, "server", "",
     "The configuration that the daemon runs with; admin listener only."},
};

#define TABLE_END (command_table + ARRAY_LEN(command_table))

/* The part of a subcommand's name that is its own; NULL of a command. */
static const char *own_name(const struct command *cmd)
{
    const char *bar = strchr(cmd->name, '|');

    return bar ? bar + 1 : NULL;
}

const struct command *command_next(const struct command *cmd)
{
    cmd = cmd ? cmd + 1 : command_table;
    while (cmd < TABLE_END && own_name(cmd))
        cmd++;
    return cmd < TABLE_END ? cmd : NULL;
}

const struct command *command_next_sub(const struct command *cmd)
{
    return cmd + 1 < TABLE_END && own_name(cmd + 1) ? cmd + 1 : NULL;
}

size_t command_count_all(void)
{
    size_t n = 0;

    COMMAND_FOREACH(cmd)
        n++;
    return n;
}

const struct command *command_find(const struct resp_arg *name)
{
    COMMAND_FOREACH(cmd)
        if (resp_arg_is(name, cmd->name))
            return cmd;
    return NULL;
}

const struct command *command_find_sub(const struct command *cmd,
                                       const struct resp_arg *name)
{
    COMMAND_FOREACH_SUB(sub, cmd)
        if (resp_arg_is(name, own_name(sub)))
            return sub;
    return NULL;
}

const struct command *command_find_full(const struct resp_arg *name)
{
    for (const struct command *cmd = command_table; cmd < TABLE_END; cmd++)
        if (resp_arg_is(name, cmd->name))
            return cmd;
    return NULL;
}
