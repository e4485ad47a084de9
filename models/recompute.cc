#include "models/recompute.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace macaw::models {
namespace {

using at::Tensor;

// The autocast of the thread on which it is made, for other threads and later.
struct Cast {
  explicit Cast(c10::DeviceType device)
      : type(device),
        on(at::autocast::is_autocast_enabled(device)),
        dtype(at::autocast::get_autocast_dtype(device)) {}
  c10::DeviceType type;
  bool on;
  at::ScalarType dtype;
};

// Sets it, without the cache of cast weights: its entries would live until the pass ends.
class Casting {
 public:
  explicit Casting(const Cast& cast)
      : before_(cast.type), cached_(at::autocast::is_autocast_cache_enabled()) {
    Set(cast);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~Casting() {
    Set(before_);
    at::autocast::set_autocast_cache_enabled(cached_);
  }
  Casting(const Casting&) = delete;
  Casting& operator=(const Casting&) = delete;

 private:
  static void Set(const Cast& cast) {
    at::autocast::set_autocast_enabled(cast.type, cast.on);
    at::autocast::set_autocast_dtype(cast.type, cast.dtype);
  }

  const Cast before_;
  const bool cached_;
};

// The device whose autocast a part follows. Of a scripted module some of the tensors that come in
// may be numbers on the host.
c10::DeviceType DeviceOf(const std::vector<Tensor>& inputs) {
  for (const Tensor& tensor : inputs)
    if (!tensor.is_cpu()) return tensor.device().type();
  return c10::DeviceType::CPU;
}

// The same numbers without a place in a graph.
Tensor Leaf(const Tensor& tensor, bool differentiated) {
  Tensor leaf = tensor.variable_data();
  leaf.set_requires_grad(differentiated);
  return leaf;
}

struct RecomputeBackward final : torch::autograd::Node {
  Part part;
  Cast cast;
  std::vector<Tensor> inputs;
  std::vector<bool> differentiated;  // parallel to inputs
  std::vector<size_t> outputs;       // those with a gradient, in the order of the node's

  RecomputeBackward(Part part, Cast cast) : part(std::move(part)), cast(cast) {}

  // Kernels may depend on whether there is a graph, so the first time has one, too.
  std::vector<Tensor> Run(const std::vector<Tensor>& leaves, bool again) const {
    const at::AutoGradMode with_graph(true);
    const Casting casting(cast);
    return part(leaves, again);
  }

  std::vector<Tensor> Leaves() const {
    std::vector<Tensor> leaves;
    for (size_t i = 0; i < inputs.size(); ++i) leaves.push_back(Leaf(inputs[i], differentiated[i]));
    return leaves;
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw std::invalid_argument(
          "a hook asks for the derivatives of a gradient, which local.checkpoint has not: take "
          "local.checkpoint out");
    }
    if (part == nullptr) throw std::invalid_argument("a graph was passed through backward twice");
    const std::vector<Tensor> leaves = Leaves();
    torch::autograd::variable_list found(leaves.size());
    std::vector<Tensor> wanted, roots, slopes;
    for (size_t i = 0; i < leaves.size(); ++i)
      if (differentiated[i]) wanted.push_back(leaves[i]);
    const std::vector<Tensor> again = Run(leaves, /*again=*/true);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined()) continue;
      roots.push_back(again[outputs[i]]);
      slopes.push_back(gradients[i]);
    }
    if (roots.empty()) return found;
    torch::autograd::variable_list taken =
        torch::autograd::grad(roots, wanted, slopes, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0, next = 0; i < leaves.size(); ++i)
      if (differentiated[i]) found[i] = std::move(taken[next++]);
    return found;
  }

  void release_variables() override {
    part = nullptr;
    inputs.clear();
  }

  std::string name() const override { return "RecomputeBackward"; }
};

}  // namespace

std::vector<Tensor> Recomputed(Part part, std::vector<Tensor> inputs) {
  const bool needed =
      at::GradMode::is_enabled() &&
      std::ranges::any_of(inputs, [](const Tensor& t) { return t.requires_grad(); });
  if (!needed) return part(inputs, /*again=*/false);

  const std::shared_ptr<RecomputeBackward> node(
      new RecomputeBackward(std::move(part), Cast(DeviceOf(inputs))), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (const Tensor& tensor : inputs) {
    node->inputs.push_back(tensor.variable_data());
    node->differentiated.push_back(tensor.requires_grad());
  }
  std::vector<Tensor> outputs = node->Run(node->Leaves(), /*again=*/false);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool differentiable = outputs[i].requires_grad();
    outputs[i] = Leaf(outputs[i], /*differentiated=*/false);
    if (!differentiable) continue;
    torch::autograd::set_history(outputs[i], node);
    node->outputs.push_back(i);
  }
  return outputs;
}

}  // namespace macaw::models
