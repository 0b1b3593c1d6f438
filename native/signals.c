/* Which signals have come whose handlers in Python have not begun: Python runs those on its main thread alone, once
   that is back from what it calls. One that waits for good, in a collective or at a semaphore, never is. */
#include "native.h"

#include <signal.h>
#include <unistd.h>

#define NUMBERS 65

/* Set by the handler on whichever thread the kernel has chosen, read with the GIL on another. Nothing else is told by
   it, so it needs no order: who looks a moment too early looks again. */
static volatile sig_atomic_t waiting[NUMBERS];
static struct sigaction handed_on[NUMBERS];

/* Runs at any moment on any thread: only what signal-safety(7) allows. */
static void note(int number, siginfo_t *info, void *context)
{
    waiting[number] = 1;
    if (handed_on[number].sa_flags & SA_SIGINFO)
        handed_on[number].sa_sigaction(number, info, context);
    else
        handed_on[number].sa_handler(number);
}

static int number_of(PyObject *argument)
{
    long number = PyLong_AsLong(argument);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < 1 || number >= NUMBERS) {
        PyErr_Format(PyExc_ValueError, "expected the number of a signal, got %ld", number);
        return -1;
    }
    return (int)number;
}

static PyObject *watch_signal(PyObject *module, PyObject *argument)
{
    int number = number_of(argument);
    struct sigaction found;
    if (number < 0 || sigaction(number, NULL, &found) < 0)
        return PyErr_Occurred() ? NULL : PyErr_SetFromErrno(PyExc_OSError);
    int is_ours = (found.sa_flags & SA_SIGINFO) && found.sa_sigaction == note;
    /* Without a handler of Python nothing is waited for; and ours, handed on to itself, would never end. */
    if (is_ours || found.sa_handler == SIG_DFL || found.sa_handler == SIG_IGN)
        Py_RETURN_NONE;
    /* Before the handler is there, which reads it at any moment from then on. The compiler keeps the order: it has to
       expect that sigaction() calls what it is given. */
    handed_on[number] = found;
    waiting[number] = 0;
    struct sigaction ours = found;
    ours.sa_sigaction = note;
    ours.sa_flags |= SA_SIGINFO;
    if (sigaction(number, &ours, NULL) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyObject *is_signal_waiting(PyObject *module, PyObject *argument)
{
    int number = number_of(argument);
    return number < 0 ? NULL : PyBool_FromLong(waiting[number]);
}

static PyObject *signal_has_begun(PyObject *module, PyObject *argument)
{
    int number = number_of(argument);
    if (number < 0)
        return NULL;
    waiting[number] = 0;
    Py_RETURN_NONE;
}

static PyObject *end_by_signal(PyObject *module, PyObject *argument)
{
    int number = number_of(argument);
    struct sigaction usual = {.sa_handler = SIG_DFL};
    if (number < 0 || sigaction(number, &usual, NULL) < 0 || kill(getpid(), number) < 0)
        return PyErr_Occurred() ? NULL : PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

PyMethodDef signal_functions[] = {
    {"watch_signal", watch_signal, METH_O, "Notice when a signal comes that has a handler in Python."},
    {"is_signal_waiting", is_signal_waiting, METH_O, "Whether it has come, and its handler has not begun."},
    {"signal_has_begun", signal_has_begun, METH_O, "Know that its handler has begun."},
    {"end_by_signal", end_by_signal, METH_O, "End the process by a signal, whatever handler it has."},
    {NULL, NULL, 0, NULL},
};
