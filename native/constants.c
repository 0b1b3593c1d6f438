/* Bytes that a series has at every step, made once by Python. Twins: _known_prefix(), _attributes() and
   _constants() of _internal/messages/encode_metrics.py. */
#include "encode.h"

/* What Python answered, if it is bytes; else NULL with an exception. Takes over the reference. */
PyObject *as_bytes(PyObject *answer)
{
    if (answer == NULL || PyBytes_CheckExact(answer))
        return answer;
    PyErr_Format(PyExc_TypeError, "expected bytes, got %R", answer);
    Py_DECREF(answer);
    return NULL;
}

/* What is kept in `series.constants` under (number, size), else made by `make` of Python; a new reference or NULL. */
PyObject *constant(PyObject *series, int number, Py_ssize_t size, PyObject *make, const char *format, ...)
{
    PyObject *constants = slot(series, series_slot.constants), *found = NULL;
    if (constants != NULL && PyDict_CheckExact(constants)) {
        PyObject *key = Py_BuildValue("(in)", number, size);
        if (key == NULL)
            return NULL;
        found = Py_XNewRef(PyDict_GetItemWithError(constants, key));
        Py_DECREF(key);
    }
    if (found == NULL && !PyErr_Occurred()) {
        va_list values;
        va_start(values, format);
        PyObject *arguments = Py_VaBuildValue(format, values);
        va_end(values);
        found = arguments == NULL ? NULL : PyObject_CallObject(make, arguments);
        Py_XDECREF(arguments);
    }
    return as_bytes(found);
}

/* The encoded attributes of a series: 1 (NULL where it has none), 0 or -1. */
int attributes_of(PyObject *series, int number, PyObject **attributes)
{
    PyObject *pairs = slot(series, series_slot.attributes);
    *attributes = NULL;
    if (pairs == NULL || !PyTuple_CheckExact(pairs))
        return 0;
    if (PyTuple_GET_SIZE(pairs) == 0)
        return 1;
    *attributes = constant(series, number, 0, python.attributes, "(iO)", number, series);
    return *attributes == NULL ? -1 : 1;
}
