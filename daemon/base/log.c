/* SPDX-License-Identifier: MIT */
/* Log lines on stderr. Each line is one write(2), so that lines of several
 * processes do not mix; it does not allocate, so that running out of memory
 * can be logged. */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

enum { LINE_MAX_BYTES = 4096 };

static const struct {
    const char *name;
    int syslog; /* priority in syslog(3)'s numbers, as sd-daemon(3) has them */
} LEVELS[] = {
    [LOG_LEVEL_ERROR] = {"error", 3},
    [LOG_LEVEL_WARN] = {"warn", 4},
    [LOG_LEVEL_INFO] = {"info", 6},
    [LOG_LEVEL_DEBUG] = {"debug", 7},
};

static enum log_level max_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    max_level = level;
}

enum log_level log_level(void)
{
    return max_level;
}

/* JOURNAL_STREAM holds device:inode of the journal's socket; a child whose
 * stderr was redirected inherits the variable all the same. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char ours[64];
    struct stat st;

    if (!stream || fstat(STDERR_FILENO, &st) < 0)
        return false;
    snprintf(ours, sizeof(ours), "%ju:%ju", (uintmax_t)st.st_dev,
             (uintmax_t)st.st_ino);
    return strcmp(stream, ours) == 0;
}

static bool to_journal(void)
{
    static enum { UNKNOWN, NO, YES } known;

    if (known == UNKNOWN)
        known = stderr_is_journal() ? YES : NO;
    return known == YES;
}

static int format_prefix(char *out, size_t size, enum log_level level,
                         const char *subsystem)
{
    int64_t now_us = clock_realtime_us();
    time_t now = (time_t)(now_us / 1000000);
    char date[32];
    struct tm tm;

    if (to_journal())
        return snprintf(out, size, "<%d>%s: ", LEVELS[level].syslog, subsystem);
    gmtime_r(&now, &tm);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
    return snprintf(out, size, "%s.%03dZ %-5s %s: ", date,
                    (int)(now_us / 1000 % 1000), LEVELS[level].name, subsystem);
}

/* One event, one line: what a client or a backend said must not forge one. Nor may
 * it hold bytes of no character, or the journal shows none of it. In place: see
 * above. */
static void flatten(char *text, size_t len)
{
    size_t i = 0;

    while (i < len) {
        size_t n = utf8_plain_len(text + i, len - i);

        if (n == 0)
            text[i] = (unsigned char)text[i] < 0x80 ? ' ' : '?';
        i += n > 0 ? n : 1;
    }
}

static size_t clip(int n, size_t room)
{
    if (n < 0)
        return 0;
    return (size_t)n < room ? (size_t)n : room - 1;
}

static void write_all(const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(STDERR_FILENO, text, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* there is nowhere to say so */
        text += n;
        len -= (size_t)n;
    }
}

void log_write(enum log_level level, const char *subsystem, const char *fmt,
               ...)
{
    char line[LINE_MAX_BYTES];
    size_t room = sizeof(line) - 1; /* less the newline */
    int saved_errno = errno;
    size_t len;
    va_list args;

    if (level > max_level)
        return;
    len = clip(format_prefix(line, room, level, subsystem), room);
    va_start(args, fmt);
    len += clip(vsnprintf(line + len, room - len, fmt, args), room - len);
    va_end(args);
    flatten(line, len);
    line[len++] = '\n';
    write_all(line, len);
    errno = saved_errno;
}

void log_lines(enum log_level level, const char *subsystem, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");

        if (len)
            log_write(level, subsystem, "%.*s", (int)len, text);
        text += len + (text[len] == '\n');
    }
}

bool log_allow(struct log_limit *l, unsigned interval_ms, uint64_t *held_r)
{
    uint64_t now_ms = clock_monotonic_us() / 1000;

    *held_r = 0;
    if (l->last_ms && now_ms - l->last_ms < interval_ms) {
        l->held++;
        return false;
    }
    *held_r = l->held;
    l->held = 0;
    l->last_ms = now_ms ? now_ms : 1; /* 0 means never */
    return true;
}
