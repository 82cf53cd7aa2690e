/* SPDX-License-Identifier: MIT */
/* SIGHUP: reads the configuration again. */
#include "daemon_internal.h"

#include "adapters/notify.h"
#include "base/log.h"
#include "services/flushers.h"

static void apply(struct daemon *d)
{
    struct server_limits limits = daemon_limits(d->options);

    log_set_level((enum log_level)d->options->log_level);
    server_set_limits(d->server, &limits);
    flushers_reconfigure(d->services);
    daemon_tls_reload(d);
}

/* The file is read on the loop: it is small, local, and asked for by the
 * operator. */
void daemon_reload(struct daemon *d)
{
    struct options fresh;
    struct buf text = {0};

    notify_reloading();
    options_init(&fresh);
    if (options_load(&fresh, d->path, &text) != 0) {
        log_lines(LOG_LEVEL_ERROR, "config", buf_cstr(&text));
        log_error("config", "not reloaded: the old values stay");
    } else {
        int n = options_reload(d->options, &fresh, &text);

        apply(d);
        log_lines(LOG_LEVEL_WARN, "config", buf_cstr(&text));
        log_info("config", "reloaded: %d options changed", n);
    }
    options_free(&fresh);
    buf_free(&text);
    notify_ready();
}
