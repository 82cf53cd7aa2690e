/* SPDX-License-Identifier: MIT */
/* Small files that are read whole, before the loop runs. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = 4096 };

static int read_all(int fd, size_t max_bytes, struct buf *out,
                    const char **why_r)
{
    size_t start = out->len;
    ssize_t n;

    while ((n = read(fd, buf_reserve(out, CHUNK_BYTES), CHUNK_BYTES)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            *why_r = strerror(errno);
            return -1;
        }
        out->len += (size_t)n;
        if (out->len - start > max_bytes) {
            *why_r = "the file is too large";
            return -1;
        }
    }
    return 0;
}

int file_read(const char *path, size_t max_bytes, struct buf *out,
              const char **why_r)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc;

    if (fd < 0) {
        *why_r = strerror(errno);
        return -1;
    }
    rc = read_all(fd, max_bytes, out, why_r);
    close(fd);
    return rc;
}
