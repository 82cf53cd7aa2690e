/* SPDX-License-Identifier: MIT */
/* What tests may do to the process from within, compiled in only with
 * -DLIKESYNCD_FAULTS=ON. By environment variables:
 *
 *   LIKESYNCD_FAULT    SIGKILL at a named point: `name`, or `name:n` from the
 *                      n-th passage on
 *   LIKESYNCD_TERM     the same, SIGTERM, once, and it goes on
 *   LIKESYNCD_STOP     the same, SIGSTOP
 *   LIKESYNCD_HANG     the same, and it stays there for ever
 *   LIKESYNCD_AFTER    the name of a point that has to be passed before these begin
 *   LIKESYNCD_VARIANT  a daemon known to be wrong, for which a test of tests
 *                      asks: `name`, or `name:n`, every n-th time only
 *   LIKESYNCD_EDIT     the same without code: where a script or a statement has
 *                      this text, it has that of LIKESYNCD_EDIT_TO instead */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#ifdef LIKESYNCD_FAULTS
#include <stdbool.h>

void fault_point(const char *name);
bool fault_variant(const char *name);
/* `text`, a constant, or an edited copy of it, which is kept for ever. */
const char *fault_edit(const char *text);
#else
#define fault_point(name)   ((void)0)
#define fault_variant(name) false
#define fault_edit(text)    (text)
#endif

#endif
