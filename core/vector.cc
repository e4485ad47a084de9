#include "core/vector.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"

namespace macaw {
namespace {

constexpr uint64_t kTensorAlignment = 64;             // bytes
constexpr uint64_t kMaxElements = uint64_t{1} << 40;  // larger sizes are taken for damage

uint64_t RoundUp(uint64_t elements, DType dtype) {
  const uint64_t step = kTensorAlignment / SizeOf(dtype);
  return (elements + step - 1) / step * step;
}

absl::StatusOr<uint64_t> ElementsOf(const LayoutEntry& entry) {
  uint64_t elements = 1;
  for (const int64_t extent : entry.shape) {
    if (extent <= 0 || elements > kMaxElements / static_cast<uint64_t>(extent)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", entry.name,
                                                     "\" has the impossible shape [",
                                                     absl::StrJoin(entry.shape, ", "), "]"));
    }
    elements *= static_cast<uint64_t>(extent);
  }
  return elements;
}

}  // namespace

absl::string_view Name(DType dtype) { return dtype == DType::kF32 ? "float32" : "float64"; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  if (name == "float32") return DType::kF32;
  if (name == "float64") return DType::kF64;
  return absl::InvalidArgumentError(
      absl::StrCat("dtype is \"float32\" or \"float64\", got \"", name, "\""));
}

absl::StatusOr<LayoutPtr> ParameterLayout::Make(std::vector<LayoutEntry> entries, DType dtype) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const LayoutEntry& a, const LayoutEntry& b) { return a.group < b.group; });
  auto layout = std::shared_ptr<ParameterLayout>(new ParameterLayout());
  layout->dtype_ = dtype;
  absl::flat_hash_set<std::string> names;
  Digester digester;
  digester.Add(Name(dtype));
  for (LayoutEntry& entry : entries) {
    if (entry.name.empty() || !names.insert(entry.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor name \"", entry.name, "\" is empty or used twice"));
    }
    MACAW_ASSIGN_OR_RETURN(entry.size, ElementsOf(entry));
    entry.offset = layout->size_;
    layout->size_ += RoundUp(entry.size, dtype);
    layout->count_ += entry.size;
    if (entry.group == Group::kParameter) layout->parameter_size_ = layout->size_;
    digester.Add(entry.name).Add(static_cast<uint64_t>(entry.group)).Add(entry.shape.size());
    for (const int64_t extent : entry.shape) digester.Add(static_cast<uint64_t>(extent));
  }
  layout->entries_ = std::move(entries);
  layout->digest_ = digester.Finish();
  return layout;
}

LayoutPtr ParameterLayout::Scalars(std::string name, int64_t count, DType dtype) {
  return *Make({LayoutEntry{.name = std::move(name), .shape = {count}}}, dtype);
}

const LayoutEntry* ParameterLayout::Find(absl::string_view name) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const LayoutEntry& entry) { return entry.name == name; });
  return it == entries_.end() ? nullptr : &*it;
}

FlatVector::FlatVector(LayoutPtr layout) : layout_(std::move(layout)), buffer_(layout_->bytes()) {}

std::vector<FlatVector> Zeros(std::span<const LayoutPtr> layouts) {
  std::vector<FlatVector> vectors;
  for (const LayoutPtr& layout : layouts) vectors.emplace_back(layout);
  return vectors;
}

FlatVector FlatVector::Unset(LayoutPtr layout) {
  FlatVector vector;
  vector.buffer_ = AlignedBuffer::Unset(layout->bytes());
  vector.layout_ = std::move(layout);
  return vector;
}

FlatVector FlatVector::In(AlignedBuffer memory, LayoutPtr layout) {
  assert(memory.size() == layout->bytes());
  FlatVector vector;
  vector.layout_ = std::move(layout);
  vector.buffer_ = std::move(memory);
  return vector;
}

FlatVector FlatVector::CopyOf(ConstVectorView view, LayoutPtr layout) {
  FlatVector copy = Unset(std::move(layout));
  std::memcpy(copy.buffer_.bytes().data(), view.bytes.data(), copy.buffer_.size());
  return copy;
}

FlatVector FlatVector::Clone() const { return empty() ? FlatVector() : CopyOf(view(), layout_); }

void AddChange(ConstVectorView change, VectorView v) {
  DispatchDType(v.dtype(), [&]<typename T>(T) {
    const std::span<const T> changes = change.As<T>();
    const std::span<T> values = v.As<T>();
    for (const LayoutEntry& entry : v.layout->entries()) {
      const uint64_t end = entry.offset + entry.size;
      if (entry.group == Group::kBuffer) {
        std::copy(changes.begin() + entry.offset, changes.begin() + end,
                  values.begin() + entry.offset);
        continue;
      }
      for (uint64_t i = entry.offset; i < end; ++i) values[i] += changes[i];
    }
  });
}

Digest DigestOfValues(ConstVectorView view) {
  Digester digester;
  const size_t width = SizeOf(view.dtype());
  for (const LayoutEntry& entry : view.layout->entries()) {
    digester.Add(view.bytes.subspan(entry.offset * width, entry.size * width));
  }
  return digester.Finish();
}

}  // namespace macaw
