/* SPDX-License-Identifier: MIT */
/* The tree of a command's arguments: what is in it, and that the command
 * table's line comes out of it again, by the rules of redis-cli. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/resp.h"
#include "services/command_args.h"
#include "services/commands.h"

#define MAX_BYTES 65536

static struct resp_value read_tree(const char *args)
{
    struct resp_value v;
    struct buf b = {0};
    size_t used;

    command_args_put(&b, 2, args);
    assert_int_equal(resp_read_value(b.data, b.len, MAX_BYTES, &v, &used), 1);
    assert_int_equal(used, b.len);
    assert_int_equal(v.type, RESP_T_ARRAY);
    buf_free(&b);
    return v;
}

/* A field of a map; NULL when it has none of that name. */
static const struct resp_value *field(const struct resp_value *map,
                                      const char *name)
{
    for (size_t i = 0; i < map->n_items; i += 2)
        if (strcmp(map->items[i].str, name) == 0)
            return &map->items[i + 1];
    return NULL;
}

static bool has_flag(const struct resp_value *arg, const char *flag)
{
    const struct resp_value *flags = field(arg, "flags");

    for (size_t i = 0; flags && i < flags->n_items; i++)
        if (strcmp(flags->items[i].str, flag) == 0)
            return true;
    return false;
}

static void write_list(struct buf *b, const struct resp_value *args,
                       const char *between);

static void write_repeated(struct buf *b, const struct resp_value *arg)
{
    const char *type = field(arg, "type")->str;

    if (strcmp(type, "oneof") == 0)
        write_list(b, field(arg, "arguments"), "|");
    else if (strcmp(type, "block") == 0)
        write_list(b, field(arg, "arguments"), " ");
    else if (strcmp(type, "pure-token") != 0)
        buf_puts(b, field(arg, "name")->str);
}

static void write_arg(struct buf *b, const struct resp_value *arg)
{
    const struct resp_value *token = field(arg, "token");
    bool pure = strcmp(field(arg, "type")->str, "pure-token") == 0;

    if (has_flag(arg, "optional"))
        buf_putc(b, '[');
    if (token)
        buf_printf(b, "%s%s", token->str, pure ? "" : " ");
    write_repeated(b, arg);
    if (has_flag(arg, "multiple")) {
        buf_puts(b, " [");
        write_repeated(b, arg);
        buf_puts(b, " ...]");
    }
    if (has_flag(arg, "optional"))
        buf_putc(b, ']');
}

static void write_list(struct buf *b, const struct resp_value *args,
                       const char *between)
{
    for (size_t i = 0; i < args->n_items; i++) {
        if (i > 0)
            buf_puts(b, between);
        write_arg(b, &args->items[i]);
    }
}

static void check_line(const char *args)
{
    struct resp_value tree = read_tree(args);
    struct buf line = {0};

    write_list(&line, &tree, " ");
    assert_string_equal(buf_cstr(&line), args);
    buf_free(&line);
    resp_value_free(&tree);
}

static void test_every_row_comes_out_again(void **state)
{
    size_t n = 0;

    (void)state;
    COMMAND_FOREACH(cmd) {
        check_line(cmd->args);
        n++;
        COMMAND_FOREACH_SUB(sub, cmd)
            check_line(sub->args);
    }
    assert_int_equal(n, command_count_all());
}

static void check_field(const struct resp_value *map, const char *name,
                        const char *expected)
{
    const struct resp_value *v = field(map, name);

    if (!expected)
        assert_null(v);
    else
        assert_string_equal(v->str, expected);
}

static void check_arg(const struct resp_value *args, size_t i, const char *name,
                      const char *type, const char *token)
{
    assert_true(i < args->n_items);
    check_field(&args->items[i], "name", name);
    check_field(&args->items[i], "type", type);
    check_field(&args->items[i], "token", token);
}

static void test_values_and_tokens(void **state)
{
    struct resp_value v =
        read_tree("user [AT unix-time] [WITHCOUNT] [post [post ...]]");

    (void)state;
    assert_int_equal(v.n_items, 4);
    check_arg(&v, 0, "user", "string", NULL);
    check_field(&v.items[0], "display_text", "user");
    assert_null(field(&v.items[0], "flags"));
    check_arg(&v, 1, "unix-time", "unix-time", "AT");
    check_arg(&v, 2, "withcount", "pure-token", "WITHCOUNT");
    check_arg(&v, 3, "post", "string", NULL);
    for (size_t i = 1; i < 4; i++)
        assert_true(has_flag(&v.items[i], "optional"));
    assert_true(has_flag(&v.items[3], "multiple"));
    assert_false(has_flag(&v.items[1], "multiple"));
    resp_value_free(&v);
}

static void test_choices_and_blocks(void **state)
{
    struct resp_value v =
        read_tree("[RANGE start stop|CURSOR cursor] [ASC|DESC]");
    const struct resp_value *in;

    (void)state;
    assert_int_equal(v.n_items, 2);
    check_arg(&v, 0, "range_cursor", "oneof", NULL);
    in = field(&v.items[0], "arguments");
    assert_int_equal(in->n_items, 2);
    check_arg(in, 0, "range", "block", "RANGE");
    check_arg(in, 1, "cursor", "string", "CURSOR");
    in = field(&in->items[0], "arguments");
    check_arg(in, 0, "start", "integer", NULL);
    check_arg(in, 1, "stop", "integer", NULL);
    check_arg(&v, 1, "asc_desc", "oneof", NULL);
    in = field(&v.items[1], "arguments");
    check_arg(in, 0, "asc", "pure-token", "ASC");
    check_arg(in, 1, "desc", "pure-token", "DESC");
    assert_true(has_flag(&v.items[1], "optional"));
    assert_false(has_flag(&in->items[0], "optional"));
    resp_value_free(&v);
}

static void test_what_stands_together_is_a_block(void **state)
{
    struct resp_value v = read_tree("[protover [AUTH username password]]");
    const struct resp_value *in = field(&v.items[0], "arguments");

    (void)state;
    assert_int_equal(v.n_items, 1);
    check_arg(&v, 0, "protover_auth", "block", NULL);
    assert_true(has_flag(&v.items[0], "optional"));
    check_arg(in, 0, "protover", "integer", NULL);
    check_arg(in, 1, "auth", "block", "AUTH");
    resp_value_free(&v);
}

static void test_resp3(void **state)
{
    struct buf b = {0};

    (void)state;
    command_args_put(&b, 3, "[a]");
    assert_string_equal(buf_cstr(&b),
                        "*1\r\n%4\r\n$4\r\nname\r\n$1\r\na\r\n$4\r\ntype\r\n"
                        "$6\r\nstring\r\n$12\r\ndisplay_text\r\n$1\r\na\r\n"
                        "$5\r\nflags\r\n~1\r\n+optional\r\n");
    buf_free(&b);
    command_args_put(&b, 3, "");
    assert_string_equal(buf_cstr(&b), "*0\r\n");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_comes_out_again),
        cmocka_unit_test(test_values_and_tokens),
        cmocka_unit_test(test_choices_and_blocks),
        cmocka_unit_test(test_what_stands_together_is_a_block),
        cmocka_unit_test(test_resp3),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
