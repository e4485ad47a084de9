// Register-blocked matrix products for the instruction set that the including
// source is being compiled for (core/isa_targets.h). Read once for each of them, hence
// the guard that turns over.
//
// A panel matrix of K rows and P columns (P a multiple of 16) holds 16 columns
// after another: element (k, p) is at (p/16·K + k)·16 + p%16, so that a product
// reads it in one or two contiguous streams, whatever P is. Weights are kept
// that way, transposed: k counts inputs, p outputs.
#if defined(MACAW_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MACAW_GEMM_INL_H_
#undef MACAW_GEMM_INL_H_
#else
#define MACAW_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"
#include "training/fused/block.h"

// Accumulators live in registers only if every loop over them is unrolled.
#if defined(__clang__)
#define MACAW_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MACAW_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVector = hn::Vec<Floats>;
constexpr size_t kWidth = HWY_LANES(float);  // of a vector
static_assert(kLanes % kWidth == 0);

// Tile sizes: rows × vectors of accumulators that fit the registers beside the
// operands.
#if HWY_TARGET == HWY_AVX3
constexpr size_t kTileRows = 12, kTileVectors = 2;
#elif HWY_TARGET == HWY_AVX2
constexpr size_t kTileRows = 6, kTileVectors = 2;
#elif HWY_TARGET == HWY_NEON
constexpr size_t kTileRows = 5, kTileVectors = 4;
#else
constexpr size_t kTileRows = 4, kTileVectors = 2;
#endif

// Calls f(std::integral_constant<size_t, n>) for the run-time n, 1 … kMax.
template <size_t kMax, typename F>
HWY_INLINE void WithConstant(size_t n, const F& f) {
  if constexpr (kMax > 1) {
    if (n < kMax) return WithConstant<kMax - 1>(n, f);
  }
  f(std::integral_constant<size_t, kMax>());
}

// Cuts `count` into pieces of at most `most`, as even as can be, and calls
// f(begin, size) on each.
template <typename F>
HWY_INLINE void EvenPieces(size_t count, size_t most, const F& f) {
  const size_t pieces = (count + most - 1) / most;
  for (size_t i = 0, begin = 0; i < pieces; ++i) {
    const size_t end = (i + 1) * count / pieces;
    f(begin, end - begin);
    begin = end;
  }
}

// A matrix as one operand of a product: element (row, column) at row·rows +
// column/16·panels + column%16 from `data`, for columns that begin a vector.
// Row-major with stride s: {data, s, 16}; panels of K rows: {data, 16, 16·K}.
template <typename T>
struct Columns {
  T* data = nullptr;
  size_t rows = 0;
  size_t panels = kLanes;

  size_t Place(size_t row, size_t column) const {
    return row * rows + column / kLanes * panels + column % kLanes;
  }
  T* At(size_t row, size_t column) const { return data + Place(row, column); }
};

// An operand whose elements are broadcast: (row, step) at row·stride + step,
// or, where its rows are the columns of what is stored, at row + step·stride.
enum class Stored { kByRows, kBySteps };
struct Scalars {
  const float* data = nullptr;
  size_t stride = 0;
};

// kRows broadcast numbers of one step after another. Every fourth row has a
// pointer of its own: the others are within reach of an addressing mode, and
// all of it stays in registers.
template <size_t kRows, Stored kStored>
class ScalarColumn {
 public:
  HWY_INLINE ScalarColumn(const Scalars& a, size_t first) : stride_(a.stride) {
    if constexpr (kStored == Stored::kBySteps) {
      at_[0] = a.data + first;
    } else {
      MACAW_UNROLL for (size_t i = 0; i < kPointers; ++i) {
        at_[i] = a.data + (first + 4 * i) * stride_;
      }
    }
  }
  HWY_INLINE FloatVector operator[](size_t r) const {
    if constexpr (kStored == Stored::kBySteps) return hn::Set(Floats(), at_[0][r]);
    return hn::Set(Floats(), at_[r / 4][r % 4 * stride_]);
  }
  HWY_INLINE void Next() {
    MACAW_UNROLL for (size_t i = 0; i < kPointers; ++i) {
      at_[i] += kStored == Stored::kBySteps ? stride_ : 1;
    }
  }

 private:
  static constexpr size_t kPointers = kStored == Stored::kBySteps ? 1 : (kRows + 3) / 4;
  const float* at_[kPointers];
  const size_t stride_;
};

