/* SPDX-License-Identifier: MIT */
/* Passwords in files and in credentials of systemd. */
#include "core/secret.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "core/file.h"

#define PREFIX "credential:"

/* NULL when it is a path. */
static const char *credential_name(const char *where)
{
    size_t len = strlen(PREFIX);

    return strncmp(where, PREFIX, len) == 0 ? where + len : NULL;
}

bool secret_is_credential(const char *where)
{
    return credential_name(where) != NULL;
}

const char *secret_check(const char *where)
{
    const char *name = credential_name(where);

    if (!name || (*name && strlen(name) <= NAME_MAX && !strchr(name, '/') &&
                  strcmp(name, ".") != 0 && strcmp(name, "..") != 0))
        return NULL;
    return "expected a name without / after credential:, as in LoadCredential=";
}

/* Appends the path of what `where` names. */
static int find(const char *where, struct buf *path, struct buf *why)
{
    const char *name = credential_name(where);
    const char *directory = getenv("CREDENTIALS_DIRECTORY");
    const char *wrong = secret_check(where);

    if (!name) {
        buf_puts(path, where);
        return 0;
    }
    if (!wrong && (!directory || !*directory))
        wrong = "CREDENTIALS_DIRECTORY is not set, as systemd does for a unit "
                "with LoadCredential=";
    if (wrong) {
        buf_printf(why, "%s: %s", where, wrong);
        return -1;
    }
    buf_printf(path, "%s/%s", directory, name);
    return 0;
}

static int read_file(const char *where, const char *path, struct buf *text,
                     struct buf *why)
{
    const char *cause;

    if (file_read(path, SECRET_MAX, text, &cause) == 0)
        return 0;
    buf_printf(why, "%s: ", where);
    if (secret_is_credential(where))
        buf_printf(why, "cannot read %s: ", path);
    buf_puts(why, cause);
    return -1;
}

/* Its length; what is wrong with it in *wrong_r, or NULL. */
static size_t measure(const struct buf *text, const char **wrong_r)
{
    size_t len = text->len;

    if (len > 0 && text->data[len - 1] == '\n')
        len--;
    if (len < text->len && len > 0 && text->data[len - 1] == '\r')
        len--;
    *wrong_r = NULL;
    if (len == 0)
        *wrong_r = "it is empty";
    else if (memchr(text->data, '\0', len))
        *wrong_r = "it holds a NUL byte";
    else if (memchr(text->data, '\n', len))
        *wrong_r = "it has more than one line";
    return len;
}

static bool is_exposed(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & S_IROTH;
}

static int take(const char *where, const char *path, const struct buf *text,
                char **secret_r, struct buf *why)
{
    const char *wrong;
    size_t len = measure(text, &wrong);

    if (wrong) {
        buf_printf(why, "%s: %s", where, wrong);
        return -1;
    }
    *secret_r = mem_strndup(text->data, len);
    if (!is_exposed(path))
        return 0;
    buf_printf(why, "%s: every user of this machine may read it", where);
    return SECRET_EXPOSED;
}

int secret_read(const char *where, char **secret_r, struct buf *why)
{
    struct buf path = {0}, text = {0};
    int rc = find(where, &path, why);

    *secret_r = NULL;
    if (rc == 0)
        rc = read_file(where, buf_cstr(&path), &text, why);
    if (rc == 0)
        rc = take(where, buf_cstr(&path), &text, secret_r, why);
    if (text.len)
        explicit_bzero(text.data, text.len);
    buf_free(&text);
    buf_free(&path);
    return rc;
}

void secret_free(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}
