/* SPDX-License-Identifier: MIT */
/* The commands clients may send: one table row each. */
#ifndef SERVICES_COMMANDS_H
#define SERVICES_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapters/server.h"
#include "services/service.h"

struct adopt;
struct auth;
struct client_list;
struct counts;
struct follow_counts;
struct gate;
struct likers;
struct lists;
struct verify;

/* What the handlers may use; all refs. */
struct commands {
    struct service *services; /* of all kinds, and each by its name: */
    struct service *like;
    struct service *follow;
    struct counts *counts;
    struct likers *likers;
    struct lists *lists;
    struct gate *pages; /* of follows */
    struct follow_counts *follow_counts;
    struct adopt *adopt;
    struct verify *verify;
    struct server *server;
    struct client_list *client_list;
    struct auth *auth;
    const char *config_path;
    uint64_t started_ms; /* monotonic */
    char run_id[41];
};

/* Where a command may be used, and what Redis clients are told of it. */
#define CMD_ADMIN   (1u << 0) /* admin listener only */
#define CMD_NO_AUTH (1u << 1) /* before authentication */
#define CMD_WRITE   (1u << 2)
#define CMD_READ    (1u << 3)
#define CMD_FAST    (1u << 4)
#define CMD_ALONE   (1u << 5) /* after all that the client has under way */

typedef void (*command_run)(struct commands *c, struct request *rq, int argc,
                            const struct resp_arg *argv);

struct command {
    const char *name; /* lower case; of a subcommand: "command|subcommand" */
    int arity;        /* as in Redis: the name counts; negative: at least */
    unsigned flags;
    command_run run; /* NULL: one of its subcommands must follow */
    const char *group;
    const char *args; /* as redis-cli writes them: see command_args.h */
    const char *summary;
};

/* By its name alone, in either case; NULL when there is none. */
const struct command *command_find(const struct resp_arg *name);
const struct command *command_find_sub(const struct command *cmd,
                                       const struct resp_arg *name);
/* Also "command|subcommand". */
const struct command *command_find_full(const struct resp_arg *name);
/* The first one after NULL; NULL after the last one. */
const struct command *command_next(const struct command *cmd);
/* The first one after the command, then the one after a subcommand. */
const struct command *command_next_sub(const struct command *cmd);
size_t command_count_all(void); /* without subcommands */

/* NOLINTBEGIN(bugprone-macro-parentheses): `it` is declared here */
#define COMMAND_FOREACH(it)                                                    \
    for (const struct command *it = command_next(NULL); it;                    \
         it = command_next(it))
#define COMMAND_FOREACH_SUB(it, parent)                                        \
    for (const struct command *it = command_next_sub(parent); it;              \
         it = command_next_sub(it))
/* NOLINTEND(bugprone-macro-parentheses) */

/* For server_config. */
void commands_on_open(void *arg, struct session *s);
/* A client's reads come after its own writes, also in a pipeline, and nothing
 * comes before the answer to a wrong password. */
bool commands_must_wait(void *arg, const struct session *s,
                        const struct resp_arg *name);
void commands_on_request(void *arg, struct request *rq, int argc,
                         const struct resp_arg *argv);

/* ---- handlers, by file ---- */

/* auth.c */
void cmd_auth(struct commands *, struct request *, int,
              const struct resp_arg *);
/* commands.c: a line per subcommand, to `COMMAND HELP` */
void cmd_help(struct commands *, struct request *, int,
              const struct resp_arg *);
/* conn.c */
void cmd_echo(struct commands *, struct request *, int,
              const struct resp_arg *);
void cmd_hello(struct commands *, struct request *, int,
               const struct resp_arg *);
void cmd_ping(struct commands *, struct request *, int,
              const struct resp_arg *);
void cmd_quit(struct commands *, struct request *, int,
              const struct resp_arg *);
void cmd_readonly(struct commands *, struct request *, int,
                  const struct resp_arg *);
void cmd_reset(struct commands *, struct request *, int,
               const struct resp_arg *);
void cmd_select(struct commands *, struct request *, int,
                const struct resp_arg *);
/* client.c */
void cmd_client_getname(struct commands *, struct request *, int,
                        const struct resp_arg *);
void cmd_client_id(struct commands *, struct request *, int,
                   const struct resp_arg *);
void cmd_client_info(struct commands *, struct request *, int,
                     const struct resp_arg *);
void cmd_client_list(struct commands *, struct request *, int,
                     const struct resp_arg *);
void cmd_client_setinfo(struct commands *, struct request *, int,
                        const struct resp_arg *);
void cmd_client_setname(struct commands *, struct request *, int,
                        const struct resp_arg *);
/* False, with an error put, when a name has spaces or the like or is longer
 * than SESSION_NAME_MAX; `what` is what the error calls it. */
bool client_text_fits(struct request *rq, const struct resp_arg *text,
                      const struct resp_arg *what);
