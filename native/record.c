/* The buffer, and `Metric.record()`: the usual call, without a frame of Python. Twins: _internal/record/meter.py, append.py.

   What is not usual (another type, an option, recording asleep) is called in Python, which decides as it always does.
   A record is appended in one go while the GIL is held: nothing here runs code of Python between its first item and its
   last, so that callers of several threads need no lock, and the fold never sees half of one. */
#include "prefetch.h"

static struct {
    PyObject *records, *records_type; /* buffer.RECORDS, and its class while it is awake */
    PyObject *now;                    /* NOW of run_scope.py */
    PyObject *current_step, *relieve, *time_ns, *failed;
    PyObject *readers;           /* values.READERS */
    Py_ssize_t limit, off, step; /* the last two: slots of NOW */
} buffer;

static PyObject *bind_buffer(PyObject *module, PyObject *arguments)
{
    PyObject *records, *now, *current_step, *relieve, *time_ns, *failed, *readers;
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(arguments, "OOOOOOnO!", &records, &now, &current_step, &relieve, &time_ns, &failed, &limit,
                          &PyDict_Type, &readers))
        return NULL;
    Py_ssize_t off = slot_offset((PyObject *)Py_TYPE(now), "off"), step = slot_offset((PyObject *)Py_TYPE(now), "step");
    if (off < 0 || step < 0)
        return NULL;
    buffer.records = Py_NewRef(records);
    buffer.records_type = Py_NewRef((PyObject *)Py_TYPE(records));
    buffer.now = Py_NewRef(now);
    buffer.current_step = Py_NewRef(current_step);
    buffer.relieve = Py_NewRef(relieve);
    buffer.time_ns = Py_NewRef(time_ns);
    buffer.failed = Py_NewRef(failed);
    buffer.readers = Py_NewRef(readers);
    buffer.limit = limit;
    buffer.off = off;
    buffer.step = step;
    Py_RETURN_NONE;
}

int is_off(void)
{
    return slot(buffer.now, buffer.off) == Py_True;
}

PyObject *now_of_process(void)
{
    return buffer.now;
}

PyObject *time_now(void)
{
    return PyObject_CallNoArgs(buffer.time_ns);
}

PyObject *step_now(void)
{
    PyObject *step = slot(buffer.now, buffer.step);
    return step != NULL && step != Py_None ? Py_NewRef(step) : PyObject_CallNoArgs(buffer.current_step);
}

int append_items(PyObject *const *items, Py_ssize_t n)
{
    PyObject *records = buffer.records;
    if (!is_exactly(records, buffer.records_type)) { /* asleep: the first record wakes the process */
        PyObject *whole = PyTuple_New(n);
        if (whole == NULL)
            return -1;
        for (Py_ssize_t i = 0; i < n; i++)
            PyTuple_SET_ITEM(whole, i, Py_NewRef(items[i]));
        PyObject *same = PyNumber_InPlaceAdd(records, whole);
        Py_DECREF(whole);
        Py_XDECREF(same);
        return same == NULL ? -1 : 0;
    }
    /* PyList_Append runs no code of Python and lets go of no lock: another thread sees all items of a record or
       none. */
    Py_ssize_t before = PyList_GET_SIZE(records);
    for (Py_ssize_t i = 0; i < n; i++)
        if (PyList_Append(records, items[i]) < 0) { /* no memory: half a record would shift all that follow */
            PyObject *type, *value, *trace;
            PyErr_Fetch(&type, &value, &trace);
            PyList_SetSlice(records, before, before + i, NULL);
            PyErr_Restore(type, value, trace);
            return -1;
        }
    /* After the record is whole: relieve() may wait, and a signal handler that runs meanwhile may record, too. */
    if (PyList_GET_SIZE(records) > buffer.limit) {
        PyObject *nothing = PyObject_CallNoArgs(buffer.relieve);
        Py_XDECREF(nothing);
        return nothing == NULL ? -1 : 0;
    }
    return 0;
}

/* buffer.take(): the list changes its memory for new of the same size. So no record is touched, which another processor
   has just written, and no caller waits for a list that grows from nothing. */
static PyObject *take(PyObject *module, PyObject *unused)
{
    PyListObject *records = (PyListObject *)buffer.records, *part = (PyListObject *)PyList_New(0);
    Py_ssize_t n = PyList_GET_SIZE(records);
    if (part == NULL || n == 0)
        return (PyObject *)part;
    /* By the allocator that lists have their memory from, and free it with. */
    PyObject **items = PyMem_New(PyObject *, n);
    if (items == NULL) {
        Py_DECREF(part);
        return PyErr_NoMemory();
    }
    /* The list object itself stays: callers hold it, in C and in Python, and would append to a replaced one unseen. */
    /* With the references in it, so that no count changes. Nothing from here to the end runs Python, asks for memory or
       lets go of the GIL: nobody sees two lists with the same memory. */
    part->ob_item = records->ob_item;
    part->allocated = records->allocated;
    Py_SET_SIZE(part, n);
    records->ob_item = items;
    records->allocated = n;
    Py_SET_SIZE(records, 0);
    return (PyObject *)part;
}

