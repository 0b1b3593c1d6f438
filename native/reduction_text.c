/* What is asked of a group of series, as _asked() of _internal/messages/encode_metrics.py says: the text of its reduction, and
   whether it takes first or last values. */
#include "encode.h"

/* Many more than a program has: a table that each step goes through in a circle and that is too small holds none of them
   when it is asked. Each has a few places, for of seventeen that have one each some two are likely to share it, and then
   neither is ever found. */
#define ASKED 256
#define PLACES 4

static Asked known_asked[ASKED];

/* What Python says of a reduction, with references of our own: 0 or -1. */
static int ask(PyObject *reduction, Asked *asked)
{
    PyObject *answer = PyObject_CallOneArg(python.asked, reduction);
    int is_told = answer != NULL && PyArg_ParseTuple(
        answer, "UOpp", &asked->text, &asked->defaults, &asked->takes_first, &asked->takes_last);
    if (is_told) {
        Py_INCREF(asked->text);
        asked->defaults = asked->defaults == Py_None ? NULL : Py_NewRef(asked->defaults);
        /* Borrowed, as the caller has it: who keeps the answer takes the reference. */
        asked->reduction = reduction;
    }
    Py_XDECREF(answer);
    return is_told ? 0 : -1;
}

/* Where it is known, or is to be. */
static Asked *place_of(PyObject *reduction)
{
    /* Which of the places is given up next: each in turn. */
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
    /* Known by its address: the table has a reference to it, so nothing else can be at the same address meanwhile. */
    Asked *place = place_of(reduction);
    if (place->reduction == reduction) {
        *asked = *place;
        return 0;
    }
    if (ask(reduction, asked) < 0)
        return -1;
    Py_INCREF(reduction);
    Asked before = *place; /* which another thread may have filled meanwhile */
    *place = *asked;
    Py_XDECREF(before.reduction);
    Py_XDECREF(before.text);
    Py_XDECREF(before.defaults);
    return 0;
}
