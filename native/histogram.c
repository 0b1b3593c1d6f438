/* Moments of a series become a histogram without bounds. Twins: _histogram() and _value_attributes() of
   _internal/messages/encode_metrics.py, and what _metrics() does of a plain series. */
#include "histogram.h"

#define SHORT_SIZE MOMENTS_SIZE
#define LONG_SIZE (MOMENTS_SIZE + 18)
#define HISTOGRAM_FIELD 9
#define HISTOGRAM_ATTRIBUTES 9
#define ATTRIBUTE_TAG (HISTOGRAM_ATTRIBUTES << 3 | 2)

static inline unsigned char *put_range(unsigned char *at, const Moments *moments)
{
    return put_double(put_double(at, 0x59, moments->low), 0x61, moments->high);
}

int put_plain(Scope *scope, const Entry *entry)
{
    Moments moments;
    if (!as_moments(entry->state, &moments))
        return 0;
    int ranged = is_ranged(entry->series, &moments);
    PyObject *prefix = ranged ? prefix_at(entry->series, series_slot.long_prefix, python.long_prefix)
                              : prefix_at(entry->series, series_slot.short_prefix, python.short_prefix);
    if (prefix == NULL)
        return -1;
    unsigned char *at = room_for(&scope->out, PyBytes_GET_SIZE(prefix) + LONG_SIZE + DELTA_SIZE);
    if (at != NULL) {
        at = put_moments(put_bytes(at, prefix), scope, &moments);
        wrote_to(&scope->out, put_delta(ranged ? put_range(at, &moments) : at));
    }
    Py_DECREF(prefix);
    return at == NULL ? -1 : 1;
}

int values_of(const Scope *scope, PyObject *series, Values *values)
{
    PyObject *sums = slot(series, series_slot.sums);
    if (sums == NULL || !PyTuple_CheckExact(sums) || PyTuple_GET_SIZE(sums) != 0)
        return 0;
    values->has_m2 = slot(series, series_slot.m2) == Py_True;
    if (values->has_m2 && !as_double(PyDict_GetItemWithError(scope->m2, series), &values->m2))
        return PyErr_Occurred() ? -1 : 0;
    /* Borrowed: read to the end before anything runs Python. */
    PyObject *weights = PyDict_GetItemWithError(scope->weights, series);
    values->has_weights = weights != NULL;
    if (weights == NULL)
        return PyErr_Occurred() ? -1 : 1;
    return PyTuple_CheckExact(weights) && PyTuple_GET_SIZE(weights) == 2 &&
           as_double(PyTuple_GET_ITEM(weights, 0), &values->wsum) &&
           as_double(PyTuple_GET_ITEM(weights, 1), &values->wxsum);
}

Py_ssize_t values_size(const Values *values)
{
    return (values->has_m2 ? PyBytes_GET_SIZE(python.before_m2) + 8 : 0) +
           (values->has_weights ? PyBytes_GET_SIZE(python.before_wsum) + 8 + PyBytes_GET_SIZE(python.before_wxsum) + 8
                                : 0);
}

/* `before` begins with the tag of a histogram's attributes, and ends with that of the double. */
static unsigned char *put_value(unsigned char *at, unsigned char tag, PyObject *before, double number)
{
    Py_ssize_t size = PyBytes_GET_SIZE(before) - 1;
    *at++ = tag;
    at = put(at, PyBytes_AS_STRING(before) + 1, size - 1);
    return put_double(at, (unsigned char)PyBytes_AS_STRING(before)[size], number);
}

unsigned char *put_values(unsigned char *at, unsigned char tag, const Values *values)
{
    if (values->has_m2)
        at = put_value(at, tag, python.before_m2, values->m2);
    if (values->has_weights)
        at = put_value(put_value(at, tag, python.before_wsum, values->wsum), tag, python.before_wxsum, values->wxsum);
    return at;
}

int put_histogram(Scope *scope, PyObject *series, PyObject *state)
{
    Moments moments;
    Values values = {0};
    PyObject *attributes;
    if (!as_moments(state, &moments))
        return 0;
    int done = values_of(scope, series, &values);
    if (done == 1)
        done = attributes_of(series, HISTOGRAM_ATTRIBUTES, &attributes);
    if (done != 1)
        return done;
    int ranged = is_ranged(series, &moments);
    Py_ssize_t size = (ranged ? LONG_SIZE : SHORT_SIZE) + size_of(attributes) + values_size(&values);
    PyObject *prefix = constant(
        series, HISTOGRAM_FIELD, size, python.known_prefix, "(Oini)", series, HISTOGRAM_FIELD, size, DELTA_SIZE);
    unsigned char *at = NULL;
    if (prefix != NULL && (at = room_for(&scope->out, PyBytes_GET_SIZE(prefix) + size + DELTA_SIZE)) != NULL) {
        at = put_moments(put_bytes(at, prefix), scope, &moments);
        if (attributes != NULL)
            at = put_bytes(at, attributes);
        at = put_values(at, ATTRIBUTE_TAG, &values);
        wrote_to(&scope->out, put_delta(ranged ? put_range(at, &moments) : at));
    }
    Py_XDECREF(prefix);
    Py_XDECREF(attributes);
    return at == NULL ? -1 : 1;
}
