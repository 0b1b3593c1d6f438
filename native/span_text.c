/* Timers of a request become lines of JSON. Twin: service/otel_ml_service/receiver/span_fast_path.py, which says what a
   span of ours looks like; what is read here as well is known there. */
#include "native.h"

#include <stdint.h>
#include <string.h>

#define SPANS 0x12
#define ROOT_SIZE 28
#define PARENT_SIZE 10
#define TIMES_SIZE 20
#define MOST_NUMBER 20 /* digits of 64 bits */
#define USUAL_LINE 3   /* times as many bytes as its message has */

typedef struct {
    const unsigned char *at;
    Py_ssize_t size;
} Part;

typedef struct {
    const unsigned char *trace, *own, *parent; /* the last is NULL where there is none */
    Part name, tail;
    uint64_t begin_ns, end_ns;
} Span;

/* What is being written: a string of ASCII with room at its end, and the ids of its spans. */
typedef struct {
    PyObject *text;
    Py_ssize_t size, count, most;
    uint64_t *ids;
} Lines;

typedef struct {
    PyObject *tails, *tail_of, *name_of; /* borrowed */
    Part who;
    Part tail;           /* the last one read, in its message */
    PyObject *tail_text; /* and its text */
} Known;

static uint64_t number_at(const unsigned char *at, int is_big)
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++)
        number |= (uint64_t)at[i] << (is_big ? 56 - 8 * i : 8 * i);
    return number;
}

/* Those that take a message apart return 1, or 0 where it has to be decoded. */

static int as_part(const unsigned char *at, const unsigned char *end, unsigned char tag, Part *part)
{
    if (end - at < 2 || at[0] != tag || at[1] > 0x7f || end - at - 2 < at[1])
        return 0;
    *part = (Part){at + 2, at[1]};
    return 1;
}

static int as_ours(const unsigned char *at, const unsigned char *end, Span *span)
{
    if (end - at < ROOT_SIZE + TIMES_SIZE || at[0] != 0x0a || at[1] != 16 || at[18] != 0x12 || at[19] != 8)
        return 0;
    span->trace = at + 2;
    span->own = at + 20;
    at += ROOT_SIZE;
    int has_parent = end - at >= PARENT_SIZE && at[0] == 0x22 && at[1] == 8;
    span->parent = has_parent ? at + 2 : NULL;
    at += has_parent ? PARENT_SIZE : 0;
    if (!as_part(at, end, 0x2a, &span->name))
        return 0;
    at = span->name.at + span->name.size;
    if (end - at < TIMES_SIZE || at[0] != 0x30 || at[1] != 1 || at[2] != 0x39 || at[11] != 0x41)
        return 0;
    span->begin_ns = number_at(at + 3, 0);
    span->end_ns = number_at(at + 12, 0);
    at += TIMES_SIZE;
    span->tail = (Part){at, end - at};
    return 1;
}

/* The Collector writes fields in descending order: what ours has at the end comes first, and the ids come last. */
static int as_of_collector(const unsigned char *at, const unsigned char *end, Span *span)
{
    const unsigned char *begin = at;
    Part common;
    while (as_part(at, end, 9 << 3 | 2, &common) || as_part(at, end, 13 << 3 | 2, &common) ||
           as_part(at, end, 15 << 3 | 2, &common))
        at = common.at + common.size;
    span->tail = (Part){begin, at - begin};
    if (end - at < TIMES_SIZE || at[0] != 0x41 || at[9] != 0x39 || at[18] != 0x30 || at[19] != 1 ||
        !as_part(at + TIMES_SIZE, end, 0x2a, &span->name))
        return 0;
    span->end_ns = number_at(at + 1, 0);
    span->begin_ns = number_at(at + 10, 0);
    at = span->name.at + span->name.size;
    if (end - at < ROOT_SIZE)
        return 0;
    end -= ROOT_SIZE;
    int is_empty = end == at || (end - at == 2 && at[0] == 0x22 && at[1] == 0);
    if (!is_empty && (end - at != PARENT_SIZE || at[0] != 0x22 || at[1] != 8))
        return 0;
    if (end[0] != 0x12 || end[1] != 8 || end[10] != 0x0a || end[11] != 16)
        return 0;
    span->parent = is_empty ? NULL : at + 2;
    span->own = end + 2;
    span->trace = end + 12;
    return 1;
}

