/* Sums and extremes of tensors in the host's memory. Twins: `_statistics()` of diagnostics/dynamics/host_norms.py, and
   `_of_host()` of diagnostics/rl/mean_and_range.py.

   Where a tensor lies, torch says by DLPack's exchange API: one call of C for each, that makes no object and runs no
   code of Python. The declarations are those of DLPack 1, whose layout is fixed. */
#include "elements.h"

#include <math.h>
#include <stdint.h>

enum { HOST = 1 };
enum { IEEE = 2, BRAIN = 4 };

typedef struct {
    void *data;
    struct {
        int32_t type, number;
    } device;
    int32_t dimensions;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } type;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} View;

typedef struct {
    struct {
        uint32_t major, minor;
        void *older;
    } header;
    void (*not_used[3])(void);
    int (*view)(void *tensor, View *out); /* nothing waits, nothing is owned; -1 with an exception */
    void (*stream)(void);
} Exchange;

static struct {
    PyObject *type, *parameter_type;
    int (*view)(void *tensor, View *out);
} torch;

static PyObject *bind_tensors(PyObject *module, PyObject *arguments)
{
    PyObject *type, *parameter_type, *capsule;
    if (!PyArg_ParseTuple(arguments, "OOO", &type, &parameter_type, &capsule))
        return NULL;
    const Exchange *exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (exchange == NULL)
        return NULL;
    if (exchange->header.major != 1 || exchange->view == NULL) {
        PyErr_Format(PyExc_ValueError, "%R is of DLPack %u, and shows no tensor", capsule, exchange->header.major);
        return NULL;
    }
    torch.type = Py_NewRef(type);
    torch.parameter_type = Py_NewRef(parameter_type);
    torch.view = exchange->view;
    Py_RETURN_NONE;
}

/* Elements of a view that has no gaps; -1 where it has some, or more elements than `most`. */
static Py_ssize_t elements(const View *view, Py_ssize_t most)
{
    int64_t n = 1, expected = 1;
    for (int32_t i = 0; i < view->dimensions; i++) {
        if (view->shape[i] == 0)
            return 0;
        /* `n` is above zero: a dimension of none has returned. So divided, the product cannot overflow. */
        if (view->shape[i] < 0 || view->shape[i] > most / n)
            return -1;
        n *= view->shape[i];
    }
    for (int32_t i = view->dimensions - 1; i >= 0 && view->strides != NULL; i--) {
        if (view->shape[i] != 1 && view->strides[i] != expected)
            return -1;
        expected *= view->shape[i];
    }
    return (Py_ssize_t)n;
}

static const Kind *kind_of(const View *view)
{
    if (view->type.lanes != 1)
        return NULL;
    switch (view->type.code << 8 | view->type.bits) {
    case IEEE << 8 | 64:
        return &of_64_bits;
    case IEEE << 8 | 32:
        return &of_32_bits;
    case IEEE << 8 | 16:
        return &of_16_bits;
    case BRAIN << 8 | 16:
        return &of_brain_type;
    default:
        return NULL;
    }
}

/* Where the numbers of a tensor lie. */
typedef struct {
    const char *at;
    Py_ssize_t n;
    const Kind *kind;
} Seen;

/* 1, or 0 where it is none of those that are looked at here. Nothing here runs code of Python. */
static int see(PyObject *tensor, Py_ssize_t most, Seen *seen)
{
    View view;
    if (!is_exactly(tensor, torch.parameter_type) && !is_exactly(tensor, torch.type))
        return 0;
    if (torch.view(tensor, &view) < 0) { /* sparse, on no device, inside a transformation: torch says it to Python */
        PyErr_Clear();
        return 0;
    }
    seen->kind = kind_of(&view);
    if (view.device.type != HOST || seen->kind == NULL)
        return 0;
    seen->n = elements(&view, most);
    if (seen->n > 0 && view.data == NULL) /* its memory was given back */
        return 0;
    seen->at = seen->n > 0 ? (const char *)view.data + view.byte_offset : NULL;
    return seen->n >= 0;
}

