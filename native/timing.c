/* Timers: `with timed("x")`, without a frame of Python. Twins: timed() and Timing of _internal/timers/timing.py.

   What is not usual is called in Python: a `with` object that is entered again, a step over its budget of spans, a step
   that has ended meanwhile, events of a device (the span is not), an exception. */
#include "timing.h"

struct timer timer;

static PyObject *bind_timers(PyObject *module, PyObject *arguments)
{
    static const char *const of_timing[] = {"begin_ns", "end_ns", "event", "more",     "parent_id",
                                            "span_id",  "step",   "token", "trace_id", "definition", NULL};
    static const char *const of_definition[] = {"device", "series", "span", NULL};
    static const char *const of_step[] = {"ended", "spans", NULL};
    static const char *const of_state[] = {"begin", "budget", "ids", "offset_ns", "trace_high", NULL};
    static const char *const of_again[] = {"used", NULL}, *const of_now[] = {"level", NULL};
    PyObject *timing, *recording, *definition, *step, *state, *again, *now, *spans, *defined, *off;
    PyObject *keep, *leave, *clock, *begin_on_device, *end_on_device;
    Py_ssize_t most_spans;
    if (!PyArg_ParseTuple(arguments, "OOOOOOOO!O!O!OOOOOn", &timing, &recording, &definition, &step, &state, &again,
                          &now, &PyList_Type, &spans, &PyDict_Type, &defined, &PyDict_Type, &off, &keep, &leave, &clock,
                          &begin_on_device, &end_on_device, &most_spans))
        return NULL;
    if (slots_of(timing, &timer.of_timing.begin_ns, of_timing) < 0 ||
        slots_of(definition, &timer.of_definition.device, of_definition) < 0 ||
        slots_of(step, &timer.of_step.ended, of_step) < 0 ||
        slots_of((PyObject *)Py_TYPE(state), &timer.of_state.begin, of_state) < 0 ||
        slots_of((PyObject *)Py_TYPE(again), &timer.is_used, of_again) < 0 ||
        slots_of((PyObject *)Py_TYPE(now), &timer.level, of_now) < 0)
        return NULL;
    timer.zero = PyLong_FromLong(0);
    timer.var = PyUnicode_InternFromString("var");
    if (timer.zero == NULL || timer.var == NULL)
        return NULL;
    timer.timing = Py_NewRef(timing);
    timer.recording = Py_NewRef(recording);
    timer.definition = Py_NewRef(definition);
    timer.step = Py_NewRef(step);
    timer.state = Py_NewRef(state);
    timer.again = Py_NewRef(again);
    timer.spans = Py_NewRef(spans);
    timer.defined = Py_NewRef(defined);
    timer.off = Py_NewRef(off);
    timer.keep = Py_NewRef(keep);
    timer.leave = Py_NewRef(leave);
    timer.perf_counter_ns = Py_NewRef(clock);
    timer.begin_on_device = Py_NewRef(begin_on_device);
    timer.end_on_device = Py_NewRef(end_on_device);
    timer.most_spans = most_spans;
    Py_RETURN_NONE;
}

/* Timing.__enter__ */
static PyObject *enter(PyObject *self, PyObject *unused)
{
    PyObject *definition = slot(self, timer.of_timing.definition), *step = NULL;
    if (slot(self, timer.of_timing.begin_ns) == timer.zero && definition != NULL &&
        is_exactly(definition, timer.definition) && slot(definition, timer.of_definition.span) == Py_True) {
        step = step_now();
        if (step == NULL)
            return NULL;
    }
    /* Beyond the budget of spans a step still gets its duration, as a value: only the span is left out and counted.
       Python does that. */
    if (step == NULL || !has_room(step)) {
        Py_XDECREF(step);
        return PyObject_CallOneArg(timer.enter, self);
    }
    /* Takes over the reference that step_now() gave. */
    set_slot(self, timer.of_timing.step, step);
    set_slot(self, timer.of_timing.end_ns, Py_NewRef(timer.zero));
    set_slot(self, timer.of_timing.more, Py_NewRef(Py_None));
    set_slot(self, timer.of_timing.event, Py_NewRef(Py_None));
    if (begin_span(self) < 0)
        return NULL;
    if (slot(definition, timer.of_definition.device) != Py_None) {
        PyObject *event = PyObject_CallNoArgs(timer.begin_on_device);
        if (event == NULL)
            return NULL;
        set_slot(self, timer.of_timing.event, event);
    }
    /* Last, so that the time of entering is not measured. At the exit the clock is read first. */
    PyObject *now = PyObject_CallNoArgs(timer.perf_counter_ns);
    if (now == NULL)
        return NULL;
    set_slot(self, timer.of_timing.begin_ns, now);
    return Py_NewRef(self);
}

