/* SPDX-License-Identifier: MIT */
/* Named points at which a test may kill the process. Compiled in only with
 * -DLIKESYNCD_FAULTS=ON; the environment variable LIKESYNCD_FAULT then holds
 * `name` or `name:n` (the n-th passage), and SIGKILL ends the process there;
 * LIKESYNCD_HANG the same, and it stays there for ever. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#ifdef LIKESYNCD_FAULTS
void fault_point(const char *name);
#else
#define fault_point(name) ((void)0)
#endif

#endif
