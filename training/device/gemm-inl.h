#pragma once

#include "device/math.h"
#include "training/device/ops.h"

// Matrix products by one team. An operand is a type with
//   Outer At(uint32_t outer) const        what is needed of a row of A, a column of B
//   Inner Along(uint32_t k) const         what is needed of a product's index
//   float Get(Outer, Inner) const
//   kAlongFast                            whether neighbours along k lie side by side in memory
// so a convolution's windows are never copied to memory.
#if defined(__CUDACC__)
#define MACAW_INLINE_KERNEL __host__ __device__ __forceinline__
#define MACAW_UNROLL _Pragma("unroll")
#define MACAW_UNROLL_2 _Pragma("unroll 2")
#else
#define MACAW_INLINE_KERNEL inline
#define MACAW_UNROLL
#define MACAW_UNROLL_2
#endif

namespace macaw::training::ondevice {

struct alignas(16) Four {
  float v[4];
};

template <typename T>
MACAW_INLINE_KERNEL T Least(T a, T b) {
  return b < a ? b : a;
}

// Writes elements [first, first + extent) × [k0, k0 + depth) of an operand to tile[k][outer], those
// below `limit`. Threads that stand side by side read side by side. Four reads are under way at a
// time: what they need is read for all four first, each read is predicated and not branched around,
// and the four are stored behind the last one.
template <typename Operand>
MACAW_INLINE_KERNEL void LoadTile(const device::Team& team, const Operand& operand, float* tile,
                                  uint32_t pitch, uint32_t extent, uint32_t first, uint32_t limit,
                                  uint32_t k0, uint32_t depth) {
  constexpr uint32_t kAtOnce = 4;
  const uint32_t here = Least(extent, limit - first);
  float values[kAtOnce];
  if constexpr (Operand::kAlongFast) {
    // At least eight threads along k, which is a sector of memory.
    const uint32_t across = team.threads < 8 ? 1 : Least(team.threads / 8, extent);
    const uint32_t along = team.threads / across;
    const uint32_t outer0 = team.thread / along;
    if (outer0 >= across) return;
    for (uint32_t k = team.thread - outer0 * along; k < depth; k += along) {
      const typename Operand::Inner inner = operand.Along(k0 + k);
      for (uint32_t outer = outer0; outer < here; outer += kAtOnce * across) {
        typename Operand::Outer at[kAtOnce];
        MACAW_UNROLL
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          at[i] = operand.At(first + Least(outer + i * across, here - 1));
        }
        MACAW_UNROLL
        for (uint32_t i = 0; i < kAtOnce; ++i) values[i] = operand.Get(at[i], inner);
        MACAW_UNROLL
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          if (outer + i * across < here) tile[k * pitch + outer + i * across] = values[i];
        }
      }
    }
  } else {
    const uint32_t across = Least(team.threads, extent);
    const uint32_t along = team.threads / across;
    const uint32_t k_first = team.thread / across;
    if (k_first >= along) return;
    for (uint32_t outer = team.thread - k_first * across; outer < here; outer += across) {
      const typename Operand::Outer at = operand.At(first + outer);
      for (uint32_t k = k_first; k < depth; k += kAtOnce * along) {
        typename Operand::Inner inner[kAtOnce];
        MACAW_UNROLL
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          inner[i] = operand.Along(k0 + Least(k + i * along, depth - 1));
        }
        MACAW_UNROLL
        for (uint32_t i = 0; i < kAtOnce; ++i) values[i] = operand.Get(at, inner[i]);
        MACAW_UNROLL
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          if (k + i * along < depth) tile[(k + i * along) * pitch + outer] = values[i];
        }
      }
    }
  }
}

MACAW_INLINE_KERNEL Four FourAt(const float* place) {
  return *reinterpret_cast<const Four*>(place);
}

// One product of each of a thread's 4 × 4 elements.
MACAW_INLINE_KERNEL void Multiply(const Four& x, const Four& y, float* sums) {
  MACAW_UNROLL
  for (uint32_t i = 0; i < 16; ++i) sums[i] = device::Fma(x.v[i / 4], y.v[i % 4], sums[i]);
}

