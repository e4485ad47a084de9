// Tiles of windows, which the routed backward pass (conv_routed-inl.h) accumulates in registers.
#if defined(MACAW_CONV_ROUTED_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MACAW_CONV_ROUTED_TILE_INL_H_
#undef MACAW_CONV_ROUTED_TILE_INL_H_
#else
#define MACAW_CONV_ROUTED_TILE_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "training/fused/conv_layout.h"
#include "training/fused/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

// The largest tiles that fit the registers: number of sums, vectors along a run, runs.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr size_t kRoutedSums = 20, kRoutedWide = 6, kRoutedHigh = 5;
#elif HWY_TARGET == HWY_AVX2
constexpr size_t kRoutedSums = 12, kRoutedWide = 4, kRoutedHigh = 5;
#else
constexpr size_t kRoutedSums = 8, kRoutedWide = 4, kRoutedHigh = 2;
#endif

// A tile of a window: `rows` runs from row `ky` on, `vectors` vectors of each from `vector` on.
struct Tile {
  size_t ky, rows, vector, vectors;
};

// Calls f(tile) for tiles that cover a window, each at most `most_rows` high.
template <typename F>
HWY_INLINE void ForEachTile(const ConvLayout& c, size_t most_rows, const F& f) {
  EvenPieces((c.run + kWidth - 1) / kWidth, kRoutedWide, [&](size_t vector, size_t wide) HWY_ATTR {
    const size_t high = std::min({kRoutedSums / wide, kRoutedHigh, most_rows});
    EvenPieces(c.plan.kernel, high, [&](size_t ky, size_t rows) HWY_ATTR {
      f(Tile{ky, rows, vector, wide});
    });
  });
}

// Calls f(rows, vectors) with compile-time constants.
template <typename F>
HWY_INLINE void WithTile(const Tile& tile, const F& f) {
  WithConstant<kRoutedWide>(tile.vectors, [&](auto wide) HWY_ATTR {
    constexpr size_t kMostRows = std::min(kRoutedSums / decltype(wide)::value, kRoutedHigh);
    WithConstant<kMostRows>(tile.rows, [&](auto high) HWY_ATTR { f(high, wide); });
  });
}

// sums += value·from, a tile whose rows are `row` floats apart.
template <size_t kRows, size_t kVectors>
HWY_INLINE void AddTile(FloatVector value, const float* from, size_t row,
                        FloatVector (&sums)[kRows][kVectors]) {
  const Floats d;
  MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
    MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::MulAdd(value, hn::LoadU(d, from + r * row + v * kWidth), sums[r][v]);
    }
  }
}

// to[r·to_row + v] += Σ_i value_of(i)·from_of(i)[r·from_row + v], i ascending. A small tile
// alternates between two sets of sums, because otherwise each multiply-add would wait for the one
// before.
template <size_t kRows, size_t kVectors, typename ValueOf, typename FromOf>
HWY_INLINE void AddUp(size_t count, const ValueOf& value_of, const FromOf& from_of, size_t from_row,
                      float* to, size_t to_row) {
  const Floats d;
  constexpr size_t kTurns = kRows * kVectors <= 6 ? 2 : 1;
  FloatVector sums[kTurns][kRows][kVectors];
  MACAW_UNROLL for (size_t t = 0; t < kTurns; ++t) {
    MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
      MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) sums[t][r][v] = hn::Zero(d);
    }
  }
  size_t i = 0;
  for (; i + kTurns <= count; i += kTurns) {
    MACAW_UNROLL for (size_t t = 0; t < kTurns; ++t) {
      AddTile(hn::Set(d, value_of(i + t)), from_of(i + t), from_row, sums[t]);
    }
  }
  if (i < count) AddTile(hn::Set(d, value_of(i)), from_of(i), from_row, sums[0]);
  MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
    MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
      FloatVector sum = sums[0][r][v];
      if constexpr (kTurns == 2) sum = hn::Add(sum, sums[1][r][v]);
      float* const at = to + r * to_row + v * kWidth;
      hn::StoreU(hn::Add(hn::LoadU(d, at), sum), d, at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();
#endif
