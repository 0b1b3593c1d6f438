/* The span of a timer: what begins it, and what ends and keeps it. Twin: _internal/timers/spans.py.

   A span of somebody else as parent is for Python. */
#include "timing.h"

/* What begins a span: one of our own alone, or one that OpenTelemetry sees. */
static struct {
    PyObject *alone, *active;                 /* spans._begin_alone, and its ContextVar */
    PyObject *seen, *variable, *key, *context; /* what _otel_begin() returned, and what it knows */
} begins;

static PyObject *bind_alone(PyObject *module, PyObject *arguments)
{
    PyObject *begin, *active;
    if (!PyArg_ParseTuple(arguments, "OO!", &begin, &PyContextVar_Type, &active))
        return NULL;
    Py_XSETREF(begins.alone, Py_NewRef(begin));
    Py_XSETREF(begins.active, Py_NewRef(active));
    Py_RETURN_NONE;
}

static PyObject *bind_opentelemetry(PyObject *module, PyObject *arguments)
{
    PyObject *begin, *variable, *key, *context;
    if (!PyArg_ParseTuple(arguments, "OO!OO", &begin, &PyContextVar_Type, &variable, &key, &context))
        return NULL;
    Py_XSETREF(begins.seen, Py_NewRef(begin));
    Py_XSETREF(begins.variable, Py_NewRef(variable));
    Py_XSETREF(begins.key, Py_NewRef(key));
    Py_XSETREF(begins.context, Py_NewRef(context));
    Py_RETURN_NONE;
}

/* Give a span its ids; `parent` is NULL where it is the first of a trace. */
static int set_ids(PyObject *span, PyObject *own, PyObject *parent)
{
    PyObject *parent_id = timer.zero, *trace_id;
    if (parent == NULL) /* the upper half has no bit of a span's id: the sum is what `|` gives, and is made sooner */
        trace_id = PyNumber_Add(of_state(timer.of_state.trace_high), own);
    else {
        parent_id = slot(parent, timer.of_timing.span_id);
        /* NULL where the span around was made by `__new__` alone: its slots were never set. */
        trace_id = Py_XNewRef(slot(parent, timer.of_timing.trace_id));
    }
    if (parent_id == NULL || trace_id == NULL) {
        Py_XDECREF(trace_id);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_AttributeError, "the span around has no ids");
        return -1;
    }
    set_slot(span, timer.of_timing.span_id, Py_NewRef(own));
    set_slot(span, timer.of_timing.parent_id, Py_NewRef(parent_id));
    set_slot(span, timer.of_timing.trace_id, trace_id);
    return 0;
}

static int set_token(PyObject *span, PyObject *token)
{
    if (token == NULL)
        return -1;
    set_slot(span, timer.of_timing.token, token);
    return 0;
}

/* spans._begin_alone; 0 where Python has to begin it */
static int begin_alone(PyObject *span, PyObject *own)
{
    PyObject *parent = NULL;
    if (PyContextVar_Get(begins.active, NULL, &parent) < 0)
        return -1;
    int done = 0;
    if (parent == Py_None || (parent != NULL && PyObject_TypeCheck(parent, (PyTypeObject *)timer.recording)))
        done = set_ids(span, own, parent == Py_None ? NULL : parent) < 0 ||
                       set_token(span, PyContextVar_Set(begins.active, span)) < 0
                   ? -1
                   : 1;
    Py_XDECREF(parent);
    return done;
}

/* A context like `here`, with the span in it: a new reference. */
static PyObject *context_with(PyObject *here, PyObject *span)
{
    PyObject *there = PyObject_CallNoArgs(begins.context);
    /* Its own __setitem__ refuses: it is made here, and nobody has seen it yet. */
    if (there != NULL && PyDict_Check(there) && PyDict_Update(there, here) == 0 &&
        PyDict_SetItem(there, begins.key, span) == 0)
        return there;
    Py_XDECREF(there);
    return NULL;
}