/* Elements above which other threads may go on meanwhile; with cold caches to let them takes as long as so many. */
#define MANY 65536

/* Ask for the beginning of a tensor, which is looked at next. */
static inline void ask_for(const Seen *next)
{
    for (Py_ssize_t i = 0; i < AHEAD && i < next->n * 4; i += 64)
        __builtin_prefetch(next->at + i);
}

/* Look at each tensor of a tuple: an array for PyMem_Free, or NULL, perhaps with an exception, where one of them is none
   of those that are looked at here. */
static Found *look_at_each(PyObject *tensors, Py_ssize_t most, Seen *seen)
{
    Py_ssize_t every = PyTuple_GET_SIZE(tensors), total = 0;
    for (Py_ssize_t i = 0; i < every; i++) {
        if (!see(PyTuple_GET_ITEM(tensors, i), most, &seen[i]))
            return NULL;
        total += seen[i].n;
    }
    Found *found = PyMem_New(Found, every);
    if (found == NULL)
        return (Found *)PyErr_NoMemory();
    /* Without the GIL the tuple holds the tensors. That the program shrinks none of them meanwhile is up to it, as with
       each operator of torch, which lets go of the GIL, too. */
    PyThreadState *thread = total > MANY ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t i = 0; i < every; i++) {
        if (i + 1 < every)
            ask_for(&seen[i + 1]);
        found[i] = seen[i].kind->look(seen[i].at, seen[i].n);
    }
    if (thread != NULL)
        PyEval_RestoreThread(thread);
    return found;
}

enum { SIZES, SQUARES, ZEROS, LARGEST, COLUMNS };

/* Put what was found into the columns; -1 with an exception. */
static int keep(PyObject *columns, Py_ssize_t i, Py_ssize_t n, Found found)
{
    PyObject *numbers[COLUMNS] = {
        [SIZES] = PyLong_FromSsize_t(n),
        [SQUARES] = PyFloat_FromDouble(found.square),
        [ZEROS] = PyLong_FromSsize_t(found.zeros),
        [LARGEST] = PyFloat_FromDouble(found.largest),
    };
    int failed = 0;
    for (int column = 0; column < COLUMNS; column++) {
        failed |= numbers[column] == NULL;
        PyList_SET_ITEM(PyTuple_GET_ITEM(columns, column), i, numbers[column]);
    }
    return failed ? -1 : 0;
}

static PyObject *new_columns(Py_ssize_t n)
{
    PyObject *columns = PyTuple_New(COLUMNS);
    for (int column = 0; columns != NULL && column < COLUMNS; column++) {
        PyObject *numbers = PyList_New(n);
        if (numbers == NULL)
            Py_CLEAR(columns);
        else
            PyTuple_SET_ITEM(columns, column, numbers);
    }
    return columns;
}

/* Make of what was found in each tensor what the caller wants: a new reference. */
typedef PyObject *(*Made)(const Seen *seen, const Found *found, Py_ssize_t every, const void *more);

/* What is made of the tensors of a list; None where one of them is none of those that are looked at here. */
static PyObject *made_of(PyObject *given, Py_ssize_t most, Made made, const void *more)
{
    if (torch.view == NULL)
        Py_RETURN_NONE;
    PyObject *tensors = PyList_AsTuple(given), *answer = NULL; /* which nobody changes meanwhile */
    Seen *seen = tensors == NULL ? NULL : PyMem_New(Seen, PyTuple_GET_SIZE(tensors));
    if (seen == NULL) {
        Py_XDECREF(tensors);
        return PyErr_NoMemory();
    }
    Found *found = look_at_each(tensors, most, seen);
    if (found != NULL)
        answer = made(seen, found, PyTuple_GET_SIZE(tensors), more);
    else if (!PyErr_Occurred())
        answer = Py_NewRef(Py_None);
    PyMem_Free(found);
    PyMem_Free(seen);
    Py_DECREF(tensors);
    return answer;
}

