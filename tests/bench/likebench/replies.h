/* SPDX-License-Identifier: MIT */
/* Counts replies of RESP2 in a stream of bytes, however it is cut. */
#ifndef LIKEBENCH_REPLIES_H
#define LIKEBENCH_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reply { REPLY_ZERO, REPLY_ONE, REPLY_OTHER, REPLY_ERROR };

struct replies {
    uint64_t open;   /* elements that the present reply still lacks */
    uint64_t skip;   /* bytes of a string that are to come */
    bool is_element; /* of an array, not a reply of its own */
    char line[128];  /* so far, without what is too long for it */
    size_t len;
};

/* Called for each reply that is complete; `line`: of an error. Calls end when it
 * returns false. */
typedef bool (*reply_cb)(void *arg, enum reply reply, const char *line);

/* Takes bytes of a stream. `r` is zeroed at its begin. */
void replies_read(struct replies *r, const char *bytes, size_t len, reply_cb cb,
                  void *arg);

#endif
