/* Measures.record(): what a diagnostic knows at the same time, in one append. Twin: diagnostics/measure.py.

   A diagnostic is called once a step, with cold caches: the five functions of Python that a call went through were
   25 µs, whatever it records. What is not usual is called in Python, as in record.c. */
#include "native.h"

#define MOST_VALUES 64
#define HEAD 4 /* items before the values of a row; and of a record */

static struct {
    PyObject *slow, *step_for, *time_ns;
    PyObject *over, *step, *several; /* names of arguments */
    Py_ssize_t rows, off;
} measures;

typedef struct {
    PyObject *values, *over, *step, *several; /* all borrowed; `several` is NULL where there are none */
} Call;

static int take_named(Call *call, PyObject *name, PyObject *value)
{
    /* By identity: names that stand in a call are interned. One that is not is for Python. */
    PyObject **place = name == measures.over      ? &call->over
                       : name == measures.step    ? &call->step
                       : name == measures.several ? &call->several
                                                  : NULL;
    if (place == NULL || *place != Py_None)
        return 0;
    *place = value;
    return 1;
}

/* Whether this is the usual call: of one to so many values, by name. */
static int take_call(Call *call, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    *call = (Call){NULL, Py_None, Py_None, Py_None};
    if (n != 1 || !PyDict_CheckExact(arguments[0]))
        return 0;
    call->values = arguments[0];
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++)
        if (!take_named(call, PyTuple_GET_ITEM(names, i), arguments[n + i]))
            return 0;
    if (call->several != Py_None && !PyDict_CheckExact(call->several))
        return 0;
    if (call->several == Py_None || PyDict_GET_SIZE(call->several) == 0)
        call->several = NULL;
    Py_ssize_t every = PyDict_GET_SIZE(call->values);
    return every > 0 && every + (call->several == NULL ? 0 : PyDict_GET_SIZE(call->several)) <= MOST_VALUES;
}

/* What the twin knows these names by: a new reference. */
static PyObject *key_of(const Call *call)
{
    Py_ssize_t more = call->several == NULL ? 0 : 1 + PyDict_GET_SIZE(call->several);
    PyObject *key = PyTuple_New(1 + PyDict_GET_SIZE(call->values) + more), *name;
    if (key == NULL)
        return NULL;
    Py_ssize_t i = 0, place = 0;
    PyTuple_SET_ITEM(key, i++, Py_NewRef(call->over));
    /* Not more than there is room for, and not fewer: a diagnostic has just made these dictionaries, and nobody else
       has them, not even a finalizer that runs where the tuple was made. */
    while (PyDict_Next(call->values, &place, &name, NULL))
        PyTuple_SET_ITEM(key, i++, Py_NewRef(name));
    if (call->several != NULL)
        PyTuple_SET_ITEM(key, i++, Py_NewRef(Py_None));
    for (place = 0; call->several != NULL && PyDict_Next(call->several, &place, &name, NULL);)
        PyTuple_SET_ITEM(key, i++, Py_NewRef(name));
    return key;
}

/* The row and series of these names, a new reference; NULL, perhaps with an exception, where there are none yet. */
static PyObject *known_for(PyObject *self, const Call *call)
{
    PyObject *key = key_of(call), *rows = slot(self, measures.rows);
    PyObject *known = key == NULL || rows == NULL ? NULL : PyDict_GetItemWithError(rows, key);
    Py_XINCREF(known);
    Py_XDECREF(key);
    return known;
}

static PyObject *step_of(const Call *call)
{
    if (call->step == Py_None)
        return step_now();
    PyObject *step = step_at(call->step);
    if (step != NULL || PyErr_Occurred())
        return step;
    Py_ssize_t every = PyDict_GET_SIZE(call->values) + (call->several == NULL ? 0 : PyDict_GET_SIZE(call->several));
    return PyObject_CallFunction(measures.step_for, "OOsn", call->step, Py_None, "record()", every);
}

