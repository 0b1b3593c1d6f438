/* What timers (timing.c) and their spans (spans.c) share. */
#ifndef OTEL_ML_TIMING_H
#define OTEL_ML_TIMING_H

#include "native.h"

/* -fvisibility is of definitions alone: what is declared here would else be reached through a table. */
#pragma GCC visibility push(hidden)

extern struct timer {
    PyObject *timing, *recording, *definition, *step; /* classes */
    PyObject *state, *again, *spans, *defined, *off;
    PyObject *enter, *exit, *timed, *keep, *leave; /* the twins */
    PyObject *begin_on_device, *end_on_device;     /* functions */
    PyObject *perf_counter_ns, *zero, *var;        /* a function, a number, a name */
    Py_ssize_t most_spans;
    struct {
        Py_ssize_t begin_ns, end_ns, event, more, parent_id, span_id, step, token, trace_id, definition;
    } of_timing;
    struct {
        Py_ssize_t device, series, span;
    } of_definition;
    struct {
        Py_ssize_t ended, spans;
    } of_step;
    struct {
        Py_ssize_t begin, budget, ids, offset_ns, trace_high;
    } of_state;
    Py_ssize_t is_used, level;
} timer;

static inline PyObject *of_state(Py_ssize_t offset)
{
    return slot(timer.state, offset);
}

/* spans.c: 0 or -1, but for has_room() */
int has_room(PyObject *step);
int begin_span(PyObject *span);
int finish_span(PyObject *self, PyObject *end_ns);

#pragma GCC visibility pop

#endif