// `count` products of each, whose operands stand `left_step` and `right_step` floats apart. The
// next operands are on their way while these are multiplied.
MACAW_INLINE_KERNEL void MultiplyAll(const float* left, uint32_t left_step, const float* right,
                                     uint32_t right_step, uint32_t count, float* sums) {
  if (count == 0) return;
  Four x = FourAt(left), y = FourAt(right);
  MACAW_UNROLL_2
  for (; count > 2; count -= 2) {
    const Four x1 = FourAt(left + left_step), y1 = FourAt(right + right_step);
    left += 2 * left_step;
    right += 2 * right_step;
    Multiply(x, y, sums);
    x = FourAt(left);
    y = FourAt(right);
    Multiply(x1, y1, sums);
  }
  if (count == 2) {
    const Four x1 = FourAt(left + left_step), y1 = FourAt(right + right_step);
    Multiply(x, y, sums);
    Multiply(x1, y1, sums);
  } else {
    Multiply(x, y, sums);
  }
}

// store(m, n, Σ_k a(m, k) · b(k, n)) for all m < m_count, n < n_count: each once, by any thread.
// The team is in step at the end, and sees what `store` wrote. Teams that are too small for the
// shape's tiles compute element by element: the same bits. Shape and operands are values: what
// `store` writes could be what a reference names, which would be read again for every element.
template <typename A, typename B, typename Store>
MACAW_INLINE_KERNEL void TeamGemm(const device::Team& team, const GemmShape shape, uint32_t m_count,
                                  uint32_t n_count, uint32_t k_count, const A a, const B b,
                                  const Store& store) {
  const uint32_t lanes = 1u << shape.lanes;
  const uint32_t shares = 1u << (shape.rows + shape.columns + shape.lanes);
  if (team.threads < shares) {
    for (uint32_t i = team.thread; i < m_count * n_count; i += team.threads) {
      const uint32_t m = i / n_count, n = i - m * n_count;
      const typename A::Outer row = a.At(m);
      const typename B::Outer column = b.At(n);
      float sum = 0;
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        float chain = 0;
        for (uint32_t k = lane; k < k_count; k += lanes) {
          chain = device::Fma(a.Get(row, a.Along(k)), b.Get(column, b.Along(k)), chain);
        }
        sum = lane == 0 ? chain : sum + chain;
      }
      store(m, n, sum);
    }
    team.Sync();
    return;
  }
  const uint32_t tile_m = 4u << shape.rows, tile_n = 4u << shape.columns;
  // Four floats more, so that a warp's writes along k go to different banks.
  const uint32_t pitch_a = tile_m + 4, pitch_b = tile_n + 4;
  float* const shared = reinterpret_cast<float*>(team.shared);
  float* const a_tile = shared;
  float* const b_tile = shared + shape.depth * pitch_a;
  const bool works = team.thread < shares;
  const uint32_t column = team.thread & ((1u << shape.columns) - 1);
  const uint32_t row = (team.thread >> shape.columns) & ((1u << shape.rows) - 1);
  const uint32_t lane = team.thread >> (shape.rows + shape.columns);
  for (uint32_t m0 = 0; m0 < m_count; m0 += tile_m) {
    for (uint32_t n0 = 0; n0 < n_count; n0 += tile_n) {
      float sums[16];
      MACAW_UNROLL
      for (uint32_t i = 0; i < 16; ++i) sums[i] = 0;
      for (uint32_t k0 = 0; k0 < k_count; k0 += shape.depth) {
        const uint32_t depth = Least(shape.depth, k_count - k0);
        LoadTile(team, a, a_tile, pitch_a, tile_m, m0, m_count, k0, depth);
        LoadTile(team, b, b_tile, pitch_b, tile_n, n0, n_count, k0, depth);
        team.Sync();
        if (works && lane < depth) {
          MultiplyAll(a_tile + lane * pitch_a + 4 * row, lanes * pitch_a,
                      b_tile + lane * pitch_b + 4 * column, lanes * pitch_b,
                      ((depth - 1 - lane) >> shape.lanes) + 1, sums);
        }
        team.Sync();
      }
      // Through shared memory, so that lanes are added and neighbours are stored side by side.
      if (works) {
        MACAW_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          Four part;
          MACAW_UNROLL
          for (uint32_t j = 0; j < 4; ++j) part.v[j] = sums[4 * i + j];
          *reinterpret_cast<Four*>(shared + (lane * tile_m + 4 * row + i) * tile_n + 4 * column) =
              part;
        }
      }
      team.Sync();
      const uint32_t size = tile_m * tile_n;
      for (uint32_t i = team.thread; i < size; i += team.threads) {
        const uint32_t m = m0 + (i >> (shape.columns + 2)), n = n0 + (i & (tile_n - 1));
        if (m >= m_count || n >= n_count) continue;
        float sum = shared[i];
        for (uint32_t l = 1; l < lanes; ++l) sum += shared[l * size + i];
        store(m, n, sum);
      }
      team.Sync();
    }
  }
}

}  // namespace macaw::training::ondevice
