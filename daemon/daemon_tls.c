/* SPDX-License-Identifier: MIT */
/* The certificates for a Redis at a tls: address, as the options name them. */
#include "daemon.h"
#include "daemon_internal.h"

#include "adapters/redis_tls.h"
#include "base/log.h"

static struct redis_tls *load(const struct options *o, struct buf *why)
{
    const char *name = o->redis_tls_server_name;
    const struct redis_tls_config config = {
        .ca = o->redis_tls_ca,
        .cert = o->redis_tls_cert,
        .key = o->redis_tls_key,
        .name = *name ? name : o->redis_address.host,
    };

    return redis_tls_new(&config, why);
}

int daemon_check_tls(const struct options *o, struct buf *why)
{
    struct redis_tls *tls;

    if (o->redis_address.kind != ADDRESS_TLS)
        return 0;
    tls = load(o, why);
    redis_tls_free(tls);
    return tls ? 0 : -1;
}

int daemon_tls_start(struct daemon *d)
{
    struct buf why = {0};

    if (d->options->redis_address.kind != ADDRESS_TLS)
        return 0;
    d->tls = load(d->options, &why);
    if (!d->tls)
        log_error("config", "%s", buf_cstr(&why));
    buf_free(&why);
    return d->tls ? 0 : -1;
}

void daemon_tls_reload(struct daemon *d)
{
    struct buf why = {0};

    if (!d->tls)
        return;
    if (redis_tls_reload(d->tls, &why) != 0)
        log_error("config", "%s: the certificates read before stay",
                  buf_cstr(&why));
    buf_free(&why);
}
