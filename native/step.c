/* set_step(): the usual call, without a frame of Python. Twins: set_step() of _internal/steps/step.py, Steps.set() of axes.py.

   It takes the lock as they do: what they find half done is found whole here, and the other way round. */
#include "native.h"

static struct {
    PyObject *steps, *now, *step_type, *axis_type, *default_axis, *time_ns, *slow;
    PyObject *acquire, *release, *forget_oldest, *enter; /* names */
    Py_ssize_t most;
    struct {
        Py_ssize_t asked, axes, boundaries, generation, lock, process, staged;
    } of_steps;
    struct {
        Py_ssize_t current, entered, explicit, fetched, latest, second_pass, steps;
    } of_axis;
    struct {
        Py_ssize_t axis, base, blocks, ended, ended_ns, generation, index, last_ns, pending, points, said, spans, stage,
            waiting;
    } of_step;
    struct {
        Py_ssize_t boundary, off, several, step;
    } of_now;
    PyObject *zero;
} steps;

static PyObject *set_step(PyObject *module, PyObject *const *arguments, Py_ssize_t n, PyObject *names);

static PyObject *set_step_function(PyObject *module, PyObject *arguments)
{
    static const char *const of_steps[] = {"asked", "axes",    "boundaries", "generation",
                                           "lock",  "process", "staged",     NULL};
    static const char *const of_axis[] = {"current", "entered", "explicit",    "fetched",
                                          "latest",  "second_pass", "steps", NULL};
    static const char *const of_step[] = {"axis",    "base",    "blocks", "ended", "ended_ns", "generation", "index", "last_ns",
                                          "pending", "points",  "said",   "spans", "stage",    "waiting",    NULL};
    static const char *const of_now[] = {"boundary", "off", "several", "step", NULL};
    PyObject *slow, *owner, *now, *step_type, *axis_type, *default_axis, *time_ns;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(arguments, "OOOO!OUOn", &slow, &owner, &now, &PyType_Type, &step_type, &axis_type,
                          &default_axis, &time_ns, &most))
        return NULL;
    if (slots_of((PyObject *)Py_TYPE(owner), &steps.of_steps.asked, of_steps) < 0 ||
        slots_of(axis_type, &steps.of_axis.current, of_axis) < 0 || slots_of(step_type, &steps.of_step.axis, of_step) < 0 ||
        slots_of((PyObject *)Py_TYPE(now), &steps.of_now.boundary, of_now) < 0)
        return NULL;
    steps.acquire = PyUnicode_InternFromString("acquire");
    steps.release = PyUnicode_InternFromString("release");
    steps.forget_oldest = PyUnicode_InternFromString("_forget_oldest");
    steps.enter = PyUnicode_InternFromString("enter");
    steps.zero = PyLong_FromLong(0);
    PyMethodDef *function = definition_of(slow, "set_step", set_step);
    if (!steps.acquire || !steps.release || !steps.forget_oldest || !steps.enter || !steps.zero || function == NULL)
        return NULL;
    steps.slow = Py_NewRef(slow);
    steps.steps = Py_NewRef(owner);
    steps.now = Py_NewRef(now);
    steps.step_type = Py_NewRef(step_type);
    steps.axis_type = Py_NewRef(axis_type);
    steps.default_axis = Py_NewRef(default_axis);
    steps.time_ns = Py_NewRef(time_ns);
    steps.most = most;
    return function_of(slow, function);
}

/* Step(axis, index, generation): a new reference */
static PyObject *new_step(PyObject *axis, PyObject *index)
{
    PyTypeObject *type = (PyTypeObject *)steps.step_type;
    PyObject *step = type->tp_alloc(type, 0);
    if (step == NULL)
        return NULL;
    Py_ssize_t zeros[] = {steps.of_step.blocks, steps.of_step.ended_ns, steps.of_step.last_ns, steps.of_step.points,
                          steps.of_step.said,   steps.of_step.spans,    steps.of_step.waiting};
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
        set_slot(step, zeros[i], Py_NewRef(steps.zero));
    set_slot(step, steps.of_step.axis, Py_NewRef(axis));
    set_slot(step, steps.of_step.index, Py_NewRef(index));
    set_slot(step, steps.of_step.generation, Py_NewRef(slot(steps.steps, steps.of_steps.generation)));
    set_slot(step, steps.of_step.ended, Py_NewRef(Py_True));
    Py_ssize_t nones[] = {steps.of_step.base, steps.of_step.pending, steps.of_step.stage};
    for (size_t i = 0; i < sizeof nones / sizeof *nones; i++)
        set_slot(step, nones[i], Py_NewRef(Py_None));
    return step;
}

