/* SPDX-License-Identifier: MIT */
/* likesyncctl deadletter: rows that PostgreSQL refused. Before one is dropped, a
 * terminal is asked. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"

/* How many are counted (services/dead_letters.h); above, there are more. */
#define COUNTED 10000

/* The newest from that id on, or of all when it is NULL. */
static int ask_list(struct ctl *ctl, const char *from, int64_t n,
                    struct resp_value *v_r)
{
    char count[24];
    const char *words[] = {"DEADLETTER", "LIST", "COUNT", count, "FROM", from};

    snprintf(count, sizeof(count), "%lld", (long long)n);
    return ctl_ask(ctl, from ? 6 : 4, words, v_r);
}

/* ---- list ---- */

static void print_letter(const struct resp_value *letter)
{
    char refused[CTL_TIME_MAX];
    const char *sqlstate = ctl_text(letter, "sqlstate");

    ctl_time(ctl_field(letter, "refused_us"), refused);
    printf("%-8lld %s  %-5s  ", (long long)ctl_field(letter, "id"), refused,
           sqlstate[0] ? sqlstate : "-");
    ctl_print_plain(stdout, ctl_text(letter, "what"));
    printf("\n         ");
    ctl_print_plain(stdout, ctl_text(letter, "reason"));
    printf("\n");
}

/* How many there are, when these are not all. */
static void print_rest(int64_t total, size_t shown)
{
    if (total > COUNTED)
        printf("more than %d in all\n", COUNTED);
    else if (total > (int64_t)shown)
        printf("%lld in all\n", (long long)total);
}

static void print_letters(const struct resp_value *v)
{
    const struct resp_value *letters = ctl_find(v, "letters");
    size_t n = letters ? letters->n_items : 0;

    if (n > 0)
        printf("%-8s %-23s  %-5s  %s\n         %s\n", "id", "refused", "state",
               "event", "reason");
    for (size_t i = 0; i < n; i++)
        print_letter(&letters->items[i]);
    if (ctl_field(v, "total") == 0)
        printf("no dead letters\n");
    print_rest(ctl_field(v, "total"), n);
}

int verb_deadletter_list(struct ctl *ctl)
{
    struct resp_value v;
    struct buf json = {0};

    if (ask_list(ctl, ctl->arg, ctl->count > 0 ? ctl->count : 20, &v) != 0)
        return EXIT_FAILED;
    if (ctl->given & CTL_OPT_JSON) {
        ctl_json_list(&json, &v, "letters");
        ctl_json_print(&json);
    } else {
        print_letters(&v);
    }
    resp_value_free(&v);
    return EXIT_DONE;
}

/* ---- retry ---- */

int verb_deadletter_retry(struct ctl *ctl)
{
    const char *words[] = {"DEADLETTER", "RETRY", ctl->arg};
    struct resp_value v;

    if (ctl_ask(ctl, 3, words, &v) != 0)
        return EXIT_FAILED;
    ctl_print_plain(stdout, v.str ? v.str : "");
    printf("\n");
    resp_value_free(&v);
    return EXIT_DONE;
}

/* ---- drop ---- */

/* The letter itself, when the list begins with it. */
static const struct resp_value *first_of(const struct resp_value *v,
                                         const char *id)
{
    const struct resp_value *letters = ctl_find(v, "letters");
    char found[24];

    if (!letters || letters->n_items == 0)
        return NULL;
    snprintf(found, sizeof(found), "%lld",
             (long long)ctl_field(&letters->items[0], "id"));
    return strcmp(found, id + strspn(id, "0")) == 0 ? &letters->items[0] : NULL;
}

static bool says_yes(void)
{
    char answer[16];

    return fgets(answer, sizeof(answer), stdin) &&
           (answer[0] == 'y' || answer[0] == 'Y');
}

/* 0: yes; otherwise the exit status. */
static int ask_to_drop(struct ctl *ctl)
{
    const struct resp_value *letter;
    struct resp_value v;
    int rc = ask_list(ctl, ctl->arg, 1, &v);

    if (rc != 0)
        return rc;
    letter = first_of(&v, ctl->arg);
    if (letter) {
        print_letter(letter);
        fprintf(stderr, "Drop it? Its event is lost then. [y/N] ");
        if (!says_yes()) {
            buf_puts(&ctl->why, "nothing was dropped");
            rc = ctl_fail(ctl);
        }
    } else {
        buf_printf(&ctl->why, "there is no dead letter %s", ctl->arg);
        rc = ctl_fail(ctl);
    }
    resp_value_free(&v);
    return rc;
}

int verb_deadletter_drop(struct ctl *ctl)
{
    const char *words[] = {"DEADLETTER", "DROP", ctl->arg};
    struct resp_value v;
    int rc = 0;

    if (!(ctl->given & CTL_OPT_YES)) {
        if (!isatty(STDIN_FILENO)) {
            fprintf(stderr, "likesyncctl: there is no terminal to ask on: "
                            "add --yes to drop it\n");
            return EXIT_USAGE;
        }
        rc = ask_to_drop(ctl);
    }
    if (rc != 0 || (rc = ctl_ask(ctl, 3, words, &v)) != 0)
        return rc;
    printf("dropped: ");
    ctl_print_plain(stdout, v.str ? v.str : "");
    printf("\n");
    resp_value_free(&v);
    return EXIT_DONE;
}
