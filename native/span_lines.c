/* Lines of JSON, each with what stands before and behind it. Twin: exporters/otel_ml_exporters/span_lines.py. */
#include "ascii.h"

#include <string.h>

static inline char *put(char *at, Part part)
{
    memcpy(at, part.at, part.size);
    return at + part.size;
}

/* Write so many lines; 0 where there are more or fewer of them, for which there is no room. */
static int put_lines(char *at, Part lines, Py_ssize_t count, Part begin, Part end)
{
    const char *stop = lines.at + lines.size;
    for (const char *line = lines.at;; count--) {
        const char *behind = memchr(line, '\n', stop - line);
        at = put(put(at, begin), (Part){line, (behind == NULL ? stop : behind) - line});
        if (behind == NULL)
            break;
        if (count == 1)
            return 0;
        at = put(at, end);
        *at++ = '\n';
        line = behind + 1;
    }
    return count == 1;
}

static PyObject *in_python; /* writes what is not ASCII, or has another number of lines than it says */

static PyObject *written(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    Part lines, begin, end;
    Py_ssize_t count = n == 4 && PyLong_CheckExact(arguments[1]) ? PyLong_AsSsize_t(arguments[1]) : 0;
    if (count < 1 || !as_ascii(arguments[0], &lines) || !as_ascii(arguments[2], &begin) ||
        !as_ascii(arguments[3], &end) || (PY_SSIZE_T_MAX / 2 - lines.size) / count < begin.size + end.size + 1) {
        PyErr_Clear();
        return PyObject_Vectorcall(in_python, arguments, n, NULL);
    }
    PyObject *text = PyUnicode_New(lines.size + count * begin.size + (count - 1) * end.size, 127);
    if (text == NULL)
        return NULL;
    if (put_lines((char *)PyUnicode_1BYTE_DATA(text), lines, count, begin, end))
        return text;
    Py_DECREF(text);
    return PyObject_Vectorcall(in_python, arguments, n, NULL);
}

static PyMethodDef definition = {
    "written", (PyCFunction)(void (*)(void))written, METH_FASTCALL, "See span_lines.py."};

static PyObject *line_writer(PyObject *module, PyObject *twin)
{
    in_python = Py_NewRef(twin);
    return PyCFunction_New(&definition, NULL);
}

PyMethodDef span_lines_functions[] = {
    {"line_writer", line_writer, METH_O, "Return `written`: (that of Python)."},
    {NULL, NULL, 0, NULL},
};
