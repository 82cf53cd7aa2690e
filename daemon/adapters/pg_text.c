/* SPDX-License-Identifier: MIT */
/* Messages of libpq as single lines. */
#include "adapters/pg_text.h"

#include <ctype.h>
#include <string.h>

#define CODE_LEN 5 /* of an SQLSTATE */

/* Appends at *n, leaving room for the NUL. */
static void append(char *out, size_t size, size_t *n, const char *s, size_t len)
{
    for (size_t i = 0; i < len && *n + 1 < size; i++)
        out[(*n)++] = iscntrl((unsigned char)s[i]) ? ' ' : s[i];
}

void pg_text_line(char *out, size_t size, const char *text)
{
    size_t n = 0;

    while (text && *text) {
        size_t len = strcspn(text, "\n");

        if (len > 0 && *text != '\t' && strncmp(text, "LOCATION:", 9) != 0) {
            append(out, size, &n, "; ", n > 0 ? 2 : 0);
            append(out, size, &n, text, len);
        }
        text += len;
        text += *text == '\n';
    }
    out[n] = '\0';
}

void pg_text_cut_sqlstate(char *message, char sqlstate[6])
{
    sqlstate[0] = '\0';
    for (char *p = message; (p = strstr(p, ":  ")); p++) {
        char *code = p + 3;

        if (strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != CODE_LEN ||
            strncmp(code + CODE_LEN, ": ", 2) != 0)
            continue;
        memcpy(sqlstate, code, CODE_LEN);
        sqlstate[CODE_LEN] = '\0';
        memmove(p + 2, code + CODE_LEN + 2, strlen(code + CODE_LEN + 2) + 1);
        return;
    }
}
