#include "models/adapters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/glob.h"
#include "core/status.h"
#include "models/lay_out.h"
#include "models/singular_values.h"
#include "models/tensors.h"
#include "models/words.h"

namespace macaw::models {
namespace {

constexpr absl::string_view kAdapterText = "\"lora RANK [alpha A] [start zero|pissa] PATTERN\"";

absl::Status WrongRule(absl::string_view text, absl::string_view why) {
  return Wrong(absl::StrCat("model.adapters: \"", text, "\": ", why, "; an adapter is ",
                            kAdapterText, ", such as \"lora 8 0.*\""));
}

absl::StatusOr<AdapterStart> ParseStart(absl::string_view text, absl::string_view word) {
  if (word == "zero") return AdapterStart::kZero;
  if (word == "pissa") return AdapterStart::kPissa;
  if (word == "hdpissa") {
    return WrongRule(text,
                     "HD-PiSSA gives each client other singular vectors and adds the products up "
                     "in W, and here clients train one A and one B, whose means are taken: \"start "
                     "pissa\" gives all clients the largest ones");
  }
  return WrongRule(text, absl::StrCat("\"start\" is zero or pissa, got \"", word, "\""));
}

// A linear map of a model, by its tensor's name in the layout.
std::vector<LinearMap> MapsOf(std::vector<Layer>& layers) {
  std::vector<LinearMap> all;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (LinearMap& map : LinearMapsOf(layers[i])) {
      map.weight = absl::StrCat(i, ".", map.weight);
      all.push_back(std::move(map));
    }
  }
  return all;
}

std::string NamesOf(const std::vector<LinearMap>& maps) {
  if (maps.empty()) return "no linear layer";
  return absl::StrJoin(
      maps, ", ", [](std::string* out, const LinearMap& map) { absl::StrAppend(out, map.weight); });
}

// The numbers of one tensor, row after row.
template <typename T>
std::span<T> NumbersOf(FlatVector& model, const LayoutEntry& entry) {
  return model.As<T>().subspan(entry.offset, entry.size);
}

// weight ← weight + factor·B·A, computed in double and rounded once.
template <typename T>
void AddProduct(double factor, std::span<const T> a, std::span<const T> b, size_t rank,
                std::span<T> weight) {
  const size_t in = a.size() / rank, out = b.size() / rank;
  std::vector<double> row(in);
  for (size_t o = 0; o < out; ++o) {
    std::ranges::fill(row, 0.0);
    for (size_t k = 0; k < rank; ++k) {
      const double left = b[o * rank + k];
      for (size_t i = 0; i < in; ++i) row[i] += left * static_cast<double>(a[k * in + i]);
    }
    T* const to = weight.data() + o * in;
    for (size_t i = 0; i < in; ++i)
      to[i] = static_cast<T>(static_cast<double>(to[i]) + factor * row[i]);
  }
}

template <typename T>
absl::Status StartPissa(const ModelSpec& spec, const AdaptedWeight& adapted, FlatVector& model) {
  const std::vector<LayoutEntry>& entries = spec.layout->entries();
  const LayoutEntry& entry = entries[adapted.weight];
  const std::span<T> weight = NumbersOf<T>(model, entry);
  const std::span<T> a = NumbersOf<T>(model, entries[adapted.a]);
  const std::span<T> b = NumbersOf<T>(model, entries[adapted.b]);
  const auto rank = static_cast<size_t>(adapted.adapter.rank);
  const size_t in = a.size() / rank, out = b.size() / rank;
  const std::vector<double> matrix(weight.begin(), weight.end());
  if (!std::ranges::all_of(matrix, [](double value) { return std::isfinite(value); })) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.adapters: start pissa: ", entry.name, " is not finite"));
  }
  const SingularValues found = LargestSingularValues(matrix, out, in, rank);
  if (!(found.values.back() > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.adapters: start pissa: ", entry.name, " has fewer than ", rank,
                     " singular values above 0: give a smaller rank, or \"start zero\""));
  }
  for (size_t k = 0; k < rank; ++k) {
    const double root = std::sqrt(found.values[k] / adapted.adapter.scale);
    for (size_t i = 0; i < in; ++i) a[k * in + i] = static_cast<T>(root * found.right[k * in + i]);
    for (size_t o = 0; o < out; ++o)
      b[o * rank + k] = static_cast<T>(root * found.left[k * out + o]);
  }
  // Of A and B as they are stored, so that the model is what it was but for W's rounding.
  AddProduct<T>(-adapted.adapter.scale, a, b, rank, weight);
  return absl::OkStatus();
}

std::vector<bool> AdapterEntries(const ModelSpec& spec) {
  std::vector<bool> found(spec.layout->entries().size(), false);
  for (const AdaptedWeight& adapted : spec.adapters) found[adapted.a] = found[adapted.b] = true;
  return found;
}

// Copies the tensors that are no adapters' between a vector of `spec` and one of its model without.
template <typename Copy>
void ForPlainTensors(const ModelSpec& spec, const ParameterLayout& plain, const Copy& copy) {
  const std::vector<bool> adapters = AdapterEntries(spec);
  const std::vector<LayoutEntry>& entries = spec.layout->entries();
  for (size_t i = 0, next = 0; i < entries.size(); ++i) {
    if (!adapters[i]) copy(entries[i], plain.entries()[next++]);
  }
}

}  // namespace