static PyObject *columns_of(const Seen *seen, const Found *found, Py_ssize_t every, const void *more)
{
    PyObject *columns = new_columns(every);
    for (Py_ssize_t i = 0; columns != NULL && i < every; i++)
        if (keep(columns, i, seen[i].n, found[i]) < 0)
            Py_CLEAR(columns);
    return columns;
}

static PyObject *statistics(PyObject *module, PyObject *arguments)
{
    PyObject *tensors;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(arguments, "O!n", &PyList_Type, &tensors, &most))
        return NULL;
    return made_of(tensors, most, columns_of, NULL);
}

/* How the sums over all tensors are returned. */
typedef struct {
    double share;
    PyTypeObject *type;
} Wanted;

static PyObject *total_of(const Seen *seen, const Found *found, Py_ssize_t every, const void *more)
{
    const Wanted *wanted = more;
    double square = 0, largest = 0;
    Py_ssize_t elements = 0, zeros = 0, bad = 0;
    for (Py_ssize_t i = 0; i < every; i++) {
        elements += seen[i].n;
        square += found[i].square;
        zeros += found[i].zeros;
        bad += !(found[i].largest < INFINITY);
        if (!(found[i].largest <= largest) && largest == largest) /* NaN stays */
            largest = found[i].largest;
    }
    PyObject *numbers[] = {
        PyFloat_FromDouble((double)elements * wanted->share),
        PyFloat_FromDouble(square * wanted->share),
        PyFloat_FromDouble((double)zeros * wanted->share),
        PyFloat_FromDouble(largest),
        PyLong_FromSsize_t(bad),
    };
    return named_tuple(wanted->type, numbers, sizeof numbers / sizeof *numbers);
}

static PyObject *sums(PyObject *module, PyObject *arguments)
{
    PyObject *tensors;
    Py_ssize_t most;
    Wanted wanted;
    if (!PyArg_ParseTuple(arguments, "O!ndO!", &PyList_Type, &tensors, &most, &wanted.share, &PyType_Type, &wanted.type))
        return NULL;
    return made_of(tensors, most, total_of, &wanted);
}

static PyObject *extent(PyObject *module, PyObject *arguments)
{
    PyObject *tensor;
    PyTypeObject *type;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(arguments, "OnO!", &tensor, &most, &PyType_Type, &type))
        return NULL;
    Seen seen;
    if (torch.view == NULL || !see(tensor, most, &seen) || seen.n == 0)
        Py_RETURN_NONE;
    PyThreadState *thread = seen.n > MANY ? PyEval_SaveThread() : NULL;
    Extent found = seen.kind->span(seen.at, seen.n);
    if (thread != NULL)
        PyEval_RestoreThread(thread);
    PyObject *numbers[] = {
        PyFloat_FromDouble(found.sum / (double)seen.n),
        PyLong_FromSsize_t(seen.n),
        PyFloat_FromDouble(found.low),
        PyFloat_FromDouble(found.high),
    };
    return named_tuple(type, numbers, sizeof numbers / sizeof *numbers);
}

/* Whether elements lie without gaps and each once, in whatever order of dimensions; their number into `n`. */
static int is_dense(const View *view, int64_t *n)
{
    int64_t size = 1, expected = 1;
    for (int32_t i = 0; i < view->dimensions; i++)
        size *= view->shape[i];
    *n = size;
    while (size > 1 && view->strides != NULL && expected < size) {
        int32_t i = 0;
        while (i < view->dimensions && (view->shape[i] == 1 || view->strides[i] != expected))
            i++;
        if (i == view->dimensions)
            return 0;
        expected *= view->shape[i];
    }
    return 1;
}

