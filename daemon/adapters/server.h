/* SPDX-License-Identifier: MIT */
/* RESP server on libuv streams: listeners, clients, pipelining, limits and
 * backpressure. It knows no command: each request goes to on_request, and its
 * replies are sent in the order of the requests however they are finished. */
#ifndef ADAPTERS_SERVER_H
#define ADAPTERS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "core/address.h"
#include "core/histogram.h"
#include "core/resp.h"

struct uv_loop_s;
struct server;
struct request;

#define SESSION_NAME_MAX 128

/* What the connection commands keep about a client. */
struct session {
    uint64_t id; /* from 1, never used twice */
    bool admin;  /* came in by an admin listener */
    bool is_unix;
    bool authed;  /* set in on_open */
    bool refused; /* a wrong password is not answered yet */
    int proto;    /* 2 or 3 */
    char name[SESSION_NAME_MAX + 1];
    char lib_name[SESSION_NAME_MAX + 1];
    char lib_ver[SESSION_NAME_MAX + 1];
    char addr[128];      /* peer "ip:port" or the socket's path with ":0" */
    uint64_t created_ms; /* monotonic */
    const char *last_command; /* ref: static name */
    unsigned writes;          /* under way; counted by on_request's side */
};

struct server_limits {
    int64_t max_clients; /* lowered to what RLIMIT_NOFILE leaves; admin
                            listeners have a few places more */
    int64_t other_fds;   /* descriptors that others may come to need */
    int64_t
        max_client_memory; /* bytes of all clients: the biggest are closed */
    int64_t max_pipeline;  /* requests of one client under way: stop reading */
    int64_t output_soft_bytes;
    int64_t output_hard_bytes;
    int64_t idle_timeout_s;
    int64_t max_requests_before_auth;
    int64_t auth_timeout_s; /* 0 never */
    int socket_mode;
    int admin_socket_mode;
    const char *socket_group; /* ref: name or number; "" or NULL: our own */
    const char *admin_socket_group;
    struct resp_limits request;
    struct resp_limits unauthenticated; /* 10 arguments of 16 KiB */
};

struct server_config {
    struct server_limits limits;
    void (*on_open)(void *arg, struct session *s);
    /* Must this request wait until all that the client has under way is
     * answered? May be NULL. Asked again until it is false. */
    bool (*must_wait)(void *arg, const struct session *s,
                      const struct resp_arg *name);
    /* argv is valid during the call only. Must finish the request sooner or
     * later, exactly once, by request_done; may do so before returning. */
    void (*on_request)(void *arg, struct request *rq, int argc,
                       const struct resp_arg *argv);
    void *arg;
};

struct server *server_new(struct uv_loop_s *loop,
                          const struct server_config *c);
/* The address of a socket that listens and was passed to us. NULL, or what is wrong
 * with it. */
const char *passed_inspect(int fd, struct address *a_r);
/* Takes a socket that listens already and is somebody else's; its file is never
 * touched. Clients, not admins, wait in its queue until server_admit(). To be called before server_listen. 0 with its address in *a_r, or -1
 * with the reason in why. */
MUST_CHECK int server_take(struct server *s, int fd, bool admin,
                           struct address *a_r, struct buf *why);
/* Lets in those who wait; from then on anybody at once. */
void server_admit(struct server *s);
/* Logs a line for each of these. To be called after server_listen. */
void server_log_taken(const struct server *s);
/* Binds and listens, unless a socket that was taken has that address. A unix
 * socket is guarded by `PATH.lock` (flock), and an old file is unlinked only when
 * nobody answers on it. 0, or -1 with the reason in why. */
MUST_CHECK int server_listen(struct server *s, const struct address *a,
                             bool admin, struct buf *why);
/* Port of the index-th TCP socket in the order of binding, -1 if there is none.
 * (Port 0 lets the system choose; a name may bind several sockets, which share
 * one port.) */
int server_port(const struct server *s, int index);
/* New limits for the clients there are and those to come; what says who
 * may open the sockets counts for later listeners only. */
void server_set_limits(struct server *s, const struct server_limits *limits);
/* Closes the listeners (removing our own socket files); clients stay. */
void server_stop_listening(struct server *s);
/* Clients are read no more, and each is closed once what it asked is answered. */
void server_finish_clients(struct server *s);
/* Requests under way over all clients. */
size_t server_pending(const struct server *s);
size_t server_clients(const struct server *s);
/* How many there may be: limits.max_clients within RLIMIT_NOFILE. */
int64_t server_max_clients(const struct server *s);
/* Calls fn for up to `max` open clients with a higher id, by rising id; returns
 * for how many. Takes a look at each client before them. */
size_t server_sessions_after(struct server *s, uint64_t id, size_t max,
                             void (*fn)(void *arg, const struct session *),
                             void *arg);
/* NULL when there is none. Takes a look at each client before it. */
const struct session *server_session_by_id(struct server *s, uint64_t id);

/* What a client has and does just now. */
struct session_usage {
    int fd;
    bool is_unix;
    bool closing; /* once its last replies are sent */
    bool reads;
    bool writes;          /* waits until the kernel takes more */
    char local_addr[128]; /* as session.addr, of our end */
    uint64_t idle_ms;
    size_t in_bytes; /* of a request that is not complete */
    size_t in_free_bytes;
    size_t out_bytes;     /* replies not yet taken by the kernel */
    size_t held_requests; /* under way, or done behind one that is not */
    size_t held_bytes;    /* replies that wait for an earlier one */
    size_t memory_bytes;
};
void session_usage(const struct session *s, struct session_usage *u_r);

/* Closes everything; requests still under way may be finished later, into the
 * void. Memory goes after the last of both. */
void server_free(struct server *s);

/* ---- requests: own their memory until request_done ---- */

/* The client's session; NULL when the client has gone. */
struct session *request_session(struct request *rq);
/* The protocol version in force when the request came. */
int request_proto(const struct request *rq);
/* Among which its time is counted; else among H_REQUEST_OTHER. */
void request_set_class(struct request *rq, enum histogram_id timing);
/* Where the reply is written. */
struct buf *request_reply(struct request *rq);
/* The reply is complete; rq must not be touched after it. */
void request_done(struct request *rq);
/* Close the client once this reply has been sent (QUIT). Before request_done. */
void request_close_after(struct request *rq);

#endif
