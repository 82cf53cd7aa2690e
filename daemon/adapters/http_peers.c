/* SPDX-License-Identifier: MIT */
#include "adapters/http_peers.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"

union host {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

struct http_peer {
    struct list node; /* in no list once it was shut down */
    uint64_t due_ms;
    union host host;
    int fd; /* of who made it */
};

void http_peers_init(struct http_peers *peers)
{
    list_init(&peers->list);
}

struct http_peer *http_peer_new(struct http_peers *peers, int fd)
{
    struct http_peer *p = mem_zalloc(sizeof(*p));
    socklen_t len = sizeof(p->host);

    p->fd = fd;
    if (getpeername(fd, &p->host.any, &len) < 0)
        p->host.any.sa_family = AF_UNSPEC; /* it is gone already */
    list_init(&p->node);
    http_peer_served(peers, p);
    return p;
}

void http_peer_free(struct http_peer *p)
{
    list_remove(&p->node);
    free(p);
}

void http_peer_served(struct http_peers *peers, struct http_peer *p)
{
    p->due_ms = clock_monotonic_ms() + HTTP_PEER_MAX_MS;
    list_remove(&p->node);
    list_push_back(&peers->list, &p->node);
}

static bool is_from(const struct http_peer *p, const struct sockaddr *addr)
{
    const union host *host = (const union host *)addr;

    if (p->host.any.sa_family != addr->sa_family)
        return false;
    if (addr->sa_family == AF_INET)
        return p->host.in.sin_addr.s_addr == host->in.sin_addr.s_addr;
    return addr->sa_family == AF_INET6 &&
           memcmp(&p->host.in6.sin6_addr, &host->in6.sin6_addr,
                  sizeof(p->host.in6.sin6_addr)) == 0;
}

unsigned http_peers_from(const struct http_peers *peers,
                         const struct sockaddr *host)
{
    unsigned n = 0;

    LIST_FOREACH(node, &peers->list)
        n += is_from(LIST_ENTRY(node, struct http_peer, node), host) ? 1 : 0;
    return n;
}

uint64_t http_peers_expire(struct http_peers *peers)
{
    uint64_t now_ms = clock_monotonic_ms();

    LIST_FOREACH_SAFE(node, &peers->list) {
        struct http_peer *p = LIST_ENTRY(node, struct http_peer, node);

        if (p->due_ms > now_ms)
            return p->due_ms - now_ms;
        list_remove(node);
        shutdown(p->fd, SHUT_RDWR);
    }
    return UINT64_MAX;
}
