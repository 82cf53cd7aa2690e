/* SPDX-License-Identifier: MIT */
#include "adapters/http_peers.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"

struct http_peer {
    struct list node; /* in no list once it was shut down */
    uint64_t due_ms;
    int fd; /* of who made it */
};

void http_peers_init(struct http_peers *peers)
{
    list_init(&peers->list);
}

struct http_peer *http_peer_new(struct http_peers *peers, int fd)
{
    struct http_peer *p = mem_zalloc(sizeof(*p));

    p->fd = fd;
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
