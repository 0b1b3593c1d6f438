/* Series with the same reduction become a ScopeMetrics, and their first values another. Twin: _scopes() of
   _internal/messages/encode_metrics.py. */
#include "encode.h"

/* Bytes a point has in all: where they are fewer or more, the message shrinks or grows. */
#define USUAL_POINT 112
#define FIRST_VALUE 64

/* Put what a ScopeMetrics says of itself before its metrics. */
static int put_scope(Scope *scope, Py_ssize_t points, Out *out)
{
    About about = scope->about;
    PyObject *number = PyObject_CallNoArgs(scope->next_number);
    if (number == NULL)
        return -1;
    about.seq = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (about.seq == -1 && PyErr_Occurred())
        return -1;
    about.points = points;
    about.has_reduction = 1;
    if (!as_text(scope->asked.text, &about.reduction)) {
        PyErr_Format(PyExc_TypeError, "expected the text of a reduction, got %R", scope->asked.text);
        return -1;
    }
    about.has_defaults = scope->asked.defaults != NULL;
    if (about.has_defaults && !as_text(scope->asked.defaults, &about.defaults)) {
        PyErr_Format(PyExc_TypeError, "expected the names of parts, got %R", scope->asked.defaults);
        return -1;
    }
    Py_ssize_t size = about_size(&about);
    unsigned char *end = room_for(out, field_size(size));
    if (end == NULL)
        return -1;
    unsigned char *at = end - out->size;
    memmove(at + field_size(size), at, out->size);
    put_about(at, &about, size);
    out->size += field_size(size);
    return 0;
}

/* Append (points, body) to `scopes`; takes over `out`. */
static int add_scope(PyObject *scopes, Scope *scope, Py_ssize_t points, Out *out)
{
    if (put_scope(scope, points, out) < 0) {
        drop_out(out);
        return -1;
    }
    PyObject *body = finish_out(out);
    PyObject *both = body == NULL ? NULL : Py_BuildValue("nN", points, body);
    int failed = both == NULL ? -1 : PyList_Append(scopes, both);
    Py_XDECREF(both);
    return failed;
}

static int put_first_value(Out *out, PyObject *series, PyObject *object)
{
    Order order;
    int done = as_order(object, &order) ? put_gauge(out, series, order.first_ns, order.first) : 0;
    if (done != 0)
        return done < 0 ? -1 : 0;
    PyObject *first = PySequence_GetSlice(object, 0, 2);
    PyObject *arguments = first == NULL ? NULL : Py_BuildValue("(O)", series);
    Py_XSETREF(arguments, arguments == NULL ? NULL : PySequence_Concat(arguments, first));
    PyObject *part = arguments == NULL ? NULL : PyObject_CallObject(python.gauge, arguments);
    int failed = part == NULL ? -1 : put_part(out, part);
    Py_XDECREF(part);
    Py_XDECREF(arguments);
    Py_XDECREF(first);
    return failed;
}

/* The same series twice in one ScopeMetrics would be the same identity: the first values get their own. */
static int add_first_values(PyObject *scopes, Scope *scope)
{
    Out out;
    Py_ssize_t n = PyList_GET_SIZE(scope->first_too);
    int failed = begin_out(&out, FIRST_VALUE * n);
    for (Py_ssize_t i = 0; i < n && !failed; i++) {
        PyObject *series = PyList_GET_ITEM(scope->first_too, i);
        PyObject *order = PyObject_GetItem(scope->order, series);
        failed = order == NULL ? -1 : put_first_value(&out, series, order);
        Py_XDECREF(order);
    }
    if (!failed)
        return add_scope(scopes, scope, n, &out);
    drop_out(&out);
    return -1;
}

int add_group(PyObject *scopes, Scope *scope, const Entry *entries, Py_ssize_t n)
{
    /* Borrowed until the next lines: begin_out() runs no Python, so nobody replaces what the table holds. */
    if (asked_by(entries->reduction, &scope->asked) < 0 || begin_out(&scope->out, USUAL_POINT * n) < 0)
        return -1;
    Py_XINCREF(scope->asked.defaults);
    Py_INCREF(scope->asked.text); /* Python may run below, and another thread ask for many others */
    scope->points = 0;
    scope->first_too = NULL;
    int failed = 0;
    for (Py_ssize_t i = 0; i < n && !failed; i++) {
        failed = put_series(scope, &entries[i]);
        if (i % PIECE == PIECE - 1)
            let_others_on();
    }
    if (failed)
        drop_out(&scope->out);
    else
        failed = add_scope(scopes, scope, scope->points, &scope->out);
    if (!failed && scope->first_too != NULL)
        failed = add_first_values(scopes, scope);
    Py_XDECREF(scope->first_too);
    Py_DECREF(scope->asked.text);
    Py_XDECREF(scope->asked.defaults);
    return failed;
}
