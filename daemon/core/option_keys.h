/* SPDX-License-Identifier: MIT */
/* Whether key names of users can meet. For options*.c only.
 *
 * A template is a key name with "{user}" in the place of an id's key form, once.
 * The answers are safe: false only where no two ids make one key of both. They
 * may be true without need, since they look at the bytes that ids are made of,
 * not at their lengths or leading zeros. */
#ifndef CORE_OPTION_KEYS_H
#define CORE_OPTION_KEYS_H

#include <stdbool.h>

#include "core/ids.h"

/* Whether template a for some user may be template b for some user. */
bool key_meets_key(const char *a, const char *b, enum id_type type);
/* Whether the template may be a key of some kind of edge, or one that starts
 * with likesync: */
bool key_meets_own(const char *template, enum id_type type);

#endif
