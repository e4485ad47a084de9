#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/torch.h>

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace macaw::models {

// TorchScript written and compiled here, as `torch.jit.script(net).save(path)` would make it.
class WrittenScript {
 public:
  explicit WrittenScript(const std::string& name)
      : module_(c10::QualifiedName("__torch__." + name)) {}

  WrittenScript& Parameter(const std::string& name, at::Tensor value) {
    value.set_requires_grad(value.is_floating_point() || value.is_complex());
    return Frozen(name, std::move(value));
  }
  // A parameter that requires no gradient, unless the tensor says so.
  WrittenScript& Frozen(const std::string& name, at::Tensor value) {
    module_.register_parameter(name, std::move(value), /*is_buffer=*/false);
    return *this;
  }
  // Tensors in a list that is no parameter, as recurrent layers keep them.
  WrittenScript& List(const std::string& name, const std::vector<at::Tensor>& values) {
    module_.register_attribute(name, c10::ListType::ofTensors(), c10::List<at::Tensor>(values));
    return *this;
  }
  WrittenScript& Buffer(const std::string& name, at::Tensor value) {
    module_.register_buffer(name, std::move(value));
    return *this;
  }
  WrittenScript& Inner(const std::string& name, const WrittenScript& inner) {
    module_.register_module(name, inner.module_);
    return *this;
  }
  // A number that is no tensor.
  WrittenScript& Number(const std::string& name, int64_t value) {
    module_.register_attribute(name, c10::IntType::get(), value);
    return *this;
  }
  WrittenScript& Training() {
    module_.register_attribute("training", c10::BoolType::get(), true);
    return *this;
  }
  WrittenScript& Define(const std::string& body) {
    module_.define("def forward(self, x):\n" + body);
    return *this;
  }
  std::string Bytes() const {
    std::ostringstream out;
    module_.save(out);
    return out.str();
  }
  void Save(const std::string& path) const { module_.save(path); }

 private:
  torch::jit::Module module_;
};

inline WrittenScript WrittenLinear(const std::string& name, int64_t in, int64_t out) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  WrittenScript linear(name);
  linear.Parameter("weight", torch::rand({out, in}) * 2 * bound - bound);
  linear.Parameter("bias", torch::rand({out}) * 2 * bound - bound);
  linear.Define("    return torch.linear(x, self.weight, self.bias)\n");
  return linear;
}

// With PyTorch's counter, which no other statistic depends on.
inline WrittenScript WrittenNorm(const std::string& name, int64_t width) {
  WrittenScript norm(name);
  norm.Parameter("weight", torch::ones({width})).Parameter("bias", torch::zeros({width}));
  norm.Buffer("running_mean", torch::zeros({width})).Buffer("running_var", torch::ones({width}));
  norm.Buffer("num_batches_tracked", torch::tensor(int64_t{0})).Training();
  norm.Define(
      "    if self.training:\n"
      "        self.num_batches_tracked.add_(1)\n"
      "    return torch.batch_norm(x, self.weight, self.bias, self.running_mean, "
      "self.running_var, self.training, 0.1, 1e-05, False)\n");
  return norm;
}

// The model of layers "flatten", "linear WIDTH", "batchnorm", "relu", "linear OUT", tensor by
// tensor.
inline WrittenScript WrittenNet(int64_t in, int64_t width, int64_t out) {
  WrittenScript net("Net");
  net.Training();
  net.Inner("1", WrittenLinear("First", in, width)).Inner("2", WrittenNorm("Norm", width));
  net.Inner("4", WrittenLinear("Last", width, out));
  net.Define(
      "    y = torch.relu(getattr(self, \"2\").forward(getattr(self, \"1\").forward("
      "torch.flatten(x, 1))))\n"
      "    return getattr(self, \"4\").forward(y)\n");
  return net;
}

}  // namespace macaw::models