/* What spans._otel_begin() returns; 0 where Python has to begin it */
static int begin_seen(PyObject *span, PyObject *own)
{
    PyObject *here = NULL;
    if (PyContextVar_Get(begins.variable, NULL, &here) < 0)
        return -1;
    int done = 0;
    if (here != NULL && PyDict_Check(here)) {
        /* Borrowed: a context never changes, and `here` holds it. */
        PyObject *parent = PyDict_GetItemWithError(here, begins.key);
        if (parent == NULL ? !PyErr_Occurred() : Py_TYPE(parent) == Py_TYPE(span)) {
            PyObject *there = context_with(here, span);
            done = there == NULL || set_ids(span, own, parent) < 0 ||
                           set_token(span, PyContextVar_Set(begins.variable, there)) < 0
                       ? -1
                       : 1;
            Py_XDECREF(there);
        } else if (parent == NULL)
            done = -1;
    }
    Py_XDECREF(here);
    return done;
}

int begin_span(PyObject *span)
{
    PyObject *with = of_state(timer.of_state.begin);
    int done = 0;
    if (with == begins.seen || with == begins.alone) {
        PyObject *own = PyIter_Next(of_state(timer.of_state.ids));
        done = own == NULL ? -1 : with == begins.seen ? begin_seen(span, own) : begin_alone(span, own);
        Py_XDECREF(own);
    }
    if (done != 0)
        return done < 0 ? -1 : 0;
    /* The slot may get another value while it is called: where OpenTelemetry is imported meanwhile. */
    Py_INCREF(with);
    PyObject *nothing = PyObject_CallOneArg(with, span);
    Py_DECREF(with);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

/* Count a span of the step; 0 where the budget is used up, or the step is none. */
int has_room(PyObject *step)
{
    if (!is_exactly(step, timer.step))
        return 0;
    long spans = PyLong_AsLong(slot(step, timer.of_step.spans)), budget = PyLong_AsLong(of_state(timer.of_state.budget));
    if (spans < 0 || budget < 0) { /* a number that is no long is one for Python */
        PyErr_Clear();
        return 0;
    }
    PyObject *more = spans < budget ? PyLong_FromLong(spans + 1) : NULL;
    if (more == NULL)
        return 0;
    set_slot(step, timer.of_step.spans, more);
    return 1;
}

static int failed_otherwise(int failed)
{
    if (!failed || !PyErr_ExceptionMatches(PyExc_ValueError))
        return failed;
    PyErr_Clear(); /* left in another context than entered: that one is gone */
    return 0;
}

/* token.var.reset(token); which variable it is need not be asked where it is the one that spans are begun with. */
static int reset(PyObject *token)
{
    PyObject *usual = of_state(timer.of_state.begin) == begins.seen ? begins.variable : begins.active;
    int failed = PyContextVar_Reset(usual, token);
    if (!failed || !PyErr_ExceptionMatches(PyExc_ValueError))
        return failed;
    PyErr_Clear();
    PyObject *variable = PyObject_GetAttr(token, timer.var);
    failed = variable == NULL ? -1 : variable == usual ? 0 : failed_otherwise(PyContextVar_Reset(variable, token));
    Py_XDECREF(variable);
    return failed;
}

/* spans.leave */
static int leave(PyObject *span)
{
    PyObject *token = Py_NewRef(slot(span, timer.of_timing.token));
    int failed = -1;
    if (PyContextToken_CheckExact(token)) {
        set_slot(span, timer.of_timing.token, Py_NewRef(Py_None));
        failed = reset(token);
    } else {
        PyObject *nothing = PyObject_CallOneArg(timer.leave, span);
        failed = nothing == NULL ? -1 : 0;
        Py_XDECREF(nothing);
    }
    Py_DECREF(token);
    return failed;
}

/* spans.keep */
static int keep(PyObject *span)
{
    if (PyList_GET_SIZE(timer.spans) < timer.most_spans)
        return PyList_Append(timer.spans, span);
    PyObject *nothing = PyObject_CallOneArg(timer.keep, span);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

int finish_span(PyObject *self, PyObject *end_ns)
{
    PyObject *token = slot(self, timer.of_timing.token);
    if (token != NULL && token != Py_None && leave(self) < 0)
        return -1;
    set_slot(self, timer.of_timing.end_ns, Py_NewRef(end_ns));
    return keep(self);
}

PyMethodDef begin_functions[] = {
    {"bind_alone", bind_alone, METH_VARARGS, "Know what begins a span that nobody else sees: (begin, ContextVar)."},
    {"bind_opentelemetry", bind_opentelemetry, METH_VARARGS,
     "Know what begins a span that OpenTelemetry sees: (begin, ContextVar, key, Context)."},
    {NULL, NULL, 0, NULL},
};
