/* SPDX-License-Identifier: MIT */
/* A terminal that is drawn over again and again, and left as it was. */
#ifndef CTL_SCREEN_H
#define CTL_SCREEN_H

#include <stdbool.h>

#include "base/buf.h"

/* False, and nothing was done, when standard output is no terminal that knows its
 * cursor. Otherwise screen_close() is due. */
bool screen_open(void);
void screen_close(void);
/* Lines of text, each cut at the width, those below the height left out. */
void screen_draw(const struct buf *lines);

enum screen_event {
    SCREEN_TIME, /* that is over */
    SCREEN_RESIZED /* draw again */,
    SCREEN_QUIT /* q, Ctrl-C, or a signal to end */
};

enum screen_event screen_wait(int ms);

#endif
