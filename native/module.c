/* otel_ml._native: the hot path, compiled. Without it otel_ml does the same in Python. */
#include "native.h"

Py_ssize_t slot_offset(PyObject *type, const char *name)
{
    PyObject *member = PyObject_GetAttrString(type, name);
    if (member == NULL)
        return -1;
    Py_ssize_t offset = -1;
    /* T_OBJECT_EX is what `__slots__` makes: a pointer to an object, NULL before it is set. */
    if (Py_IS_TYPE(member, &PyMemberDescr_Type) && ((PyMemberDescrObject *)member)->d_member->type == T_OBJECT_EX)
        offset = ((PyMemberDescrObject *)member)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%R has no slot %s", type, name);
    Py_DECREF(member);
    return offset;
}

PyObject *named_tuple(PyTypeObject *type, PyObject **fields, Py_ssize_t n)
{
    int is_whole = PyType_IsSubtype(type, &PyTuple_Type);
    if (!is_whole)
        PyErr_Format(PyExc_TypeError, "expected a class of tuples, got %R", type);
    for (Py_ssize_t i = 0; i < n; i++)
        is_whole = is_whole && fields[i] != NULL;
    PyObject *made = is_whole ? type->tp_alloc(type, n) : NULL;
    for (Py_ssize_t i = 0; i < n; i++)
        if (made != NULL)
            PyTuple_SET_ITEM(made, i, fields[i]);
        else
            Py_XDECREF(fields[i]);
    return made;
}

#define MOST_ARGUMENTS 16

PyObject *call_slow(PyObject *function, PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    PyObject *on_stack[MOST_ARGUMENTS + 1];
    Py_ssize_t every = n + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    PyObject **all = every <= MOST_ARGUMENTS ? on_stack : PyMem_New(PyObject *, every + 1);
    if (all == NULL)
        return PyErr_NoMemory();
    /* Borrowed, all of them: the caller of the method holds them until it returns. */
    all[0] = self;
    for (Py_ssize_t i = 0; i < every; i++)
        all[i + 1] = arguments[i];
    PyObject *answer = PyObject_Vectorcall(function, all, n + 1, names);
    if (all != on_stack)
        PyMem_Free(all);
    return answer;
}

PyMethodDef *definition_of(PyObject *twin, const char *name, _PyCFunctionFastWithKeywords f)
{
    PyObject *text = PyObject_GetAttrString(twin, "__doc__");
    PyObject *signature = text == NULL ? NULL : PyObject_GetAttrString(twin, "__text_signature__");
    PyObject *whole = signature == NULL ? NULL : PyUnicode_FromFormat("%s%S\n--\n\n%S", name, signature, text);
    Py_XDECREF(text);
    Py_XDECREF(signature);
    const char *utf8 = whole == NULL ? NULL : PyUnicode_AsUTF8(whole); /* `whole` is kept for ever, as the function is */
    if (utf8 == NULL)
        return NULL;
    /* Never freed: a function has no copy of its definition, and nobody knows when the last function is gone. */
    PyMethodDef *definition = PyMem_Calloc(1, sizeof(PyMethodDef));
    if (definition == NULL)
        return (PyMethodDef *)PyErr_NoMemory();
    definition->ml_name = name;
    definition->ml_meth = (PyCFunction)(void (*)(void))f;
    definition->ml_flags = METH_FASTCALL | METH_KEYWORDS;
    definition->ml_doc = utf8;
    return definition;
}

PyObject *function_of(PyObject *twin, PyMethodDef *definition)
{
    PyObject *module = PyObject_GetAttrString(twin, "__module__");
    PyObject *made = module == NULL ? NULL : PyCFunction_NewEx(definition, NULL, module);
    Py_XDECREF(module);
    return made;
}

int slots_of(PyObject *type, Py_ssize_t *offsets, const char *const *names)
{
    for (; *names != NULL; names++, offsets++)
        if ((*offsets = slot_offset(type, *names)) < 0)
            return -1;
    return 0;
}

/* The interpreter whose objects the other files keep. Another one of the process has objects of its own: there otel_ml
   is Python, as where nothing is compiled. */
static PyInterpreterState *owner;

static int execute(PyObject *module)
{
    /* From Python 3.12 on the slot below has it refused, but not by every kind of interpreter. */
    if (owner != NULL && owner != PyInterpreterState_Get()) {
        PyErr_SetString(PyExc_ImportError, "otel_ml._native serves one interpreter of a process");
        return -1;
    }
    owner = PyInterpreterState_Get();
    PyMethodDef *const every[] = {
        record_functions, log_functions, step_functions, timing_functions, begin_functions, fold_functions,
        encode_functions,
        span_functions,   measures_functions, norms_functions,  statm_functions, signal_functions,
        gather_functions, request_functions,  span_text_functions, span_lines_functions,
        line_delta_functions, third_party_functions,
    };
    for (size_t i = 0; i < sizeof every / sizeof *every; i++)
        if (PyModule_AddFunctions(module, every[i]) < 0)
            return -1;
    return 0;
}

/* Nothing is said of Py_mod_gil: so an interpreter that was built without a GIL gets one when it imports this. All
   files here rely on it, for what they do between two calls of Python happens at once for every other thread. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "otel_ml._native",
    .m_doc = "The hot path of otel_ml, compiled.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
