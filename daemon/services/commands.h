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
    struct auth *auth;
    uint64_t started_ms; /* monotonic */
    char run_id[41];
};

/* Where a command may be used, and what Redis clients are told of it. */
#define CMD_ADMIN   (1u << 0) /* admin listener only */
#define CMD_NO_AUTH (1u << 1) /* before authentication */
#define CMD_WRITE   (1u << 2)
#define CMD_READ    (1u << 3)
#define CMD_FAST    (1u << 4)

typedef void (*command_run)(struct commands *c, struct request *rq, int argc,
                            const struct resp_arg *argv);

struct command {
    const char *name; /* lower case */
    int arity;        /* as in Redis: the name counts; negative: at least */
    unsigned flags;
    command_run run;
    const char *group;
    const char *args; /* for people and redis-cli */
    const char *summary;
};

extern const struct command command_table[];
extern const size_t command_count;

const struct command *command_find(const struct resp_arg *name);

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
void cmd_client(struct commands *, struct request *, int,
                const struct resp_arg *);
/* Takes over a name; false, with an error put, when it has spaces or the like
 * or is longer than SESSION_NAME_MAX. */
bool client_set_text(struct request *rq, char *to, const struct resp_arg *name,
                     const char *what);
/* introspect.c */
void cmd_command(struct commands *, struct request *, int,
                 const struct resp_arg *);
void cmd_config(struct commands *, struct request *, int,
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
void cmd_flusher(struct commands *, struct request *, int,
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
void cmd_adopt(struct commands *, struct request *, int,
               const struct resp_arg *);

/* verify_command.c */
void cmd_verify(struct commands *, struct request *, int,
                const struct resp_arg *);

/* ---- replies that several handlers give, in Redis' words ---- */

void reply_arity(struct request *rq, const char *name);
void reply_unknown_subcommand(struct request *rq, const char *command,
                              const struct resp_arg *sub);
void reply_ok(struct request *rq);
/* `why` with its code. */
void reply_failed(struct request *rq, const char *why);
/* To `COMMAND HELP`, for a command with subcommands. */
void reply_help(struct request *rq, const char *command);
/* A name and its value, in a map. */
void reply_put_text(struct buf *b, const char *name, const char *text);
void reply_put_int(struct buf *b, const char *name, int64_t v);
/* Text of several lines: a verbatim string in RESP3, as in Redis. Takes the
 * buffer's content. */
void reply_text(struct request *rq, struct buf *text);

#endif