/* The step of the axis, made at first sight: a new reference. */
static PyObject *step_of(PyObject *axis, PyObject *index)
{
    PyObject *known = slot(axis, steps.of_axis.steps), *step = PyDict_GetItemWithError(known, index);
    if (step != NULL || PyErr_Occurred())
        return Py_XNewRef(step);
    PyObject *made = new_step(axis, index);
    /* To make one may collect garbage, and a finalizer may record at this very step: whichever is there first counts. */
    step = made == NULL ? NULL : Py_XNewRef(PyDict_SetDefault(known, index, made));
    Py_XDECREF(made);
    if (step == NULL)
        return NULL;
    if (PyDict_GET_SIZE(known) >= steps.most) {
        PyObject *nothing = PyObject_CallMethodOneArg(steps.steps, steps.forget_oldest, axis);
        if (nothing == NULL)
            Py_CLEAR(step);
        Py_XDECREF(nothing);
    }
    return step;
}

/* SecondPass.enter of the axis: -1 with an exception */
static int enter_again(PyObject *axis, PyObject *index)
{
    PyObject *nothing = PyObject_CallMethodObjArgs(slot(axis, steps.of_axis.second_pass), steps.enter, index,
                                                   slot(axis, steps.of_axis.latest), NULL);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

/* Steps._move: -1 with an exception */
static int move(PyObject *axis, PyObject *step, PyObject *index)
{
    PyObject *before = slot(axis, steps.of_axis.current), *time = NULL;
    if (before != Py_None && before != step && slot(before, steps.of_step.blocks) == steps.zero) {
        time = PyObject_CallNoArgs(steps.time_ns);
        if (time == NULL)
            return -1;
    }
    PyObject *latest = slot(axis, steps.of_axis.latest);
    int is_later = PyObject_RichCompareBool(index, latest, Py_GT);
    int was_left = before != step && slot(step, steps.of_step.ended_ns) != steps.zero;
    int is_earlier = is_later == 0 && was_left ? PyObject_RichCompareBool(index, latest, Py_LT) : 0;
    /* Its end first, then that it has ended: the background thread reads both without the lock, and takes a step that
       has ended without a time for one that ended long ago. */
    if (time != NULL) { /* `before` is held by the axis until here */
        set_slot(before, steps.of_step.ended_ns, time);
        set_slot(before, steps.of_step.ended, Py_NewRef(Py_True));
    }
    set_slot(axis, steps.of_axis.current, Py_NewRef(step));
    set_slot(step, steps.of_step.ended, Py_NewRef(Py_False));
    if (is_later > 0)
        set_slot(axis, steps.of_axis.latest, Py_NewRef(index));
    return is_later < 0 || is_earlier < 0 || (is_earlier > 0 && enter_again(axis, index) < 0) ? -1 : 0;
}

/* Whether records without an axis go by another axis than the default one. */
static int is_default_unset(PyObject *axes)
{
    PyObject *axis = PyDict_GetItemWithError(axes, steps.default_axis);
    return axis == NULL ||
           (slot(axis, steps.of_axis.current) == Py_None && slot(axis, steps.of_axis.fetched) == Py_None);
}

/* Steps.set, of an axis that is known; with the lock */
static int set(PyObject *axes, PyObject *axis, PyObject *name, PyObject *index)
{
    set_slot(axis, steps.of_axis.explicit, Py_NewRef(Py_True));
    PyObject *step = step_of(axis, index);
    PyObject *one = step == NULL || move(axis, step, index) < 0 ? NULL : PyLong_FromLong(1);
    PyObject *more = one == NULL ? NULL : PyNumber_Add(slot(steps.steps, steps.of_steps.boundaries), one);
    Py_XDECREF(one);
    if (more == NULL) {
        Py_XDECREF(step);
        return -1;
    }
    set_slot(steps.steps, steps.of_steps.boundaries, more);
    set_slot(axis, steps.of_axis.entered, Py_NewRef(more));
    if (PyUnicode_Compare(name, steps.default_axis) == 0 || is_default_unset(axes)) {
        int is_asked = slot(steps.steps, steps.of_steps.asked) == Py_True;
        set_slot(steps.steps, steps.of_steps.process, Py_NewRef(step));
        set_slot(steps.now, steps.of_now.step, Py_NewRef(is_asked ? Py_None : step));
    }
    Py_DECREF(step);
    /* is_default_unset() leaves it to this line to return its exception. */
    return PyErr_Occurred() ? -1 : 0;
}

/* Whether which run a call is for has to be asked, or somebody asks when a step ends: Python does. */
static int is_asked_more(void)
{
    return slot(steps.now, steps.of_now.several) == Py_True || slot(steps.now, steps.of_now.boundary) != Py_None;
}

/* The axis that a usual call names; NULL where Python has to look. */
static PyObject *axis_of(PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    int is_named = n == 1 && names != NULL && PyTuple_GET_SIZE(names) == 1 &&
                   PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "axis") == 0;
    if (!is_named && !(names == NULL && (n == 1 || n == 2)))
        return NULL;
    int overflow = 0;
    if (!PyLong_CheckExact(arguments[0]) || PyLong_AsLongLongAndOverflow(arguments[0], &overflow) < 0 || overflow)
        return NULL;
    PyObject *name = is_named || n == 2 ? arguments[1] : steps.default_axis;
    return PyUnicode_CheckExact(name) ? name : NULL;
}

