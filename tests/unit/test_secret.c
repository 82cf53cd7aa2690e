/* SPDX-License-Identifier: MIT */
/* Passwords from files and credentials: what counts as the password, and each
 * reason not to take it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/secret.h"

/* Files are made in a directory of their own, which is the current one. */
static char directory[] = "/tmp/likesyncd-secret-XXXXXX";

static void write_file(const char *data, size_t len)
{
    FILE *file = fopen("secret", "w");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fchmod(fileno(file), 0640), 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_read(const char *where, int expected_rc,
                        const char *expected, const char *expected_why)
{
    struct buf why = {0};
    char *secret;

    assert_int_equal(secret_read(where, &secret, &why), expected_rc);
    assert_string_equal(buf_cstr(&why), expected_why);
    if (expected)
        assert_string_equal(secret, expected);
    else
        assert_null(secret);
    secret_free(secret);
    buf_free(&why);
}

static void assert_secret(const char *data, size_t len, const char *expected)
{
    write_file(data, len);
    assert_read("secret", 0, expected, "");
}

static void assert_no_secret(const char *data, size_t len, const char *reason)
{
    write_file(data, len);
    assert_read("secret", -1, NULL, reason);
}

static void test_what_counts(void **state)
{
    char big[SECRET_MAX + 1];

    (void)state;
    assert_secret("hunter2", 7, "hunter2");
    assert_secret("hunter2\n", 8, "hunter2");
    assert_secret("hunter2\r\n", 9, "hunter2");
    assert_secret("hunter2\r", 8, "hunter2\r");
    assert_secret("hun\rter2\n", 9, "hun\rter2");
    assert_secret(" a b \n", 6, " a b ");
    memset(big, 'x', sizeof(big));
    assert_no_secret(big, SECRET_MAX + 1, "secret: the file is too large");
    big[SECRET_MAX] = '\0';
    assert_secret(big, SECRET_MAX, big);
}

static void test_what_is_none(void **state)
{
    (void)state;
    assert_no_secret("", 0, "secret: it is empty");
    assert_no_secret("\n", 1, "secret: it is empty");
    assert_no_secret("\r\n", 2, "secret: it is empty");
    assert_no_secret("a\0b", 3, "secret: it holds a NUL byte");
    assert_no_secret("a\0", 2, "secret: it holds a NUL byte");
    assert_no_secret("\0\n", 2, "secret: it holds a NUL byte");
    assert_no_secret("a\nb", 3, "secret: it has more than one line");
    assert_no_secret("a\nb\n", 4, "secret: it has more than one line");
    assert_no_secret("a\n\n", 3, "secret: it has more than one line");
    assert_no_secret("\na", 2, "secret: it has more than one line");
    assert_read("absent", -1, NULL, "absent: No such file or directory");
    assert_read(".", -1, NULL, ".: Is a directory");
}

static void test_exposed(void **state)
{
    (void)state;
    write_file("pw", 2);
    assert_int_equal(chmod("secret", 0644), 0);
    assert_read("secret", SECRET_EXPOSED, "pw",
                "secret: every user of this machine may read it");
    assert_int_equal(chmod("secret", 0440), 0);
    assert_read("secret", 0, "pw", "");
}

static void test_credential(void **state)
{
    struct buf expected = {0};

    (void)state;
    write_file("pw\n", 3);
    unsetenv("CREDENTIALS_DIRECTORY");
    assert_read("credential:secret", -1, NULL,
                "credential:secret: CREDENTIALS_DIRECTORY is not set, as "
                "systemd does for a unit with LoadCredential=");
    setenv("CREDENTIALS_DIRECTORY", "", 1);
    assert_read("credential:secret", -1, NULL,
                "credential:secret: CREDENTIALS_DIRECTORY is not set, as "
                "systemd does for a unit with LoadCredential=");
    setenv("CREDENTIALS_DIRECTORY", directory, 1);
    assert_read("credential:secret", 0, "pw", "");
    buf_printf(&expected,
               "credential:absent: cannot read %s/absent: No such file or "
               "directory",
               directory);
    assert_read("credential:absent", -1, NULL, buf_cstr(&expected));
    buf_free(&expected);
    unsetenv("CREDENTIALS_DIRECTORY");
}

static void test_credential_names(void **state)
{
    static const char *const BAD[] = {
        "credential:",    "credential:.",         "credential:..",
        "credential:a/b", "credential:../secret",
    };
    char name[sizeof("credential:") + NAME_MAX + 1] = "credential:";
    struct buf why = {0};

    (void)state;
    setenv("CREDENTIALS_DIRECTORY", directory, 1);
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        assert_non_null(secret_check(BAD[i]));
        buf_printf(&why, "%s: %s", BAD[i], secret_check(BAD[i]));
        assert_read(BAD[i], -1, NULL, buf_cstr(&why));
        buf_clear(&why, 0);
    }
    memset(name + strlen(name), 'n', NAME_MAX);
    assert_null(secret_check(name));
    name[strlen(name)] = 'n';
    assert_non_null(secret_check(name));
    assert_null(secret_check("/etc/x"));
    assert_null(secret_check(""));
    buf_free(&why);
    unsetenv("CREDENTIALS_DIRECTORY");
}

static int enter_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink("secret");
    return chdir("/") == 0 ? rmdir(directory) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_counts),
        cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_exposed),
        cmocka_unit_test(test_credential),
        cmocka_unit_test(test_credential_names),
    };

    return cmocka_run_group_tests(tests, enter_directory, remove_directory);
}
