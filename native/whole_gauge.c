/* A ScopeMetrics with one whole number: a watermark or a position. Twin: gauge_in_python() of _internal/messages/encode_metrics.py. */
#include "encode.h"

#define METRIC_TAG 0x12
#define GAUGE_FIELD 5
#define NAME_TAG 0x0a
#define DATA_TAG (GAUGE_FIELD << 3 | 2)
#define POINTS_TAG 0x0a

static PyObject *gauge_of(const About *about, Text name, uint64_t time_ns, int64_t value, PyObject *attributes)
{
    Py_ssize_t scope = about_size(about), point = GAUGE_SIZE + size_of(attributes);
    Py_ssize_t metric = field_size(name.size) + field_size(field_size(point));
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, field_size(scope) + field_size(metric));
    if (bytes == NULL)
        return NULL;
    unsigned char *at = put_about((unsigned char *)PyBytes_AS_STRING(bytes), about, scope);
    at = put_text(put_head(at, METRIC_TAG, metric), NAME_TAG, name);
    at = put_head(put_head(at, DATA_TAG, field_size(point)), POINTS_TAG, point);
    at = put_fixed(put_fixed(at, 0x19, time_ns), 0x31, value);
    if (attributes != NULL)
        put_bytes(at, attributes);
    return bytes;
}

PyObject *encoded_gauge(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    About about;
    Text name;
    int64_t value;
    uint64_t time_ns;
    if ((n != 6 && n != 7) || !as_text(arguments[0], &name) || name.size == 0 ||
        !as_about(arguments[2], arguments[1], &about) || !as_signed(arguments[3], &value) ||
        !as_unsigned(arguments[4], &time_ns) || !as_signed(arguments[5], &about.seq))
        return PyObject_Vectorcall(python.whole_gauge, arguments, n, NULL);
    about.points = 1;
    PyObject *attributes = NULL;
    if (n == 7 && arguments[6] != Py_None) {
        attributes = PyObject_CallFunction(python.key_values, "iO", GAUGE_ATTRIBUTES, arguments[6]);
        if (attributes == NULL || !PyBytes_Check(attributes)) {
            Py_XDECREF(attributes);
            return PyErr_Occurred() ? NULL : PyObject_Vectorcall(python.whole_gauge, arguments, n, NULL);
        }
    }
    PyObject *gauge = gauge_of(&about, name, time_ns, value, attributes);
    Py_XDECREF(attributes);
    return gauge;
}
