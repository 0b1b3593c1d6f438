/* What is asked of a group of series: the text of its reduction, and whether it takes first or last values. Twins:
   Reduction of wire/reduction.py, and what is `wanted` in _order() of _internal/messages/encode.py. */
#include "encode.h"

/* Many more than a program has: a table that each step goes through in a circle and that is too small holds none of them
   when it is asked. Each has a few places, for of seventeen that have one each some two are likely to share it, and then
   neither is ever found. */
#define ASKED 256
#define PLACES 4

static Asked known_asked[ASKED];

/* 1, 0 or -1. */
static int asks_for(PyObject *reduction, PyObject *name)
{
    PyObject *within = slot(reduction, definition_slot.within), *across = slot(reduction, definition_slot.across);
    if (within == NULL || across == NULL) {
        PyErr_SetString(PyExc_TypeError, "a reduction has neither `within` nor `across`");
        return -1;
    }
    return within != Py_None ? PyObject_RichCompareBool(within, name, Py_EQ) : PySequence_Contains(across, name);
}

/* The parts that nobody asked for, as text: a new reference, or NULL; -1 with an exception. */
static int defaults_of(PyObject *reduction, PyObject **defaults)
{
    PyObject *unsaid = slot(reduction, definition_slot.unsaid), *comma = NULL;
    *defaults = NULL;
    if (unsaid == NULL || !PyTuple_CheckExact(unsaid)) {
        PyErr_SetString(PyExc_TypeError, "a reduction does not tell what is `unsaid`");
        return -1;
    }
    if (PyTuple_GET_SIZE(unsaid) == 0)
        return 0;
    comma = PyUnicode_FromString(",");
    *defaults = comma == NULL ? NULL : PyUnicode_Join(comma, unsaid);
    Py_XDECREF(comma);
    return *defaults == NULL ? -1 : 0;
}

/* Where it is known, or is to be. */
static Asked *place_of(PyObject *reduction)
{
    static unsigned int next;
    uintptr_t first = (uintptr_t)reduction / 16;
    for (int i = 0; i < PLACES; i++) {
        Asked *place = &known_asked[(first + i) % ASKED];
        if (place->reduction == reduction || place->reduction == NULL)
            return place;
    }
    return &known_asked[(first + next++ % PLACES) % ASKED];
}

/* What a reduction asks for, known of those that were asked about before. 0 or -1. */
int asked_by(PyObject *reduction, Asked *asked)
{
    Asked *place = place_of(reduction);
    if (place->reduction == reduction) {
        *asked = *place;
        return 0;
    }
    asked->reduction = reduction;
    if ((asked->takes_first = asks_for(reduction, python.first)) < 0 ||
        (asked->takes_last = asks_for(reduction, python.last)) < 0 || defaults_of(reduction, &asked->defaults) < 0)
        return -1;
    asked->text = PyObject_Str(reduction);
    if (asked->text == NULL) {
        Py_CLEAR(asked->defaults);
        return -1;
    }
    Py_INCREF(reduction);
    Asked before = *place; /* which another thread may have filled meanwhile */
    *place = *asked;
    Py_XDECREF(before.reduction);
    Py_XDECREF(before.text);
    Py_XDECREF(before.defaults);
    return 0;
}
