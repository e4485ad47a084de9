#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/buffer.h"
#include "core/digest.h"

namespace macaw {

enum class DType : uint8_t { kF32 = 0, kF64 = 1 };

constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 8; }
absl::string_view Name(DType dtype);  // "float32", "float64"
absl::StatusOr<DType> ParseDType(absl::string_view name);

// kParameter: trained by gradients. kBuffer: not trained, and aggregated by a rule of its own
// (batch-norm statistics).
enum class Group : uint8_t { kParameter = 0, kBuffer = 1 };

struct LayoutEntry {
  std::string name;            // PyTorch's: "0.weight"
  std::vector<int64_t> shape;  // row-major
  Group group = Group::kParameter;
  uint64_t offset = 0;  // in elements; set by ParameterLayout
  uint64_t size = 0;    // elements; set by ParameterLayout
};

// How one flat vector holds named tensors: parameters first, then buffers, each starting at a
// multiple of 64 bytes. The gaps between them are zero and stay zero. Immutable, shared,
// thread-safe. Its digest is sent with every vector, so that vectors with different layouts are
// never added.
class ParameterLayout {
 public:
  // Orders parameters before buffers (stable) and assigns offsets. Refuses empty or repeated names
  // and bad shapes.
  static absl::StatusOr<std::shared_ptr<const ParameterLayout>> Make(
      std::vector<LayoutEntry> entries, DType dtype);
  // A layout of one tensor `name` with `count` numbers, for small channels ("tau", "loss").
  static std::shared_ptr<const ParameterLayout> Scalars(std::string name, int64_t count,
                                                        DType dtype);

  DType dtype() const { return dtype_; }
  const std::vector<LayoutEntry>& entries() const { return entries_; }
  const LayoutEntry* Find(absl::string_view name) const;  // nullptr when absent
  uint64_t size() const { return size_; }                 // elements, gaps included
  uint64_t bytes() const { return size_ * SizeOf(dtype_); }
  uint64_t parameter_size() const {
    return parameter_size_;
  }                                          // elements of the parameters, gaps included
  uint64_t count() const { return count_; }  // elements without gaps
  const Digest& digest() const { return digest_; }

 private:
  ParameterLayout() = default;
  DType dtype_ = DType::kF32;
  std::vector<LayoutEntry> entries_;
  uint64_t size_ = 0;
  uint64_t parameter_size_ = 0;
  uint64_t count_ = 0;
  Digest digest_;
};

using LayoutPtr = std::shared_ptr<const ParameterLayout>;

// A borrowed flat vector. The function that returns a view says how long its bytes live.
template <typename Byte>
struct BasicVectorView {
  const ParameterLayout* layout = nullptr;
  std::span<Byte> bytes;

  bool empty() const { return layout == nullptr; }
  DType dtype() const { return layout->dtype(); }
  uint64_t size() const { return layout->size(); }

  template <typename T>
  auto As() const {  // T = float or double, as dtype() says
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return std::span<Element>(reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(T));
  }
  operator BasicVectorView<const std::byte>() const { return {layout, bytes}; }
};
using VectorView = BasicVectorView<std::byte>;
using ConstVectorView = BasicVectorView<const std::byte>;

// Calls `f` with a value of the element type: DispatchDType(v.dtype(), [&]<typename T>(T) { ...
// v.As<T>() ... }).
template <typename F>
decltype(auto) DispatchDType(DType dtype, F&& f) {
  return dtype == DType::kF32 ? f(float{}) : f(double{});
}

// An owned vector. Movable; copies are explicit.
class FlatVector {
 public:
  FlatVector() = default;
  explicit FlatVector(LayoutPtr layout);  // all zero
  // A vector with arbitrary contents, for a caller that writes every element and zeroes the gaps.
  static FlatVector Unset(LayoutPtr layout);
  // A vector in memory of layout->bytes() bytes, where its elements lie and the gaps are zero.
  static FlatVector In(AlignedBuffer memory, LayoutPtr layout);
  static FlatVector CopyOf(ConstVectorView view, LayoutPtr layout);
  FlatVector Clone() const;

  bool empty() const { return layout_ == nullptr; }
  const LayoutPtr& layout() const { return layout_; }
  VectorView view() { return {layout_.get(), buffer_.bytes()}; }
  ConstVectorView view() const { return {layout_.get(), buffer_.bytes()}; }
  template <typename T>
  std::span<T> As() {
    return buffer_.As<T>();
  }
  template <typename T>
  std::span<const T> As() const {
    return buffer_.As<T>();
  }

 private:
  LayoutPtr layout_;
  AlignedBuffer buffer_;
};

// One vector a layout, all zero.
std::vector<FlatVector> Zeros(std::span<const LayoutPtr> layouts);

// v ← v + change for the parameters, v ← change for the buffers, each number rounded once. Equal
// layouts.
void AddChange(ConstVectorView change, VectorView v);

// BLAKE2b-256 over the tensors' bytes in layout order, without gaps: the model_digest of
// summary.json.
Digest DigestOfValues(ConstVectorView view);

}  // namespace macaw
