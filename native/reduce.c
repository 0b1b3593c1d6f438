/* What a step has gathered is reduced: groups of values become moments. Twin: StepPartials.reduce() of
   _internal/series/pending.py. */
#include "fold.h"

/* _moments() of several values, each exactly a float: a new tuple. */
static PyObject *moments_of(PyObject *values, Py_ssize_t n)
{
    PyObject *sum = PyObject_CallOneArg(fold.sum, values);
    if (sum == NULL)
        return NULL;
    double total = PyFloat_AsDouble(sum);
    /* Borrowed from the list, as is `sum` below until the tuple has its own. */
    PyObject *low = PyList_GET_ITEM(values, 0), *high = low;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *value = PyList_GET_ITEM(values, i);
        double number = PyFloat_AS_DOUBLE(value); /* are_floats() was asked */
        if (number != number) { /* then the sum is NaN, too */
            low = high = sum;
            break;
        }
        if (number < PyFloat_AS_DOUBLE(low))
            low = value;
        if (number > PyFloat_AS_DOUBLE(high))
            high = value;
    }
    PyObject *made = four(&PyTuple_Type, PyLong_FromSsize_t(n), PyFloat_FromDouble(total), Py_NewRef(low), Py_NewRef(high));
    Py_DECREF(sum);
    return made;
}

static int are_moments(PyObject *tuple)
{
    return PyTuple_CheckExact(tuple) && PyTuple_GET_SIZE(tuple) == 4 && PyLong_CheckExact(PyTuple_GET_ITEM(tuple, 0)) &&
           PyFloat_CheckExact(PyTuple_GET_ITEM(tuple, 1)) && PyFloat_CheckExact(PyTuple_GET_ITEM(tuple, 2)) &&
           PyFloat_CheckExact(PyTuple_GET_ITEM(tuple, 3));
}

/* _merged() */
static PyObject *merged(PyObject *old, PyObject *new)
{
    PyObject *const *a = &PyTuple_GET_ITEM(old, 0), *const *b = &PyTuple_GET_ITEM(new, 0);
    double old_low = PyFloat_AS_DOUBLE(a[2]), new_low = PyFloat_AS_DOUBLE(b[2]);
    PyObject *count = PyNumber_Add(a[0], b[0]);
    /* One of them is NaN, and so is the sum of both. */
    if (old_low != old_low || new_low != new_low) {
        PyObject *nan = PyFloat_FromDouble(old_low + new_low);
        return four(&PyTuple_Type, count, nan, Py_XNewRef(nan), Py_XNewRef(nan));
    }
    PyObject *total = PyFloat_FromDouble(PyFloat_AS_DOUBLE(a[1]) + PyFloat_AS_DOUBLE(b[1]));
    PyObject *low = new_low < old_low ? b[2] : a[2];
    PyObject *high = PyFloat_AS_DOUBLE(b[3]) > PyFloat_AS_DOUBLE(a[3]) ? b[3] : a[3];
    return four(&PyTuple_Type, count, total, Py_NewRef(low), Py_NewRef(high));
}

/* StepPartials._merge */
static int merge_slowly(PyObject *pending, PyObject *series, PyObject *group)
{
    PyObject *pairs = Py_BuildValue("[(OO)]", series, group);
    PyObject *nothing = pairs == NULL ? NULL : PyObject_CallMethodObjArgs(pending, fold.merge, pairs, NULL);
    Py_XDECREF(pairs);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

/* A group becomes moments: 1, 0 where it has to be done in Python, or -1. */
static int merge_group(PyObject *pending, PyObject *series, PyObject *group, PyObject *old)
{
    PyObject *new = PyFloat_CheckExact(group)
                        ? four(&PyTuple_Type, Py_NewRef(fold.one), Py_NewRef(group), Py_NewRef(group), Py_NewRef(group))
                        : moments_of(group, PyList_GET_SIZE(group));
    int done = new == NULL ? -1 : 1;
    if (done > 0 && is_true(series, fold.of_series.m2))
        done = merge_m2(pending, series, group, new, old);
    if (done > 0 && is_true(series, fold.of_series.buckets) && add_to_buckets(pending, series, group) < 0)
        done = -1;
    if (done > 0) {
        PyObject *whole = old == NULL ? Py_NewRef(new) : merged(old, new);
        done = put(slot(pending, fold.of_pending.moments), series, whole) < 0 ? -1 : 1;
    }
    Py_XDECREF(new);
    return done;
}

static int merge(PyObject *pending, PyObject *series, PyObject *group)
{
    if (!PyFloat_CheckExact(group) && (!PyList_CheckExact(group) || PyList_GET_SIZE(group) == 0 || !are_floats(group)))
        return merge_slowly(pending, series, group);
    PyObject *old = Py_XNewRef(PyDict_GetItemWithError(slot(pending, fold.of_pending.moments), series));
    if (old == NULL && PyErr_Occurred())
        return -1;
    int is_several = old != NULL || !PyFloat_CheckExact(group);
    int is_usual = (old == NULL || are_moments(old)) && !(is_several && is_true(series, fold.of_series.bare));
    int done = is_usual ? merge_group(pending, series, group, old) : 0;
    Py_XDECREF(old);
    return done == 0 ? merge_slowly(pending, series, group) : done < 0 ? -1 : 0;
}

PyObject *merge_values(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    if (n != 3 || !is_exactly(arguments[0], fold.pending) || !is_exactly(arguments[1], fold.series) ||
        !PyList_CheckExact(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "expected StepPartials, a Series and a list");
        return NULL;
    }
    return merge(arguments[0], arguments[1], arguments[2]) < 0 ? NULL : Py_NewRef(Py_None);
}

/* A column of several rows of a Row. */
static PyObject *column_of(PyObject *rows, Py_ssize_t place)
{
    PyObject *column = PyList_New(PyList_GET_SIZE(rows));
    for (Py_ssize_t i = 0; column != NULL && i < PyList_GET_SIZE(rows); i++)
        PyList_SET_ITEM(column, i, Py_NewRef(PyTuple_GET_ITEM(PyList_GET_ITEM(rows, i), place)));
    return column;
}

static int merge_row(PyObject *pending, PyObject *row, PyObject *rows)
{
    PyObject *series = slot(row, fold.of_row.series);
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(series); i++) {
        PyObject *group = PyList_CheckExact(rows) ? column_of(rows, i) : Py_NewRef(PyTuple_GET_ITEM(rows, i));
        failed = group == NULL ? -1 : merge(pending, PyTuple_GET_ITEM(series, i), group);
        Py_XDECREF(group);
    }
    return failed;
}

int reduce_pending(PyObject *pending)
{
    PyObject *groups = slot(pending, fold.of_pending.groups), *rows = slot(pending, fold.of_pending.rows);
    PyObject *key, *value;
    /* PyDict_Next() allows no change of the dictionary: merge() changes moments, m2 and buckets, and whoever else adds
       to groups needs the fold lock. */
    for (Py_ssize_t place = 0; PyDict_Next(groups, &place, &key, &value);)
        if (merge(pending, key, value) < 0)
            return -1;
    for (Py_ssize_t place = 0; PyDict_Next(rows, &place, &key, &value);)
        if (merge_row(pending, key, value) < 0)
            return -1;
    PyDict_Clear(groups);
    PyDict_Clear(rows);
    return 0;
}