// c(r, p) = finish(r, p, begin(r, p) + Σ_s a(r, s)·b(s, p), s ascending) for
// kRows rows from `first` and kVectors vectors of columns from `column`. Each
// element is one chain of multiply-adds, so its bits depend neither on the
// tile's size nor on the vector's width.
template <size_t kRows, size_t kVectors, Stored kStored, typename Begin, typename Finish>
HWY_INLINE void ProductTile(size_t first, size_t column, size_t steps, const Scalars a,
                            const Columns<const float> b, const Begin begin, const Finish finish) {
  const Floats d;
  FloatVector sums[kRows][kVectors];
  MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
    MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
      sums[r][v] = begin(first + r, column + v * kWidth);
    }
  }
  ScalarColumn<kRows, kStored> left(a, first);
  const float* y[kVectors];
  MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) y[v] = b.At(0, column + v * kWidth);
  const size_t step = b.rows;
  for (size_t s = 0; s < steps; ++s) {
    FloatVector right[kVectors];
    MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
      right[v] = hn::Load(d, y[v]);
      y[v] += step;
    }
    MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
      const FloatVector x = left[r];
      MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(x, right[v], sums[r][v]);
      }
    }
    left.Next();
  }
  MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
    MACAW_UNROLL for (size_t v = 0; v < kVectors; ++v) {
      finish(first + r, column + v * kWidth, sums[r][v]);
    }
  }
}

// The product of `rows` rows with all `columns` (a multiple of 16), tile by
// tile.
template <Stored kStored, typename Begin, typename Finish>
HWY_INLINE void Product(size_t rows, size_t columns, size_t steps, const Scalars& a,
                        const Columns<const float>& b, const Begin& begin, const Finish& finish) {
  const auto strip = [&](auto vectors, size_t column) HWY_ATTR {
    constexpr size_t kVectors = decltype(vectors)::value;
    EvenPieces(rows, kTileRows, [&](size_t first, size_t count) HWY_ATTR {
      WithConstant<kTileRows>(count, [&](auto constant) HWY_ATTR {
        ProductTile<decltype(constant)::value, kVectors, kStored>(first, column, steps, a, b, begin,
                                                                  finish);
      });
    });
  };
  constexpr size_t kStrip = kTileVectors * kWidth;
  size_t column = 0;
  for (; column + kStrip <= columns; column += kStrip) {
    strip(std::integral_constant<size_t, kTileVectors>(), column);
  }
  for (; column < columns; column += kWidth) strip(std::integral_constant<size_t, 1>(), column);
}

#if HWY_TARGET != HWY_SCALAR
// The sum over the blocks of four lanes: four numbers.
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> SumOfBlocks(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Four at once: neighbours are interleaved and added until a block holds a
// number of each.
HWY_INLINE void StoreFourSums(const FloatVector* sums, float* to) {
  const Floats d;
  const hn::Repartition<double, Floats> pairs;
  const auto fold = [&](FloatVector a, FloatVector b) HWY_ATTR {
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto low = fold(sums[0], sums[1]), high = fold(sums[2], sums[3]);
  const FloatVector each = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, low, high)),
                                   hn::BitCast(d, hn::InterleaveUpper(pairs, low, high)));
  hn::StoreU(SumOfBlocks(d, each), hn::FixedTag<float, 4>(), to);
}
#else
HWY_INLINE void StoreFourSums(const FloatVector* sums, float* to) {
  for (size_t k = 0; k < 4; ++k) to[k] = hn::GetLane(sums[k]);
}
#endif

// Stores the sum of the lanes of each of kCount vectors.
template <size_t kCount>
HWY_INLINE void StoreSums(const FloatVector* sums, float* to) {
  if constexpr (kCount == 4) return StoreFourSums(sums, to);
  const Floats d;
  MACAW_UNROLL for (size_t k = 0; k < kCount; ++k) {
    to[k] = hn::GetLane(hn::SumOfLanes(d, sums[k]));
  }
}

// c(r, k) = Σ_p a(r, p)·b(k, p) over `columns` columns (a multiple of 16): rows
// of a, a row-major matrix, with rows of b. `c` is row-major with stride
// `stride`. The order of the sum depends on the vector's width.
template <size_t kRows, size_t kColumns>
HWY_INLINE void DotTile(size_t columns, const Columns<const float>& a,
                        const Columns<const float>& b, float* c, size_t stride) {
  const Floats d;
  FloatVector sums[kRows][kColumns];
  MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
    MACAW_UNROLL for (size_t k = 0; k < kColumns; ++k) sums[r][k] = hn::Zero(d);
  }
  for (size_t p = 0; p < columns; p += kWidth) {
    FloatVector right[kColumns];
    MACAW_UNROLL for (size_t k = 0; k < kColumns; ++k) right[k] = hn::Load(d, b.At(k, p));
    MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) {
      const FloatVector left = hn::Load(d, a.At(r, p));
      MACAW_UNROLL for (size_t k = 0; k < kColumns; ++k) {
        sums[r][k] = hn::MulAdd(left, right[k], sums[r][k]);
      }
    }
  }
  MACAW_UNROLL for (size_t r = 0; r < kRows; ++r) StoreSums<kColumns>(sums[r], c + r * stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();
#endif
