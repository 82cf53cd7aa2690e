/* SPDX-License-Identifier: MIT */
/* What the files of the server share: server.c (lifetime, limits), listener.c
 * and passed.c (sockets), accept.c (new clients), sessions.c (a look at them),
 * client.c (reading, writing, backpressure), client_memory.c (what they hold),
 * client_end.c (how they end), request.c (order).
 *
 * Lifetimes: a server goes when its last handle is closed and its last request
 * is done; a client goes in its close callback; a request goes when it is done
 * and sent, or done and its client has gone. A client that closes takes itself
 * out of its requests, so a late reply never meets a client that is no more. */
#ifndef ADAPTERS_SERVER_INTERNAL_H
#define ADAPTERS_SERVER_INTERNAL_H

#include <sys/types.h>
#include <uv.h>

#include "adapters/server.h"
#include "base/list.h"
#include "base/log.h"

/* The most that is read of one client in a turn, and then it is the others'
 * turn. (libuv would go on, 32 times in a row while this is filled.) */
#define SERVER_READ_BYTES (16u * 1024u)

/* Clients by what they hold: below 16 KiB, below 32 KiB, and so on. */
#define MEMORY_CLASSES 24

/* Why a client was closed; in the order of the metric's rows. */
enum client_end {
    END_LEFT, /* it went, or said QUIT */
    END_IDLE,
    END_OUTPUT,
    END_MEMORY,
    END_BEFORE_AUTH,
    END_AUTH_TIMEOUT,
    END_ARGS,
    END_ARG_BYTES,
    END_REQUEST,
    END_PROTOCOL,
    END_ATTACK,
    END_COUNT
};

/* TCP and unix sockets look the same to libuv's stream functions. */
union server_stream {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct server {
    uv_loop_t *loop; /* ref */
    struct server_config config;
    int64_t max_clients; /* limits.max_clients within RLIMIT_NOFILE */
    uv_prepare_t turn;   /* once a turn: send what became ready */
    uint64_t n_turns;
    uv_timer_t tick; /* once a second: idle clients */
    size_t memory;   /* of all clients */
    /* Clients by class; of admin listeners, of others. */
    struct list by_memory[2][MEMORY_CLASSES];
    struct list listeners;
    struct list clients; /* open ones */
    struct list ready;   /* clients to look at before the loop sleeps */
    struct list spare;   /* requests to use again */
    size_t n_spare;
    size_t n_clients;
    size_t n_pending; /* requests under way, those of gone clients too */
    size_t n_handles; /* handles not closed yet */
    uint64_t last_id;
    bool freed;
    struct log_limit log_accept;
    struct log_limit log_refused;
    struct log_limit log_ended[END_COUNT];
    char *scratch; /* owned: every client reads into it first */
};

struct listener {
    struct list node; /* in server->listeners */
    struct server *server;
    union server_stream u;
    bool admin;
    bool is_unix;
    bool passed; /* somebody else's: see passed.c */
    bool held;   /* nobody is let in before server_admit() */
    bool listed; /* its address stands in the configuration */
    char path[ADDRESS_PATH_MAX + 1];
    unsigned n_accepted; /* in this turn */
    int lock_fd;         /* -1 none */
    dev_t dev;           /* of the socket file that we made */
    ino_t ino;
};

enum client_state {
    CLIENT_READING,
    CLIENT_PAUSED,    /* too much under way or unsent: not read */
    CLIENT_DRAINING,  /* no more requests: send the replies, then close */
    CLIENT_LINGERING, /* they are sent: what still comes is thrown away */
    CLIENT_CLOSED     /* waits for libuv's close callback */
};

struct client {
    struct list node;        /* in server->clients */
    struct list ready_node;  /* in server->ready */
    struct list memory_node; /* in server->by_memory */
    unsigned memory_class;
    size_t memory;         /* as counted last */
    struct server *server; /* ref */
    union server_stream u;
    enum client_state state;
    bool barrier; /* paused until nothing is under way */
    struct session session;
    struct resp_parser parser;
    struct buf in;        /* read but not yet a request */
    struct list requests; /* under way, in order */
    size_t n_requests;
    size_t held_bytes;  /* replies that wait for an earlier one */
    size_t held_memory; /* what these take */
    struct buf out;     /* replies in order, not yet given to libuv */
    struct buf sending;
    uv_write_t write;   /* in use while sending is not empty */
    uint64_t read_turn; /* in which it was read last */
    uint64_t active_ms;
    uint64_t authed_ms;    /* when it was last seen authenticated, or came */
    int64_t n_before_auth; /* requests */
    enum client_end end;   /* decided while it still gets its replies */
    bool lingers;          /* the end is ours: it may still be sending */
    size_t lingered_bytes; /* thrown away */
};

struct request {
    struct list node;      /* in client->requests or server->spare */
    struct server *server; /* ref */
    struct client *client; /* ref; NULL when it has gone */
    struct buf reply;
    int proto;
    enum histogram_id timing;
    uint64_t since_us; /* monotonic */
    bool done;
    bool close_after;
};

/* server.c */
void server_release(struct server *s); /* frees what was the last user's */
void server_handle_closed(struct server *s);

/* listener.c */
struct listener *listener_new(struct server *s, bool is_unix, bool admin);
MUST_CHECK int listener_start(struct listener *l); /* 0, or libuv's error */
void listener_close(struct listener *l);
int listener_port(const struct listener *l); /* TCP only */

/* passed.c: the socket that was passed and gets what is sent to this address;
 * NULL when there is none. */
struct listener *passed_at_path(const struct server *s, const char *path);
struct listener *passed_at(const struct server *s, const struct sockaddr *sa);
/* It stands for that address of the configuration. -1 with the reason in why
 * when it was passed for the others. */
MUST_CHECK int passed_use(struct listener *l, bool admin, struct buf *why);

/* accept.c */
void listener_on_client(struct listener *l);
/* A new turn: takes in whom the one before left to this one. */
void listener_turn(struct listener *l);
void server_local_address(const struct client *c, char *out, size_t size);

/* client.c */
void client_start(struct client *c);
/* Look at it before the loop sleeps: send, close, read on. */
void client_mark_ready(struct client *c);
void client_turn(struct client *c);
/* The replies under way are its last ones. */
void client_drain(struct client *c);
void client_set_state(struct client *c, enum client_state state);

/* client_memory.c */
void client_count_memory(struct client *c);
void client_uncount_memory(struct client *c);
/* Closes the biggest clients as long as all together hold too much. To be
 * called where no client is in the middle of something. */
void server_fit_memory(struct server *s);

/* client_end.c */
void client_on_closed(uv_handle_t *handle);
void client_close(struct client *c, enum client_end end);
/* It has its last reply. */
void client_finish(struct client *c);
/* Something came from a client that lingers, as libuv says. */
void client_linger_on(struct client *c, ssize_t nread);
/* Closes it when it has been silent, or not authenticated, for too long. */
void client_check_time(struct client *c);

/* request.c */
struct request *request_new(struct client *c);
/* The client goes: unfinished requests live on without it. */
void request_detach_all(struct client *c);
void request_free_spare(struct server *s);

#endif
