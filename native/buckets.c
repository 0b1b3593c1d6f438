/* Exponential buckets, where quantiles or a histogram are asked for. Twin: ExponentialBuckets.add() of
   _internal/series/buckets.py, which is called where data span so much that the scale has to be lowered. */
#include "fold.h"

#include <math.h>

typedef struct {
    PyObject *positive, *negative; /* borrowed */
    long scale, zeros;
} Buckets;

/* 1, or 0 where it is none as all are. */
static int read_buckets(PyObject *object, Buckets *buckets)
{
    if (!is_exactly(object, fold.exponential))
        return 0;
    PyObject *scale = slot(object, fold.of_exponential.scale), *zeros = slot(object, fold.of_exponential.zeros);
    buckets->positive = slot(object, fold.of_exponential.positive);
    buckets->negative = slot(object, fold.of_exponential.negative);
    if (scale == NULL || !PyLong_CheckExact(scale) || zeros == NULL || !PyLong_CheckExact(zeros) ||
        buckets->positive == NULL || !PyDict_CheckExact(buckets->positive) || buckets->negative == NULL ||
        !PyDict_CheckExact(buckets->negative))
        return 0;
    buckets->scale = PyLong_AsLong(scale);
    buckets->zeros = PyLong_AsLong(zeros);
    return !PyErr_Occurred();
}

/* _index(), at the scale that nothing has lowered yet */
static long index_of(double magnitude)
{
    return (long)ceil(log2(magnitude) * (double)(1L << fold.scale)) - 1;
}

static int count(PyObject *side, long index, long values)
{
    PyObject *key = PyLong_FromLong(index), *more = PyLong_FromLong(values);
    if (key == NULL || more == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(more);
        return -1;
    }
    /* Borrowed until the sum is made: nothing runs before PyNumber_Add() of two whole numbers. */
    PyObject *before = PyDict_GetItemWithError(side, key), *number = NULL;
    if (before != NULL)
        number = PyNumber_Add(before, more);
    else if (!PyErr_Occurred())
        number = Py_NewRef(more);
    Py_DECREF(more);
    int failed = number == NULL ? -1 : PyDict_SetItem(side, key, number);
    Py_XDECREF(number);
    Py_DECREF(key);
    return failed;
}

static int count_value(Buckets *buckets, double value)
{
    if (value == 0.0)
        buckets->zeros++;
    else if (isfinite(value))
        return count(value > 0 ? buckets->positive : buckets->negative, index_of(fabs(value)), 1);
    return 0;
}

/* Of a large group: the buckets around that of its first value are counted here, but for the first value of each, which
   gives the dictionary its order. */
/* As many as there may be buckets (MAX_BUCKETS): of most data none lies outside. Two of them are 20 KiB of the stack.
   */
#define WINDOW 2048
#define LARGE 64

typedef struct {
    PyObject *side; /* borrowed */
    long base;
    unsigned int more[WINDOW];
    unsigned char seen[WINDOW];
} Window;

static int count_near(Window *window, long index)
{
    if (window->base == LONG_MIN)
        window->base = index - WINDOW / 2;
    long place = index - window->base;
    if (place < 0 || place >= WINDOW)
        return count(window->side, index, 1);
    if (window->seen[place]) {
        window->more[place]++;
        return 0;
    }
    window->seen[place] = 1;
    return count(window->side, index, 1);
}

static int leave_window(Window *window)
{
    for (long place = 0; place < WINDOW; place++)
        if (window->more[place] && count(window->side, window->base + place, window->more[place]) < 0)
            return -1;
    return 0;
}

static int count_many(Buckets *buckets, PyObject *group)
{
    Window sides[2] = {{.side = buckets->negative, .base = LONG_MIN}, {.side = buckets->positive, .base = LONG_MIN}};
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(group); i++) {
        double value = PyFloat_AS_DOUBLE(PyList_GET_ITEM(group, i));
        if (value == 0.0)
            buckets->zeros++;
        else if (isfinite(value) && count_near(&sides[value > 0], index_of(fabs(value))) < 0)
            return -1;
    }
    return leave_window(&sides[0]) < 0 || leave_window(&sides[1]) < 0 ? -1 : 0;
}

/* _span(), no more than is needed to know whether it is too large */
static int is_wide(PyObject *side)
{
    PyObject *key;
    long low = LONG_MAX, high = LONG_MIN;
    for (Py_ssize_t place = 0; PyDict_Next(side, &place, &key, NULL);) {
        long index = PyLong_AsLong(key);
        low = index < low ? index : low;
        high = index > high ? index : high;
    }
    return PyDict_GET_SIZE(side) && high - low + 1 > fold.most_buckets;
}

/* What Python does with these values, or with none, where the scale is all that is left to do; takes them over. */
static int add_in_python(PyObject *object, PyObject *values)
{
    PyObject *nothing = values == NULL ? NULL : PyObject_CallMethodOneArg(object, fold.add, values);
    Py_XDECREF(values);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

static int add_group_to(PyObject *object, PyObject *group)
{
    Buckets buckets;
    int is_one = PyFloat_CheckExact(group);
    if (!read_buckets(object, &buckets) || buckets.scale != fold.scale)
        return PyErr_Occurred() ? -1 : add_in_python(object, is_one ? PyTuple_Pack(1, group) : Py_NewRef(group));
    int is_large = !is_one && PyList_GET_SIZE(group) >= LARGE;
    if (is_large && count_many(&buckets, group) < 0)
        return -1;
    for (Py_ssize_t i = 0; !is_large && i < (is_one ? 1 : PyList_GET_SIZE(group)); i++)
        if (count_value(&buckets, PyFloat_AS_DOUBLE(is_one ? group : PyList_GET_ITEM(group, i))) < 0)
            return -1;
    PyObject *zeros = PyLong_FromLong(buckets.zeros);
    if (zeros == NULL)
        return -1;
    set_slot(object, fold.of_exponential.zeros, zeros);
    return is_wide(buckets.positive) || is_wide(buckets.negative) ? add_in_python(object, PyTuple_New(0)) : 0;
}

/* ExponentialBuckets(): a new reference. */
static PyObject *new_buckets(void)
{
    PyTypeObject *type = (PyTypeObject *)fold.exponential;
    PyObject *object = type->tp_alloc(type, 0);
    PyObject *scale = PyLong_FromLong(fold.scale), *zeros = PyLong_FromLong(0);
    PyObject *positive = PyDict_New(), *negative = PyDict_New();
    if (object != NULL && scale != NULL && zeros != NULL && positive != NULL && negative != NULL) {
        set_slot(object, fold.of_exponential.scale, scale);
        set_slot(object, fold.of_exponential.zeros, zeros);
        set_slot(object, fold.of_exponential.positive, positive);
        set_slot(object, fold.of_exponential.negative, negative);
        return object;
    }
    Py_XDECREF(object);
    Py_XDECREF(scale);
    Py_XDECREF(zeros);
    Py_XDECREF(positive);
    Py_XDECREF(negative);
    return NULL;
}

int add_to_buckets(PyObject *pending, PyObject *series, PyObject *group)
{
    PyObject *every = slot(pending, fold.of_pending.buckets);
    PyObject *object = Py_XNewRef(PyDict_GetItemWithError(every, series));
    if (object == NULL && !PyErr_Occurred()) {
        object = new_buckets();
        if (object != NULL && PyDict_SetItem(every, series, object) < 0)
            Py_CLEAR(object);
    }
    int failed = object == NULL ? -1 : add_group_to(object, group);
    Py_XDECREF(object);
    return failed;
}