/* Append the row of these numbers, and a record of each of several. */
static int append_known(PyObject *known, const Call *call, PyObject **numbers, Py_ssize_t n)
{
    PyObject *items[HEAD + MOST_VALUES * HEAD], *others = PyTuple_GET_ITEM(known, 1), *value;
    PyObject *step = step_of(call), *time = step == NULL || step == Py_None ? NULL : PyObject_CallNoArgs(measures.time_ns);
    int failed = step == Py_None ? 0 : -1; /* a step that is none was said and counted */
    if (time != NULL) {
        PyObject *head[HEAD] = {PyTuple_GET_ITEM(known, 0), step, Py_None, time};
        Py_ssize_t taken = 0, place = 0;
        for (Py_ssize_t i = 0; i < HEAD; i++)
            items[taken++] = head[i];
        for (Py_ssize_t i = 0; i < n; i++)
            items[taken++] = numbers[i];
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(others) && PyDict_Next(call->several, &place, NULL, &value); i++) {
            PyObject *record[HEAD] = {PyTuple_GET_ITEM(others, i), step, value, time};
            for (Py_ssize_t part = 0; part < HEAD; part++)
                items[taken++] = record[part];
        }
        /* All of these are borrowed: append_items() takes a reference to each. */
        failed = append_items(items, taken);
        Py_DECREF(time);
    }
    Py_XDECREF(step);
    return failed;
}

/* 1 if all was recorded, 0 where Python has to look at it, -1 with an exception. */
static int record_call(PyObject *self, const Call *call)
{
    PyObject *known = known_for(self, call);
    if (known == NULL)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *numbers[MOST_VALUES], *value;
    Py_ssize_t n = 0;
    for (Py_ssize_t place = 0; PyDict_Next(call->values, &place, NULL, &value);)
        numbers[n++] = Py_NewRef(value);
    int done = numbers_of(numbers, n);
    if (done > 0 && append_known(known, call, numbers, n) < 0)
        done = -1;
    for (Py_ssize_t i = 0; i < n; i++)
        Py_DECREF(numbers[i]);
    Py_DECREF(known);
    return done;
}

static PyObject *record(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    Call call;
    if (slot(now_of_process(), measures.off) == Py_True)
        Py_RETURN_NONE;
    if (take_call(&call, arguments, n, names)) {
        int done = record_call(self, &call);
        if (done < 0)
            return NULL;
        if (done)
            Py_RETURN_NONE;
    }
    return call_slow(measures.slow, self, arguments, n, names);
}

static PyObject *measures_method(PyObject *module, PyObject *arguments)
{
    PyObject *type, *slow, *step_for, *time_ns;
    if (!PyArg_ParseTuple(arguments, "O!OOO", &PyType_Type, &type, &slow, &step_for, &time_ns))
        return NULL;
    measures.rows = slot_offset(type, "_rows");
    measures.off = slot_offset((PyObject *)Py_TYPE(now_of_process()), "off");
    PyMethodDef *method = definition_of(slow, "record", record);
    if (measures.rows < 0 || measures.off < 0 || method == NULL)
        return NULL;
    measures.over = PyUnicode_InternFromString("over");
    measures.step = PyUnicode_InternFromString("step");
    measures.several = PyUnicode_InternFromString("several");
    if (measures.over == NULL || measures.step == NULL || measures.several == NULL)
        return NULL;
    measures.slow = Py_NewRef(slow);
    measures.step_for = Py_NewRef(step_for);
    measures.time_ns = Py_NewRef(time_ns);
    return PyDescr_NewMethod((PyTypeObject *)type, method);
}

PyMethodDef measures_functions[] = {
    {"measures_method", measures_method, METH_VARARGS,
     "Return the method `record` of a class: (Measures, its own record, step_for, time_ns)."},
    {NULL, NULL, 0, NULL},
};
