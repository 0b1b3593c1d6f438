/* The first and the last value of a series become a gauge each. Twins: _gauge() and _order() of _internal/messages/encode_metrics.py. */
#include "encode.h"

int put_gauge(Out *out, PyObject *series, uint64_t time_ns, double value)
{
    PyObject *attributes;
    int done = attributes_of(series, GAUGE_ATTRIBUTES, &attributes);
    if (done != 1)
        return done;
    PyObject *prefix = prefix_at(series, series_slot.short_prefix, python.gauge_prefix);
    unsigned char *at = NULL;
    if (prefix != NULL && (at = room_for(out, PyBytes_GET_SIZE(prefix) + GAUGE_SIZE + size_of(attributes))) != NULL) {
        at = put_double(put_fixed(put_bytes(at, prefix), 0x19, time_ns), 0x21, value);
        if (attributes != NULL)
            at = put_bytes(at, attributes);
        wrote_to(out, at);
    }
    Py_XDECREF(prefix);
    Py_XDECREF(attributes);
    return at == NULL ? -1 : 1;
}

int as_order(PyObject *object, Order *order)
{
    if (!is_exactly(object, python.order_type) || PyTuple_GET_SIZE(object) != 4)
        return 0;
    PyObject *first = PyTuple_GET_ITEM(object, 1), *last = PyTuple_GET_ITEM(object, 3);
    if (!as_unsigned(PyTuple_GET_ITEM(object, 0), &order->first_ns) || !as_double(first, &order->first) ||
        !as_unsigned(PyTuple_GET_ITEM(object, 2), &order->last_ns) || !as_double(last, &order->last))
        return 0;
    /* The same object, too: NaN is not equal to itself. */
    order->is_one = order->first_ns == order->last_ns && (first == last || order->first == order->last);
    return 1;
}

int put_order(Scope *scope, PyObject *series, PyObject *object)
{
    Order order;
    if (!as_order(object, &order))
        return 0;
    if (!scope->asked.takes_last)
        return put_gauge(&scope->out, series, order.first_ns, order.first);
    int done = put_gauge(&scope->out, series, order.last_ns, order.last);
    if (done != 1 || !scope->asked.takes_first || order.is_one)
        return done;
    if (scope->first_too == NULL && (scope->first_too = PyList_New(0)) == NULL)
        return -1;
    return PyList_Append(scope->first_too, series) < 0 ? -1 : 1;
}
