/* Bytes on the wire, appended one after the other. Twin: wire/protobuf.py. */
#ifndef OTEL_ML_BYTES_H
#define OTEL_ML_BYTES_H

#include "prefetch.h"

#include <stdint.h>
#include <string.h>

/* A message that grows: a `bytes` with room at its end. */
typedef struct {
    PyObject *bytes;
    Py_ssize_t size;
} Out;

static inline int begin_out(Out *out, Py_ssize_t expected)
{
    out->size = 0;
    out->bytes = PyBytes_FromStringAndSize(NULL, expected);
    return out->bytes == NULL ? -1 : 0;
}

/* Where the next `n` bytes go, once they fit; NULL with an exception (`out` is empty then). */
static inline unsigned char *room_for(Out *out, Py_ssize_t n)
{
    Py_ssize_t room = PyBytes_GET_SIZE(out->bytes);
    if (n > room - out->size) {
        if (n > PY_SSIZE_T_MAX / 2 - room) {
            PyErr_NoMemory();
            return NULL;
        }
        /* Nobody else has seen these bytes: only then may their size change. Where there is no memory they are let go
           of, and the pointer is NULL. */
        if (_PyBytes_Resize(&out->bytes, 2 * room + n) < 0)
            return NULL;
    }
    return (unsigned char *)PyBytes_AS_STRING(out->bytes) + out->size;
}

/* Take note of what was written up to `end`. */
static inline void wrote_to(Out *out, const unsigned char *end)
{
    out->size = (const char *)end - PyBytes_AS_STRING(out->bytes);
}

static inline void drop_out(Out *out)
{
    Py_CLEAR(out->bytes);
}

/* What was written, a new reference; NULL with an exception. */
static inline PyObject *finish_out(Out *out)
{
    if (out->bytes != NULL && out->size < PyBytes_GET_SIZE(out->bytes))
        /* Not asked whether it failed: the pointer is NULL then, with an exception, which is what is returned. */
        _PyBytes_Resize(&out->bytes, out->size);
    return out->bytes;
}

static inline unsigned char *put(unsigned char *at, const void *bytes, Py_ssize_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

static inline unsigned char *put_fixed(unsigned char *at, unsigned char tag, uint64_t number)
{
    *at++ = tag;
#if PY_LITTLE_ENDIAN
    return put(at, &number, sizeof number);
#else
    for (int i = 0; i < 8; i++)
        *at++ = (unsigned char)(number >> 8 * i);
    return at;
#endif
}

static inline unsigned char *put_double(unsigned char *at, unsigned char tag, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return put_fixed(at, tag, bits);
}

#define LONGEST_VARINT 10

static inline unsigned char *put_varint(unsigned char *at, uint64_t number)
{
    for (; number > 127; number >>= 7)
        *at++ = (unsigned char)(number & 127) | 128;
    *at++ = (unsigned char)number;
    return at;
}

static inline int varint_size(uint64_t number)
{
    int size = 1;
    while (number >>= 7)
        size++;
    return size;
}

/* The size of a length-delimited field whose tag is one byte. */
static inline Py_ssize_t field_size(Py_ssize_t payload)
{
    return 1 + varint_size(payload) + payload;
}

static inline unsigned char *put_head(unsigned char *at, unsigned char tag, Py_ssize_t payload)
{
    *at++ = tag;
    return put_varint(at, payload);
}

/* A string of Python as UTF-8. */
typedef struct {
    const char *at;
    Py_ssize_t size;
} Text;

/* Whether `object` is such a string; lone surrogates, say, are replaced in Python. */
static inline int as_text(PyObject *object, Text *text)
{
    if (object == NULL || !PyUnicode_CheckExact(object))
        return 0;
    text->at = PyUnicode_AsUTF8AndSize(object, &text->size);
    if (text->at == NULL)
        PyErr_Clear();
    return text->at != NULL;
}

static inline unsigned char *put_text(unsigned char *at, unsigned char tag, Text text)
{
    return put(put_head(at, tag, text.size), text.at, text.size);
}

/* Attributes: KeyValue has its key in field 1 and in field 2 an AnyValue (string_value 1, int_value 3). */

static inline Py_ssize_t number_attribute_size(Text key, uint64_t number)
{
    return field_size(field_size(key.size) + field_size(1 + varint_size(number)));
}

static inline unsigned char *put_number_attribute(unsigned char *at, unsigned char tag, Text key, uint64_t number)
{
    Py_ssize_t value = 1 + varint_size(number);
    at = put_head(at, tag, field_size(key.size) + field_size(value));
    at = put_head(put_text(at, 0x0a, key), 0x12, value);
    *at++ = 0x18;
    return put_varint(at, number);
}

static inline Py_ssize_t text_attribute_size(Text key, Text text)
{
    return field_size(field_size(key.size) + field_size(field_size(text.size)));
}

static inline unsigned char *put_text_attribute(unsigned char *at, unsigned char tag, Text key, Text text)
{
    Py_ssize_t value = field_size(text.size);
    at = put_head(at, tag, field_size(key.size) + field_size(value));
    at = put_head(put_text(at, 0x0a, key), 0x12, value);
    return put_text(at, 0x0a, text);
}

/* Numbers of Python. All return 0 where `object` is not exactly that: Python encodes it, or says what is wrong. */

static inline int as_unsigned(PyObject *object, uint64_t *number)
{
    if (object == NULL || !PyLong_CheckExact(object))
        return 0;
    *number = PyLong_AsUnsignedLongLong(object);
    if (*number != (uint64_t)-1 || !PyErr_Occurred())
        return 1;
    PyErr_Clear();
    return 0;
}

static inline int as_signed(PyObject *object, int64_t *number)
{
    if (object == NULL || !PyLong_CheckExact(object))
        return 0;
    *number = PyLong_AsLongLong(object);
    if (*number != -1 || !PyErr_Occurred())
        return 1;
    PyErr_Clear();
    return 0;
}

static inline int as_double(PyObject *object, double *number)
{
    if (object == NULL || !PyFloat_CheckExact(object))
        return 0;
    *number = PyFloat_AS_DOUBLE(object);
    return 1;
}

/* Objects encoded in one go: a millisecond at most. */
#define PIECE 4096

/* Let a thread that waits for the interpreter have it: training, while much is encoded. */
static inline void let_others_on(void)
{
    /* Nothing in between: who has waited for some milliseconds has asked for the GIL, and gets it where it is let go
       of. */
    Py_BEGIN_ALLOW_THREADS
    Py_END_ALLOW_THREADS
}

#endif