/* The types that kernels look at, in the order of `KINDS` in diagnostics/tensor_statistics/tensor_tables.py. */
static int code_of(const View *view)
{
    static const Kind *const kinds[] = {&of_brain_type, &of_16_bits, &of_32_bits, &of_64_bits};
    const Kind *kind = kind_of(view);
    for (int code = 0; code < 4; code++)
        if (kind == kinds[code])
            return code;
    return -1;
}

/* Where tensors have to lie: on a device of this type of DLPack, and not below this address. */
typedef struct {
    int type;
    int64_t lowest;
} Place;

/* See the tensors of one device: its number, or -1 where one of them is none that a kernel looks at. */
static int32_t see_there(PyObject *tensors, const Place *place, char *kinds, int64_t *sizes, int64_t *addresses)
{
    int32_t device = -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); i++) {
        View view;
        PyObject *tensor = PyTuple_GET_ITEM(tensors, i);
        if (!is_exactly(tensor, torch.parameter_type) && !is_exactly(tensor, torch.type))
            return -1;
        if (torch.view(tensor, &view) < 0) {
            PyErr_Clear();
            return -1;
        }
        int code = code_of(&view);
        if (code < 0 || view.device.type != place->type || !is_dense(&view, &sizes[i]))
            return -1;
        if (i > 0 && view.device.number != device)
            return -1;
        device = view.device.number;
        kinds[i] = (char)code;
        addresses[i] = sizes[i] > 0 ? (int64_t)(intptr_t)view.data + (int64_t)view.byte_offset : 0;
        if (sizes[i] > 0 && addresses[i] < place->lowest)
            return -1;
    }
    return device;
}

static PyObject *layout(PyObject *module, PyObject *arguments)
{
    PyObject *given;
    Place place;
    long long lowest;
    if (!PyArg_ParseTuple(arguments, "O!iL", &PyList_Type, &given, &place.type, &lowest))
        return NULL;
    place.lowest = lowest;
    if (torch.view == NULL)
        Py_RETURN_NONE;
    PyObject *tensors = PyList_AsTuple(given), *answer = NULL; /* which nobody changes meanwhile */
    if (tensors == NULL)
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(tensors);
    PyObject *kinds = PyBytes_FromStringAndSize(NULL, n), *sizes = PyBytes_FromStringAndSize(NULL, n * 8),
             *addresses = PyBytes_FromStringAndSize(NULL, n * 8);
    if (kinds != NULL && sizes != NULL && addresses != NULL) {
        int32_t device = see_there(tensors, &place, PyBytes_AS_STRING(kinds), (int64_t *)PyBytes_AS_STRING(sizes),
                                   (int64_t *)PyBytes_AS_STRING(addresses));
        answer = device < 0 ? Py_NewRef(Py_None) : Py_BuildValue("iOOO", (int)device, kinds, sizes, addresses);
    }
    Py_XDECREF(kinds);
    Py_XDECREF(sizes);
    Py_XDECREF(addresses);
    Py_DECREF(tensors);
    return answer;
}

PyMethodDef norms_functions[] = {
    {"bind_tensors", bind_tensors, METH_VARARGS, "Know torch: (Tensor, Parameter, Tensor.__dlpack_c_exchange_api__)."},
    {"statistics", statistics, METH_VARARGS,
     "Return sizes, sums of squares, zeros and largest magnitudes of tensors; None unless each is of a plain type, "
     "contiguous, of floating point, in the host's memory and of at most so many elements: (tensors, most)."},
    {"sums", sums, METH_VARARGS,
     "Return such a `Sums` of such tensors, each element of which counts as `share`: (tensors, most, share, Sums)."},
    {"layout", layout, METH_VARARGS,
     "Return the number of their device, the kinds, sizes and addresses of plain tensors without gaps, of one device of a "
     "type of DLPack; None where one is none, or begins below an address: (tensors, type, address)."},
    {"extent", extent, METH_VARARGS,
     "Return such an `Extent` of the elements of such a tensor; None also where it has none: (tensor, most, Extent)."},
    {NULL, NULL, 0, NULL},
};