static int acquire(PyObject *lock)
{
    PyObject *taken = PyObject_CallMethodNoArgs(lock, steps.acquire);
    Py_XDECREF(taken);
    return taken == NULL ? -1 : 0;
}

/* Return `failed`, whose exception is kept; or -1 where to let go of the lock failed. */
static int release(PyObject *lock, int failed)
{
    /* Set aside: nothing may be called while there is an exception. */
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *left = PyObject_CallMethodNoArgs(lock, steps.release);
    Py_XDECREF(left);
    if (failed)
        PyErr_Restore(type, error, trace);
    return failed || left == NULL ? -1 : 0;
}

static PyObject *set_step(PyObject *module, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    /* Asked before the lock is there, as the twin does: a run that begins while this call waits misses this one
       boundary. */
    PyObject *name = slot(steps.now, steps.of_now.off) == Py_False && !is_asked_more() ? axis_of(arguments, n, names) : NULL;
    PyObject *axes = slot(steps.steps, steps.of_steps.axes);
    PyObject *axis = name == NULL || axes == NULL ? NULL : PyDict_GetItemWithError(axes, name);
    if (axis == NULL || !is_exactly(axis, steps.axis_type)) {
        PyErr_Clear();
        return PyObject_Vectorcall(steps.slow, arguments, n, names);
    }
    /* References before the lock: to acquire it may let go of the GIL, and a run that ends or begins meanwhile replaces
       what was looked up above. `of_steps.lock` is read once, so that what is released is what was acquired. */
    PyObject *lock = Py_NewRef(slot(steps.steps, steps.of_steps.lock));
    Py_INCREF(axes), Py_INCREF(axis);
    int failed = acquire(lock);
    if (!failed)
        failed = release(lock, set(axes, axis, name, arguments[0]));
    Py_DECREF(axes), Py_DECREF(axis);
    Py_DECREF(lock);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Whether Steps.at() has nothing to do: the step is known, and current unless set_step() or step() says which is. */
static int is_there(PyObject *axis, PyObject *step)
{
    return step != NULL &&
           (slot(axis, steps.of_axis.explicit) == Py_True || slot(axis, steps.of_axis.current) == step);
}

/* Steps.at of the default axis: a new reference; with the lock */
static PyObject *enter(PyObject *axis, PyObject *index)
{
    PyObject *step = step_of(axis, index);
    if (step == NULL || is_there(axis, step))
        return step;
    int is_asked = slot(steps.steps, steps.of_steps.asked) == Py_True;
    if (move(axis, step, index) < 0) {
        Py_DECREF(step);
        return NULL;
    }
    set_slot(steps.steps, steps.of_steps.process, Py_NewRef(step));
    set_slot(steps.now, steps.of_now.step, Py_NewRef(is_asked ? Py_None : step));
    return step;
}

PyObject *step_at(PyObject *index)
{
    int overflow = 0;
    PyObject *axes = slot(steps.steps, steps.of_steps.axes);
    if (is_asked_more() || !PyLong_CheckExact(index) || PyLong_AsLongLongAndOverflow(index, &overflow) < 0 || overflow ||
        axes == NULL || slot(steps.steps, steps.of_steps.staged) != Py_False)
        return NULL;
    PyObject *axis = PyDict_GetItemWithError(axes, steps.default_axis);
    if (axis == NULL || !is_exactly(axis, steps.axis_type))
        return NULL;
    PyObject *step = PyDict_GetItemWithError(slot(axis, steps.of_axis.steps), index);
    /* No lock on this path: nothing is changed, and a step is whole before it is put into the dictionary. No barrier
       either: who put it there had the GIL, as this thread has now. */
    if (is_there(axis, step) || PyErr_Occurred())
        return Py_XNewRef(step);
    PyObject *lock = Py_NewRef(slot(steps.steps, steps.of_steps.lock));
    Py_INCREF(axis); /* before the lock, as in set_step() */
    int failed = acquire(lock);
    if (!failed) {
        step = enter(axis, index);
        failed = release(lock, step == NULL ? -1 : 0);
        if (failed)
            Py_CLEAR(step);
    }
    Py_DECREF(axis);
    Py_DECREF(lock);
    return failed ? NULL : step;
}

PyMethodDef step_functions[] = {
    {"set_step_function", set_step_function, METH_VARARGS,
     "Return `set_step`: (set_step of Python, STEPS, NOW, Step, Axis, DEFAULT_AXIS, time_ns, Steps.KEPT + SPARE)."},
    {NULL, NULL, 0, NULL},
};