static int append_now(PyObject *series, PyObject *value)
{
    PyObject *step = step_now();
    if (step == NULL)
        return -1;
    PyObject *time = time_now();
    int failed = -1;
    if (time != NULL) {
        PyObject *items[] = {series, step, value, time};
        failed = append_items(items, 4);
        Py_DECREF(time);
    }
    Py_DECREF(step);
    return failed;
}

int forgive(const char *call)
{
    /* KeyboardInterrupt, SystemExit: they are for the program, not for us. */
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    PyObject *nothing = PyObject_CallFunction(buffer.failed, "sO", call, error);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

/* Metric.record */

static struct {
    PyObject *slow;
    Py_ssize_t series;
} metric;

/* What float() makes of a value of a class that it is known to read, such as a scalar of NumPy, which may run Python. */
static PyObject *float_of_known(PyObject *value)
{
    PyObject *reader = PyDict_GetItemWithError(buffer.readers, (PyObject *)Py_TYPE(value));
    PyObject *as_float = reader == (PyObject *)&PyFloat_Type ? PyNumber_Float(value) : NULL;
    if (as_float == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear(); /* Python says it, in its own words */
    return as_float;
}

/* A number as a float: a new reference; NULL where it is none, or no float is as large, which Python says. */
static PyObject *float_of(PyObject *value)
{
    if (PyFloat_CheckExact(value))
        return Py_NewRef(value);
    if (!PyLong_CheckExact(value))
        return float_of_known(value);
    double number = PyLong_AsDouble(value);
    PyObject *as_float = number == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(number);
    if (as_float == NULL)
        /* An int that is too large for a float: Python says so, in its own words. */
        PyErr_Clear();
    return as_float;
}

/* What stands in the buffer for a value without a weight: a new reference; NULL where Python has to look at it. */
static PyObject *item_of(PyObject *value)
{
    if (!PyList_CheckExact(value))
        return float_of(value);
    return are_floats(value) ? PyList_GetSlice(value, 0, PyList_GET_SIZE(value)) : NULL;
}

int are_none(PyObject *const *arguments, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (arguments[i] != Py_None)
            return 0;
    return 1;
}

/* 1 if it was recorded, 0 where Python has to look at it, -1 with an exception. */
static int record_item(PyObject *series, PyObject *value)
{
    if (series == NULL || series == Py_None)
        return 0;
    /* Before Python runs, as it does to find the step: meanwhile another thread may say more of the metric, which gets
       another series then. */
    Py_INCREF(series);
    PyObject *item = item_of(value);
    if (item == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear(); /* no memory: Python says it, or has some */
    int done = item != NULL ? (append_now(series, item) < 0 ? -1 : 1) : PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(item);
    Py_DECREF(series);
    return done;
}

static PyObject *record(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    if (n >= 1 && n <= 5 && names == NULL && are_none(arguments + 1, n - 1)) {
        if (is_off())
            Py_RETURN_NONE;
        int done = record_item(slot(self, metric.series), arguments[0]);
        /* An exception must not reach training: it is counted and reported, unless the user asked for strictness. */
        if (done < 0 && forgive("record()") < 0)
            return NULL;
        if (done != 0)
            Py_RETURN_NONE;
    }
    return call_slow(metric.slow, self, arguments, n, names);
}

static PyObject *record_method(PyObject *module, PyObject *arguments)
{
    PyObject *type, *slow;
    if (!PyArg_ParseTuple(arguments, "O!O", &PyType_Type, &type, &slow))
        return NULL;
    Py_ssize_t series = slot_offset(type, "_series");
    PyMethodDef *method = definition_of(slow, "record", record);
    if (series < 0 || method == NULL)
        return NULL;
    metric.series = series;
    metric.slow = Py_NewRef(slow);
    return PyDescr_NewMethod((PyTypeObject *)type, method);
}

int numbers_of(PyObject **items, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *as_float = float_of(items[i]);
        if (as_float == NULL)
            return PyErr_Occurred() ? -1 : 0;
        Py_SETREF(items[i], as_float);
    }
    return 1;
}

PyMethodDef record_functions[] = {
    {"bind_buffer", bind_buffer, METH_VARARGS, "Know the buffer: (RECORDS, NOW, current_step, relieve, time_ns, reporter.failed, LIMIT, READERS)."},
    {"record_method", record_method, METH_VARARGS, "Return the method `record` of a class: (Metric, its own record)."},
    {"take", take, METH_NOARGS, "Remove and return the records that are there now."},
    {NULL, NULL, 0, NULL},
};