/* Takes over a text that fits. */
void client_set_text(char *to, const struct resp_arg *text);
/* command_command.c */
void cmd_command(struct commands *, struct request *, int,
                 const struct resp_arg *);
void cmd_command_count(struct commands *, struct request *, int,
                       const struct resp_arg *);
void cmd_command_docs(struct commands *, struct request *, int,
                      const struct resp_arg *);
void cmd_command_getkeys(struct commands *, struct request *, int,
                         const struct resp_arg *);
void cmd_command_info(struct commands *, struct request *, int,
                      const struct resp_arg *);
void cmd_command_list(struct commands *, struct request *, int,
                      const struct resp_arg *);
/* introspect.c */
void cmd_config_get(struct commands *, struct request *, int,
                    const struct resp_arg *);
void cmd_info(struct commands *, struct request *, int,
              const struct resp_arg *);
/* likes.c */
void cmd_like(struct commands *, struct request *, int,
              const struct resp_arg *);
void cmd_unlike(struct commands *, struct request *, int,
                const struct resp_arg *);
void cmd_liked(struct commands *, struct request *, int,
               const struct resp_arg *);
void cmd_likecount(struct commands *, struct request *, int,
                   const struct resp_arg *);
/* likers_command.c */
void cmd_likers(struct commands *, struct request *, int,
                const struct resp_arg *);
void cmd_likedposts(struct commands *, struct request *, int,
                    const struct resp_arg *);
/* follows.c */
void cmd_follow(struct commands *, struct request *, int,
                const struct resp_arg *);
void cmd_unfollow(struct commands *, struct request *, int,
                  const struct resp_arg *);
void cmd_relation(struct commands *, struct request *, int,
                  const struct resp_arg *);
void cmd_followcount(struct commands *, struct request *, int,
                     const struct resp_arg *);
void cmd_following(struct commands *, struct request *, int,
                   const struct resp_arg *);
void cmd_followers(struct commands *, struct request *, int,
                   const struct resp_arg *);
void cmd_mutuals(struct commands *, struct request *, int,
                 const struct resp_arg *);
void cmd_common(struct commands *, struct request *, int,
                const struct resp_arg *);
/* admin.c */
void cmd_flusher_drain(struct commands *, struct request *, int,
                       const struct resp_arg *);
void cmd_flusher_pause(struct commands *, struct request *, int,
                       const struct resp_arg *);
void cmd_flusher_resume(struct commands *, struct request *, int,
                        const struct resp_arg *);
void cmd_flusher_status(struct commands *, struct request *, int,
                        const struct resp_arg *);

/* ---- ids ---- */

struct id_key {
    char text[ID_KEY_MAX]; /* key form */
    size_t len;
};

/* Reads an id; false when an error was put, in which `what` it is, and the
 * request is done. */
bool request_id(struct request *rq, enum id_type type, const char *what,
                const struct resp_arg *arg, struct id_key *id_r);

/* adopt_command.c */
void cmd_adopt_start(struct commands *, struct request *, int,
                     const struct resp_arg *);
void cmd_adopt_status(struct commands *, struct request *, int,
                      const struct resp_arg *);
void cmd_adopt_stop(struct commands *, struct request *, int,
                    const struct resp_arg *);

/* dead_letters_command.c */
void cmd_deadletter_drop(struct commands *, struct request *, int,
                         const struct resp_arg *);
void cmd_deadletter_list(struct commands *, struct request *, int,
                         const struct resp_arg *);
void cmd_deadletter_retry(struct commands *, struct request *, int,
                          const struct resp_arg *);

/* settings_command.c */
void cmd_settings(struct commands *, struct request *, int,
                  const struct resp_arg *);

/* verify_command.c */
void cmd_verify_start(struct commands *, struct request *, int,
                      const struct resp_arg *);
void cmd_verify_status(struct commands *, struct request *, int,
                       const struct resp_arg *);
void cmd_verify_stop(struct commands *, struct request *, int,
                     const struct resp_arg *);

/* ---- replies that several handlers give, in Redis' words ---- */

void reply_arity(struct request *rq, const char *name);
/* An argument for "'%.*s'" in a message, as Redis shows it: up to a NUL, and
 * at most 128 bytes (resp_error makes spaces of CR and LF). */
#define SHOWN_MAX 128
#define SHOWN(arg)                                                             \
    (int)((arg).len < SHOWN_MAX ? (arg).len : SHOWN_MAX), (arg).data
void reply_ok(struct request *rq);
/* `why` with its code. */
void reply_failed(struct request *rq, const char *why);
/* A name and its value, in a map. */
void reply_put_text(struct buf *b, const char *name, const char *text);
void reply_put_int(struct buf *b, const char *name, int64_t v);
/* Text of several lines: a verbatim string in RESP3, as in Redis. Takes the
 * buffer's content. */
void reply_text(struct request *rq, struct buf *text);

#endif
