/* record() and log(): the usual call, without a frame of Python. Twins: _internal/record/meter.py, log.py, append.py.

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

static struct {
    PyObject *slow;
    PyObject *rows; /* _PLAIN.rows */
    PyObject *row_type;
    Py_ssize_t fewest;
} plain;

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

static inline int is_off(void)
{
    return slot(buffer.now, buffer.off) == Py_True;
}

PyObject *now_of_process(void)
{
    return buffer.now;
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
    PyObject *time = PyObject_CallNoArgs(buffer.time_ns);
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

static int are_none(PyObject *const *arguments, Py_ssize_t n)
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

/* log */

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

#define LOG_ARGUMENTS 9 /* of record() of Python to log(): more would be mistakes of the program's, which Python says */
#define ROW_HEAD 4
#define ROW_ON_STACK 256
#define ROWS_AT_HAND 64

/* Rows by the first of their names and how many they are. That the other names are the same objects is seen without
   looking at any of them: with cold caches to hash a hundred strings is a hundred waits for memory. */
static struct {
    PyObject *names, *row;
} at_hand[ROWS_AT_HAND];

static size_t place_at_hand(PyObject *first, Py_ssize_t n)
{
    /* Objects begin at multiples of 16. */
    return ((size_t)first / 16 + (size_t)n) % ROWS_AT_HAND;
}

/* Append a row; 1 if it was, 0 where Python has to look at it, -1 with an exception. `items` has room for its head. */
static int append_row(PyObject *row, PyObject *index, PyObject **items, Py_ssize_t n)
{
    /* Only the dictionary of rows and the place at hand hold it, and Python, which may run from here on, empties both
       where more is said of a metric. */
    Py_INCREF(row);
    PyObject *step = numbers_of(items + ROW_HEAD, n) <= 0 ? NULL : index == NULL ? step_now() : step_at(index);
    PyObject *time = step == NULL ? NULL : PyObject_CallNoArgs(buffer.time_ns);
    int done = PyErr_Occurred() ? -1 : 0;
    if (time != NULL) {
        items[0] = row, items[1] = step, items[2] = Py_None, items[3] = time;
        done = append_items(items, ROW_HEAD + n) < 0 ? -1 : 1;
    }
    Py_XDECREF(time);
    Py_XDECREF(step);
    Py_DECREF(row);
    return done;
}

/* The row of these names, borrowed, and kept at hand; NULL, perhaps with an exception, where there is none yet. */
static PyObject *known_row(PyObject *names)
{
    PyObject *row = PyDict_GetItemWithError(plain.rows, names);
    if (row == NULL || !is_exactly(row, plain.row_type)) {
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
            PyErr_Clear(); /* a name that cannot be looked up: Python says which */
        return NULL;
    }
    /* Borrowed from the dictionary until here: nothing ran since it was looked up. The place holds a reference of its
       own. */
    size_t place = place_at_hand(PyTuple_GET_ITEM(names, 0), PyTuple_GET_SIZE(names));
    Py_XSETREF(at_hand[place].names, Py_NewRef(names));
    Py_XSETREF(at_hand[place].row, Py_NewRef(row));
    return row;
}

/* A new tuple; NULL, perhaps without an exception, where Python has to look at them. */
static PyObject *names_of(PyObject *values)
{
    PyObject *names = PyTuple_New(PyDict_GET_SIZE(values)), *name;
    Py_ssize_t place = 0, taken = 0;
    while (names != NULL && taken < PyTuple_GET_SIZE(names) && PyDict_Next(values, &place, &name, NULL))
        PyTuple_SET_ITEM(names, taken++, Py_NewRef(name));
    /* Up to Python 3.11 a new tuple may have the garbage collector run, and a finalizer has taken names away: to hash a
       tuple with a hole would end the process. */
    if (names != NULL && taken < PyTuple_GET_SIZE(names))
        Py_CLEAR(names);
    return names;
}

/* Whether a dictionary has as many values, of these names. They are put into `items` then, borrowed, and untouched until
   the memory of all of them was asked for. */
static int has_names(PyObject *values, PyObject *names, PyObject **items)
{
    PyObject *name;
    if (PyDict_GET_SIZE(values) != PyTuple_GET_SIZE(names))
        return 0;
    for (Py_ssize_t place = 0, i = 0; PyDict_Next(values, &place, &name, &items[i]); i++) {
        if (name != PyTuple_GET_ITEM(names, i))
            return 0;
        prefetch(items[i], sizeof(PyFloatObject));
    }
    return 1;
}

/* The row of a dictionary, borrowed, with the values in `items` as has_names() puts them; NULL as in known_row(). */
static PyObject *row_of(PyObject *values, PyObject **items)
{
    PyObject *first = NULL, *names, *row;
    Py_ssize_t place = 0, n = PyDict_GET_SIZE(values);
    PyDict_Next(values, &place, &first, NULL);
    size_t here = place_at_hand(first, n);
    /* Compared by identity, since a training loop passes the same literals each time; equal names that are other
       objects take the dictionary below. */
    if (at_hand[here].row != NULL && has_names(values, at_hand[here].names, items))
        return at_hand[here].row;
    names = names_of(values);
    row = names == NULL ? NULL : known_row(names);
    if (row != NULL && (PyTuple_GET_SIZE(names) != n || !has_names(values, names, items)))
        row = NULL; /* a name that is more than a str has changed the dictionary while it was compared */
    Py_XDECREF(names);
    return row;
}

/* Append the values as a row, as append_row(); nothing else runs between the look at the names and at the values. */
static int log_row(PyObject *values, PyObject *index)
{
    Py_ssize_t n = PyDict_GET_SIZE(values);
    /* So there is a first name below: a row of none is not one. */
    if (n < plain.fewest)
        return 0;
    PyObject *on_stack[ROW_HEAD + ROW_ON_STACK];
    PyObject **items = n <= ROW_ON_STACK ? on_stack : PyMem_New(PyObject *, ROW_HEAD + n);
    PyObject *row = items == NULL ? NULL : row_of(values, items + ROW_HEAD);
    int done = row == NULL && PyErr_Occurred() ? -1 : 0;
    if (row != NULL) {
        /* Own references: an int subclass or a finalizer could change the dictionary while values are converted. */
        for (Py_ssize_t i = ROW_HEAD; i < ROW_HEAD + n; i++)
            Py_INCREF(items[i]);
        done = append_row(row, index, items, n);
        for (Py_ssize_t i = ROW_HEAD; i < ROW_HEAD + n; i++)
            Py_DECREF(items[i]);
    }
    if (items != on_stack)
        PyMem_Free(items);
    return done;
}

/* Names are looked up again from now on. */
static PyObject *forget_rows(PyObject *module, PyObject *unused)
{
    for (size_t i = 0; i < ROWS_AT_HAND; i++) {
        Py_CLEAR(at_hand[i].names);
        Py_CLEAR(at_hand[i].row);
    }
    Py_RETURN_NONE;
}

/* Whether a call has values alone, or values and a step, as `log(values, step=7)`; `record()` has None for the rest. */
static int is_usual_log(PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    if (names == NULL)
        return n == 1 || n == 2 || (n > 2 && n <= LOG_ARGUMENTS && are_none(arguments + 2, n - 2));
    return n == 1 && PyTuple_GET_SIZE(names) == 1 &&
           PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "step") == 0;
}

