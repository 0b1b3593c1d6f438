/* What a step gathers of records. Twin: StepPartials of _internal/series/pending.py. */
#include "fold.h"

static int add_each(PyObject *pending, PyObject *row, PyObject *values)
{
    PyObject *series = slot(row, fold.of_row.series);
    int failed = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(series) && !failed; i++)
        failed = add_value(pending, PyTuple_GET_ITEM(series, i), PyTuple_GET_ITEM(values, i));
    return failed;
}

static int add_all(PyObject *pending, PyObject *row, PyObject *rows)
{
    if (!PyList_CheckExact(rows))
        return add_each(pending, row, rows);
    int failed = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(rows) && !failed; i++)
        failed = add_each(pending, row, PyList_GET_ITEM(rows, i));
    return failed;
}

/* StepPartials.take_rows_apart() */
static int take_rows_apart(PyObject *pending)
{
    PyObject *taken = Py_NewRef(slot(pending, fold.of_pending.rows)), *none = PyDict_New(), *row, *rows;
    int failed = none == NULL ? -1 : 0;
    if (!failed)
        set_slot(pending, fold.of_pending.rows, none);
    for (Py_ssize_t place = 0; !failed && PyDict_Next(taken, &place, &row, &rows);)
        failed = add_all(pending, row, rows);
    Py_DECREF(taken);
    return failed;
}

int add_value(PyObject *pending, PyObject *series, PyObject *value)
{
    PyObject *groups = slot(pending, fold.of_pending.groups), *rows = slot(pending, fold.of_pending.rows);
    /* Where its row is here, the series is not among the groups. */
    if (PyDict_GET_SIZE(rows) != 0 && is_true(series, fold.of_series.bare)) {
        int is_in_one = PyDict_Contains(rows, slot(series, fold.of_series.row));
        if (is_in_one < 0 || (is_in_one && take_rows_apart(pending) < 0))
            return -1;
    }
    return add(groups, series, value);
}

static void know(PyObject *row)
{
    PyObject *every = slot(row, fold.of_row.series);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(every); i++) {
        PyObject *series = PyTuple_GET_ITEM(every, i);
        if (is_true(series, fold.of_series.bare) && slot(series, fold.of_series.row) != row)
            set_slot(series, fold.of_series.row, Py_NewRef(row));
    }
}

void know_rows(PyObject *pending)
{
    PyObject *rows = slot(pending, fold.of_pending.rows), *row;
    for (Py_ssize_t place = 0; PyDict_Next(rows, &place, &row, NULL);)
        know(row);
}

/* StepPartials._is_shared(); 1, 0 or -1 */
static int is_shared(PyObject *pending, PyObject *row)
{
    PyObject *groups = slot(pending, fold.of_pending.groups), *rows = slot(pending, fold.of_pending.rows);
    PyObject *every = slot(row, fold.of_row.series);
    int found = 0;
    if (PyDict_GET_SIZE(groups) != 0 || PyDict_GET_SIZE(rows) != 0)
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(every) && !found; i++) {
            PyObject *series = PyTuple_GET_ITEM(every, i);
            if (!is_true(series, fold.of_series.bare))
                continue;
            found = PyDict_Contains(groups, series);
            if (found == 0)
                found = PyDict_Contains(rows, slot(series, fold.of_series.row));
        }
    know(row);
    return found;
}

int add_row(PyObject *pending, PyObject *row, PyObject *values)
{
    PyObject *rows = slot(pending, fold.of_pending.rows);
    int is_known = PyDict_Contains(rows, row);
    int is_apart = is_known ? 0 : is_shared(pending, row);
    if (is_known < 0 || is_apart < 0 || (is_apart && take_rows_apart(pending) < 0))
        return -1;
    return is_apart ? add_each(pending, row, values) : add(rows, row, values);
}

