/* SPDX-License-Identifier: MIT */
/* likesyncctl config: what the daemon runs with, in the form of its file. */
#include <stdio.h>
#include <string.h>

#include "core/config_reader.h"
#include "ctl.h"

static void print_fault(const char *fault)
{
    printf("# The file cannot be used as it is now, neither for a reload nor "
           "for a restart:\n# ");
    ctl_print_plain(stdout, fault);
    printf("\n");
}

static void print_head(const struct resp_value *v)
{
    printf("# What likesyncd %s runs with. Its file: %s\n"
           "# A change of what is marked \"restart\" takes effect after a "
           "restart, of the rest by a\n"
           "# reload (SIGHUP).\n",
           ctl_text(v, "version"), ctl_text(v, "file"));
    if (ctl_text(v, "fault")[0])
        print_fault(ctl_text(v, "fault"));
}

static const char *mark_of(const struct resp_value *option)
{
    bool reloadable = ctl_field(option, "reloadable") != 0;

    if (ctl_field(option, "differs") == 0)
        return reloadable ? "" : " ; restart";
    return reloadable ? " ; the file has another value: reload"
                      : " ; the file has another value: restart";
}

/* A header where a new section begins; the name in it. */
static const char *print_section(const char *name, char *section, size_t size)
{
    size_t n = strcspn(name, ".");

    if (strncmp(section, name, n) != 0 || section[n] != '\0') {
        snprintf(section, size, "%.*s", (int)n, name);
        printf("\n[%s]\n", section);
    }
    return name[n] == '.' ? name + n + 1 : name;
}

static void print_options(const struct resp_value *options)
{
    char section[64] = "";

    for (size_t i = 0; i < options->n_items; i++) {
        const struct resp_value *option = &options->items[i];
        const char *value = ctl_text(option, "value");
        struct buf text = {0};

        if (value[0]) {
            buf_putc(&text, ' ');
            config_put_value(&text, value);
        }
        printf(
            "%s =%s%s\n",
            print_section(ctl_text(option, "name"), section, sizeof(section)),
            buf_cstr(&text), mark_of(option));
        buf_free(&text);
    }
}

int verb_config(struct ctl *ctl)
{
    const char *words[] = {"SETTINGS"};
    const struct resp_value *options;
    struct buf json = {0};
    struct resp_value v;

    if (ctl_ask(ctl, 1, words, &v) != 0)
        return EXIT_FAILED;
    options = ctl_find(&v, "options");
    if (ctl->given & CTL_OPT_JSON) {
        ctl_json_list(&json, &v, "options");
        ctl_json_print(&json);
    } else if (options) {
        print_head(&v);
        print_options(options);
    }
    resp_value_free(&v);
    return EXIT_DONE;
}
