/* One series becomes bytes, here or in Python. Twin: _metrics() of _internal/messages/encode_metrics.py. */
#include "encode.h"

static int put_other(Scope *scope, const Entry *entry)
{
    PyObject *series = entry->series, *buckets = NULL;
    if (entry->seen != NULL)
        return put_order(scope, series, entry->seen);
    if (PyDict_GET_SIZE(scope->buckets))
        buckets = Py_XNewRef(PyDict_GetItemWithError(scope->buckets, series));
    if (buckets == NULL && PyErr_Occurred())
        return -1;
    int done = buckets == NULL ? put_histogram(scope, series, entry->state) : put_exponential(scope, entry, buckets);
    Py_XDECREF(buckets);
    if (done != 1 || PyDict_GET_SIZE(scope->order) == 0)
        return done;
    PyObject *seen = Py_XNewRef(PyDict_GetItemWithError(scope->order, series));
    if (seen == NULL)
        return PyErr_Occurred() ? -1 : 1;
    scope->points++;
    done = put_order(scope, series, seen);
    Py_DECREF(seen);
    return done;
}

int put_part(Out *out, PyObject *part)
{
    if (!PyBytes_Check(part)) {
        PyErr_Format(PyExc_TypeError, "expected bytes, got %R", part);
        return -1;
    }
    unsigned char *at = room_for(out, PyBytes_GET_SIZE(part));
    if (at == NULL)
        return -1;
    wrote_to(out, put_bytes(at, part));
    return 0;
}

/* Encode one series in Python. */
static int put_in_python(Scope *scope, PyObject *series)
{
    Py_ssize_t points;
    PyObject *parts, *first_too;
    PyObject *answer = PyObject_CallFunction(
        python.metrics, "[O]Oy#", series, scope->pending, (const char *)scope->times, (Py_ssize_t)TIMES_SIZE);
    if (answer == NULL)
        return -1;
    int failed = -1;
    if (PyArg_ParseTuple(answer, "nO!O!", &points, &PyList_Type, &parts, &PyList_Type, &first_too)) {
        scope->points += points;
        failed = 0;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts) && !failed; i++)
            failed = put_part(&scope->out, PyList_GET_ITEM(parts, i));
    }
    if (failed == 0 && PyList_GET_SIZE(first_too)) {
        if (scope->first_too == NULL)
            scope->first_too = PyList_New(0);
        failed = scope->first_too == NULL
                     ? -1
                     : PyList_SetSlice(scope->first_too, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, first_too);
    }
    Py_DECREF(answer);
    return failed;
}

int put_series(Scope *scope, const Entry *entry)
{
    Py_ssize_t size = scope->out.size, points = scope->points++;
    int is_plain = slot(entry->series, series_slot.plain) == Py_True;
    int done = (is_plain ? put_plain : put_other)(scope, entry);
    if (done != 0)
        return done < 0 ? -1 : 0;
    /* Whatever was written until then is written over. */
    scope->out.size = size;
    scope->points = points;
    return put_in_python(scope, entry->series);
}