/* How long it took: what a device will say, or a float; NULL where an exception was raised. What took longer than a
   century is not one. */
static PyObject *duration(PyObject *self, PyObject *end_ns)
{
    int before = 0, after = 0; /* whether it is too large: asked so it takes a fifth of the time of PyLong_AsLongLong() */
    long long begin = PyLong_AsLongLongAndOverflow(slot(self, timer.of_timing.begin_ns), &before);
    long long end = PyLong_AsLongLongAndOverflow(end_ns, &after);
    if (before || after)
        PyErr_SetString(PyExc_OverflowError, "a time of more than 64 bits");
    if (PyErr_Occurred())
        return NULL;
    PyObject *event = slot(self, timer.of_timing.event);
    if (event == Py_None)
        return PyFloat_FromDouble((double)(end - begin) / 1e9);
    Py_INCREF(event); /* a handler that runs meanwhile may enter the timer again */
    PyObject *has_ended = PyObject_CallOneArg(timer.end_on_device, event);
    int answer = has_ended == NULL ? -1 : PyObject_IsTrue(has_ended);
    Py_XDECREF(has_ended);
    if (answer > 0)
        return event;
    Py_DECREF(event);
    return answer < 0 ? NULL : PyFloat_FromDouble((double)(end - begin) / 1e9);
}

/* Append how long it took. */
static int record_seconds(PyObject *self, PyObject *step, PyObject *end_ns)
{
    PyObject *seconds = duration(self, end_ns), *time = NULL;
    int failed = -1;
    if (seconds != NULL)
        time = PyNumber_Add(end_ns, of_state(timer.of_state.offset_ns));
    if (time != NULL) {
        PyObject *series = slot(slot(self, timer.of_timing.definition), timer.of_definition.series);
        PyObject *items[] = {series, step, seconds, time};
        failed = append_items(items, 4);
    }
    Py_XDECREF(seconds);
    Py_XDECREF(time);
    return failed;
}

static int is_usual_end(PyObject *self, PyObject *const *arguments, Py_ssize_t n)
{
    PyObject *step = slot(self, timer.of_timing.step), *begin_ns = slot(self, timer.of_timing.begin_ns);
    PyObject *definition = slot(self, timer.of_timing.definition);
    return n == 3 && arguments[0] == Py_None && slot(timer.again, timer.is_used) == Py_False &&
           slot(self, timer.of_timing.event) != NULL && slot(self, timer.of_timing.span_id) != NULL && step != NULL &&
           is_exactly(step, timer.step) && slot(step, timer.of_step.ended) == Py_False && begin_ns != NULL &&
           PyLong_CheckExact(begin_ns) && definition != NULL && is_exactly(definition, timer.definition);
}

