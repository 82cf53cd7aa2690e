/* SPDX-License-Identifier: MIT */
/* What the pages of all lists have in common: how many entries are asked for,
 * and the reply made of the items. */
#ifndef SERVICES_PAGE_REPLY_H
#define SERVICES_PAGE_REPLY_H

#include <stdint.h>

#include "adapters/server.h"
#include "services/engine.h"
#include "services/gate.h"
#include "services/page_args.h"

/* Entries without options that say how many. */
#define PAGE_CURSOR_COUNT 100
/* Entries that are looked through for a range at most. */
#define PAGE_RANGE_WALK   100000

/* How many entries a range takes at most. */
int64_t page_range_size(const struct page_args *a);
/* Whether a range counts from the end: all entries must be known. */
bool page_range_from_end(const struct page_args *a);

/* Appends Unix microseconds as seconds with no more decimals than they need. */
void page_put_time(struct buf *b, int64_t us);
/* Appends an array of the items (each a reply) [from, to). */
void page_put_items(struct buf *b, const struct args *items, int64_t from,
                    int64_t to);
/* The same of those that a range means, of all that there are. */
void page_put_slice(struct buf *b, const struct args *items,
                    const struct page_args *a);

/* A reply that is being made; zero-initialised but for the refs. */
struct page_reply {
    struct request *rq;           /* ref */
    const struct page_args *args; /* ref */
    struct gate *turns; /* ref: long pages wait for their turn there */
    const char *option; /* ref: what bounds a page, */
    int64_t max;        /* and its value */
    struct gate_pass pass;
    struct args items; /* replies, in order */
    struct buf raw;    /* an id */
    struct buf next;   /* cursor behind the last entry looked at */
    int64_t skip;      /* entries in front of the page */
    int64_t left;      /* items wanted still */
    bool slice;        /* all entries are needed to know which are meant */
    bool ended;        /* nothing is behind the last entry looked at */
    bool let_in;       /* it is its turn */
};

/* How many items a page by CURSOR takes. */
void page_reply_cursor(struct page_reply *r);
/* Which entries a range takes, where a walk from its start counts them. */
void page_reply_range(struct page_reply *r);
/* An item of so many fields: an id in key form, and what is put into items.text
 * before page_item_end. */
void page_item_begin(struct page_reply *r, enum id_type type, const char *id,
                     size_t len, size_t fields);
void page_item_end(struct page_reply *r);
/* Waits for its turn, since it will hold its items; on_turn as for gate_enter: it
 * sets let_in when it is let in. */
void page_reply_enter(struct page_reply *r, gate_on_turn on_turn, void *arg);
/* Answers the request by the items, or by an error when they are more than max,
 * and frees what r owns. */
void page_reply_done(struct page_reply *r);
/* The same by an error reply. */
void page_reply_fail(struct page_reply *r, const char *why);
void page_reply_free(struct page_reply *r);

#endif
