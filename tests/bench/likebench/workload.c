/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PAGE 20 /* posts that a read asks for */

static char *put_head(char *p, int words)
{
    return p + sprintf(p, "*%d\r\n", words);
}

static char *put_text(char *p, const char *text)
{
    return p + sprintf(p, "$%zu\r\n%s\r\n", strlen(text), text);
}

/* Ids have ten digits, which saves a look at their length. */
static char *put_id(char *p, uint64_t id)
{
    return p + sprintf(p, "$10\r\n%" PRIu64 "\r\n", id);
}

static char *put_key(char *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static char *put_key(char *p, const char *format, ...)
{
    char key[64];
    va_list args;

    va_start(args, format);
    vsnprintf(key, sizeof(key), format, args);
    va_end(args);
    return put_text(p, key);
}

static bool is_off(const struct options *o, struct pair pair)
{
    return strncmp(o->verb, "UN", 2) == 0 || !pair.on;
}

/* ---- workloads ---- */

static size_t put_event(const struct options *o, char *start, uint64_t i)
{
    struct pair pair = pair_of(o, i);
    bool turned = !pair.on;
    char *p = put_head(start, 3);

    if (turned)
        p += sprintf(p, "$%zu\r\nUN%s\r\n", strlen(o->verb) + 2, o->verb);
    else
        p = put_text(p, o->verb);
    p = put_id(p, pair.user);
    p = put_id(p, pair.other);
    return (size_t)(p - start);
}

static char *put_time(char *p, const char *field)
{
    return put_key(put_text(p, field), "%lld", (long long)time(NULL));
}

/* As the application does it that the daemon takes the place of. */
static size_t put_four(const struct options *o, char *start, uint64_t i)
{
    struct pair pair = pair_of(o, i);
    bool off = is_off(o, pair);
    char *p = put_head(start, 3);

    p = put_id(put_text(put_text(p, "SADD"), "post_set"), pair.other);
    p = put_text(put_head(p, 3), "SADD");
    p = put_key(p, "post_user_like_set_%" PRIu64, pair.other);
    p = put_id(p, pair.user);
    p = put_text(put_head(p, 12), "HSET");
    p = put_key(p, "post_user_like_%" PRIu64 "_%" PRIu64, pair.other,
                pair.user);
    p = put_text(put_text(p, "status"), off ? "0" : "1");
    p = put_id(put_text(p, "post_id"), pair.other);
    p = put_id(put_text(p, "user_id"), pair.user);
    p = put_time(put_time(p, "ctime"), "mtime");
    p = put_text(put_head(p, 2), off ? "DECR" : "INCR");
    p = put_key(p, "post_%" PRIu64 "_counter", pair.other);
    return (size_t)(p - start);
}

/* One of the two lists of a follow, by time. */
static char *put_list(char *p, bool off, uint64_t of, const char *name,
                      uint64_t member)
{
    p = put_text(put_head(p, off ? 3 : 4), off ? "ZREM" : "ZADD");
    p = put_key(p, "%" PRIu64 ":%s", of, name);
    if (!off)
        p = put_key(p, "%lld", (long long)time(NULL));
    return put_id(p, member);
}

/* The same of a follow. */
static size_t put_five(const struct options *o, char *start, uint64_t i)
{
    struct pair pair = pair_of(o, i);
    bool off = is_off(o, pair);
    char *p = put_head(start, 3);

    p = put_id(put_text(put_text(p, "SADD"), "follow_set"), pair.user);
    p = put_text(put_head(p, 3), "SADD");
    p = put_key(p, "user_follow_set_%" PRIu64, pair.user);
    p = put_id(p, pair.other);
    p = put_text(put_head(p, 12), "HSET");
    p = put_key(p, "user_follow_%" PRIu64 "_%" PRIu64, pair.user, pair.other);
    p = put_text(put_text(p, "status"), off ? "0" : "1");
    p = put_id(put_text(p, "user_id"), pair.user);
    p = put_id(put_text(p, "followee_id"), pair.other);
    p = put_time(put_time(p, "ctime"), "mtime");
    p = put_list(p, off, pair.user, "follow", pair.other);
    p = put_list(p, off, pair.other, "fans", pair.user);
    return (size_t)(p - start);
}

static size_t put_evalsha(const struct options *o, char *start, uint64_t i)
{
    struct pair pair = pair_of(o, i);
    char *p = put_text(put_text(put_head(start, 7), "EVALSHA"), o->sha);

    p = put_id(put_id(put_text(p, "0"), pair.user), pair.other);
    p = put_text(p, is_off(o, pair) ? "0" : "1");
    p = put_key(p, "%lld", (long long)time(NULL));
    return (size_t)(p - start);
}

/* A page: did this user like these, or how many likes have they. */
static size_t put_read(const struct options *o, char *start, uint64_t chance)
{
    bool is_liked = chance % 2 == 0;
    struct pair pair = pair_of(o, chance / 2 % o->known);
    char *p = put_head(start, is_liked ? PAGE + 2 : PAGE + 1);

    p = put_text(p, is_liked ? "LIKED" : "LIKECOUNT");
    if (is_liked)
        p = put_id(p, pair.user);
    p = put_id(p, pair.other);
    for (uint64_t n = 1; n < PAGE; n++)
        p = put_id(p, pair_of(o, (chance / 2 + n) % o->known).other);
    return (size_t)(p - start);
}

static size_t put_mix(const struct options *o, char *p, uint64_t i)
{
    if (i % 10 == 0)
        return put_event(o, p, i);
    return put_read(o, p, scramble(i) >> 8);
}

static size_t put_ping(const struct options *o, char *p, uint64_t i)
{
    (void)o;
    (void)i;
    return (size_t)(put_text(put_head(p, 1), "PING") - p);
}

const struct workload workloads[] = {
    {"event", "VERB user other", put_event, 1, false, false},
    {"four", "the four commands of a like, into Redis", put_four, 4, false,
     false},
    {"five", "the five commands of a follow, into Redis", put_five, 5, false,
     false},
    {"evalsha", "one script for each event, into Redis", put_evalsha, 1, true,
     false},
    {"mix", "one event, nine reads of 20 posts, half of each kind", put_mix, 1,
     false, true},
    {"ping", "PING", put_ping, 1, false, false},
};
const size_t workload_count = sizeof(workloads) / sizeof(workloads[0]);

const struct workload *workload_find(const char *name)
{
    for (size_t i = 0; i < workload_count; i++)
        if (strcmp(workloads[i].name, name) == 0)
            return &workloads[i];
    return NULL;
}
