/* Messages become fields of the message around them. Twin: fields_in_python() of _internal/messages/encode.py. */
#include "bytes.h"

#define TAG(number) ((unsigned char)((number) << 3 | 2))
#define SCOPES 2 /* scope_metrics of a ResourceMetrics, and scope_spans of a ResourceSpans */

/* Their size as fields; -1 where one of them is no `bytes`. */
static Py_ssize_t fields_size(PyObject *const *bodies, Py_ssize_t n)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!PyBytes_Check(bodies[i])) {
            PyErr_Format(PyExc_TypeError, "expected bytes, got %R", bodies[i]);
            return -1;
        }
        size += field_size(PyBytes_GET_SIZE(bodies[i]));
    }
    return size;
}

static PyObject *scope_fields(PyObject *module, PyObject *given)
{
    PyObject *bodies = PySequence_Fast(given, "expected a sequence of bytes");
    if (bodies == NULL)
        return NULL;
    PyObject *const *items = PySequence_Fast_ITEMS(bodies);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(bodies), size = fields_size(items, n);
    PyObject *fields = size < 0 ? NULL : PyBytes_FromStringAndSize(NULL, size);
    if (fields != NULL) {
        unsigned char *at = (unsigned char *)PyBytes_AS_STRING(fields);
        for (Py_ssize_t i = 0; i < n; i++) {
            at = put_head(at, TAG(SCOPES), PyBytes_GET_SIZE(items[i]));
            at = put(at, PyBytes_AS_STRING(items[i]), PyBytes_GET_SIZE(items[i]));
        }
    }
    Py_DECREF(bodies);
    return fields;
}

PyMethodDef field_functions[] = {
    {"scope_fields", scope_fields, METH_O, "Return bodies of scopes as fields of a ResourceMetrics or ResourceSpans."},
    {NULL, NULL, 0, NULL},
};
