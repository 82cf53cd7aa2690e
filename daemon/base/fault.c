/* SPDX-License-Identifier: MIT */
/* Points at which a test kills, stops or hangs the process; and what makes it one
 * that is known to be wrong. */
#include "base/fault.h"

#ifdef LIKESYNCD_FAULTS

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"

/* The passage of `name` that spec means; 0 when that is not named. */
static uint64_t named_passage(const char *spec, const char *name)
{
    size_t len = strcspn(spec, ":");
    uint64_t n = 1;

    if (strlen(name) != len || strncmp(spec, name, len) != 0)
        return 0;
    if (spec[len] == ':') {
        const char *number = spec + len + 1;

        if (num_parse_u64(number, strlen(number), &n) < 0 || n == 0) {
            log_error("fault", "%s: expected name:n", spec);
            abort();
        }
    }
    return n;
}

/* Is this the passage that spec names, or one after it? */
static bool is_due(const char *spec, const char *name, uint64_t *passages)
{
    uint64_t due = spec ? named_passage(spec, name) : 0;

    return due && ++*passages >= due;
}

/* Whether the point has been passed behind which all others begin to count. */
static bool is_armed(const char *name)
{
    static bool is_passed;
    const char *after = getenv("LIKESYNCD_AFTER");

    if (!after || is_passed)
        return true;
    is_passed = strcmp(after, name) == 0;
    return false;
}

/* What those who look at resources and at the loop have to see. (The memory stays
 * reachable, as what a daemon forgets to let go of does.) */
static void misbehave(void)
{
    static struct leaked {
        struct leaked *before;
        char page[1 << 16];
    } *latest;

    if (fault_variant("loop_blocked"))
        (void)poll(NULL, 0, 300);
    if (fault_variant("descriptor_leaked"))
        (void)fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fault_variant("memory_leaked")) {
        struct leaked *more = mem_alloc(sizeof(*more));

        memset(more->page, 1, sizeof(more->page));
        more->before = latest;
        latest = more;
    }
}

void fault_point(const char *name)
{
    static uint64_t to_hang; /* passages of the one point that is named */
    static uint64_t to_stop;
    static uint64_t to_die;
    static bool is_told;
    const char *term = getenv("LIKESYNCD_TERM");

    misbehave();
    if (!is_armed(name))
        return;
    while (is_due(getenv("LIKESYNCD_HANG"), name, &to_hang))
        pause();
    if (!is_told &&
        is_due(term ? term : getenv("LIKESYNCD_STOP"), name, &to_stop)) {
        is_told = true;
        raise(term ? SIGTERM : SIGSTOP);
    }
    if (is_due(getenv("LIKESYNCD_FAULT"), name, &to_die))
        raise(SIGKILL);
}

bool fault_variant(const char *name)
{
    static uint64_t passages; /* of the one variant that is named */
    const char *spec = getenv("LIKESYNCD_VARIANT");
    uint64_t every = spec ? named_passage(spec, name) : 0;

    return every && ++passages % every == 0;
}

/* Edited texts, in place of constants: a pointer means one text. */
static struct {
    const char *text;
    char *edited;
} edits[32];

/* `text` with `to` in place of the `from` at `at`. */
static char *edited(const char *text, const char *at, const char *from,
                    const char *to)
{
    const char *rest = at + strlen(from);
    int before = (int)(at - text);
    size_t size = (size_t)before + strlen(to) + strlen(rest) + 1;
    char *copy = mem_alloc(size);

    snprintf(copy, size, "%.*s%s%s", before, text, to, rest);
    return copy;
}

const char *fault_edit(const char *text)
{
    const char *from = getenv("LIKESYNCD_EDIT");
    const char *to = getenv("LIKESYNCD_EDIT_TO");
    const char *at = from && to ? strstr(text, from) : NULL;
    size_t i = 0;

    if (!at)
        return text;
    while (edits[i].text && edits[i].text != text)
        i++;
    assert(i + 1 < sizeof(edits) / sizeof(*edits));
    if (!edits[i].text) {
        edits[i].text = text;
        edits[i].edited = edited(text, at, from, to);
        log_warn("fault", "edited: %s", from);
    }
    return edits[i].edited;
}

#endif
