/* SPDX-License-Identifier: MIT */
/* Messages to the service manager, and sockets from it; the only file that names
 * libsystemd. */
#include "adapters/notify.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"

#define STATUS_MAX      1024
#define LOG_INTERVAL_MS 60000

static void send_state(const char *state)
{
    static struct log_limit limit;
    int rc = sd_notify(0, state);
    uint64_t held;

    if (rc < 0 && log_allow(&limit, LOG_INTERVAL_MS, &held))
        log_warn("notify", "service manager not told: %s", strerror(-rc));
}

void notify_ready(void)
{
    send_state("READY=1");
}

void notify_reloading(void)
{
    char state[64];

    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)clock_monotonic_us());
    send_state(state);
}

void notify_stopping(void)
{
    send_state("STOPPING=1");
}

void notify_status(const char *text)
{
    struct buf state = {0};

    buf_puts(&state, "STATUS=");
    utf8_put_plain(&state, text, STATUS_MAX);
    send_state(buf_cstr(&state));
    buf_free(&state);
}

void notify_watchdog(void)
{
    send_state("WATCHDOG=1");
}

unsigned notify_watchdog_ms(void)
{
    uint64_t us;
    uint64_t half_ms;

    if (sd_watchdog_enabled(0, &us) <= 0)
        return 0;
    half_ms = us / 2000;
    if (half_ms == 0)
        return 1;
    return half_ms > UINT32_MAX ? UINT32_MAX : (unsigned)half_ms;
}

int notify_each_socket(int (*fn)(void *arg, int fd, const char *name),
                       void *arg)
{
    char **names = NULL;
    int n = sd_listen_fds_with_names(1, &names);
    int rc = 0;

    if (n < 0)
        log_error("notify", "sockets of the service manager: %s", strerror(-n));
    for (int i = 0; i < n && rc == 0; i++)
        rc = fn(arg, SD_LISTEN_FDS_START + i, names[i]);
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return n < 0 ? -1 : rc;
}
