/* Folding: records are taken apart into what each step has gathered, which is then reduced. Twins: fold_in_python() and
   Folder.take_apart() of _internal/record/fold.py. */
#include "fold.h"

struct fold fold;

static PyObject *bind_fold(PyObject *module, PyObject *arguments)
{
    static const char *const of_pending[] = {"first_ns", "last_ns", "groups", "rows",    "moments",
                                             "order",    "weights", "m2",     "buckets", "more",
                                             "between",  "sums",    NULL};
    static const char *const of_series[] = {"special", "internal", "moments", "ordered", "buckets", "m2", "weighted", "order", "bare", "sums", "row", NULL};
    static const char *const of_row[] = {"series", "_weighted", NULL};
    static const char *const of_step[] = {"pending", NULL};
    static const char *const of_exponential[] = {"negative", "positive", "scale", "zeros", NULL};
    PyObject *pending, *order, *series, *row, *step, *definitions, *unsettled, *exponential;
    if (!PyArg_ParseTuple(arguments, "OO!OOOOOOlln", &pending, &PyType_Type, &order, &series, &row, &step, &definitions,
                          &unsettled, &exponential, &fold.scale, &fold.most_buckets, &fold.wide))
        return NULL;
    if (slots_of(pending, &fold.of_pending.first_ns, of_pending) < 0 ||
        slots_of(series, &fold.of_series.special, of_series) < 0 || slots_of(row, &fold.of_row.series, of_row) < 0 ||
        slots_of(step, &fold.step_pending, of_step) < 0 ||
        slots_of(exponential, &fold.of_exponential.negative, of_exponential) < 0)
        return NULL;
    PyObject *builtins = PyImport_ImportModule("builtins");
    fold.sum = builtins == NULL ? NULL : PyObject_GetAttrString(builtins, "sum");
    Py_XDECREF(builtins);
    fold.fold_special = PyUnicode_InternFromString("_fold_special");
    fold.steps = PyUnicode_InternFromString("steps");
    fold.count = PyUnicode_InternFromString("_count");
    fold.merge = PyUnicode_InternFromString("_merge");
    fold.is_weighted = PyUnicode_InternFromString("weighted");
    fold.add = PyUnicode_InternFromString("add");
    fold.one = PyLong_FromLong(1);
    if (!fold.sum || !fold.fold_special || !fold.steps || !fold.count || !fold.merge || !fold.is_weighted ||
        !fold.add || !fold.one)
        return NULL;
    fold.pending = Py_NewRef(pending);
    fold.order = Py_NewRef(order);
    fold.series = Py_NewRef(series);
    fold.row = Py_NewRef(row);
    fold.step = Py_NewRef(step);
    fold.unsettled = Py_NewRef(unsettled);
    fold.definitions = Py_NewRef(definitions);
    fold.exponential = Py_NewRef(exponential);
    Py_RETURN_NONE;
}

/* One fold, while it goes on. */
typedef struct {
    PyObject *folder, *part, *touched;
    /* Borrowed from `part`, from `touched`, from `part`. Nobody else has that list since it was taken: whatever Python
       runs meanwhile, and lets other threads on, its records stay. */
    PyObject *step, *pending, *time;
    Py_ssize_t next, values;
    Py_ssize_t asked; /* items whose memory was asked for */
} Fold;

/* How many items ahead memory is asked for: a record has four, and takes as long as some five answers of it. */
#define AHEAD 48
#define USUAL_ITEM 128

/* Ask for what the next records consist of: another processor has written it, or training has evicted it. */
static inline void ask_ahead(Fold *now)
{
    Py_ssize_t until = now->next + AHEAD, n = PyList_GET_SIZE(now->part);
    for (until = until < n ? until : n; now->asked < until; now->asked++)
        prefetch(PyList_GET_ITEM(now->part, now->asked), USUAL_ITEM);
}

