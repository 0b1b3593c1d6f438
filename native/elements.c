/* Sums and extremes of numbers. Those of 32 and of 16 bits, which are most, are looked at eight at a time whatever the
   processor has: so the order in which they are added, and with it the last bit, is the same on each.

   Compilers make of vectors what the processor has. Functions get them by their address: to pass them otherwise depends
   on the processor. Numbers of 16 bits are looked at as if they had 32. */
#include "elements.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Compiled twice, and chosen where the module is loaded; elsewhere for the least processor of the kind. */
#if defined(__x86_64__) && defined(__GLIBC__)
#define FOR_THIS_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_THIS_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

#define LANES 8
typedef int32_t Bits __attribute__((vector_size(32)));
typedef float Floats __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(16)));
typedef double FourDoubles __attribute__((vector_size(32)));
typedef double EightDoubles __attribute__((vector_size(64)));

/* `one` where it is so, which is -1, else `other`. */
#define CHOOSE(is_so, one, other) (((one) & (is_so)) | ((other) & ~(is_so)))

INLINE void load_32(Bits *bits, const char *at)
{
    memcpy(bits, at, sizeof *bits);
}

INLINE void load_brain(Bits *bits, const char *at)
{
    Halves halves;
    memcpy(&halves, at, sizeof halves);
    *bits = __builtin_convertvector(halves, Bits) << 16;
}

INLINE void load_16(Bits *bits, const char *at)
{
    Halves halves;
    memcpy(&halves, at, sizeof halves);
    Bits narrow = __builtin_convertvector(halves, Bits), magnitudes = narrow & 0x7fff;
    Bits is_tiny = magnitudes < 0x400, is_no_number = magnitudes >= 0x7c00; /* subnormal; Inf or NaN */
    Bits usual = (magnitudes << 13) + 0x38000000 + (is_no_number & 0x38000000);
    Bits tiny = (Bits)(__builtin_convertvector(magnitudes, Floats) * 0x1p-24f);
    *bits = CHOOSE(is_tiny, tiny, usual) | (narrow & 0x8000) << 16;
}

INLINE void widen(FourDoubles *numbers, const Bits *bits)
{
    /* All at once: of four floats GCC 12 makes doubles two by two. */
    EightDoubles eight = __builtin_convertvector((Floats)*bits, EightDoubles);
    memcpy(numbers, &eight, sizeof eight);
}

INLINE double sum_of(const FourDoubles *sums)
{
    FourDoubles both = sums[0] + sums[1];
    return both[0] + both[1] + (both[2] + both[3]);
}

