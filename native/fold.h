/* What the files share that fold: fold.c, pending.c, reduce.c, m2.c and buckets.c. The fold lock is held by the caller
   of each.

   What is rare (the first record of a series, its first weight, values of a device) is called in Python. So is `sum`, which adds more exactly from Python 3.12 on. */
#ifndef OTEL_ML_FOLD_H
#define OTEL_ML_FOLD_H

#include "prefetch.h"

/* -fvisibility is of definitions alone: what is declared here would else be reached through a table. */
#pragma GCC visibility push(hidden)

extern struct fold {
    PyObject *pending, *order, *row, *definitions;
    PyObject *fold_special, *steps, *count, *merge, *is_weighted, *add; /* names */
    PyObject *sum, *one;                                                     /* a function, a number */
    struct {
        Py_ssize_t first_ns, last_ns, groups, rows, moments, order, weights, m2, buckets, more, between, sums;
    } of_pending;
    struct {
        Py_ssize_t special, internal, moments, ordered, buckets, m2, weighted, order, bare, sums, row;
    } of_series;
    struct {
        Py_ssize_t series, weighted;
    } of_row;
    struct {
        Py_ssize_t negative, positive, scale, zeros;
    } of_exponential;
    Py_ssize_t step_pending;
    PyObject *series, *step, *unsettled, *exponential;
    long scale, most_buckets;
    Py_ssize_t wide;
} fold;

static inline int is_true(PyObject *series, Py_ssize_t offset)
{
    return slot(series, offset) == Py_True;
}

/* Whether Series.settle() came to its end, which a fork may have kept it from in the parent. */
static inline int is_settled(PyObject *series)
{
    return slot(series, fold.of_series.order) != fold.unsettled;
}

/* A tuple of four, of which the references are taken over; NULL where one of them is. Plain tuples come from Python's
   list of free ones, which the garbage collector does not count: `tests/unit/otel_ml/record/test_garbage.py`. */
static inline PyObject *four(PyTypeObject *type, PyObject *a, PyObject *b, PyObject *c, PyObject *d)
{
    int is_whole = a && b && c && d;
    PyObject *made = !is_whole ? NULL : type == &PyTuple_Type ? PyTuple_New(4) : type->tp_alloc(type, 4);
    if (made == NULL) {
        Py_XDECREF(a), Py_XDECREF(b), Py_XDECREF(c), Py_XDECREF(d);
        return NULL;
    }
    PyTuple_SET_ITEM(made, 0, a);
    PyTuple_SET_ITEM(made, 1, b);
    PyTuple_SET_ITEM(made, 2, c);
    PyTuple_SET_ITEM(made, 3, d);
    return made;
}

/* Set a key of a dictionary, and let go of the value. */
static inline int put(PyObject *dictionary, PyObject *key, PyObject *value)
{
    int failed = value == NULL ? -1 : PyDict_SetItem(dictionary, key, value);
    Py_XDECREF(value);
    return failed;
}

/* To the groups of series, or to the rows: StepPartials.add() and add_row() where no row has to be taken apart. */
static inline int add(PyObject *groups, PyObject *key, PyObject *value)
{
    /* Series and rows are looked up by identity: that runs no code of Python, and never fails but for memory. */
    PyObject *group = PyDict_GetItemWithError(groups, key);
    if (group == NULL)
        return PyErr_Occurred() ? -1 : PyDict_SetItem(groups, key, value);
    if (PyList_CheckExact(group))
        return PyList_Append(group, value);
    PyObject *both = PyList_New(2);
    if (both != NULL) {
        PyList_SET_ITEM(both, 0, Py_NewRef(group));
        PyList_SET_ITEM(both, 1, Py_NewRef(value));
    }
    return put(groups, key, both);
}

/* pending.c */

/* StepPartials.add(); 0 or -1 */
int add_value(PyObject *pending, PyObject *series, PyObject *value);

/* StepPartials.add_row(); 0 or -1 */
int add_row(PyObject *pending, PyObject *row, PyObject *values);

/* StepPartials.know_rows() */
void know_rows(PyObject *pending);

/* 1, 0 where it has to be done in Python, or -1. */
int add_special(PyObject *pending, PyObject *series, PyObject *value, PyObject *time);

/* reduce.c: StepPartials.reduce(); 0 or -1 */
int reduce_pending(PyObject *pending);

/* reduce.c: of Python: (pending, series, values) */
PyObject *merge_values(PyObject *module, PyObject *const *arguments, Py_ssize_t n);

/* m2.c: those of `group`, whose moments are `new`, with those of `old` (may be NULL); 1, 0 where it has to be done in
   Python, or -1. */
int merge_m2(PyObject *pending, PyObject *series, PyObject *group, PyObject *new, PyObject *old);

/* buckets.c: 0 or -1 */
int add_to_buckets(PyObject *pending, PyObject *series, PyObject *group);

#pragma GCC visibility pop

#endif
