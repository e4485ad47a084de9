#include <cmath>
#include <span>

#include "core/random.h"
#include "models/spec.h"
#include "models/tensors.h"

namespace macaw::models {
namespace {

template <typename T>
void Fill(const TensorPlan& plan, uint64_t seed, uint64_t tensor, std::span<T> values) {
  if (plan.init == Init::kOne || plan.init == Init::kZero) {
    for (T& value : values) value = plan.init == Init::kOne ? 1 : 0;
    return;
  }
  RandomStream stream({.seed = seed, .purpose = Purpose::kInit, .extra = tensor});
  if (plan.init == Init::kNormal) {
    for (T& value : values) value = static_cast<T>(stream.Normal());
    return;
  }
  const double scale = plan.init == Init::kGlorot ? std::sqrt(6.0) : 1.0;
  const double bound = scale / std::sqrt(static_cast<double>(plan.fan_in));
  for (T& value : values) value = static_cast<T>((2.0 * stream.Uniform() - 1.0) * bound);
}

}  // namespace

FlatVector InitialModel(const ModelSpec& spec, uint64_t seed) {
  FlatVector model(spec.layout);
  DispatchDType(spec.layout->dtype(), [&]<typename T>(T) {
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      const std::vector<TensorPlan> plans = TensorsOf(spec.layers[i]);
      size_t parameter = spec.tensors[i].first, buffer = spec.buffers[i].first;
      for (const TensorPlan& plan : plans) {
        const size_t tensor = plan.group == Group::kParameter ? parameter++ : buffer++;
        const LayoutEntry& entry = spec.layout->entries()[tensor];
        Fill<T>(plan, seed, tensor, model.As<T>().subspan(entry.offset, entry.size));
      }
    }
  });
  return model;
}

}  // namespace macaw::models
