/* Lines, each as what differs from the one before it. Twin: service/otel_ml_service/storage/line_deltas.py. */
#include "ascii.h"

#include <string.h>

enum { BASE = 30, MOST = BASE * BASE - 1 };

/* Control characters are the digits, as no line of JSON has one in it; but for 0, and for the end of a line. */
static inline char digit_of(Py_ssize_t value)
{
    return (char)(value + 1 + (value >= '\n' - 1));
}

static inline Py_ssize_t value_of(char written)
{
    return written - 1 - (written > '\n');
}

static inline int is_digit(char character)
{
    return (unsigned char)character < ' ' && character != '\n' && character != '\0';
}

static inline const char *found(const char *at, const char *stop, char character)
{
    const char *place = memchr(at, character, stop - at);
    return place == NULL ? stop : place;
}

static inline Py_ssize_t in_common(const char *one, const char *other, Py_ssize_t most)
{
    Py_ssize_t count = 0;
    while (count + 8 <= most && memcmp(one + count, other + count, 8) == 0)
        count += 8;
    while (count < most && one[count] == other[count])
        count++;
    return count;
}

/* Write a line, of which `before` is the one before it; NULL where it finds no room, or has a control character. */
static char *put_line(char *to, const char *room, const char *at, const char *stop, Part before)
{
    const char *other = before.at, *other_stop = other + before.size;
    for (;;) {
        Py_ssize_t left = Py_MIN(stop - at, other_stop - other), count = in_common(at, other, Py_MIN(left, MOST));
        if (room - to < 2)
            return NULL;
        *to++ = digit_of(count / BASE);
        *to++ = digit_of(count % BASE);
        at += count;
        other += count;
        if (count == MOST)
            continue;
        const char *end = other == other_stop ? stop : found(at, stop, ',');
        if (room - to < end - at)
            return NULL;
        while (at < end) {
            if ((unsigned char)*at < ' ')
                return NULL;
            *to++ = *at++;
        }
        if (at == stop)
            return to;
        other = found(other, other_stop, ',');
    }
}

static PyObject *as_deltas(PyObject *module, PyObject *given)
{
    Part text, before = {"", 0};
    if (!as_ascii(given, &text) || text.size == 0)
        Py_RETURN_NONE;
    char *deltas = PyMem_Malloc(text.size);
    if (deltas == NULL)
        return PyErr_NoMemory();
    /* One less: what is not shorter is of no use. */
    char *to = deltas, *room = deltas + text.size - 1;
    for (const char *at = text.at, *stop = at + text.size;;) {
        const char *end = found(at, stop, '\n');
        to = put_line(to, room, at, end, before);
        if (to == NULL || end == stop)
            break;
        if (to == room) {
            to = NULL;
            break;
        }
        *to++ = '\n';
        before = (Part){at, end - at};
        at = end + 1;
    }
    PyObject *made = to == NULL ? Py_NewRef(Py_None) : PyUnicode_New(to - deltas, 127);
    if (to != NULL && made != NULL)
        memcpy(PyUnicode_1BYTE_DATA(made), deltas, to - deltas);
    PyMem_Free(deltas);
    return made;
}

/* Write what deltas say, from `*from` to the end of a line; NULL where they say what cannot be. */
static char *put_whole(char *to, const char *room, const char **from, const char *stop, Part before)
{
    const char *at = *from, *other = before.at, *other_stop = other + before.size;
    while (at < stop && *at != '\n') {
        if (stop - at < 2 || !is_digit(at[0]) || !is_digit(at[1]))
            return NULL;
        Py_ssize_t count = value_of(at[0]) * BASE + value_of(at[1]);
        if (count > other_stop - other || count > room - to)
            return NULL;
        memcpy(to, other, count);
        to += count;
        other += count;
        at += 2;
        if (count == MOST)
            continue;
        for (; at < stop && (unsigned char)*at >= ' '; at++) {
            if (to == room)
                return NULL;
            *to++ = *at;
        }
        other = found(other, other_stop, ',');
    }
    *from = at;
    return to;
}

static PyObject *of_deltas(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    Part deltas, before = {"", 0};
    Py_ssize_t size = n == 2 && PyLong_CheckExact(arguments[1]) ? PyLong_AsSsize_t(arguments[1]) : -1;
    if (PyErr_Occurred())
        PyErr_Clear();
    /* Two characters stand for so many at most: a size that was damaged asks for no memory. */
    if (size < 0 || !as_ascii(arguments[0], &deltas) || size / MOST > deltas.size)
        Py_RETURN_NONE;
    PyObject *text = PyUnicode_New(size, 127);
    if (text == NULL)
        return NULL;
    char *begin = (char *)PyUnicode_1BYTE_DATA(text), *to = begin, *room = begin + size;
    for (const char *at = deltas.at, *stop = at + deltas.size;;) {
        char *line = to;
        to = put_whole(to, room, &at, stop, before);
        if (to == NULL || at == stop)
            break;
        if (to == room) {
            to = NULL;
            break;
        }
        before = (Part){line, to - line};
        *to++ = '\n';
        at++;
    }
    if (to == room)
        return text;
    Py_DECREF(text);
    Py_RETURN_NONE;
}

PyMethodDef line_delta_functions[] = {
    {"as_deltas", as_deltas, METH_O, "See line_deltas.py; None where it makes nothing shorter."},
    {"of_deltas", (PyCFunction)(void (*)(void))of_deltas, METH_FASTCALL, "See line_deltas.py; None of what is damaged."},
    {NULL, NULL, 0, NULL},
};
