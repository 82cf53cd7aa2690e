/* SPDX-License-Identifier: MIT */
/* What the pages of all lists have in common: how many entries are asked for,
 * and the reply made of the items. */
#ifndef SERVICES_PAGE_REPLY_H
#define SERVICES_PAGE_REPLY_H

#include <stdint.h>

#include "services/engine.h"
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

#endif
