/* SPDX-License-Identifier: MIT */
/* What differs, each once: the same may be come upon in several ways, and again
 * when a phase begins anew. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/metrics.h"
#include "services/verify_internal.h"

#define FOUND_MAX 100000 /* that are kept; beyond it some may count twice */

struct verify_finding {
    struct map_node node;
    struct verify_finding *next; /* owned: the one found before */
    char text[];
};

void verify_found(struct verify *v, enum verify_part part, bool mended,
                  const char *text, size_t len)
{
    struct verify_count *count = &v->counts[part];
    struct verify_finding *f;

    if (map_find(&v->seen, text, len))
        return;
    count->different++;
    metric_add(metric_of(M_DRIFT_COUNTS, (int)part), 1);
    count->mended += mended;
    if (v->seen.count >= FOUND_MAX)
        return;
    f = mem_alloc(sizeof(*f) + len + 1);
    memcpy(f->text, text, len);
    f->text[len] = '\0';
    map_insert(&v->seen, &f->node, f->text, len);
    f->next = v->found;
    v->found = f;
    if (v->n_shown < VERIFY_SHOWN)
        v->shown[v->n_shown++] = f->text;
}

void verify_found_clear(struct verify *v)
{
    v->n_shown = 0;
    map_free(&v->seen);
    memset(&v->seen, 0, sizeof(v->seen));
    while (v->found) {
        struct verify_finding *f = v->found;

        v->found = f->next;
        free(f);
    }
}
