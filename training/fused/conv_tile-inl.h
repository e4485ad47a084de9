// Matrix products whose left operand is read in place through two tables of offsets, so that a
// convolution needs no copy of its windows (no im2col). One routine serves the forward pass (rows
// are pixels, steps are taps), the weight gradient (rows are taps, steps are pixels) and the input
// gradient (rows are pixels, steps are output channels).
#if defined(MACAW_CONV_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MACAW_CONV_TILE_INL_H_
#undef MACAW_CONV_TILE_INL_H_
#else
#define MACAW_CONV_TILE_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "training/fused/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

// Each row of a tile needs a general register for its address, so a tile has at most 8 rows. Wider
// tiles with fewer rows read fewer operands per multiply-add.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr size_t kGatherVectors = 4;
constexpr size_t GatherRows(size_t vectors) { return vectors == 4 ? 6 : 8; }
#elif HWY_TARGET == HWY_AVX2
constexpr size_t kGatherVectors = 2;
constexpr size_t GatherRows(size_t vectors) { return vectors == 2 ? 6 : 8; }
#else
constexpr size_t kGatherVectors = 2;
constexpr size_t GatherRows(size_t) { return 4; }
#endif

// Element (row, step) is at data + rows[row] + steps[step].
struct Gather {
  const float* data = nullptr;
  const int32_t* rows = nullptr;
  const int32_t* steps = nullptr;
};

// Element (row, column) is at data + rows[row] + column/16·panels + column%16.
struct Scatter {
  float* data = nullptr;
  const int32_t* rows = nullptr;
  size_t panels = kLanes;
};

// A panel matrix (gemm-inl.h) of `rows` rows, of which the first are the steps: element (step,
// column) is at data + (column/16·rows + step)·16 + column%16.
struct Panels {
  const float* data = nullptr;
  size_t rows = 0;
};

// The place of a vector's column, for panels that are `panels` floats apart.
HWY_INLINE size_t PanelAt(size_t column, size_t panels) {
  return column / kLanes * panels + column % kLanes;
}

// The initial value of the sums, and what happens to the results.
enum class Then { kStore, kAdd };
struct Ends {
  const float* begin = nullptr;  // [columns], the same for each row; null: zeros
  float least = -std::numeric_limits<float>::infinity();  // stored values are at least this
};

// Computes one tile. Not inlined, so that the inner loop has all registers.
template <Then kThen, size_t kRows, size_t kVectors>
HWY_NOINLINE void GatherTile(size_t steps, const Gather& a, size_t first, const Panels& b,
                             size_t column, const Ends& ends, const Scatter& c) {
  const Floats d;
  FloatVector sums[kRows][kVectors];
  MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
    const FloatVector begin =
        ends.begin == nullptr ? hn::Zero(d) : hn::LoadU(d, ends.begin + column + v * kWidth);
    MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) sums[r][v] = begin;
  }
  const float* x[kRows];
  MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) x[r] = a.data + a.rows[first + r];
  const float* y[kVectors];
  MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
    y[v] = b.data + PanelAt(column + v * kWidth, b.rows * kLanes);
  }
  const int32_t* const step_at = a.steps;
  for (size_t s = 0; s < steps; ++s) {
    const ptrdiff_t at = step_at[s];
    FloatVector right[kVectors];
    MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, y[v] + s * kLanes);
    MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
      const FloatVector left = hn::Set(d, x[r][at]);
      MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
      }
    }
  }
  const FloatVector least = hn::Set(d, ends.least);
  float* z[kVectors];
  MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
    z[v] = c.data + PanelAt(column + v * kWidth, c.panels);
  }
  const int32_t* const row_at = c.rows + first;
  MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
    const ptrdiff_t at = row_at[r];
    MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
      float* const to = z[v] + at;
      if constexpr (kThen == Then::kAdd) {
        hn::StoreU(hn::Add(hn::LoadU(d, to), sums[r][v]), d, to);
      } else {
        // Max is not used, because it drops NaN on some instruction sets.
        const auto low = hn::Lt(sums[r][v], least);
        hn::StoreU(hn::IfThenElse(low, least, sums[r][v]), d, to);
      }
    }
  }
}

// c(r, p) = or += begin[p] + Σ_s a(r, s)·b(s, p), s ascending, for `rows` rows and the vectors that
// cover `columns` columns. With +=, rows of c may overlap: r ascends for each p.
template <Then kThen>
void GatherProduct(size_t rows, size_t columns, size_t steps, const Gather& a, const Panels& b,
                   const Ends& ends, const Scatter& c) {
  EvenPieces((columns + kWidth - 1) / kWidth, kGatherVectors,
             [&](size_t vector, size_t wide) HWY_ATTR {
               WithConstant<kGatherVectors>(wide, [&](auto vectors) HWY_ATTR {
                 constexpr size_t kVectors = decltype(vectors)::value;
                 constexpr size_t kMostRows = GatherRows(kVectors);
                 const size_t tiles = (rows + kMostRows - 1) / kMostRows, low = rows / tiles;
                 const size_t higher = rows - tiles * low;  // tiles with one row more
                 for (size_t tile = 0, first = 0; tile < tiles; ++tile) {
                   const size_t count = tile < higher ? low + 1 : low;
                   WithConstant<kMostRows>(count, [&](auto high) HWY_ATTR {
                     GatherTile<kThen, decltype(high)::value, kVectors>(steps, a, first, b,
                                                                        vector * kWidth, ends, c);
                   });
                   first += count;
                 }
               });
             });
}

// Loads the first `count` lanes from memory that ends there, and zeros behind them.
HWY_INLINE FloatVector LoadEnd(const float* from, size_t count) {
  const Floats d;
  if (count >= kWidth) return hn::LoadU(d, from);
  HWY_ALIGN float lanes[kWidth] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return hn::Load(d, lanes);
}

HWY_INLINE void StoreEnd(FloatVector values, float* to, size_t count) {
  const Floats d;
  if (count >= kWidth) return hn::StoreU(values, d, to);
  HWY_ALIGN float lanes[kWidth];
  hn::Store(values, d, lanes);
  std::memcpy(to, lanes, count * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();
#endif
