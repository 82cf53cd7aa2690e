/* SPDX-License-Identifier: MIT */
/* Addresses as they stand in the configuration. */
#ifndef CORE_ADDRESS_H
#define CORE_ADDRESS_H

#include <stdbool.h>

#include "base/compiler.h"

enum address_kind { ADDRESS_UNIX, ADDRESS_TCP, ADDRESS_TLS };

#define ADDRESS_HOST_MAX 256
#define ADDRESS_PATH_MAX 107 /* sun_path less its NUL: longer is cut silently */
#define ADDRESS_TEXT_MAX 272 /* the longest spelling, "tls:[host]:65535" */

struct address {
    enum address_kind kind;
    char path[ADDRESS_PATH_MAX + 1]; /* ADDRESS_UNIX */
    char host[ADDRESS_HOST_MAX];     /* others; brackets of [::1] removed */
    int port;
};

/* `unix:/path`, `tcp:host:port`, `tls:host:port`, and bare `host:port` as
 * tcp. The path is absolute, the port 1 to 65535, an IPv6 address stands in
 * brackets. 0, or -1 with *why_r set to a static text that says what is
 * expected. */
MUST_CHECK int address_parse(const char *s, struct address *a_r,
                             const char **why_r);
/* A host name or an IP address, as `host` above is. */
bool address_is_host(const char *s);
/* Is what an HTTP client says it asks (`host` or `host:port`) an IP address or
 * `localhost`? A web page that wants to be taken for us asks for a name of its own,
 * which it has pointed at us. */
bool address_is_no_name(const char *host);
/* Writes the canonical spelling into out, at most size bytes with the NUL. */
void address_format(const struct address *a, char *out, unsigned size);
/* Unix sockets, 127.0.0.0/8, ::1 and `localhost`. Other names are not, since
 * what they resolve to may change. */
bool address_is_local(const struct address *a);

#endif