absl::StatusOr<AdapterRule> ParseAdapter(absl::string_view text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() < 3 || words[0] != "lora") return WrongRule(text, "words are missing");
  AdapterRule rule;
  int64_t& rank = rule.adapter.rank;
  if (!absl::SimpleAtoi(words[1], &rank) || rank < 1 || rank > kMaxExtent) {
    return WrongRule(
        text, absl::StrCat("the rank is a whole number of at least 1, got \"", words[1], "\""));
  }
  double alpha = static_cast<double>(rank);
  size_t next = 2;
  for (; next + 2 < words.size(); next += 2) {
    const std::string &key = words[next], &value = words[next + 1];
    if (key == "alpha") {
      if (!absl::SimpleAtod(value, &alpha) || !std::isfinite(alpha) || alpha <= 0)
        return WrongRule(text, absl::StrCat("alpha is a number above 0, got \"", value, "\""));
    } else if (key == "start") {
      MACAW_ASSIGN_OR_RETURN(rule.adapter.start, ParseStart(text, value));
    } else {
      return WrongRule(text, absl::StrCat("it does not take \"", key, "\""));
    }
  }
  if (next + 1 != words.size() || words[next] == "alpha" || words[next] == "start")
    return WrongRule(text, "it ends with one pattern on names of weights");
  rule.adapter.scale = alpha / static_cast<double>(rank);
  rule.glob = words[next];
  return rule;
}

absl::Status AddAdapters(const std::vector<std::string>& rules, std::vector<Layer>& layers) {
  const std::vector<LinearMap> maps = MapsOf(layers);
  for (const std::string& text : rules) {
    MACAW_ASSIGN_OR_RETURN(const AdapterRule rule, ParseAdapter(text));
    bool used = false;
    for (const LinearMap& map : maps) {
      if (map.adapter->rank != 0 || !MatchesGlob(rule.glob, map.weight)) continue;
      if (rule.adapter.rank > std::min(map.in, map.out)) {
        return WrongRule(text, absl::StrCat("the rank is larger than a side of ", map.weight, " [",
                                            map.out, ", ", map.in, "]"));
      }
      *map.adapter = rule.adapter;
      used = true;
    }
    if (!used) {
      return WrongRule(text,
                       absl::StrCat("the pattern names no weight that is left of ", NamesOf(maps),
                                    " (adapters are for linear layers, also "
                                    "those of attention and transformer)"));
    }
  }
  if (!rules.empty()) {
    for (Layer& layer : layers) CountTensors(layer);
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelSpec> WithoutAdapters(const ModelSpec& spec) {
  ModelSpec plain = spec;
  for (const LinearMap& map : MapsOf(plain.layers)) *map.adapter = Adapter();
  for (Layer& layer : plain.layers) CountTensors(layer);
  plain.frozen.clear();
  MACAW_RETURN_IF_ERROR(LayOut(spec.layout->dtype(), plain));
  return plain;
}

absl::Status CheckScales(const ModelSpec& spec, const std::vector<std::string>& rules) {
  std::vector<Layer> own = spec.layers, other = spec.layers;
  for (const LinearMap& map : MapsOf(other)) *map.adapter = Adapter();
  MACAW_RETURN_IF_ERROR(AddAdapters(rules, other));
  const std::vector<LinearMap> ours = MapsOf(own), theirs = MapsOf(other);
  for (size_t i = 0; i < ours.size(); ++i) {
    const Adapter &our = *ours[i].adapter, &their = *theirs[i].adapter;
    if (our.rank == 0 || their.rank == 0 || our.scale == their.scale) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the adapter of ", ours[i].weight, " counts by α/r = ", their.scale,
                     " in the file and by ", our.scale,
                     " in model.adapters, so the model would compute "
                     "something else: write \"lora ",
                     our.rank, " alpha ", their.scale * static_cast<double>(our.rank), " …\""));
  }
  return absl::OkStatus();
}

FlatVector WithInitialAdapters(const ModelSpec& spec, const FlatVector& plain, uint64_t seed) {
  FlatVector model = InitialModel(spec, seed);
  DispatchDType(spec.layout->dtype(), [&]<typename T>(T) {
    ForPlainTensors(spec, *plain.layout(), [&](const LayoutEntry& to, const LayoutEntry& from) {
      std::ranges::copy(plain.As<T>().subspan(from.offset, from.size),
                        NumbersOf<T>(model, to).begin());
    });
  });
  return model;
}

absl::Status StartAdapters(const ModelSpec& spec, FlatVector& model) {
  for (const AdaptedWeight& adapted : spec.adapters) {
    if (adapted.adapter.start != AdapterStart::kPissa) continue;
    MACAW_RETURN_IF_ERROR(DispatchDType(
        spec.layout->dtype(), [&]<typename T>(T) { return StartPissa<T>(spec, adapted, model); }));
  }
  return absl::OkStatus();
}

absl::StatusOr<MergedModel> MergeAdapters(const ModelSpec& spec, const FlatVector& model) {
  MACAW_ASSIGN_OR_RETURN(ModelSpec plain, WithoutAdapters(spec));
  FlatVector sum = model.Clone();
  FlatVector merged(plain.layout);
  const std::vector<LayoutEntry>& entries = spec.layout->entries();
  DispatchDType(spec.layout->dtype(), [&]<typename T>(T) {
    for (const AdaptedWeight& adapted : spec.adapters) {
      AddProduct<T>(adapted.adapter.scale, NumbersOf<T>(sum, entries[adapted.a]),
                    NumbersOf<T>(sum, entries[adapted.b]),
                    static_cast<size_t>(adapted.adapter.rank),
                    NumbersOf<T>(sum, entries[adapted.weight]));
    }
    ForPlainTensors(spec, *plain.layout, [&](const LayoutEntry& from, const LayoutEntry& to) {
      std::ranges::copy(NumbersOf<T>(sum, from), NumbersOf<T>(merged, to).begin());
    });
  });
  return MergedModel{.spec = std::move(plain), .model = std::move(merged)};
}

}  // namespace macaw::models
