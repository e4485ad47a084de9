#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/vector.h"

namespace macaw::models {

// The attribute of a scripted module, or of a submodule, that holds a value.
struct Place {
  c10::intrusive_ptr<c10::ivalue::Object> owner;
  size_t slot = 0;

  const c10::IValue& value() const { return owner->getSlot(slot); }
  void Set(c10::IValue value) const { owner->setSlot(slot, std::move(value)); }
};

// A tensor that the run trains or, for a buffer, aggregates. Tied tensors are one: they have the
// first one's name, and a place for each.
struct ScriptTensor {
  LayoutEntry entry;
  at::Tensor value;  // the file's
  std::vector<Place> places;
};

// The tensors of a scripted module by what becomes of them. One thread.
class ScriptTensors {
 public:
  // Throws std::invalid_argument if a tensor cannot be trained: complex numbers, 16 bits, or a view
  // of another one.
  explicit ScriptTensors(const torch::jit::Module& module);

  // Parameters that require gradients, then floating-point buffers: the layout's entries, in order.
  const std::vector<ScriptTensor>& tensors() const { return tensors_; }

  // Converts frozen parameters (requires_grad = False), which keep the file's values.
  void ConvertFrozen(at::ScalarType type);
  // Puts `values`, parallel to tensors(), into their places, and into lists, tuples and dicts that
  // hold the same tensors, as recurrent layers do. Integer buffers get the file's values.
  void Bind(std::span<const at::Tensor> values) const;

 private:
  struct Constant {
    at::Tensor value;
    std::vector<Place> places;
  };
  // An attribute whose value mentions tensors above; `value` is the file's.
  struct Container {
    Place place;
    c10::IValue value;
  };

  void AddParameter(const std::string& name, const at::Tensor& value, const Place& place);
  void AddBuffer(const std::string& name, const at::Tensor& value, const Place& place);
  void AddTensor(const std::string& name, const at::Tensor& value, const Place& place, Group group);
  void FindContainers(const c10::intrusive_ptr<c10::ivalue::Object>& object);
  bool Mentions(const c10::IValue& value) const;
  c10::IValue Rebuilt(const c10::IValue& value, std::span<const at::Tensor> values) const;

  std::vector<ScriptTensor> tensors_;
  std::vector<Constant> frozen_;
  std::vector<Constant> counters_;  // of integers: each pass begins with the file's values
  std::vector<Container> containers_;
};

}  // namespace macaw::models
