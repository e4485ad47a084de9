#include "models/script_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macaw::models {
namespace {

using at::Tensor;
using c10::ivalue::Object;

Place PlaceOf(const torch::jit::Module& module, const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  Place place{module._ivalue()};
  for (size_t i = 0; i + 1 < parts.size(); ++i)
    place.owner = place.owner->getAttr(parts[i]).toObject();
  place.slot = place.owner->type()->getAttributeSlot(parts.back());
  return place;
}

// Whether two tensors are the same numbers in memory.
bool SameMemory(const Tensor& a, const Tensor& b) {
  return a.numel() > 0 && b.numel() > 0 && a.const_data_ptr() == b.const_data_ptr();
}
bool SameTensor(const Tensor& a, const Tensor& b) {
  return SameMemory(a, b) && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

[[noreturn]] void Refuse(const std::string& name, absl::string_view why) {
  throw std::invalid_argument(absl::StrCat("the scripted module's \"", name, "\" ", why));
}

template <typename Elements>
auto FindTensor(Elements& elements, const Tensor& value) {
  return std::ranges::find_if(elements, [&](const auto& e) { return SameTensor(e.value, value); });
}

}  // namespace

ScriptTensors::ScriptTensors(const torch::jit::Module& module) {
  for (const auto& parameter : module.named_parameters())
    AddParameter(parameter.name, parameter.value, PlaceOf(module, parameter.name));
  for (const auto& buffer : module.named_buffers())
    AddBuffer(buffer.name, buffer.value, PlaceOf(module, buffer.name));
  FindContainers(module._ivalue());
}

void ScriptTensors::AddParameter(const std::string& name, const Tensor& value, const Place& place) {
  if (value.requires_grad()) return AddTensor(name, value, place, Group::kParameter);
  const auto known = FindTensor(frozen_, value);
  if (known == frozen_.end()) {
    frozen_.push_back({value, {place}});
  } else {
    known->places.push_back(place);
  }
}

void ScriptTensors::AddBuffer(const std::string& name, const Tensor& value, const Place& place) {
  if (value.is_floating_point()) return AddTensor(name, value, place, Group::kBuffer);
  const auto known = FindTensor(counters_, value);
  if (known == counters_.end()) {
    counters_.push_back({value.clone(), {place}});
  } else {
    known->places.push_back(place);
  }
}

void ScriptTensors::AddTensor(const std::string& name, const Tensor& value, const Place& place,
                              Group group) {
  if (value.scalar_type() != at::kFloat && value.scalar_type() != at::kDouble) {
    Refuse(name, absl::StrCat("is of type ", c10::toString(value.scalar_type()),
                              ": a run trains float32 or float64; convert the module with "
                              "net.float(), or freeze the tensor with requires_grad_(False)"));
  }
  for (ScriptTensor& known : tensors_) {
    if (!SameMemory(known.value, value)) continue;
    if (!SameTensor(known.value, value) || known.entry.group != group) {
      Refuse(name, absl::StrCat("is in the memory of \"", known.entry.name,
                                "\" with another shape or role: they would come apart in "
                                "training; give it a tensor of its own"));
    }
    known.places.push_back(place);
    return;
  }
  ScriptTensor& added = tensors_.emplace_back();
  added.entry.name = name;
  added.entry.shape.assign(value.sizes().begin(), value.sizes().end());
  added.entry.group = group;
  added.value = value.detach();
  added.places.push_back(place);
}

void ScriptTensors::FindContainers(const c10::intrusive_ptr<Object>& root) {
  std::set<const Object*> seen;
  std::vector<c10::intrusive_ptr<Object>> left = {root};
  while (!left.empty()) {
    const c10::intrusive_ptr<Object> object = left.back();
    left.pop_back();
    if (!seen.insert(object.get()).second) continue;
    const c10::ClassType& type = *object->type();
    for (size_t slot = 0; slot < type.numAttributes(); ++slot) {
      if (type.is_parameter(slot) || type.is_buffer(slot)) continue;
      const c10::IValue& value = object->getSlot(slot);
      if (value.isObject()) {
        left.push_back(value.toObject());
      } else if (Mentions(value)) {
        containers_.push_back({{object, slot}, value});
      }
    }
  }
}

bool ScriptTensors::Mentions(const c10::IValue& value) const {
  const auto mentioned = [this](const auto& element) { return Mentions(element); };
  if (value.isTensor()) {
    const Tensor tensor = value.toTensor();
    return tensor.defined() && (FindTensor(tensors_, tensor) != tensors_.end() ||
                                FindTensor(frozen_, tensor) != frozen_.end());
  }
  if (value.isTuple()) return std::ranges::any_of(value.toTupleRef().elements(), mentioned);
  if (value.isTensorList()) return std::ranges::any_of(value.toTensorVector(), mentioned);
  if (value.isList()) return std::ranges::any_of(value.toListRef(), mentioned);
  if (!value.isGenericDict()) return false;
  for (const auto& item : value.toGenericDict())
    if (Mentions(item.value())) return true;
  return false;
}

c10::IValue ScriptTensors::Rebuilt(const c10::IValue& value, std::span<const Tensor> values) const {
  if (value.isTensor()) {
    const Tensor tensor = value.toTensor();
    if (!tensor.defined()) return value;
    const auto trained = FindTensor(tensors_, tensor);
    if (trained != tensors_.end()) return values[trained - tensors_.begin()];
    // A frozen one may have been converted since, so what its place holds now is the value.
    for (const Constant& frozen : frozen_)
      if (SameTensor(frozen.value, tensor)) return frozen.places[0].value();
    return value;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : value.toTupleRef().elements())
      elements.push_back(Rebuilt(element, values));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef()) list.push_back(Rebuilt(element, values));
    return list;
  }
  if (!value.isGenericDict()) return value;
  const auto dict = value.toGenericDict();
  c10::impl::GenericDict rebuilt(dict.keyType(), dict.valueType());
  for (const auto& item : dict) rebuilt.insert(item.key(), Rebuilt(item.value(), values));
  return rebuilt;
}

void ScriptTensors::ConvertFrozen(at::ScalarType type) {
  for (const Constant& frozen : frozen_) {
    if (!frozen.value.is_floating_point()) continue;
    const Tensor converted = frozen.value.detach().to(type);
    for (const Place& place : frozen.places) place.Set(converted);
  }
}

void ScriptTensors::Bind(std::span<const Tensor> values) const {
  for (size_t i = 0; i < tensors_.size(); ++i)
    for (const Place& place : tensors_[i].places) place.Set(values[i]);
  for (const Constant& counter : counters_) {
    const Tensor fresh = counter.value.clone();
    for (const Place& place : counter.places) place.Set(fresh);
  }
  for (const Container& container : containers_)
    container.place.Set(Rebuilt(container.value, values));
}

}  // namespace macaw::models