/* StepPartials._add_order */
static int add_order(PyObject *order, PyObject *series, PyObject *value, PyObject *time)
{
    PyObject *seen = PyDict_GetItemWithError(order, series), *made;
    PyTypeObject *type = (PyTypeObject *)fold.order;
    if (seen == NULL && PyErr_Occurred())
        return -1;
    if (seen == NULL)
        made = four(type, Py_NewRef(time), Py_NewRef(value), Py_NewRef(time), Py_NewRef(value));
    else {
        PyObject *const *old = &PyTuple_GET_ITEM(seen, 0);
        int is_last = PyObject_RichCompareBool(time, old[2], Py_GE);
        int is_first = is_last ? 0 : PyObject_RichCompareBool(time, old[0], Py_LT);
        if (is_last < 0 || is_first < 0)
            return -1;
        if (is_last)
            /* Of the old tuple, which the dictionary holds until put() replaces it. */
            made = four(type, Py_NewRef(old[0]), Py_NewRef(old[1]), Py_NewRef(time), Py_NewRef(value));
        else if (is_first)
            made = four(type, Py_NewRef(time), Py_NewRef(value), Py_NewRef(old[2]), Py_NewRef(old[3]));
        else
            return 0;
    }
    return put(order, series, made);
}

static int is_in_rows(PyObject *series, PyObject *rows)
{
    PyObject *row;
    for (Py_ssize_t place = 0; PyDict_Next(rows, &place, &row, NULL);) {
        PyObject *every = slot(row, fold.of_row.series);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(every); i++)
            if (PyTuple_GET_ITEM(every, i) == series)
                return 1;
    }
    return 0;
}

/* StepPartials._add_weight, of a series that has nothing in this step, or has weights already; 0 where it is another */
static int add_weight(PyObject *pending, PyObject *series, double value, double weight)
{
    PyObject *weights = slot(pending, fold.of_pending.weights);
    PyObject *sums = PyDict_GetItemWithError(weights, series);
    double total = 0.0, weighted = 0.0;
    if (sums != NULL) {
        total = PyFloat_AsDouble(PyTuple_GET_ITEM(sums, 0));
        weighted = PyFloat_AsDouble(PyTuple_GET_ITEM(sums, 1));
    } else if (PyErr_Occurred())
        return -1;
    else if (is_in_rows(series, slot(pending, fold.of_pending.rows)) ||
             PyDict_Contains(slot(pending, fold.of_pending.moments), series) ||
             PyDict_Contains(slot(pending, fold.of_pending.groups), series))
        return 0;
    return put(weights, series, Py_BuildValue("(dd)", total + weight, weighted + weight * value)) < 0 ? -1 : 1;
}

/* StepPartials.add_special, of a record whose series is settled; 0 where it has to be done in Python. */
int add_special(PyObject *pending, PyObject *series, PyObject *value, PyObject *time)
{
    PyObject *number = value, *weight = NULL;
    if (!is_settled(series) || is_true(series, fold.of_series.internal) ||
        PyTuple_GET_SIZE(slot(series, fold.of_series.sums)) != 0)
        return 0; /* not settled, not counted, or with sums of functions of Python */
    int is_weighted = is_true(series, fold.of_series.weighted);
    if (PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 2 && is_weighted) {
        number = PyTuple_GET_ITEM(value, 0);
        weight = PyTuple_GET_ITEM(value, 1);
    }
    if (!PyFloat_CheckExact(number) || (weight != NULL && !PyFloat_CheckExact(weight)))
        return 0;
    if (is_weighted) {
        double by = weight == NULL ? 1.0 : PyFloat_AS_DOUBLE(weight);
        int done = add_weight(pending, series, PyFloat_AS_DOUBLE(number), by);
        if (done <= 0)
            return done;
    }
    if (is_true(series, fold.of_series.ordered) &&
        add_order(slot(pending, fold.of_pending.order), series, number, time) < 0)
        return -1;
    if ((is_true(series, fold.of_series.moments) || is_true(series, fold.of_series.buckets)) &&
        add_value(pending, series, number) < 0)
        return -1;
    return 1;
}