/* The size at `*at`, which goes behind it; -1 where there is none of at most four bytes, or no room for so much. */
static Py_ssize_t size_at(const unsigned char **at, const unsigned char *end)
{
    Py_ssize_t size = 0;
    for (int shift = 0; shift < 28 && *at < end; shift += 7) {
        unsigned char byte = *(*at)++;
        size |= (Py_ssize_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return size <= end - *at ? size : -1;
    }
    return -1;
}

/* From here on: 1, 0 where it has to be decoded, or -1 with an exception. */

static unsigned char *room_for(Lines *lines, Py_ssize_t n)
{
    Py_ssize_t room = PyUnicode_GET_LENGTH(lines->text);
    /* Nobody else has seen the text: only then may its size change. */
    if (n > room - lines->size && PyUnicode_Resize(&lines->text, 2 * room + n) < 0)
        return NULL;
    return PyUnicode_1BYTE_DATA(lines->text) + lines->size;
}

static int note_id(Lines *lines, uint64_t id)
{
    if (lines->count == lines->most) {
        Py_ssize_t most = 2 * lines->most + 64;
        uint64_t *more = PyMem_Realloc(lines->ids, most * sizeof *more);
        if (more == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        lines->ids = more;
        lines->most = most;
    }
    lines->ids[lines->count++] = id;
    return 1;
}

static inline unsigned char *put_part(unsigned char *at, Part part)
{
    memcpy(at, part.at, part.size);
    return at + part.size;
}

#define PUT(at, literal) put_part(at, (Part){(const unsigned char *)(literal), sizeof(literal) - 1})

static inline unsigned char *put_hex(unsigned char *at, const unsigned char *bytes, int n)
{
    for (int i = 0; i < n; i++) {
        unsigned char high = bytes[i] >> 4, low = bytes[i] & 15;
        at[2 * i] = high + (high > 9 ? 'a' - 10 : '0');
        at[2 * i + 1] = low + (low > 9 ? 'a' - 10 : '0');
    }
    return at + 2 * n;
}

static unsigned char *put_number(unsigned char *at, uint64_t number)
{
    unsigned char digits[MOST_NUMBER], *first = digits + MOST_NUMBER;
    do
        *--first = (unsigned char)('0' + number % 10);
    while (number /= 10);
    return put_part(at, (Part){first, digits + MOST_NUMBER - first});
}

/* A string of ASCII that Python has made, which stays as long as `text` does. */
static int as_ascii(PyObject *text, Part *part)
{
    if (text == NULL)
        return -1;
    if (!PyUnicode_CheckExact(text) || PyUnicode_READY(text) < 0 || !PyUnicode_IS_COMPACT_ASCII(text)) {
        PyErr_Format(PyExc_TypeError, "expected a text of ASCII, got %R", text);
        return -1;
    }
    *part = (Part){PyUnicode_1BYTE_DATA(text), PyUnicode_GET_LENGTH(text)};
    return 1;
}

static PyObject *called_with(PyObject *function, Part part)
{
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)part.at, part.size);
    PyObject *answer = bytes == NULL ? NULL : PyObject_CallOneArg(function, bytes);
    Py_XDECREF(bytes);
    return answer;
}

/* What follows the times of a span: most often the same as of the one before. */
static int find_tail(Known *known, Part tail)
{
    /* Both in messages that are held: where one may go, put_messages() says so by a size of -1, which no tail has. */
    if (known->tail_text != NULL && known->tail.size == tail.size && !memcmp(known->tail.at, tail.at, tail.size))
        return 1;
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)tail.at, tail.size);
    PyObject *text = bytes == NULL ? NULL : PyDict_GetItemWithError(known->tails, bytes);
    Py_XINCREF(text);
    if (text == NULL && !PyErr_Occurred())
        text = PyObject_CallOneArg(known->tail_of, bytes);
    Py_XDECREF(bytes);
    Py_XSETREF(known->tail_text, text);
    known->tail = tail;
    return text == NULL ? -1 : 1;
}

static int is_plain(Part name)
{
    int plain = 1;
    for (Py_ssize_t i = 0; i < name.size; i++)
        plain &= name.at[i] >= ' ' && name.at[i] <= '~' && name.at[i] != '"' && name.at[i] != '\\';
    return plain;
}

static int put_line(Lines *lines, const Span *span, Part name, const char *quote, Part who, Part tail)
{
    Py_ssize_t quotes = *quote ? 1 : 0;
    unsigned char *at = room_for(lines, 256 + name.size + who.size + tail.size);
    if (at == NULL)
        return -1;
    if (lines->count)
        *at++ = '\n'; /* and without the brace: see SpanLines */
    at = put_hex(PUT(at, "\"trace_id\":\""), span->trace, 16);
    at = put_hex(PUT(at, "\",\"span_id\":\""), span->own, 8);
    at = PUT(at, "\",\"parent_id\":");
    if (span->parent == NULL)
        at = PUT(at, "null");
    else
        at = PUT(put_hex(PUT(at, "\""), span->parent, 8), "\"");
    at = put_part(PUT(at, ",\"name\":"), (Part){(const unsigned char *)quote, quotes});
    at = put_part(put_part(at, name), (Part){(const unsigned char *)quote, quotes});
    at = put_number(PUT(at, ",\"start_ns\":"), span->begin_ns);
    at = put_number(PUT(at, ",\"end_ns\":"), span->end_ns);
    at = put_part(put_part(at, who), tail);
    lines->size = at - PyUnicode_1BYTE_DATA(lines->text);
    return note_id(lines, number_at(span->own, 1));
}

