/* Memory that is asked for ahead. */
#ifndef OTEL_ML_PREFETCH_H
#define OTEL_ML_PREFETCH_H

#include "native.h"

#include <stdint.h>

/* Training has evicted from the caches what the background thread reads, or has just written it on another processor. So
   what is read next is asked for before: memory then answers for many objects at once. */

#define LINE 64

/* Have what is there in the cache by the time it is read. It may be NULL: no branch, for it would not be foreseen. */
static inline void prefetch(const void *what, Py_ssize_t size)
{
#if defined(__GNUC__)
    uintptr_t at = (uintptr_t)what;
    for (Py_ssize_t done = 0; done < size; done += LINE)
        __builtin_prefetch((const void *)(at + done));
    __builtin_prefetch((const void *)(at + size - 1));
#endif
}

#endif
