#include "codecs/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <span>
#include <type_traits>

#include "codecs/line.h"
#include "codecs/tensors.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

// The blocks of a tensor of n numbers.
struct Blocks {
  explicit Blocks(uint64_t n)
      : size(std::min(kRotated, std::bit_floor(n))), rest(n == 0 ? 0 : n % size) {}
  uint64_t size;  // m
  uint64_t rest;  // numbers behind the last whole block
};

// The signs of a block.
class Signs {
 public:
  Signs(RandomStream& random, size_t size) : count_(std::max<size_t>(1, size / 32)) {
    uint64_t drawn[kRotated / 64];
    const std::span<uint64_t> words = std::span(drawn).first((count_ + 1) / 2);
    random.FillU64(words);
    for (size_t w = 0; w < count_; ++w)
      words_[w] = static_cast<uint32_t>(drawn[w / 2] >> (w % 2 * 32));
  }

  // block ← factor · D block.
  template <typename T>
  void Apply(std::span<T> block, T factor) const {
    using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    constexpr int kTop = 8 * sizeof(T) - 1;
    for (size_t bit = 0; bit * count_ < block.size(); ++bit) {
      T* const values = block.data() + bit * count_;
      for (size_t w = 0; w < count_; ++w) {
        const Word sign = Word{words_[w]} >> bit << kTop;
        values[w] = std::bit_cast<T>(std::bit_cast<Word>(values[w]) ^ sign) * factor;
      }
    }
  }

 private:
  const size_t count_;  // w
  uint32_t words_[kRotated / 32];
};

// (low, high) ← (low + high, low − high).
template <typename T>
void Butterfly(T* __restrict low, T* __restrict high, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const T a = low[i], b = high[i];
    low[i] = a + b;
    high[i] = a - b;
  }
}

// Two steps at once: half the way to memory and back.
template <typename T>
void TwoButterflies(T* __restrict v0, T* __restrict v1, T* __restrict v2, T* __restrict v3,
                    size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const T a = v0[i] + v1[i], b = v0[i] - v1[i], c = v2[i] + v3[i], d = v2[i] - v3[i];
    v0[i] = a + c;
    v1[i] = b + d;
    v2[i] = a - c;
    v3[i] = b - d;
  }
}

// block ← H block.
template <typename T>
void Hadamard(std::span<T> block) {
  const size_t size = block.size();
  size_t half = 1;
  if (std::countr_zero(size) % 2 == 1) {
    for (size_t at = 0; at < size; at += 2) Butterfly(&block[at], &block[at + 1], 1);
    half = 2;
  }
  for (; half < size; half *= 4) {
    for (size_t at = 0; at < size; at += 4 * half) {
      T* const v = &block[at];
      TwoButterflies(v, v + half, v + 2 * half, v + 3 * half, half);
    }
  }
}

template <typename T>
void RotateBlock(std::span<T> block, const Signs& signs, bool back) {
  const T factor = static_cast<T>(1 / std::sqrt(static_cast<double>(block.size())));
  if (!back) signs.Apply(block, factor);
  Hadamard(block);  // its own transpose
  if (back) signs.Apply(block, factor);
}

template <typename T>
void RotateTensor(std::span<T> values, RandomStream& random, bool back) {
  if (values.empty()) return;
  const Blocks blocks(values.size());
  const std::span<T> last = values.last(blocks.size);
  std::optional<Signs> of_last;
  if (blocks.rest > 0) of_last.emplace(random, blocks.size);
  if (back && of_last.has_value()) RotateBlock(last, *of_last, back);
  ForEachPiece(values.first(values.size() - blocks.rest), blocks.size,
               [&](std::span<T> block) { RotateBlock(block, Signs(random, block.size()), back); });
  if (!back && of_last.has_value()) RotateBlock(last, *of_last, back);
}

}  // namespace

void Rotate(VectorView v, RandomStream random) {
  ForEachTensor(v, [&](auto values) { RotateTensor(values, random, /*back=*/false); });
}

void RotateBack(VectorView v, RandomStream random) {
  ForEachTensor(v, [&](auto values) { RotateTensor(values, random, /*back=*/true); });
}

uint64_t MostMixed(const ParameterLayout& layout) {
  uint64_t most = 1;
  for (const LayoutEntry& entry : layout.entries()) {
    if (entry.group != Group::kParameter) continue;
    const Blocks blocks(entry.size);
    most = std::max(most, blocks.size + blocks.rest);
  }
  return most;
}

absl::StatusOr<bool> TakeRotation(std::vector<std::string>& lines) {
  if (lines.empty()) return false;
  const Line line(lines.front());
  if (line.name() != "rotate") return false;
  MACAW_RETURN_IF_ERROR(line.End("\"rotate\""));
  if (lines.size() == 1)
    return line.Refuse("it makes nothing small by itself; write a quantiser behind it: \"bits 4\"");
  lines.erase(lines.begin());
  return true;
}

}  // namespace macaw::codecs
