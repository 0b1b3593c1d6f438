/* log(): the usual call, without a frame of Python. Twin: _internal/record/log.py.

   What is not usual (another type, an option) is called in Python, which decides as it always does. */
#include "prefetch.h"

static struct {
    PyObject *slow;
    PyObject *rows; /* _PLAIN.rows */
    PyObject *row_type;
    Py_ssize_t series; /* a slot of Row */
    Py_ssize_t fewest;
} plain;

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

/* Append the values of a row; 1 if that was done, 0 where Python has to look at them, -1 with an exception. `items` has
   room for its head. */
static int append_row(PyObject *row, PyObject *index, PyObject **items, Py_ssize_t n)
{
    /* Only the dictionary of rows and the place at hand hold it, and Python, which may run from here on, empties both
       where more is said of a metric. */
    Py_INCREF(row);
    PyObject *step = numbers_of(items + ROW_HEAD, n) <= 0 ? NULL : index == NULL ? step_now() : step_at(index);
    PyObject *time = step == NULL ? NULL : time_now();
    int done = PyErr_Occurred() ? -1 : 0;
    if (time != NULL) {
        int is_alone = n == 1; /* a record, then: it is shorter, and folded at once */
        items[0] = is_alone ? PyTuple_GET_ITEM(slot(row, plain.series), 0) : row;
        items[1] = step;
        items[2] = is_alone ? items[ROW_HEAD] : Py_None;
        items[3] = time;
        done = append_items(items, is_alone ? ROW_HEAD : ROW_HEAD + n) < 0 ? -1 : 1;
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
            int has_step = (n >= 2 || names != NULL) && arguments[1] != Py_None;
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
    Py_ssize_t series = slot_offset(row_type, "series");
    if (function == NULL || series < 0)
        return NULL;
    plain.series = series;
    plain.slow = Py_NewRef(slow);
    plain.rows = Py_NewRef(rows);
    plain.row_type = Py_NewRef(row_type);
    plain.fewest = fewest;
    return function_of(slow, function);
}

PyMethodDef log_functions[] = {
    {"log_function", log_function, METH_VARARGS, "Return `log`: (log of Python, rows, Row, FEWEST)."},
    {"forget_rows", forget_rows, METH_NOARGS, "Look the names of rows up again."},
    {NULL, NULL, 0, NULL},
};
