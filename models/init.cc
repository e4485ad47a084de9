#include <cmath>
#include <span>

#include "core/random.h"
#include "models/spec.h"
#include "models/tensors.h"

namespace macaw::models {
namespace {

// The number of the first adapter's stream.
constexpr uint64_t kFirstAdapter = uint64_t{1} << 32;

template <typename T>
void Fill(const TensorPlan& plan, uint64_t seed, uint64_t tensor, std::span<T> values) {
  if (plan.init == Init::kOne || plan.init == Init::kZero) {
    for (T& value : values) value = plan.init == Init::kOne ? 1 : 0;
    return;
  }
  RandomStream stream({.seed = seed, .purpose = Purpose::kInit, .extra = tensor});
  if (plan.init == Init::kNormal || plan.init == Init::kNormalOfFanIn) {
    const double deviation =
        plan.init == Init::kNormal ? 1.0 : 1.0 / std::sqrt(3.0 * static_cast<double>(plan.fan_in));
    for (T& value : values) value = static_cast<T>(deviation * stream.Normal());
    return;
  }
  const double scale = plan.init == Init::kGlorot ? std::sqrt(6.0) : 1.0;
  const double bound = scale / std::sqrt(static_cast<double>(plan.fan_in));
  for (T& value : values) value = static_cast<T>((2.0 * stream.Uniform() - 1.0) * bound);
}

}  // namespace

FlatVector InitialModel(const ModelSpec& spec, uint64_t seed) {
  FlatVector model(spec.layout);
  // Streams are numbered by the parameters of the model without adapters; adapters have their own.
  uint64_t plain = 0, adapter = kFirstAdapter;
  DispatchDType(spec.layout->dtype(), [&]<typename T>(T) {
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      const std::vector<TensorPlan> plans = TensorsOf(spec.layers[i]);
      size_t parameter = spec.tensors[i].first, buffer = spec.buffers[i].first;
      for (const TensorPlan& plan : plans) {
        const bool trained = plan.group == Group::kParameter;
        const LayoutEntry& entry = spec.layout->entries()[trained ? parameter++ : buffer++];
        const uint64_t stream = !trained ? 0 : plan.adapter ? adapter++ : plain++;
        Fill<T>(plan, seed, stream, model.As<T>().subspan(entry.offset, entry.size));
      }
    }
  });
  return model;
}

}  // namespace macaw::models