static int put_span(Lines *lines, Known *known, const Span *span)
{
    Part tail;
    int done = find_tail(known, span->tail);
    if (done > 0)
        done = as_ascii(known->tail_text, &tail);
    if (done > 0 && is_plain(span->name))
        return put_line(lines, span, span->name, "\"", known->who, tail);
    Part name;
    PyObject *made = done > 0 ? called_with(known->name_of, span->name) : NULL;
    done = done > 0 ? as_ascii(made, &name) : done;
    if (done > 0)
        done = put_line(lines, span, name, "", known->who, tail);
    Py_XDECREF(made);
    return done;
}

static int put_spans(Lines *lines, Known *known, Part message, Part scope)
{
    const unsigned char *at = message.at, *end = message.at + message.size;
    int is_ours = message.size >= scope.size && !memcmp(at, scope.at, scope.size);
    if (is_ours)
        at += scope.size;
    else if (message.size >= scope.size && !memcmp(end - scope.size, scope.at, scope.size))
        end -= scope.size;
    else
        return 0;
    if (at == end)
        return 0;
    while (at < end) {
        Span span;
        if (*at++ != SPANS)
            return 0;
        Py_ssize_t size = size_at(&at, end);
        if (size < 0 || !(is_ours ? as_ours : as_of_collector)(at, at + size, &span))
            return 0;
        int done = put_span(lines, known, &span);
        if (done <= 0)
            return done;
        at += size;
    }
    return 1;
}

/* The ids as a range, where each is one more than the one before, else as a tuple. */
static PyObject *ids_of(const Lines *lines)
{
    uint64_t first = lines->ids[0];
    int are_consecutive = first <= UINT64_MAX - (uint64_t)lines->count;
    for (Py_ssize_t i = 0; are_consecutive && i < lines->count; i++)
        are_consecutive = lines->ids[i] == first + (uint64_t)i;
    if (are_consecutive)
        return PyObject_CallFunction((PyObject *)&PyRange_Type, "KK", first, first + (uint64_t)lines->count);
    PyObject *ids = PyTuple_New(lines->count);
    for (Py_ssize_t i = 0; ids != NULL && i < lines->count; i++) {
        PyObject *id = PyLong_FromUnsignedLongLong(lines->ids[i]);
        if (id == NULL)
            Py_CLEAR(ids);
        else
            PyTuple_SET_ITEM(ids, i, id);
    }
    return ids;
}

static int put_messages(Lines *lines, Known *known, PyObject *messages, Part scope)
{
    Py_ssize_t expected = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(messages); i++) {
        if (!PyBytes_CheckExact(PyList_GET_ITEM(messages, i)))
            return 0;
        expected += PyBytes_GET_SIZE(PyList_GET_ITEM(messages, i));
    }
    lines->text = PyUnicode_New(USUAL_LINE * expected + 1, 127);
    int done = lines->text == NULL ? -1 : expected > 0;
    for (Py_ssize_t i = 0; done > 0 && i < PyList_GET_SIZE(messages); i++) {
        PyObject *message = Py_NewRef(PyList_GET_ITEM(messages, i));
        Part part = {(const unsigned char *)PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message)};
        done = put_spans(lines, known, part, scope);
        known->tail.size = -1; /* the message may go */
        Py_DECREF(message);
    }
    return done;
}

static PyObject *timer_lines(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    Lines lines = {0};
    Known known = {0};
    if (n != 6 || !PyBytes_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[2]) ||
        !PyDict_CheckExact(arguments[3])) {
        PyErr_SetString(PyExc_TypeError, "expected bytes, a text, a list of bytes, a dict and two functions");
        return NULL;
    }
    if (as_ascii(arguments[1], &known.who) < 0)
        return NULL;
    known.tails = arguments[3];
    known.tail_of = arguments[4];
    known.name_of = arguments[5];
    Part scope = {(const unsigned char *)PyBytes_AS_STRING(arguments[0]), PyBytes_GET_SIZE(arguments[0])};
    int done = put_messages(&lines, &known, arguments[2], scope);
    PyObject *found = NULL;
    if (done > 0 && PyUnicode_Resize(&lines.text, lines.size) == 0) {
        PyObject *ids = ids_of(&lines);
        found = ids == NULL ? NULL : Py_BuildValue("(OnN)", lines.text, lines.count, ids);
    }
    Py_XDECREF(lines.text);
    Py_XDECREF(known.tail_text);
    PyMem_Free(lines.ids);
    return done == 0 ? Py_NewRef(Py_None) : found;
}

PyMethodDef span_text_functions[] = {
    {"timer_lines", (PyCFunction)(void (*)(void))timer_lines, METH_FASTCALL,
     "Return what SpanFastPath makes of messages: (the scope, of whom, messages, tails, what reads a tail, a name)."},
    {NULL, NULL, 0, NULL},
};
