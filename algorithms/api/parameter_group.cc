#include "algorithms/api/parameter_group.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/glob.h"

namespace macaw::algorithms {
namespace {

// The module of a tensor: "features.3" for "features.3.weight". An adapter's tensors are of the
// layer that it adapts: "0" for "0.lora_A.weight".
std::string ModuleOf(absl::string_view name) {
  const size_t dot = name.rfind('.');
  absl::string_view module = dot == absl::string_view::npos ? "" : name.substr(0, dot);
  if (!absl::ConsumeSuffix(&module, ".lora_A")) absl::ConsumeSuffix(&module, ".lora_B");
  return std::string(module);
}

template <typename F>
std::vector<bool> Choose(const ParameterLayout& layout, F&& chosen) {
  std::vector<bool> inside;
  for (const LayoutEntry& entry : layout.entries()) inside.push_back(chosen(entry));
  return inside;
}

}  // namespace

ParameterGroup ParameterGroup::Matching(const LayoutPtr& layout, absl::string_view globs) {
  const std::vector<std::string> patterns =
      absl::StrSplit(globs, absl::ByAnyChar(" ,"), absl::SkipEmpty());
  return Matching(layout, patterns);
}

ParameterGroup ParameterGroup::Matching(const LayoutPtr& layout,
                                        std::span<const std::string> globs) {
  return {layout,
          Choose(*layout, [&](const LayoutEntry& entry) { return MatchesAny(globs, entry.name); })};
}

ParameterGroup ParameterGroup::OfNormLayers(const LayoutPtr& layout) {
  std::set<std::string> modules;
  for (const LayoutEntry& entry : layout->entries()) {
    if (entry.name == "running_mean" || MatchesGlob("*.running_mean", entry.name))
      modules.insert(ModuleOf(entry.name));
  }
  return {layout, Choose(*layout, [&](const LayoutEntry& entry) {
            return modules.contains(ModuleOf(entry.name));
          })};
}

ParameterGroup ParameterGroup::OfLastLayer(const LayoutPtr& layout) {
  std::string last;
  for (const LayoutEntry& entry : layout->entries()) {
    if (entry.group == Group::kParameter) last = ModuleOf(entry.name);
  }
  return {layout,
          Choose(*layout, [&](const LayoutEntry& entry) { return ModuleOf(entry.name) == last; })};
}

ParameterGroup::ParameterGroup(const LayoutPtr& layout, std::vector<bool> inside) : whole_(layout) {
  std::vector<LayoutEntry> entries;
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i]) entries.push_back(layout->entries()[i]);
  }
  // Cannot fail: names and shapes come from a valid layout, in the same order.
  part_ = *ParameterLayout::Make(std::move(entries), layout->dtype());
  std::vector<bool> outside = inside;
  outside.flip();
  inside_ = std::make_shared<const std::vector<bool>>(std::move(inside));
  outside_ = std::make_shared<const std::vector<bool>>(std::move(outside));
}

void ParameterGroup::Extract(ConstVectorView whole, VectorView part) const {
  const size_t width = SizeOf(whole_->dtype());
  for (size_t i = 0, k = 0; i < inside_->size(); ++i) {
    if (!(*inside_)[i]) continue;
    const LayoutEntry& from = whole_->entries()[i];
    const LayoutEntry& to = part_->entries()[k++];
    std::memcpy(part.bytes.data() + to.offset * width, whole.bytes.data() + from.offset * width,
                from.size * width);
  }
}

void ParameterGroup::Insert(ConstVectorView part, VectorView whole) const {
  const size_t width = SizeOf(whole_->dtype());
  for (size_t i = 0, k = 0; i < inside_->size(); ++i) {
    if (!(*inside_)[i]) continue;
    const LayoutEntry& to = whole_->entries()[i];
    const LayoutEntry& from = part_->entries()[k++];
    std::memcpy(whole.bytes.data() + to.offset * width, part.bytes.data() + from.offset * width,
                to.size * width);
  }
}

void ParameterGroup::Clear(VectorView whole) const {
  const size_t width = SizeOf(whole_->dtype());
  for (size_t i = 0; i < inside_->size(); ++i) {
    const LayoutEntry& entry = whole_->entries()[i];
    if ((*inside_)[i])
      std::memset(whole.bytes.data() + entry.offset * width, 0, entry.size * width);
  }
}

FlatVector ModelParts::Join(ConstVectorView trained_part, ConstVectorView base_part) const {
  FlatVector model(whole);
  base.Insert(base_part, model.view());
  trained.Insert(trained_part, model.view());
  return model;
}

}  // namespace macaw::algorithms
