/* SPDX-License-Identifier: MIT */
/* Intrusive doubly linked list: `struct list` is both head and node. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct list {
    struct list *prev;
    struct list *next;
};

static inline void list_init(struct list *l)
{
    l->prev = l;
    l->next = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_push_back(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void list_push_front(struct list *head, struct list *node)
{
    list_push_back(head->next, node);
}

/* Unlinks and leaves the node empty, so that removing twice is harmless. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* First node, unlinked; NULL when empty. */
static inline struct list *list_pop_front(struct list *head)
{
    struct list *node = head->next;

    if (node == head)
        return NULL;
    list_remove(node); /* NOLINT(clang-analyzer-unix.Malloc): a false alarm */
    return node;
}

/* Moves all of `from` to the end of `head`; `from` is empty after it. */
static inline void list_splice_back(struct list *head, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = head->prev;
    head->prev->next = from->next;
    from->prev->next = head;
    head->prev = from->prev;
    list_init(from);
}

#define LIST_ENTRY(node, type, member) CONTAINER_OF(node, type, member)
/* NOLINTBEGIN(bugprone-macro-parentheses): `it` is declared here */
#define LIST_FOREACH(it, head)                                                 \
    for (struct list *it = (head)->next; it != (head); it = it->next)
/* The current node may be removed and freed inside the loop. */
#define LIST_FOREACH_SAFE(it, head)                                            \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head);  \
         it = it##_next, it##_next = it->next)
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
