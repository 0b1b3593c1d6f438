/* Text of ASCII, which most of what is stored is: its bytes are its characters. */
#ifndef OTEL_ML_ASCII_H
#define OTEL_ML_ASCII_H

#include "native.h"

typedef struct {
    const char *at;
    Py_ssize_t size;
} Part;

/* Whether it is a string of ASCII. */
static inline int as_ascii(PyObject *text, Part *part)
{
    if (!PyUnicode_CheckExact(text) || PyUnicode_READY(text) < 0 || !PyUnicode_IS_COMPACT_ASCII(text))
        return 0;
    *part = (Part){(const char *)PyUnicode_1BYTE_DATA(text), PyUnicode_GET_LENGTH(text)};
    return 1;
}

#endif
