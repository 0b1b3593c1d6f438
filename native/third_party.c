/* The points of another SDK's message, read in one pass. Twin: receiver/third_party.py, which upb decodes for; whatever
   is unusual is left to it.

   An SDK sends the same names and attributes with every export. What they mean is asked of Python once, and found again
   by their bytes; steps are left out of these. */
#include "native.h"

#include <stdint.h>
#include <string.h>

typedef struct {
    const unsigned char *at, *end;
} View;

typedef struct {
    unsigned tag;
    View body;       /* of a field that has a length */
    uint64_t number; /* of others */
} Field;

/* Whether there is a varint of at most `most` bytes. */
static int read_varint(View *view, int most, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i < most && view->at < view->end; i++) {
        unsigned char byte = *view->at++;
        *number |= (uint64_t)(byte & 0x7F) << 7 * i;
        if (byte < 0x80)
            return 1;
    }
    return 0;
}

static uint64_t fixed(const unsigned char *at)
{
    uint64_t number = 0;
    for (int i = 7; i >= 0; i--)
        number = number << 8 | at[i];
    return number;
}

static double as_double(uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* 1 with the next field, 0 at the end, -1 where Python has to look at the message. */
static int next_field(View *view, Field *field)
{
    if (view->at == view->end)
        return 0;
    field->tag = *view->at++;
    switch (field->tag & 7) {
    case 0:
        return field->tag < 0x80 && read_varint(view, 9, &field->number) ? 1 : -1;
    case 1:
        if (field->tag > 0x7F || view->end - view->at < 8)
            return -1;
        field->number = fixed(view->at);
        view->at += 8;
        return 1;
    case 2:
        if (field->tag > 0x7F || !read_varint(view, 5, &field->number) ||
            field->number > (uint64_t)(view->end - view->at))
            return -1;
        field->body.at = view->at;
        field->body.end = view->at += field->number;
        return 1;
    default:
        return -1;
    }
}

static int is_ascii(View text)
{
    unsigned char all = 0;
    for (; text.at < text.end; text.at++)
        all |= *text.at;
    return all < 0x80;
}

enum { GAUGE = 0x2A, SUM = 0x3A, HISTOGRAM = 0x4A, EXPONENTIAL = 0x52 }; /* tags of what a Metric holds */
enum { STATS = 4 };                                                       /* count, sum, minimum, maximum */
enum { NAME = 1 << 12, KEY = 1 << 14 };                                   /* bytes of a name, and of all that is looked up */

/* What stands in the fields of a point of each kind. */
typedef enum { UNKNOWN, START, TIME, REAL, WHOLE, COUNT, TOTAL, LOW, HIGH, COUNTS, BOUNDS, EXEMPLAR, ATTRIBUTE, FLAGS,
               SCALE, ZERO, ABOVE, BELOW, THRESHOLD } Meaning;

static const unsigned char NUMBER_FIELDS[128] = {
    [0x11] = START, [0x19] = TIME, [0x21] = REAL, [0x2A] = EXEMPLAR, [0x31] = WHOLE, [0x3A] = ATTRIBUTE, [0x40] = FLAGS};
static const unsigned char HISTOGRAM_FIELDS[128] = {
    [0x11] = START, [0x19] = TIME, [0x21] = COUNT, [0x29] = TOTAL, [0x32] = COUNTS, [0x3A] = BOUNDS,
    [0x42] = EXEMPLAR, [0x4A] = ATTRIBUTE, [0x50] = FLAGS, [0x59] = LOW, [0x61] = HIGH};
static const unsigned char EXPONENTIAL_FIELDS[128] = {
    [0x0A] = ATTRIBUTE, [0x11] = START, [0x19] = TIME, [0x21] = COUNT, [0x29] = TOTAL, [0x30] = SCALE, [0x39] = ZERO,
    [0x42] = ABOVE, [0x4A] = BELOW, [0x50] = FLAGS, [0x5A] = EXEMPLAR, [0x61] = LOW, [0x69] = HIGH, [0x71] = THRESHOLD};

/* Columns under way. */
typedef struct {
    Py_ssize_t n, room;
    int64_t *ids, *steps;
    uint64_t *starts, *times;
    double *stats;
    PyObject *buckets; /* a list, from the first point that has some on */
} Columns;

static void drop(Columns *columns)
{
    PyMem_Free(columns->ids);
    PyMem_Free(columns->steps);
    PyMem_Free(columns->starts);
    PyMem_Free(columns->times);
    PyMem_Free(columns->stats);
    Py_CLEAR(columns->buckets);
}

static int grow(Columns *columns)
{
    if (columns->n < columns->room)
        return 1;
    Py_ssize_t room = columns->room ? 2 * columns->room : 128;
    struct {
        void **column;
        size_t width;
    } every[] = {{(void **)&columns->ids, 8},    {(void **)&columns->steps, 8}, {(void **)&columns->starts, 8},
                 {(void **)&columns->times, 8}, {(void **)&columns->stats, 8 * STATS}};
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        /* Where one of them fails, those before it have more room than `room` says, which does no harm. */
        void *grown = PyMem_Realloc(*every[i].column, room * every[i].width);
        if (grown == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        *every[i].column = grown;
    }
    columns->room = room;
    return 1;
}

/* What messages of a metric have in common, and what is looked up for a point of it. */
typedef struct {
    PyObject *known, *resolve;
    int kind;
    Py_ssize_t head; /* bytes of `key` that say kind and name */
    unsigned char key[KEY];
} Metric;

/* An attribute is added to the key, but for a step. */
static int add_attribute(Metric *metric, View *whole, View attribute, Py_ssize_t *size, int64_t *step)
{
    static const char STEP[] = "ml.step";
    View key = {0}, value = {0}, rest = attribute;
    Field field;
    int more, keys = 0, values = 0;
    while ((more = next_field(&rest, &field)) > 0) {
        if (field.tag == 0x0A && keys++ == 0)
            key = field.body;
        else if (field.tag == 0x12 && values++ == 0)
            value = field.body;
        else
            return 0;
    }
    if (more < 0)
        return 0;
    if (key.end - key.at == sizeof STEP - 1 && memcmp(key.at, STEP, sizeof STEP - 1) == 0) {
        if (*step >= 0 || next_field(&value, &field) <= 0 || field.tag != 0x18 || value.at != value.end)
            return 0;
        *step = (int64_t)field.number;
        return 1;
    }
    Py_ssize_t n = whole->end - whole->at;
    if (n > KEY - *size)
        return 0;
    memcpy(metric->key + *size, whole->at, n);
    *size += n;
    return 1;
}

/* Whether an exemplar, which counts for nothing here, is what a decoder takes. */
static int is_exemplar(View exemplar)
{
    Field field;
    int more;
    while ((more = next_field(&exemplar, &field)) > 0)
        if (field.tag != 0x11 && field.tag != 0x19 && field.tag != 0x22 && field.tag != 0x2A && field.tag != 0x31)
            return 0;
    return more == 0;
}

/* The number that Python gave to a key; -1 where Python has to look at the message, -2 with an exception. */
static int64_t number_of(Metric *metric, Py_ssize_t size)
{
    PyObject *key = PyBytes_FromStringAndSize((char *)metric->key, size);
    if (key == NULL)
        return -2;
    PyObject *known = PyDict_GetItemWithError(metric->known, key);
    Py_XINCREF(known);
    if (known == NULL && !PyErr_Occurred())
        /* Python may run here, and other threads: the message and `known` are held by the caller, and the key is ours.
           */
        known = PyObject_CallFunction(metric->resolve, "On", key, metric->head);
    Py_DECREF(key);
    int64_t number = known == NULL ? -2 : PyLong_AsLongLong(known);
    Py_XDECREF(known);
    return PyErr_Occurred() ? -2 : number;
}

/* A tuple of numbers of eight bytes each: doubles, or whole ones. */
static PyObject *numbers(View view, int is_double)
{
    Py_ssize_t n = (view.end - view.at) / 8;
    PyObject *made = PyTuple_New(n);
    for (Py_ssize_t i = 0; made != NULL && i < n; i++) {
        uint64_t bits = fixed(view.at + 8 * i);
        PyObject *one = is_double ? PyFloat_FromDouble(as_double(bits)) : PyLong_FromUnsignedLongLong(bits);
        if (one == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, i, one);
    }
    return made;
}

static int zigzag(uint64_t number)
{
    return (int)(number >> 1) ^ -(int)(number & 1);
}

/* Offset and counts of one sign of an exponential histogram: 1, 0 where Python has to look, -1 with an exception. */
static int one_sign(View view, int *offset, PyObject **counts)
{
    Field field = {0};
    View packed = {0};
    int more, offsets = 0, several = 0;
    while ((more = next_field(&view, &field)) > 0) {
        if (field.tag == 0x08 && offsets++ == 0 && field.number <= UINT32_MAX)
            *offset = zigzag(field.number);
        else if (field.tag == 0x12 && several++ == 0)
            packed = field.body;
        else
            return 0;
    }
    if (more < 0)
        return 0;
    Py_ssize_t n = 0;
    for (const unsigned char *at = packed.at; at < packed.end; at++)
        n += *at < 0x80;
    *counts = PyTuple_New(n);
    for (Py_ssize_t i = 0; *counts != NULL && i < n; i++) {
        uint64_t count;
        if (!read_varint(&packed, 9, &count)) {
            Py_CLEAR(*counts);
            return 0;
        }
        PyObject *one = PyLong_FromUnsignedLongLong(count);
        if (one == NULL)
            Py_CLEAR(*counts);
        else
            PyTuple_SET_ITEM(*counts, i, one);
    }
    if (*counts == NULL)
        return -1;
    if (packed.at != packed.end) {
        Py_CLEAR(*counts);
        return 0;
    }
    return 1;
}

/* What a point said, but for its attributes. */
typedef struct {
    unsigned seen; /* 1 << Meaning */
    uint64_t values[THRESHOLD + 1];
    View views[THRESHOLD + 1];
} Said;

#define SAID(said, meaning) ((said)->seen >> (meaning) & 1)

static void statistics(const Said *said, int kind, double *stats)
{
    if (kind == GAUGE || kind == SUM) {
        double value = SAID(said, REAL) ? as_double(said->values[REAL]) : (double)(int64_t)said->values[WHOLE];
        stats[0] = 1.0;
        stats[1] = stats[2] = stats[3] = value;
        return;
    }
    uint64_t count = said->values[COUNT];
    double total = as_double(said->values[TOTAL]);
    stats[0] = (double)count;
    if (count == 1 && SAID(said, TOTAL)) {
        stats[1] = stats[2] = stats[3] = total;
        return;
    }
    stats[1] = SAID(said, TOTAL) || count == 0 ? total : Py_NAN;
    stats[2] = SAID(said, LOW) ? as_double(said->values[LOW]) : Py_NAN;
    stats[3] = SAID(said, HIGH) ? as_double(said->values[HIGH]) : Py_NAN;
}

/* The buckets of a point, a new reference: (bounds, counts), or the six fields of Buckets. NULL without an exception
   where Python has to look. */
static PyObject *buckets_of(const Said *said, int kind)
{
    if (kind == HISTOGRAM) {
        View bounds = said->views[BOUNDS], counts = said->views[COUNTS];
        if ((bounds.end - bounds.at) % 8 || (counts.end - counts.at) % 8)
            return NULL;
        if (bounds.at == bounds.end)
            return Py_NewRef(Py_None);
        PyObject *first = numbers(bounds, 1), *second = first == NULL ? NULL : numbers(counts, 0);
        PyObject *made = second == NULL ? NULL : PyTuple_Pack(2, first, second);
        Py_XDECREF(first);
        Py_XDECREF(second);
        return made;
    }
    int offsets[2] = {0, 0}, scale = zigzag(said->values[SCALE]);
    PyObject *counts[2] = {NULL, NULL}, *made = NULL;
    if (said->values[SCALE] <= UINT32_MAX && scale >= -10 && scale <= 20 &&
        one_sign(said->views[ABOVE], &offsets[0], &counts[0]) > 0 &&
        one_sign(said->views[BELOW], &offsets[1], &counts[1]) > 0)
        made = Py_BuildValue("(iKiOiO)", scale, (unsigned long long)said->values[ZERO], offsets[0], counts[0],
                             offsets[1], counts[1]);
    Py_XDECREF(counts[0]);
    Py_XDECREF(counts[1]);
    return made;
}

static int keep_buckets(Columns *columns, const Said *said, int kind)
{
    if (kind == GAUGE || kind == SUM) {
        if (columns->buckets == NULL)
            return 1;
        return PyList_Append(columns->buckets, Py_None) < 0 ? -1 : 1;
    }
    PyObject *buckets = buckets_of(said, kind);
    if (buckets == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int done = 1;
    if (columns->buckets == NULL && buckets != Py_None) {
        columns->buckets = PyList_New(0);
        for (Py_ssize_t i = 0; columns->buckets != NULL && i < columns->n; i++)
            if (PyList_Append(columns->buckets, Py_None) < 0)
                Py_CLEAR(columns->buckets);
        if (columns->buckets == NULL)
            done = -1;
    }
    if (done > 0 && columns->buckets != NULL && PyList_Append(columns->buckets, buckets) < 0)
        done = -1;
    Py_DECREF(buckets);
    return done;
}

/* Read a point: 1, 0 where Python has to look at the message, -1 with an exception. */
static int add_point(Metric *metric, View point, Columns *columns)
{
    const unsigned char *meanings = metric->kind == HISTOGRAM     ? HISTOGRAM_FIELDS
                                    : metric->kind == EXPONENTIAL ? EXPONENTIAL_FIELDS
                                                                  : NUMBER_FIELDS;
    Said said;
    memset(&said, 0, sizeof said);
    Py_ssize_t size = metric->head;
    int64_t step = -1;
    Field field;
    for (;;) {
        View whole = {point.at, NULL};
        int more = next_field(&point, &field);
        if (more == 0)
            break;
        if (more < 0)
            return 0;
        whole.end = point.at;
        int meaning = meanings[field.tag];
        if (meaning == ATTRIBUTE) {
            if (!add_attribute(metric, &whole, field.body, &size, &step))
                return 0;
        } else if (meaning == EXEMPLAR) {
            if (!is_exemplar(field.body))
                return 0;
        } else {
            if (meaning == UNKNOWN || SAID(&said, meaning))
                return 0;
            said.seen |= 1u << meaning;
            if ((field.tag & 7) == 2)
                said.views[meaning] = field.body;
            else
                said.values[meaning] = field.number;
        }
    }
    if (said.values[FLAGS] > UINT32_MAX)
        return 0;
    if (said.values[FLAGS] & 1)
        return 0; /* a series has ended, or a scrape failed: rare, and its texts are checked where one has a value */
    if (said.values[TIME] >> 63)
        return 0;
    if ((metric->kind == GAUGE || metric->kind == SUM) && SAID(&said, REAL) == SAID(&said, WHOLE))
        return 0;
    int64_t number = number_of(metric, size);
    if (number < 0)
        return number == -1 ? 0 : -1;
    int done = grow(columns);
    if (done > 0)
        done = keep_buckets(columns, &said, metric->kind);
    if (done <= 0)
        return done;
    Py_ssize_t n = columns->n++;
    columns->ids[n] = number;
    columns->steps[n] = step;
    columns->starts[n] = said.values[START];
    columns->times[n] = said.values[TIME];
    statistics(&said, metric->kind, columns->stats + STATS * n);
    return 1;
}

/* Read a metric, in whichever order its fields are. */
static int add_metric(Metric *metric, View whole, Columns *columns)
{
    View name = {0}, data = {0}, rest = whole;
    Field field;
    int more, names = 0, temporalities = 0, monotonics = 0;
    uint64_t temporality = 0, monotonic = 0;
    metric->kind = 0;
    while ((more = next_field(&rest, &field)) > 0) {
        if (field.tag == 0x0A && names++ == 0)
            name = field.body;
        else if (field.tag == 0x12 || field.tag == 0x1A) {
            if (!is_ascii(field.body))
                return 0;
        } else if (metric->kind == 0 && (field.tag == GAUGE || field.tag == SUM || field.tag == HISTOGRAM ||
                                         field.tag == EXPONENTIAL)) {
            metric->kind = (int)field.tag;
            data = field.body;
        } else
            return 0;
    }
    if (more < 0 || metric->kind == 0 || name.end - name.at > NAME)
        return 0;
    for (rest = data; (more = next_field(&rest, &field)) > 0;) {
        if (field.tag == 0x10 && metric->kind != GAUGE && temporalities++ == 0 && field.number < 0x80)
            temporality = field.number;
        else if (field.tag == 0x18 && metric->kind == SUM && monotonics++ == 0 && field.number < 2)
            monotonic = field.number;
        else if (field.tag != 0x0A)
            return 0;
    }
    if (more < 0)
        return 0;
    unsigned char head[] = {(unsigned char)metric->kind, (unsigned char)temporality, (unsigned char)monotonic};
    memcpy(metric->key, head, sizeof head);
    memcpy(metric->key + sizeof head, name.at, name.end - name.at);
    metric->head = sizeof head + (name.end - name.at);
    /* The length of the name stands behind it, as the attributes do: so no name with attributes is another one. */
    uint16_t length = (uint16_t)(name.end - name.at);
    memcpy(metric->key + metric->head, &length, sizeof length);
    metric->head += sizeof length;
    /* Never -1: the loop above has gone through all of them. */
    for (rest = data; next_field(&rest, &field) > 0;) {
        int done = field.tag == 0x0A ? add_point(metric, field.body, columns) : 1;
        if (done <= 0)
            return done;
    }
    return 1;
}

static PyObject *joined(Columns *columns)
{
    Py_ssize_t n = columns->n;
    return Py_BuildValue("(y#y#y#y#y#O)", (char *)columns->ids, 8 * n, (char *)columns->steps, 8 * n,
                         (char *)columns->starts, 8 * n, (char *)columns->times, 8 * n, (char *)columns->stats,
                         8 * STATS * n, columns->buckets == NULL ? Py_None : columns->buckets);
}

static PyObject *third_party_points(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    if (n != 3 || !PyBytes_CheckExact(arguments[0]) || !PyDict_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "expected bytes, what is known, and a function");
        return NULL;
    }
    const unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(arguments[0]);
    View view = {begin, begin + PyBytes_GET_SIZE(arguments[0])};
    Metric *metric = PyMem_Malloc(sizeof *metric);
    if (metric == NULL)
        return PyErr_NoMemory();
    metric->known = arguments[1];
    metric->resolve = arguments[2];
    Columns columns = {0};
    Field field;
    int more, done = 1;
    while (done > 0 && (more = next_field(&view, &field)) != 0) {
        if (more < 0)
            done = 0;
        else if (field.tag == 0x12)
            done = add_metric(metric, field.body, &columns);
        else
            done = field.tag == 0x1A && is_ascii(field.body);
    }
    PyMem_Free(metric);
    PyObject *found = done > 0 && columns.n ? joined(&columns) : done >= 0 ? Py_NewRef(Py_None) : NULL;
    drop(&columns);
    return found;
}

PyMethodDef third_party_functions[] = {
    {"third_party_points", (PyCFunction)(void (*)(void))third_party_points, METH_FASTCALL,
     "Return the points of another SDK's message, column by column; None where a decoder has to look at it: (fields of a "
     "ScopeMetrics after its scope, what is known, function that is asked what is not)."},
    {NULL, NULL, 0, NULL},
};
