/* SPDX-License-Identifier: MIT */
/* Where clients and admins come in: the sockets that the service manager passed
 * (likesyncd.socket, likesyncd-admin.socket), and the addresses in the
 * configuration that are not among them. */
#include "daemon_internal.h"

#include <string.h>

#include "adapters/notify.h"
#include "adapters/timer.h"
#include "base/log.h"

/* Who waited over a restart is not to be told that Redis is away because we
 * have only begun to connect. */
#define ADMIT_MS 2000

/* The rule for the configuration holds here, too. */
static int judge(const struct options *o, const struct address *a,
                 struct buf *why)
{
    char text[ADDRESS_TEXT_MAX];

    if (address_is_local(a) || *o->password_file)
        return 0;
    address_format(a, text, sizeof(text));
    buf_printf(why,
               "%s is not loopback: expected server.password_file to be set",
               text);
    return -1;
}

static int take(struct daemon *d, int fd, const char *name, struct buf *why)
{
    bool admin = strcmp(name, "admin") == 0;
    struct address a;

    if (strcmp(name, "metrics") == 0)
        return daemon_http_take(d, fd, why);
    if (!admin && strcmp(name, "listen") != 0) {
        buf_puts(why, "expected FileDescriptorName=listen, admin or metrics");
        return -1;
    }
    if (server_take(d->server, fd, admin, &a, why) != 0)
        return -1;
    return judge(d->options, &a, why);
}

static int on_socket(void *arg, int fd, const char *name)
{
    struct buf why = {0};
    int rc = take(arg, fd, name, &why);

    if (rc != 0)
        log_error("server", "socket \"%s\" of the service manager (%d): %s",
                  name, fd, buf_cstr(&why));
    buf_free(&why);
    return rc;
}

static int listen_all(struct daemon *d, const struct address_list *list,
                      bool admin)
{
    struct buf why = {0};
    int rc = 0;

    for (int i = 0; i < list->n && rc == 0; i++) {
        rc = server_listen(d->server, &list->items[i], admin, &why);
        if (rc != 0)
            log_error("server", "%s", buf_cstr(&why));
    }
    buf_free(&why);
    return rc;
}

static void on_admit(void *arg)
{
    struct daemon *d = arg;

    server_admit(d->server);
}

void daemon_admit(struct daemon *d)
{
    if (!d->services[0].engine.open || !pg_is_up(d->pg))
        return;
    timer_stop(d->admit);
    server_admit(d->server);
}

int daemon_listen(struct daemon *d)
{
    if (notify_each_socket(on_socket, d) != 0 ||
        listen_all(d, &d->options->listen, false) != 0 ||
        listen_all(d, &d->options->admin_listen, true) != 0)
        return -1;
    server_log_taken(d->server);
    d->admit = timer_new(&d->loop, on_admit, d);
    timer_start(d->admit, ADMIT_MS, 0);
    return 0;
}
