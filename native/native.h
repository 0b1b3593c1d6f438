/* What the files of this folder share. Each function here has its twin in Python, which says what it does. */
#ifndef OTEL_ML_NATIVE_H
#define OTEL_ML_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

/* Where an attribute of `__slots__` lies in the instances of a class of Python; -1 with an exception if it is none.
   Classes stay in Python: what is read here is read at the place that Python itself reads. */
Py_ssize_t slot_offset(PyObject *type, const char *name);

/* The same of several, in a row; ended by NULL. */
int slots_of(PyObject *type, Py_ssize_t *offsets, const char *const *names);

/* The value of a slot, borrowed; NULL where it was never set. */
static inline PyObject *slot(PyObject *owner, Py_ssize_t offset)
{
    return *(PyObject **)((char *)owner + offset);
}

/* Set a slot; takes over the reference to `value`. */
static inline void set_slot(PyObject *owner, Py_ssize_t offset, PyObject *value)
{
    PyObject **place = (PyObject **)((char *)owner + offset);
    PyObject *before = *place;
    /* Before what stood there is let go of: that may run a finalizer, which is not to find it in the slot. */
    *place = value;
    Py_XDECREF(before);
}

static inline int is_exactly(PyObject *object, PyObject *type)
{
    return (PyObject *)Py_TYPE(object) == type;
}

static inline int are_floats(PyObject *list)
{
    /* Exactly: a subclass may have a `__float__` of its own, and to ask it would run Python. */
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
        if (!PyFloat_CheckExact(PyList_GET_ITEM(list, i)))
            return 0;
    return 1;
}

/* An instance of a class of NamedTuple, of its fields, of which the references are taken over; NULL where one of them is:
   its `__new__` is a function of Python. */
PyObject *named_tuple(PyTypeObject *type, PyObject **fields, Py_ssize_t n);

/* Call `function` of Python with `self` before the arguments of a METH_FASTCALL | METH_KEYWORDS method. */
PyObject *call_slow(PyObject *function, PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *names);

/* The definition of a method or function, with the signature and text of its twin; and the function, of the twin's module. */
PyMethodDef *definition_of(PyObject *twin, const char *name, _PyCFunctionFastWithKeywords f);
PyObject *function_of(PyObject *twin, PyMethodDef *definition);

/* record.c */

/* Append whole records to the buffer, and have it folded where it is too long. */
int append_items(PyObject *const *items, Py_ssize_t n);

/* NOW of run_scope.py, borrowed, and whether it says that nothing is recorded; the step that a record without one belongs
   to, and the time: new references. */
PyObject *now_of_process(void);
int is_off(void);
PyObject *step_now(void);
PyObject *time_now(void);

/* 1 if every value is a number by now: `items[i]` is a new reference, in the end to a float; 0 where Python has to look
   at one, -1 with an exception. */
int numbers_of(PyObject **items, Py_ssize_t n);

int are_none(PyObject *const *arguments, Py_ssize_t n);

/* Say and count the exception there is, as at every boundary to the user's program; -1 where it has to go on: what
   ends a program is no `Exception`, and in strict mode saying it raises. */
int forgive(const char *call);

/* step.c: the step of a `step=` without an axis, a new reference; NULL, perhaps with an exception, where Python has to
   look at it. */
PyObject *step_at(PyObject *index);

extern PyMethodDef record_functions[], log_functions[], step_functions[], timing_functions[], begin_functions[], fold_functions[],
    encode_functions[], span_functions[], measures_functions[], norms_functions[], statm_functions[],
    signal_functions[], gather_functions[], request_functions[], span_text_functions[], span_lines_functions[],
    line_delta_functions[], third_party_functions[];

#endif
