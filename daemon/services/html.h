/* SPDX-License-Identifier: MIT */
/* The texts of daemon/pages, embedded at build time, and the
 * Content-Security-Policy that fits each. */
#ifndef SERVICES_HTML_H
#define SERVICES_HTML_H

extern const char html_status[];
extern const char html_status_policy[];

#endif