INLINE float of_bits(int32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Numbers without their sign, by their bits: as whole numbers they are in the same order, with Inf above all finite ones
   and NaN above Inf. So the largest is NaN where any is, as it has to be. */

typedef struct {
    Bits largest, zeros;
    FourDoubles squares[2];
} Look;

INLINE void look_at(Look *look, const Bits *bits)
{
    Bits magnitudes = *bits & INT32_MAX, is_larger = magnitudes > look->largest;
    FourDoubles numbers[2];
    widen(numbers, &magnitudes);
    look->largest = CHOOSE(is_larger, magnitudes, look->largest);
    look->zeros -= magnitudes == 0;
    look->squares[0] += numbers[0] * numbers[0];
    look->squares[1] += numbers[1] * numbers[1];
}

INLINE Found found_by(const Look *look, Py_ssize_t filled_up)
{
    int32_t largest = 0;
    Py_ssize_t zeros = -filled_up;
    for (int lane = 0; lane < LANES; lane++) {
        largest = look->largest[lane] > largest ? look->largest[lane] : largest;
        zeros += look->zeros[lane];
    }
    return (Found){sum_of(look->squares), of_bits(largest), zeros};
}

/* What is left at the end is filled up with zeros. */
#define LOOK(name, load, bytes)                                           \
    FOR_THIS_PROCESSOR static Found name(const char *at, Py_ssize_t n)    \
    {                                                                     \
        Look look = {{0}, {0}, {{0}, {0}}};                               \
        Bits bits;                                                        \
        for (; n >= LANES; n -= LANES, at += LANES * bytes) {             \
            __builtin_prefetch(at + AHEAD);                               \
            load(&bits, at);                                              \
            look_at(&look, &bits);                                        \
        }                                                                 \
        if (n == 0)                                                       \
            return found_by(&look, 0);                                    \
        char rest[LANES * bytes] = {0};                                   \
        memcpy(rest, at, (size_t)n * bytes);                              \
        load(&bits, rest);                                                \
        look_at(&look, &bits);                                            \
        return found_by(&look, LANES - n);                                \
    }

LOOK(look_32, load_32, 4)
LOOK(look_brain, load_brain, 2)
LOOK(look_16, load_16, 2)

/* A comparison with NaN is never so. */

typedef struct {
    Floats low, high;
    Bits is_nan;
    FourDoubles sums[2];
} Span;

INLINE void span_over(Span *span, const Bits *bits)
{
    Floats numbers = (Floats)*bits;
    Bits is_lower = numbers < span->low, is_higher = numbers > span->high;
    span->low = (Floats)CHOOSE(is_lower, *bits, (Bits)span->low);
    span->high = (Floats)CHOOSE(is_higher, *bits, (Bits)span->high);
    span->is_nan |= numbers != numbers;
}

INLINE void add(Span *span, const Bits *bits)
{
    FourDoubles numbers[2];
    widen(numbers, bits);
    span->sums[0] += numbers[0];
    span->sums[1] += numbers[1];
}

INLINE Extent extent_by(const Span *span)
{
    Extent found = {sum_of(span->sums), INFINITY, -INFINITY};
    for (int lane = 0; lane < LANES; lane++) {
        if (span->is_nan[lane])
            return (Extent){NAN, NAN, NAN};
        found.low = span->low[lane] < found.low ? span->low[lane] : found.low;
        found.high = span->high[lane] > found.high ? span->high[lane] : found.high;
    }
    return found;
}

/* What is left at the end is filled up: with zeros, which change no sum, and with its first number, which changes no end. */
#define SPAN(name, load, bytes)                                           \
    FOR_THIS_PROCESSOR static Extent name(const char *at, Py_ssize_t n)   \
    {                                                                     \
        Span span = {{0}, {0}, {0}, {{0}, {0}}};                          \
        Bits bits;                                                        \
        span.low += INFINITY;                                             \
        span.high -= INFINITY;                                            \
        for (; n >= LANES; n -= LANES, at += LANES * bytes) {             \
            __builtin_prefetch(at + AHEAD);                               \
            load(&bits, at);                                              \
            span_over(&span, &bits);                                      \
            add(&span, &bits);                                            \
        }                                                                 \
        if (n > 0) {                                                      \
            char rest[LANES * bytes] = {0};                               \
            memcpy(rest, at, (size_t)n * bytes);                          \
            load(&bits, rest);                                            \
            add(&span, &bits);                                            \
            for (Py_ssize_t lane = n; lane < LANES; lane++)               \
                memcpy(rest + lane * bytes, at, bytes);                   \
            load(&bits, rest);                                            \
            span_over(&span, &bits);                                      \
        }                                                                 \
        return extent_by(&span);                                          \
    }

SPAN(span_32, load_32, 4)
SPAN(span_brain, load_brain, 2)
SPAN(span_16, load_16, 2)

/* Four sums, for an addition takes four times as long as the processor needs to begin the next. */
static Found look_64(const char *at, Py_ssize_t n)
{
    double squares[4] = {0, 0, 0, 0}, number;
    uint64_t magnitude, largest = 0;
    Py_ssize_t zeros = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        memcpy(&magnitude, at + 8 * i, sizeof magnitude);
        magnitude &= INT64_MAX;
        memcpy(&number, &magnitude, sizeof number);
        squares[i % 4] += number * number;
        zeros += magnitude == 0;
        largest = magnitude > largest ? magnitude : largest;
    }
    memcpy(&number, &largest, sizeof number);
    return (Found){squares[0] + squares[1] + squares[2] + squares[3], number, zeros};
}

static Extent span_64(const char *at, Py_ssize_t n)
{
    Extent found = {0, INFINITY, -INFINITY};
    for (Py_ssize_t i = 0; i < n; i++) {
        double number;
        memcpy(&number, at + 8 * i, sizeof number);
        if (number != number)
            return (Extent){NAN, NAN, NAN};
        found.sum += number;
        found.low = number < found.low ? number : found.low;
        found.high = number > found.high ? number : found.high;
    }
    return found;
}

const Kind of_64_bits = {look_64, span_64}, of_32_bits = {look_32, span_32}, of_16_bits = {look_16, span_16},
           of_brain_type = {look_brain, span_brain};
