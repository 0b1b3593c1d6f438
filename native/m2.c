/* Squared deviations from the mean, where `std` is asked for. Twin: StepPartials._merge_m2() of _internal/series/pending.py. */
#include "fold.h"

static double squared(double deviation)
{
    return deviation * deviation;
}

/* Of a group about its own mean: a new float. */
static PyObject *m2_of(PyObject *group, double mean)
{
    if (PyFloat_CheckExact(group))
        return PyFloat_FromDouble(squared(PyFloat_AS_DOUBLE(group) - mean));
    PyObject *squares = PyList_New(PyList_GET_SIZE(group));
    for (Py_ssize_t i = 0; squares != NULL && i < PyList_GET_SIZE(group); i++) {
        PyObject *square = PyFloat_FromDouble(squared(PyFloat_AS_DOUBLE(PyList_GET_ITEM(group, i)) - mean));
        if (square == NULL)
            Py_CLEAR(squares);
        else
            PyList_SET_ITEM(squares, i, square);
    }
    PyObject *sum = squares == NULL ? NULL : PyObject_CallOneArg(fold.sum, squares);
    Py_XDECREF(squares);
    return sum;
}

int merge_m2(PyObject *pending, PyObject *series, PyObject *group, PyObject *new, PyObject *old)
{
    PyObject *every = slot(pending, fold.of_pending.m2);
    /* Borrowed until it is replaced, which is the last thing done. */
    PyObject *before = old == NULL ? NULL : PyDict_GetItemWithError(every, series);
    if (old != NULL && (before == NULL || !PyFloat_CheckExact(before)))
        return PyErr_Occurred() ? -1 : 0;
    double n = PyLong_AsDouble(PyTuple_GET_ITEM(new, 0)), mean = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(new, 1)) / n;
    PyObject *m2 = m2_of(group, mean);
    if (old != NULL && m2 != NULL) { /* Chan, Golub, LeVeque 1979 */
        double of_old = PyLong_AsDouble(PyTuple_GET_ITEM(old, 0));
        double delta = mean - PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(old, 1)) / of_old;
        double between = squared(delta) * of_old * n / (of_old + n);
        Py_SETREF(m2, PyFloat_FromDouble(PyFloat_AS_DOUBLE(m2) + (PyFloat_AS_DOUBLE(before) + between)));
    }
    return put(every, series, m2) < 0 ? -1 : 1;
}
