/* SPDX-License-Identifier: MIT */
/* By the control sequences that all terminals of today know (ECMA-48, and xterm's
 * second screen). Keys come one by one, Ctrl-C as one of them; signals to end only set
 * a flag, so that the terminal is put back first. */
#include "ctl_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/utf8.h"

#define ENTER  "\033[?1049h\033[?25l" /* second screen, no cursor */
#define LEAVE  "\033[?25h\033[?1049l"
#define CTRL_C 3

static struct termios before; /* of standard input */
static bool has_keys;         /* standard input is a terminal, too */
static volatile sig_atomic_t ended;
static volatile sig_atomic_t resized;

static void on_end(int number)
{
    (void)number;
    ended = 1;
}

static void on_resize(int number)
{
    (void)number;
    resized = 1;
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};

    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void read_keys(void)
{
    struct termios raw;

    has_keys = tcgetattr(STDIN_FILENO, &before) == 0;
    if (!has_keys)
        return;
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

bool screen_open(void)
{
    const char *term = getenv("TERM");

    if (!isatty(STDOUT_FILENO) || !term || strcmp(term, "dumb") == 0)
        return false;
    handle(SIGINT, on_end);
    handle(SIGTERM, on_end);
    handle(SIGHUP, on_end);
    handle(SIGWINCH, on_resize);
    read_keys();
    fputs(ENTER, stdout);
    return true;
}

void screen_close(void)
{
    fputs(LEAVE, stdout);
    fflush(stdout);
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

/* ---- drawing ---- */

/* Bytes of the line that fit, at a column for each character. */
static size_t fitting(const char *line, size_t len, size_t columns)
{
    size_t at = 0;

    while (at < len && columns > 0) {
        size_t n = utf8_char_len(line + at, len - at);

        at += n ? n : 1;
        columns--;
    }
    return at;
}

void screen_draw(const struct buf *lines)
{
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    const char *line = lines->data;
    const char *end = lines->data + lines->len;

    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    fputs("\033[H", stdout);
    for (int row = 1; line < end && row <= size.ws_row; row++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t len = (size_t)((newline ? newline : end) - line);

        printf("%s%.*s\033[K", row > 1 ? "\n" : "",
               (int)fitting(line, len, size.ws_col), line);
        line += len + 1;
    }
    fputs("\033[J", stdout);
    fflush(stdout);
}

/* ---- waiting ---- */

/* Whether the key asks for the end. At an end of the input there are no more. */
static bool key_quits(void)
{
    char key;
    ssize_t n = read(STDIN_FILENO, &key, 1);

    if (n == 0)
        has_keys = false;
    return n == 1 && (key == 'q' || key == 'Q' || key == CTRL_C);
}

enum screen_event screen_wait(int ms)
{
    struct pollfd p = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    int rc = ended || resized ? 0 : poll(&p, 1, ms);

    if (ended || (rc > 0 && key_quits()))
        return SCREEN_QUIT;
    if (resized || rc != 0) {
        resized = 0;
        return SCREEN_RESIZED;
    }
    return SCREEN_TIME;
}