static PyObject *log_values(PyObject *module, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    if (is_usual_log(arguments, n, names)) {
        if (is_off())
            Py_RETURN_NONE;
        if (PyDict_CheckExact(arguments[0])) {
            int has_step = (n == 2 || names != NULL) && arguments[1] != Py_None;
            int done = log_row(arguments[0], has_step ? arguments[1] : NULL);
            if (done < 0 && forgive("log()") < 0)
                return NULL;
            if (done != 0)
                Py_RETURN_NONE;
        }
    }
    return PyObject_Vectorcall(plain.slow, arguments, n, names);
}

static PyObject *log_function(PyObject *module, PyObject *arguments)
{
    PyObject *slow, *rows, *row_type;
    Py_ssize_t fewest;
    if (!PyArg_ParseTuple(arguments, "OO!On", &slow, &PyDict_Type, &rows, &row_type, &fewest))
        return NULL;
    PyMethodDef *function = definition_of(slow, "log", log_values);
    if (function == NULL)
        return NULL;
    plain.slow = Py_NewRef(slow);
    plain.rows = Py_NewRef(rows);
    plain.row_type = Py_NewRef(row_type);
    plain.fewest = fewest;
    return function_of(slow, function);
}

PyMethodDef record_functions[] = {
    {"bind_buffer", bind_buffer, METH_VARARGS, "Know the buffer: (RECORDS, NOW, current_step, relieve, time_ns, reporter.failed, LIMIT, READERS)."},
    {"record_method", record_method, METH_VARARGS, "Return the method `record` of a class: (Metric, its own record)."},
    {"log_function", log_function, METH_VARARGS, "Return `log`: (log of Python, rows, Row, FEWEST)."},
    {"take", take, METH_NOARGS, "Remove and return the records that are there now."},
    {"forget_rows", forget_rows, METH_NOARGS, "Look the names of rows up again."},
    {NULL, NULL, 0, NULL},
};
