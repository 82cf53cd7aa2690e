/* SPDX-License-Identifier: MIT */
/* Hexadecimal digits. */
#ifndef CORE_HEX_H
#define CORE_HEX_H

/* 0 to 15, or -1 when c is no hexadecimal digit. */
static inline int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The byte that two digits, already checked, stand for. */
static inline unsigned char hex_byte(const char *p)
{
    return (unsigned char)(16 * hex_value(p[0]) + hex_value(p[1]));
}

#endif