/* Folder._fold_special */
static int fold_slowly(Fold *now, PyObject *series, PyObject *value)
{
    PyObject *nothing = PyObject_CallMethodObjArgs(
        now->folder, fold.fold_special, now->pending, now->step, series, value, now->time, NULL);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

static int fold_value(Fold *now, PyObject *series, PyObject *value)
{
    if (PyFloat_CheckExact(value) && slot(series, fold.of_series.special) == Py_False)
        return add_value(now->pending, series, value);
    int done = add_special(now->pending, series, value, now->time);
    return done > 0 ? 0 : done < 0 ? -1 : fold_slowly(now, series, value);
}

/* Set `owner.slot` to `time` where that is earlier (Py_LT) or later (Py_GT). */
static int extend(PyObject *owner, Py_ssize_t offset, PyObject *time, int comparison)
{
    int is_beyond = PyObject_RichCompareBool(time, slot(owner, offset), comparison);
    if (is_beyond > 0)
        set_slot(owner, offset, Py_NewRef(time));
    return is_beyond < 0 ? -1 : 0;
}

static int leave_step(Fold *now)
{
    return now->pending == NULL ? 0 : extend(now->pending, fold.of_pending.last_ns, now->time, Py_GT);
}

/* StepPartials.size */
static Py_ssize_t partials_of(PyObject *pending)
{
    return PyDict_GET_SIZE(slot(pending, fold.of_pending.moments)) +
           PyDict_GET_SIZE(slot(pending, fold.of_pending.order)) +
           PyDict_GET_SIZE(slot(pending, fold.of_pending.more));
}

/* StepPartials(): its times are slots, and so are its dictionaries. */
static PyObject *new_pending(PyObject *time)
{
    PyTypeObject *type = (PyTypeObject *)fold.pending;
    PyObject *pending = type->tp_alloc(type, 0);
    if (pending == NULL)
        return NULL;
    set_slot(pending, fold.of_pending.first_ns, Py_NewRef(time));
    set_slot(pending, fold.of_pending.last_ns, Py_NewRef(time));
    const Py_ssize_t dictionaries[] = {
        fold.of_pending.groups, fold.of_pending.rows,    fold.of_pending.moments, fold.of_pending.order,
        fold.of_pending.weights, fold.of_pending.m2, fold.of_pending.buckets,
        fold.of_pending.more,
    };
    for (size_t i = 0; i < sizeof dictionaries / sizeof *dictionaries; i++) {
        PyObject *dictionary = PyDict_New();
        if (dictionary == NULL) {
            Py_DECREF(pending);
            return NULL;
        }
        set_slot(pending, dictionaries[i], dictionary);
    }
    /* Not through __init__: a call of Python for each step would cost more than the rest of the fold of a short
       step. */
    set_slot(pending, fold.of_pending.between, Py_NewRef(Py_None));
    set_slot(pending, fold.of_pending.sums, Py_NewRef(Py_None));
    return pending;
}

/* What the step is to gather from now on: a new reference. */
static PyObject *begin_pending(PyObject *folder, PyObject *step, PyObject *time)
{
    PyObject *pending = new_pending(time);
    PyObject *steps = pending == NULL ? NULL : PyObject_GetAttr(folder, fold.steps);
    if (steps == NULL || PyObject_SetItem(steps, step, Py_None) < 0)
        Py_CLEAR(pending);
    else
        /* Only now: a step that had partials and was not among `steps` would never be collected. */
        set_slot(step, fold.step_pending, Py_NewRef(pending));
    Py_XDECREF(steps);
    return pending;
}

/* Folder._pending, and how much it holds before this fold */
static int enter_step(Fold *now, PyObject *step, PyObject *time)
{
    PyObject *pending = slot(step, fold.step_pending);
    if (pending == NULL || pending == Py_None) {
        pending = begin_pending(now->folder, step, time);
        if (pending == NULL)
            return -1;
    } else {
        Py_INCREF(pending);
        if (extend(pending, fold.of_pending.first_ns, time, Py_LT) < 0)
            goto failed;
    }
    if (!is_exactly(pending, fold.pending)) {
        PyErr_Format(PyExc_TypeError, "expected StepPartials, got %R", pending);
        goto failed;
    }
    know_rows(pending);
    /* The size before this fold, so that the caller learns how many partials were added without counting all of
       them. */
    PyObject *size = PyLong_FromSsize_t(partials_of(pending));
    PyObject *kept = size == NULL ? NULL : PyDict_SetDefault(now->touched, pending, size);
    Py_XDECREF(size);
    if (kept == NULL)
        goto failed;
    Py_DECREF(pending); /* `touched` holds it */
    now->step = step;
    now->pending = pending;
    return 0;
failed:
    Py_DECREF(pending);
    return -1;
}

/* Row.is_plain */
static int is_plain(PyObject *row)
{
    PyObject *weighted = PyObject_GetAttr(fold.definitions, fold.is_weighted), *series = slot(row, fold.of_row.series);
    int is_known = weighted == NULL ? -1 : PyObject_RichCompareBool(slot(row, fold.of_row.weighted), weighted, Py_EQ);
    if (is_known) {
        Py_XDECREF(weighted);
        return is_known;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(series); i++)
        if (is_true(PyTuple_GET_ITEM(series, i), fold.of_series.special)) {
            Py_DECREF(weighted);
            return 0;
        }
    set_slot(row, fold.of_row.weighted, weighted);
    return 1;
}

/* Folder._fold_row: its values are the items that follow */
static int fold_row(Fold *now, PyObject *row)
{
    PyObject *series = slot(row, fold.of_row.series);
    Py_ssize_t width = PyTuple_GET_SIZE(series);
    if (width > PyList_GET_SIZE(now->part) - now->next) {
        PyErr_Format(PyExc_ValueError, "expected %zd values after a row, got fewer", width);
        return -1;
    }
    PyObject *values = PyTuple_New(width);
    int failed = values == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; !failed && i < width; i++)
        PyTuple_SET_ITEM(values, i, Py_NewRef(PyList_GET_ITEM(now->part, now->next + i)));
    now->next += width;
    now->values += width;
    int is_whole = failed ? -1 : width < fold.wide ? 0 : is_plain(row);
    if (is_whole)
        failed = is_whole < 0 ? -1 : add_row(now->pending, row, values);
    for (Py_ssize_t i = 0; !is_whole && !failed && i < width; i++)
        failed = fold_value(now, PyTuple_GET_ITEM(series, i), PyTuple_GET_ITEM(values, i));
    Py_XDECREF(values);
    return failed;
}

