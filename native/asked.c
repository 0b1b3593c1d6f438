/* What is asked of a group of series: the text of its reduction, and whether it takes first or last values. Twins:
   Reduction of wire/reduction.py, and what is `wanted` in _order() of _internal/encode.py. */
#include "encode.h"

/* Many more than a program has: a table that each step goes through in a circle and that is too small holds none of them
   when it is asked. */
#define ASKED 256

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

/* What a reduction asks for, known of those that were asked about before. 0 or -1. */
int asked_by(PyObject *reduction, Asked *asked)
{
    Asked *place = &known_asked[(uintptr_t)reduction / 16 % ASKED];
    if (place->reduction == reduction) {
        *asked = *place;
        return 0;
    }
    asked->reduction = reduction;
    if ((asked->takes_first = asks_for(reduction, python.first)) < 0 ||
        (asked->takes_last = asks_for(reduction, python.last)) < 0 || (asked->text = PyObject_Str(reduction)) == NULL)
        return -1;
    Py_INCREF(reduction);
    Asked before = *place;
    *place = *asked;
    Py_XDECREF(before.reduction);
    Py_XDECREF(before.text);
    return 0;
}
