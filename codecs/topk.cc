// Top-k: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018. Chunks: Sun et al.,
// "Optimizing Network Performance for Distributed DNN Training on GPU Clusters: ImageNet/AlexNet
// Training in 1.5 Minutes" (GradientFlow), 2019, coarse-grained sparse communication.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "codecs/makers.h"
#include "codecs/tensors.h"
#include "core/fraction.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

// k of d numbers: ⌊fraction · d⌋ of the decimal that was written, and at least one.
size_t CountKept(double fraction, size_t d) { return std::max<size_t>(1, FloorOf(fraction, d)); }

// Which sizes are among the k largest: those above `least`, and the first `ties` that equal it.
template <typename T>
class Largest {
 public:
  Largest(std::vector<T> sizes, size_t k) {
    const auto last = sizes.begin() + static_cast<ptrdiff_t>(k - 1);
    std::nth_element(sizes.begin(), last, sizes.end(), std::greater<T>());
    least_ = *last;
    ties_ = k - static_cast<size_t>(std::count_if(sizes.begin(), sizes.end(),
                                                  [&](T size) { return size > least_; }));
  }
  // Asked of each size in turn.
  bool Keeps(T size) {
    if (size > least_) return true;
    if (size < least_ || ties_ == 0) return false;
    --ties_;
    return true;
  }

 private:
  T least_ = 0;
  size_t ties_ = 0;
};

// All tensors together.
template <typename T>
void KeepLargest(const std::vector<std::span<T>>& tensors, double fraction) {
  std::vector<T> sizes;
  for (const std::span<T> values : tensors) {
    for (const T v : values) sizes.push_back(Magnitude(v));
  }
  if (sizes.empty()) return;
  const size_t k = CountKept(fraction, sizes.size());
  if (k == sizes.size()) return;
  Largest<T> largest(std::move(sizes), k);
  for (const std::span<T> values : tensors) {
    for (T& v : values) {
      if (!largest.Keeps(Magnitude(v))) v = 0;
    }
  }
}

template <typename T>
void KeepLargestChunks(const std::vector<std::span<T>>& tensors, double fraction, size_t size) {
  std::vector<double> norms;
  const auto norm_of = [](std::span<T> chunk) {
    double norm = 0;
    for (const T v : chunk) norm += static_cast<double>(Magnitude(v));
    return norm;
  };
  for (const std::span<T> values : tensors)
    ForEachPiece(values, size, [&](std::span<T> chunk) { norms.push_back(norm_of(chunk)); });
  if (norms.empty()) return;
  const size_t k = CountKept(fraction, norms.size());
  if (k == norms.size()) return;
  Largest<double> largest(norms, k);
  size_t next = 0;
  for (const std::span<T> values : tensors) {
    ForEachPiece(values, size, [&](std::span<T> chunk) {
      if (!largest.Keeps(norms[next++])) std::ranges::fill(chunk, T{0});
    });
  }
}

enum class Scope : uint8_t { kTensor, kAll, kChunks };

class TopK final : public Codec {
 public:
  TopK(double fraction, Scope scope, size_t chunk)
      : fraction_(fraction), scope_(scope), chunk_(chunk) {}

  void Apply(VectorView v, Draws&) const override {
    DispatchDType(v.dtype(), [&]<typename T>(T) {
      std::vector<std::span<T>> tensors;
      for (const LayoutEntry& entry : v.layout->entries()) {
        if (entry.group != Group::kParameter) continue;
        tensors.push_back(v.As<T>().subspan(entry.offset, entry.size));
        if (scope_ != Scope::kTensor) continue;
        KeepLargest<T>(tensors, fraction_);
        tensors.clear();
      }
      if (scope_ == Scope::kAll) KeepLargest<T>(tensors, fraction_);
      if (scope_ == Scope::kChunks) KeepLargestChunks<T>(tensors, fraction_, chunk_);
    });
  }
  Bias bias() const override { return fraction_ < 1 ? Bias::kLarge : Bias::kNone; }
  bool sparse() const override { return true; }

 private:
  const double fraction_;
  const Scope scope_;
  const size_t chunk_;  // numbers
};

}  // namespace

MadeCodec MakeTopK(Line& line, const CodecUse&) {
  MACAW_ASSIGN_OR_RETURN(const double fraction, line.Number("the fraction that stays", 1));
  Scope scope = Scope::kTensor;
  uint64_t chunk = 0;
  if (line.Take("all")) {
    scope = Scope::kAll;
  } else if (line.Take("chunks")) {
    scope = Scope::kChunks;
    MACAW_ASSIGN_OR_RETURN(chunk, line.Whole("the size of a chunk", 1, uint64_t{1} << 40));
  } else {
    line.Take("tensor");
  }
  MACAW_RETURN_IF_ERROR(line.End("\"topk FRACTION\", and behind it tensor, all or chunks SIZE"));
  return std::make_unique<TopK>(fraction, scope, chunk);
}

}  // namespace macaw::codecs
