#include "plan/transform.h"

#include <algorithm>

#include "core/random.h"

namespace macaw {

using settings::Above;
using settings::AboveUpTo;
using settings::Array;
using settings::AtLeast;
using settings::Between;
using settings::Field;
using settings::Value;

namespace {

// An empty list would be taken for one that is not given.
void RequireNumbers(Field<TransformConfig>& field) {
  field.expected += ", not empty ([0] and [1] change nothing)";
  field.set = [set = field.set](TransformConfig& transform, const Value& value) {
    const Array* array = value.As<Array>();
    return array != nullptr && !array->empty() && set(transform, value);
  };
}

}  // namespace

bool TransformConfig::normalises() const {
  const auto all = [](const std::vector<double>& values, double neutral) {
    return std::ranges::all_of(values, [neutral](double x) { return x == neutral; });
  };
  return scale.value_or(1.0) != 1.0 || !all(mean, 0.0) || !all(std, 1.0);
}

uint32_t ConceptGroups::Of(ClientId client) const {
  if (count_ == 1) return 0;
  constexpr Phase kGroupDraw{3};  // among the draws of data/label_map.cc
  RandomStream stream(
      {.seed = seed_, .purpose = Purpose::kLabels, .phase = kGroupDraw, .client = client});
  return static_cast<uint32_t>(stream.Below(count_));
}

settings::Section<TransformConfig> TransformSection() {
  using T = TransformConfig;
  settings::Section<T> f;
  f.Add("client_noise", &T::client_noise,
        "Gaussian noise on a client's own features, the same in training and evaluation: "
        "level * (client + 1) / clients",
        AtLeast(0));
  f.Add("label_noise", &T::label_noise,
        "probability that a client's training row has another class, drawn among the others",
        Between(0, 1));
  f.Add("label_noise_clients", &T::label_noise_clients,
        "probability with which each client has label noise, independently of the others",
        AboveUpTo(0, 1))
      .Needs([](const T& t) { return t.label_noise > 0; }, "data.label_noise above 0");
  f.AddChoice(
      "concept_shift", &T::concept_shift,
      {{"none", ConceptShift::kNone},
       {"label-permutation", ConceptShift::kLabelPermutation},
       {"rotation", ConceptShift::kRotation}},
      "difference between groups of clients, in training and evaluation: classes are renamed or "
      "images turned; the central test set is evaluated as each group sees it");
  f.Add("concept_shift_groups", &T::concept_shift_groups,
        "number of groups; rotation: 2 or 4, a half or a quarter turn from one to the next",
        AtLeast(2))
      .Needs([](const T& t) { return t.concept_shift != ConceptShift::kNone; },
             "data.concept_shift");
  f.Add("normalise.scale", &T::scale,
        "scale in x' = (x * scale - mean) / std; default: 1/255 for bytes, else 1");
  RequireNumbers(f.Add("normalise.mean", &T::mean,
                       "mean per channel, or one for all; default: the data's own, or 0"));
  RequireNumbers(f.Add("normalise.std", &T::std,
                       "deviation per channel, or one for all; default: the data's own, or 1",
                       Above(0)));
  f.Add("augment.pad_crop", &T::pad_crop,
        "pixels added on each side before an image is cropped back at random", AtLeast(0));
  f.AddChoice(
       "augment.pad_mode", &T::pad_mode,
       {{"zeros", PadMode::kZeros}, {"reflect", PadMode::kReflect}, {"edge", PadMode::kEdge}},
       "what is added: zeros behind the normalisation, the image mirrored at its outermost "
       "pixels, or these pixels repeated")
      .Needs([](const T& t) { return t.pad_crop > 0; }, "data.augment.pad_crop above 0");
  f.Add("augment.flip", &T::flip, "whether images are mirrored left-right with probability 1/2");
  return f;
}

}  // namespace macaw