/* Timing.__exit__ */
static PyObject *leave_timing(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    if (names != NULL || !is_usual_end(self, arguments, n))
        return call_slow(timer.exit, self, arguments, n, names);
    /* The step of the beginning counts, not the current one: set_step() may have been called inside of the block. */
    /* A reference to it, for what comes before the record may run Python, which may enter the timer again and set
       another. */
    PyObject *end_ns = PyObject_CallNoArgs(timer.perf_counter_ns), *step = Py_NewRef(slot(self, timer.of_timing.step));
    int failed = end_ns == NULL ? -1 : 0;
    if (!failed && slot(self, timer.of_timing.span_id) != timer.zero)
        failed = finish_span(self, end_ns);
    if (!failed)
        failed = record_seconds(self, step, end_ns);
    Py_XDECREF(end_ns);
    Py_DECREF(step);
    if (failed && forgive("timed()") < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The level of a call: 1 where none is given, -1 where Python has to find out. */
static long level_of(PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (n == 1 && named == 0)
        return 1;
    if (n < 1 || n + named != 2 || !PyLong_CheckExact(arguments[1]))
        return -1;
    if (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "level") != 0)
        return -1;
    long level = PyLong_AsLong(arguments[1]);
    if (level == -1)
        PyErr_Clear();
    return level;
}

/* `timed(name, device=…)` or `timed(name, kind=…)`: its definition is known by all of its options. */
static PyObject *timer_with_option(PyObject *const *arguments, Py_ssize_t n, PyObject *names, long most)
{
    if (n != 1 || names == NULL || PyTuple_GET_SIZE(names) != 1 || most < 1 || !PyUnicode_CheckExact(arguments[0]) ||
        PyErr_Occurred())
        return NULL;
    PyObject *device = Py_None, *kind = Py_None, *option = PyTuple_GET_ITEM(names, 0);
    if (PyUnicode_CompareWithASCIIString(option, "device") == 0)
        device = arguments[1];
    else if (PyUnicode_CompareWithASCIIString(option, "kind") == 0)
        kind = arguments[1];
    else
        return NULL;
    PyObject *key = PyTuple_Pack(6, arguments[0], Py_None, Py_None, Py_True, device, kind);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(timer.defined, key);
    Py_XDECREF(key);
    return found;
}

static PyObject *timing_of(PyObject *definition)
{
    PyTypeObject *type = (PyTypeObject *)timer.timing;
    Py_INCREF(definition); /* first: up to Python 3.11 finalizers may run where memory is asked for */
    PyObject *made = type->tp_alloc(type, 0);
    if (made == NULL) {
        Py_DECREF(definition);
        return NULL;
    }
    set_slot(made, timer.of_timing.definition, definition);
    set_slot(made, timer.of_timing.begin_ns, Py_NewRef(timer.zero));
    return made;
}

/* timed */
static PyObject *timed(PyObject *module, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    long level = level_of(arguments, n, names), most = PyLong_AsLong(slot(now_of_process(), timer.level));
    PyObject *found = NULL;
    if (level < 0)
        found = timer_with_option(arguments, n, names, most);
    else if (PyUnicode_CheckExact(arguments[0]) && !PyErr_Occurred())
        found = PyDict_GetItemWithError(level > most ? timer.off : timer.defined, arguments[0]);
    if (found != NULL)
        return level > most ? Py_NewRef(found) : timing_of(found);
    PyErr_Clear();
    return PyObject_Vectorcall(timer.timed, arguments, n, names);
}

/* What a timer above the level does, and where it begins and ends: of a class, but no method, so nothing is bound. */
static PyObject *nothing(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    Py_RETURN_FALSE; /* what `bool()` of the twin returns */
}

/* What the `with` of such a timer gives: always the same object, which is the function's own. */
static PyObject *same(PyObject *self, PyObject *const *arguments, Py_ssize_t n)
{
    return Py_NewRef(self);
}

static PyObject *always(PyObject *module, PyObject *object)
{
    /* The function's `self` is what it returns: it holds the reference, and the definition serves all. */
    static PyMethodDef function = {"always", (PyCFunction)(void (*)(void))same, METH_FASTCALL, NULL};
    return PyCFunction_NewEx(&function, object, NULL);
}

static PyObject *timing_methods(PyObject *module, PyObject *arguments)
{
    PyObject *type, *slow_enter, *slow_exit;
    if (!PyArg_ParseTuple(arguments, "O!OO", &PyType_Type, &type, &slow_enter, &slow_exit))
        return NULL;
    static PyMethodDef enter_method = {"__enter__", enter, METH_NOARGS, NULL};
    static PyMethodDef exit_method = {
        "__exit__", (PyCFunction)(void (*)(void))leave_timing, METH_FASTCALL | METH_KEYWORDS, NULL};
    Py_XSETREF(timer.enter, Py_NewRef(slow_enter));
    Py_XSETREF(timer.exit, Py_NewRef(slow_exit));
    PyObject *first = PyDescr_NewMethod((PyTypeObject *)type, &enter_method);
    PyObject *second = PyDescr_NewMethod((PyTypeObject *)type, &exit_method);
    return Py_BuildValue("(NN)", first, second);
}

static PyObject *timed_function(PyObject *module, PyObject *slow)
{
    PyMethodDef *function = definition_of(slow, "timed", timed);
    if (function == NULL)
        return NULL;
    Py_XSETREF(timer.timed, Py_NewRef(slow));
    return function_of(slow, function);
}

PyMethodDef timing_functions[] = {
    {"bind_timers", bind_timers, METH_VARARGS, "Know the classes, the state and the twins of what ends a span."},
    {"timing_methods", timing_methods, METH_VARARGS, "Return `__enter__` and `__exit__`: (Timing, its own two)."},
    {"nothing", (PyCFunction)(void (*)(void))nothing, METH_FASTCALL, "Return False, whatever it is given."},
    {"always", always, METH_O, "Return a function that returns this object, whatever it is given."},
    {"timed_function", timed_function, METH_O, "Return `timed`: (timed of Python)."},
    {NULL, NULL, 0, NULL},
};
