/* SPDX-License-Identifier: MIT */
/* Any bytes as the reply that likesyncctl waits for. A part of a reply asks for
 * more and the rest never changes a verdict; a value holds no more than its
 * bytes can say, and is the same after printing. */
#include "fuzz.h"

#include "base/compiler.h"
#include "core/resp.h"

static const size_t MOST_BYTES[] = {24, 300, 16 * 1024 * 1024};

/* How many values and bytes of text there are. */
struct extent {
    size_t values;
    size_t bytes;
};

static void check_value(const struct resp_value *v, int depth,
                        struct extent *sum)
{
    int is_text = v->type == RESP_T_SIMPLE || v->type == RESP_T_ERROR ||
                  v->type == RESP_T_BULK;

    CHECK(depth <= RESP_DEPTH_MAX);
    CHECK(is_text == (v->str != NULL));
    CHECK(!is_text || v->str[v->len] == '\0');
    CHECK(v->n_items == 0 || v->type == RESP_T_ARRAY);
    sum->values++;
    sum->bytes += v->len;
    for (size_t i = 0; i < v->n_items; i++)
        check_value(&v->items[i], depth + 1, sum);
}

/* The writers take C strings and keep errors short; whatever they would change
 * is written here. */
static void put_line(struct buf *out, const struct resp_value *v)
{
    if (strlen(v->str) < v->len || strchr(v->str, '\r') ||
        v->len > RESP_ERROR_MAX) {
        buf_putc(out, v->type == RESP_T_ERROR ? '-' : '+');
        buf_append(out, v->str, v->len);
        buf_puts(out, "\r\n");
    } else if (v->type == RESP_T_ERROR) {
        resp_error(out, "%s", v->str);
    } else {
        resp_simple(out, v->str);
    }
}

static void put_value(struct buf *out, int proto, const struct resp_value *v)
{
    switch (v->type) {
    case RESP_T_SIMPLE:
    case RESP_T_ERROR:
        put_line(out, v);
        break;
    case RESP_T_INT:
        resp_int(out, v->num);
        break;
    case RESP_T_BULK:
        resp_bulk(out, v->str, v->len);
        break;
    case RESP_T_NULL:
        resp_null(out, proto);
        break;
    case RESP_T_ARRAY:
        if (v->n_items % 2 == 0)
            resp_map(out, proto, v->n_items / 2);
        else
            resp_array(out, v->n_items);
        for (size_t i = 0; i < v->n_items; i++)
            put_value(out, proto, &v->items[i]);
        break;
    }
}

/* Printed for either protocol, it reads the same. */
static void check_printed_again(const struct resp_value *v)
{
    struct buf as_read = {0};

    put_value(&as_read, 2, v);
    for (int proto = 2; proto <= 3; proto++) {
        struct buf printed = {0}, again = {0};
        struct resp_value w;
        size_t used;

        put_value(&printed, proto, v);
        CHECK(resp_read_value(printed.data, printed.len, printed.len, &w,
                              &used) == 1);
        CHECK(used == printed.len);
        put_value(&again, 2, &w);
        CHECK(buf_same(&as_read, &again));
        resp_value_free(&w);
        buf_free(&printed);
        buf_free(&again);
    }
    buf_free(&as_read);
}

/* Reads a copy that ends where it ends; *v_r is the caller's to free. */
static int read_copy(const uint8_t *data, size_t len, size_t most,
                     struct resp_value *v_r, size_t *used_r)
{
    char *copy = exact_copy(data, len);
    int rc = resp_read_value(copy, len, most, v_r, used_r);

    free(copy);
    CHECK(rc >= -1 && rc <= 1);
    CHECK(rc == 1 || (!v_r->str && !v_r->items && v_r->n_items == 0));
    return rc;
}

/* Once a verdict stands, it stands whatever follows; before that, there was
 * none. */
static void check_part(const uint8_t *data, size_t part, size_t most, int whole,
                       size_t whole_used)
{
    struct resp_value v;
    size_t used;
    int rc = read_copy(data, part, most, &v, &used);

    CHECK(rc == 0 || rc == whole);
    if (whole == 1)
        CHECK((rc == 1) == (part >= whole_used));
    if (rc == 1) {
        CHECK(used == whole_used);
        resp_value_free(&v);
    }
}

static void check_within(const uint8_t *data, size_t size, size_t most)
{
    struct choice parts = choice_of(data, size);
    struct extent sum = {0};
    struct resp_value v;
    size_t used = 0;
    int rc = read_copy(data, size, most, &v, &used);

    CHECK(rc != 0 || size < most);
    if (rc == 1) {
        CHECK(used > 0 && used <= size && used <= most);
        check_value(&v, 1, &sum);
        CHECK(3 * sum.values + sum.bytes <= used);
        check_printed_again(&v);
        resp_value_free(&v);
        check_part(data, used - 1, most, rc, used);
        check_part(data, used, most, rc, used);
    }
    for (int i = 0; i < 4; i++)
        check_part(data, choose(&parts, size + 1), most, rc, used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < ARRAY_LEN(MOST_BYTES); i++)
        check_within(data, size, MOST_BYTES[i]);
    return 0;
}
