#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "models/network.h"

namespace macaw::models {

// A ModelSpec's network and the same network built from torch::nn modules, with the same
// parameters.
class TorchTwin {
 public:
  // `named` are the tensors of the modules, integer buffers left out, by the layout's names.
  TorchTwin(const ModelSpec& spec, std::map<std::string, at::Tensor> named)
      : spec_(spec), model_(InitialModel(spec, 5)), views_(ViewsOf(model_.view())) {
    const torch::NoGradGuard without_graph;
    EXPECT_EQ(named.size(), views_.size());
    for (size_t i = 0; i < views_.size(); ++i) {
      const LayoutEntry& entry = spec.layout->entries()[i];
      const auto found = named.find(entry.name);
      EXPECT_NE(found, named.end()) << "the modules have no " << entry.name;
      if (found == named.end()) continue;
      EXPECT_EQ(found->second.sizes(), views_[i].sizes()) << entry.name;
      found->second.copy_(views_[i]);
      theirs_.push_back(found->second);
      views_[i].requires_grad_(entry.group == Group::kParameter);
    }
  }

  const std::vector<at::Tensor>& views() const { return views_; }

  // Largest difference between the gradients, as a fraction of the largest gradient of the tensor.
  void ExpectEqualGradients(double tolerance) {
    for (size_t i = 0; i < views_.size(); ++i) {
      if (!views_[i].requires_grad()) continue;
      const at::Tensor theirs = theirs_[i].grad();
      const double scale = theirs.abs().max().item<double>() + 1e-12;
      EXPECT_LT((views_[i].grad() - theirs).abs().max().item<double>(), tolerance * scale)
          << spec_.layout->entries()[i].name;
    }
  }
  // Compares parameters and buffers, relative to the largest value.
  void ExpectEqualValues(double tolerance) {
    for (size_t i = 0; i < views_.size(); ++i) {
      const LayoutEntry& entry = spec_.layout->entries()[i];
      const double scale = theirs_[i].abs().max().item<double>() + 1e-12;
      EXPECT_LT((views_[i] - theirs_[i]).abs().max().item<double>(), tolerance * scale)
          << entry.name;
    }
  }

 private:
  const ModelSpec spec_;
  FlatVector model_;
  std::vector<at::Tensor> views_;
  std::vector<at::Tensor> theirs_;
};

inline std::map<std::string, at::Tensor> TensorsOf(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> named;
  for (const auto& tensor : module.named_parameters()) named[tensor.key()] = tensor.value();
  for (const auto& tensor : module.named_buffers()) {
    const std::string& name = tensor.key();  // the counters are whole numbers, which we do not keep
    if (name.find("num_batches_tracked") == std::string::npos) named[name] = tensor.value();
  }
  return named;
}

}  // namespace macaw::models