static int fold_list(Fold *now, PyObject *series, PyObject *values)
{
    /* Whatever Python code could see (weights, order, a first record) is left to Python; a subclass of list or float
       may even run code of its own, which must not happen between two items. */
    if (!are_floats(values) || !is_settled(series) || is_true(series, fold.of_series.internal))
        return fold_slowly(now, series, values);
    now->values += PyList_GET_SIZE(values) - 1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values); i++)
        if (fold_value(now, series, PyList_GET_ITEM(values, i)) < 0)
            return -1;
    return 0;
}

static int fold_record(Fold *now)
{
    PyObject *const *record = ((PyListObject *)now->part)->ob_item + now->next;
    PyObject *series = record[0], *step = record[1], *value = record[2], *time = record[3];
    now->next += 4;
    if (!is_exactly(step, fold.step) || (!is_exactly(series, fold.series) && !is_exactly(series, fold.row))) {
        PyErr_Format(PyExc_TypeError, "expected a Series and a Step, got %R and %R", series, step);
        return -1;
    }
    /* Compared by identity: records come in runs of one step, so most need no look into any dictionary. */
    if (step != now->step && (leave_step(now) < 0 || enter_step(now, step, time) < 0))
        return -1;
    now->time = time;
    if (is_exactly(series, fold.row))
        return fold_row(now, series);
    now->values++;
    return PyList_CheckExact(value) ? fold_list(now, series, value) : fold_value(now, series, value);
}

/* Folder.take_apart: a new dictionary. */
static PyObject *taken_apart(PyObject *folder, PyObject *part)
{
    Fold now = {.folder = folder, .part = part, .touched = PyDict_New()};
    int failed = now.touched == NULL ? -1 : 0;
    while (!failed && now.next + 4 <= PyList_GET_SIZE(now.part)) {
        ask_ahead(&now);
        failed = fold_record(&now);
    }
    if (!failed)
        failed = leave_step(&now);
    PyObject *values = failed ? NULL : PyLong_FromSsize_t(now.values);
    PyObject *nothing = values == NULL ? NULL : PyObject_CallMethodObjArgs(now.folder, fold.count, values, NULL);
    Py_XDECREF(values);
    Py_XDECREF(nothing);
    if (nothing == NULL)
        Py_CLEAR(now.touched);
    return now.touched;
}

/* Reduce what was touched, and tell how many partials there are more: fewer where a series that was sent record by
   record is asked for with weights, and its records are folded together. */
static int reduce_all(PyObject *touched, Py_ssize_t *more)
{
    PyObject *pending, *before;
    *more = 0;
    /* Python may run in between, but nobody else knows `touched`: it does not change. */
    for (Py_ssize_t place = 0; PyDict_Next(touched, &place, &pending, &before);) {
        if (reduce_pending(pending) < 0)
            return -1;
        *more += partials_of(pending) - PyLong_AsSsize_t(before);
    }
    return 0;
}

static PyObject *fold_records(PyObject *module, PyObject *arguments)
{
    PyObject *folder, *part;
    if (!PyArg_ParseTuple(arguments, "OO!", &folder, &PyList_Type, &part))
        return NULL;
    PyObject *touched = taken_apart(folder, part);
    Py_ssize_t more;
    int failed = touched == NULL ? -1 : reduce_all(touched, &more);
    Py_XDECREF(touched);
    return failed ? NULL : PyLong_FromSsize_t(more);
}

PyMethodDef fold_functions[] = {
    {"bind_fold", bind_fold, METH_VARARGS,
     "Know the classes: (StepPartials, Order, Series, Row, Step, DEFINITIONS, UNSETTLED, ExponentialBuckets, SCALE, "
     "MAX_BUCKETS, WIDE)."},
    {"fold_records", fold_records, METH_VARARGS,
     "Fold records into what their steps have gathered; return how many partials there are more: (folder, items)."},
    {"merge_group", (PyCFunction)(void (*)(void))merge_values, METH_FASTCALL,
     "Fold several values of one series that is not bare: (pending, series, values)."},
    {NULL, NULL, 0, NULL},
};
