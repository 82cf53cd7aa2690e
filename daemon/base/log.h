/* SPDX-License-Identifier: MIT */
/* Log lines on stderr: `subsystem: what failed: cause (ids)`. No secrets, no
 * payloads. When stderr is the journal (JOURNAL_STREAM names it) each line
 * starts with sd-daemon(3)'s `<N>` level and has no time; otherwise time and
 * level are written out. Control characters become spaces. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
};

void log_set_level(enum log_level level);
enum log_level log_level(void);

void log_write(enum log_level level, const char *subsystem, const char *fmt,
               ...) PRINTF_LIKE(3, 4);

/* Each line of the text by itself. */
void log_lines(enum log_level level, const char *subsystem, const char *text);

#define log_error(sub, ...) log_write(LOG_LEVEL_ERROR, sub, __VA_ARGS__)
#define log_warn(sub, ...)  log_write(LOG_LEVEL_WARN, sub, __VA_ARGS__)
#define log_info(sub, ...)  log_write(LOG_LEVEL_INFO, sub, __VA_ARGS__)
#define log_debug(sub, ...)                                                    \
    do {                                                                       \
        if (log_level() >= LOG_LEVEL_DEBUG)                                    \
            log_write(LOG_LEVEL_DEBUG, sub, __VA_ARGS__);                      \
    } while (0)

/* For messages that may repeat: true at most once per `interval_ms`. What was
 * held back is counted, and *held_r says how many since the last one. */
struct log_limit {
    uint64_t last_ms; /* 0: never */
    uint64_t held;
};
bool log_allow(struct log_limit *l, unsigned interval_ms, uint64_t *held_r);

#endif
